"""The `lengthwise extend` commands that measure and fit one model; they import nothing heavy before they run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise import registry
from lengthwise.cli import completion
from lengthwise.cli.app import App
from lengthwise.cli.extend_merge import merge_command
from lengthwise.cli.extend_options import (
    AtPositions,
    Contexts,
    Corpus,
    Device,
    DocumentSplit,
    EntropyTarget,
    Extensions,
    Fit,
    FitMethod,
    FitSplit,
    Model,
    Out,
    Positions,
    ScalesOf,
    Scored,
    Split,
    Store,
    Trained,
    Weights,
    Windows,
    watching,
)
from lengthwise.cli.extend_studies import compare_command, report_command, study_command
from lengthwise.cli.names import require_extensions
from lengthwise.cli.next_steps import say_next
from lengthwise.cli.options import AsJson, Dtype
from lengthwise.cli.printing import messages, print_tables, say
from lengthwise.errors import UserError

if TYPE_CHECKING:
    from lengthwise.context_extension.extending import Extending
    from lengthwise.report.model.table import Table


def perplexity_command(
    model: Model,
    extension: Extensions = [],  # noqa: B006
    fit: Fit = None,
    context: Contexts = "",
    by_position: Annotated[bool, typer.Option("--by-position", help="Also loss by position.")] = False,
    corpus: Corpus = None,
    split: Split = DocumentSplit.test,
    windows: Windows = 256,
    scored: Scored = 0,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    dtype: Weights = Dtype.auto,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Perplexity at several contexts, of the same target tokens at each."""
    with _extending(
        model=model, extensions=extension, fit=fit, contexts=context, corpus=corpus, split=split, windows=windows,
        scored=scored, store=store, positions=positions.value, trained=trained, dtype=dtype.value, device=device,
        out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.perplexity(by_position), out, as_json)


def passkey_command(
    model: Model,
    extension: Extensions = [],  # noqa: B006
    fit: Fit = None,
    length: Annotated[str, typer.Option(help="E.g. 512,1024; by default 1, 2, 4, 8 times the trained.")] = "",
    depths: Annotated[int, typer.Option(min=1, help="Depths from 0 to 100 %.")] = 10,
    trials: Annotated[int, typer.Option(min=1, help="Keys at each length and depth.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    dtype: Weights = Dtype.auto,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Passkey accuracy: a key of five digits is hidden in filler; a heat map of lengths and depths."""
    with _extending(
        model=model, extensions=extension, fit=fit, contexts=length, store=store, positions=positions.value,
        trained=trained, dtype=dtype.value, device=device,
        out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.passkey(depths, trials, seed), out, as_json)


def entropy_command(
    model: Model,
    extension: Extensions = [],  # noqa: B006
    fit: Fit = None,
    context: Annotated[str, typer.Option(help="Tokens of the rows; by default 4 times the trained.")] = "",
    samples: Annotated[int, typer.Option(min=1, help="Rows.")] = 8,
    at: Annotated[int, typer.Option(min=1, help="Positions at which it is taken, evenly.")] = 128,
    corpus: Corpus = None,
    split: Split = DocumentSplit.test,
    scored: Scored = 0,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    dtype: Weights = Dtype.auto,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Entropy of attention by head and position, as trained and extended; with a fit, its correlation with scales."""
    with _extending(
        model=model, extensions=extension, fit=fit, contexts=context, times=[4], corpus=corpus, split=split,
        scored=scored, store=store, positions=positions.value, trained=trained, dtype=dtype.value, device=device,
        out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.entropy(samples, at), out, as_json)


def uniform_command(
    model: Model,
    context: Contexts = "",
    corpus: Corpus = None,
    split: Split = DocumentSplit.validation,
    windows: Windows = 64,
    scored: Scored = 0,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    dtype: Weights = Dtype.auto,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Search the best uniform attention scale at each context, and fit how it grows with position."""
    with _extending(
        model=model, contexts=context, corpus=corpus, split=split, windows=windows, scored=scored, store=store,
        positions=positions.value, trained=trained, dtype=dtype.value, device=device,
        out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.uniform(), out, as_json)


def fit_command(
    model: Model,
    what: Annotated[
        str,
        typer.Argument(
            help="head-scale, or an extension under which all parameters are trained: yarn:factor=4.",
            autocompletion=completion.extensions,
        ),
    ],
    length: Annotated[int, typer.Option(min=1, help="Tokens of the sequences: the target length.")],
    out: Annotated[Path, typer.Option(help="Folder for what is learned.")],
    initial: Annotated[
        float | None, typer.Option(help="First scale; by default the best uniform one, which is searched.")
    ] = None,
    method: Annotated[FitMethod, typer.Option(help="entropy: head scales without training.")] = FitMethod.gradient,
    target: Annotated[
        EntropyTarget,
        typer.Option(help="By entropy: what it grows to within the trained length, or the same as there."),
    ] = EntropyTarget.growth,
    floor: Annotated[float, typer.Option(min=0, help="No scale below it; 0 for no constraint.")] = 1.0,
    learning_rate: Annotated[
        float | None, typer.Option(help="By default 0.1 for scales, 1e-4 for all parameters.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="By default 200; by entropy 20 halvings.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences of a step; by entropy, of all.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
    scales: Annotated[ScalesOf, typer.Option(help="A scale for each head, or one for each layer.")] = ScalesOf.head,
    split: Annotated[FitSplit, typer.Option(help="Documents of training, or fresh ones.")] = FitSplit.train,
    passkey_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the sequences: passkey documents, as in training.")
    ] = 0.0,
    last: Annotated[int, typer.Option(min=0, help="Only so many tokens at the end of a text count; 0: all.")] = 0,
    corpus: Corpus = None,
    scored: Scored = 0,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    dtype: Weights = Dtype.auto,
    device: Device = "auto",
) -> None:
    """Learn one scale for each head, or fine-tune all parameters, at a target length."""
    require_extensions([what])
    what = "head-scale" if registry.extensions.canonical(what) == "head-scale" else what
    usual = 0.1 if what == "head-scale" else 1e-4
    rate = usual if learning_rate is None else learning_rate
    by_entropy = method is FitMethod.entropy
    if by_entropy and (learning_rate is not None or initial is not None):
        raise UserError("--learning-rate and --initial are for training; scales by entropy have neither")
    recipe = {
        "floor": floor, "learning_rate": rate, "steps": steps or (20 if by_entropy else 200), "batch": batch,
        "seed": seed, "method": method.value, "target": target.value, "scales": scales.value, "split": split.value,
        "passkey_share": passkey_share, "scored": last,
    }  # fmt: skip
    with _extending(
        model=model, contexts=str(length), corpus=corpus, scored=scored, store=store, positions=positions.value,
        trained=trained, dtype=dtype.value, device=device,
    ) as extending:  # fmt: skip
        told = extending.fit(what, length, out, initial, recipe)
        say(told)
    say_next(messages, ["lengthwise", "extend", "perplexity", model, "--fit", out])


@contextmanager
def _extending(
    contexts: str, times: "list[int] | None" = None, out: Path | None = None, **wanted: Any
) -> "Iterator[Extending]":
    """`times`: the default contexts, as multiples of the trained length. `out`: where rows will be written."""
    require_extensions(wanted.get("extensions", ()))
    from lengthwise.context_extension.extending import Extending, ExtensionRequest, read_lengths, require_place

    require_place(out)
    with watching() as listener:
        made = Extending(ExtensionRequest(contexts=read_lengths(contexts), **wanted), listener)
        if times and not contexts:
            made.contexts = [each * made.loaded.trained for each in times]
        yield made


def _show(extending: "Extending", tables: "list[Table]", out: Path | None, as_json: bool) -> None:
    from lengthwise.context_extension.extending import keep

    keep(extending.rows, out)
    print_tables(tables, extending.rows, as_json)


extend_app = App(
    help="Context extension (RoPE scaling, attention scaling) of trained language models: apply, fit, measure."
)
# In the order in which the help lists them.
for name, command in {
    "compare": compare_command,
    "perplexity": perplexity_command,
    "passkey": passkey_command,
    "entropy": entropy_command,
    "uniform": uniform_command,
    "fit": fit_command,
    "merge": merge_command,
    "study": study_command,
    "report": report_command,
}.items():
    extend_app.command(name)(command)
