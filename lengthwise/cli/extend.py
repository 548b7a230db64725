"""The `lengthwise extend` commands: parses and calls; imports nothing heavy before a command runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lengthwise.errors import UserError

if TYPE_CHECKING:
    from lengthwise.context_extension.extending import Extending
    from lengthwise.report.model.table import Table
    from lengthwise.runtime import Listener

extend_app = typer.Typer(
    help="Context extension (RoPE scaling, attention scaling) of trained language models: apply, fit, measure.",
    no_args_is_help=True,
)
console = Console()
messages = Console(stderr=True)


class Positions(StrEnum):
    auto = "auto"
    rotary = "rotary"
    none = "none"


class Documents(StrEnum):
    train = "train"
    validation = "validation"
    test = "test"


class FitMethod(StrEnum):
    gradient = "gradient"
    entropy = "entropy"


class EntropyTarget(StrEnum):
    growth = "growth"
    same = "same"


class ExtensionReportFormat(StrEnum):
    html = "html"
    csv = "csv"
    svg = "svg"
    png = "png"


Model = Annotated[Path, typer.Argument(help="A run of `language train`, or a Llama-shaped Hugging Face folder.")]
Extensions = Annotated[
    list[str],
    typer.Option("--extension", help="E.g. yarn:factor=4; factor=auto follows the context. Repeated: one on another."),
]
Fit = Annotated[Path | None, typer.Option(help="A folder that `extend fit` has written.")]
Contexts = Annotated[str, typer.Option("--context", help="E.g. 512,1024,2k; by default 1, 2, 4, 8 times the trained.")]
Corpus = Annotated[Path | None, typer.Option(help="Documents to read; by default what the run was trained on.")]
Split = Annotated[Documents, typer.Option(help="Which documents.")]
Windows = Annotated[int, typer.Option(min=1, help="Runs of scored tokens, spread over the documents.")]
Scored = Annotated[int, typer.Option(min=1, help="Tokens of a run, at the end of a window.")]
Store = Annotated[Path | None, typer.Option(help="Folder of tokens; by default `tokens` beside the run.")]
AtPositions = Annotated[Positions, typer.Option(help="Of a Hugging Face model: none where its rotation was removed.")]
Trained = Annotated[int, typer.Option(min=0, help="Training length of a Hugging Face model; 0: as its config says.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Out = Annotated[Path | None, typer.Option(help="A .jsonl file to which the rows are added.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the rows as JSON for programs.")]


@extend_app.command("perplexity")
def perplexity_command(
    model: Model,
    extension: Extensions = [],  # noqa: B006
    fit: Fit = None,
    context: Contexts = "",
    by_position: Annotated[bool, typer.Option("--by-position", help="Also loss by position.")] = False,
    corpus: Corpus = None,
    split: Split = Documents.test,
    windows: Windows = 256,
    scored: Scored = 256,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Perplexity at several contexts, of the same target tokens at each."""
    with _extending(
        model=model, extensions=extension, fit=fit, contexts=context, corpus=corpus, split=split, windows=windows,
        scored=scored, store=store, positions=positions.value, trained=trained, device=device, out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.perplexity(by_position), out, as_json)


@extend_app.command("passkey")
def passkey_command(
    model: Model,
    extension: Extensions = [],  # noqa: B006
    fit: Fit = None,
    length: Annotated[str, typer.Option(help="E.g. 512,1024; by default 1, 2, 4, 8 times the trained.")] = "",
    depths: Annotated[int, typer.Option(min=1, help="Depths from 0 to 100 %.")] = 10,
    trials: Annotated[int, typer.Option(min=1, help="Keys at each length and depth.")] = 10,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Passkey accuracy: a key of five digits is hidden in filler; a heat map of lengths and depths."""
    with _extending(
        model=model, extensions=extension, fit=fit, contexts=length, store=store, positions=positions.value,
        trained=trained, device=device, out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.passkey(depths, trials, seed), out, as_json)


@extend_app.command("entropy")
def entropy_command(
    model: Model,
    extension: Extensions = [],  # noqa: B006
    fit: Fit = None,
    context: Annotated[str, typer.Option(help="Tokens of the rows; by default 4 times the trained.")] = "",
    samples: Annotated[int, typer.Option(min=1, help="Rows.")] = 8,
    at: Annotated[int, typer.Option(min=1, help="Positions at which it is taken, evenly.")] = 128,
    corpus: Corpus = None,
    split: Split = Documents.test,
    scored: Scored = 256,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Entropy of attention by head and position, as trained and extended; with a fit, its correlation with scales."""
    with _extending(
        model=model, extensions=extension, fit=fit, contexts=context, times=[4], corpus=corpus, split=split,
        scored=scored, store=store, positions=positions.value, trained=trained, device=device, out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.entropy(samples, at), out, as_json)


@extend_app.command("uniform")
def uniform_command(
    model: Model,
    context: Contexts = "",
    corpus: Corpus = None,
    split: Split = Documents.validation,
    windows: Windows = 64,
    scored: Scored = 256,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Search the best uniform attention scale at each context, and fit how it grows with position."""
    with _extending(
        model=model, contexts=context, corpus=corpus, split=split, windows=windows, scored=scored, store=store,
        positions=positions.value, trained=trained, device=device, out=out,
    ) as extending:  # fmt: skip
        _show(extending, extending.uniform(), out, as_json)


@extend_app.command("fit")
def fit_command(
    model: Model,
    what: Annotated[
        str, typer.Argument(help="head-scale, or an extension under which all parameters are trained: yarn:factor=4.")
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
    seed: Annotated[int, typer.Option(min=0)] = 0,
    corpus: Corpus = None,
    scored: Scored = 256,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    device: Device = "auto",
) -> None:
    """Learn one scale for each head, or fine-tune all parameters, at a target length."""
    usual = 0.1 if what == "head-scale" else 1e-4
    rate = usual if learning_rate is None else learning_rate
    by_entropy = method is FitMethod.entropy
    if by_entropy and (learning_rate is not None or initial is not None):
        raise UserError("--learning-rate and --initial are for training; scales by entropy have neither")
    recipe = {
        "floor": floor, "learning_rate": rate, "steps": steps or (20 if by_entropy else 200), "batch": batch,
        "seed": seed, "method": method.value, "target": target.value,
    }  # fmt: skip
    with _extending(
        model=model, contexts=str(length), corpus=corpus, scored=scored, store=store, positions=positions.value,
        trained=trained, device=device,
    ) as extending:  # fmt: skip
        console.print(extending.fit(what, length, out, initial, recipe), highlight=False, soft_wrap=True)


@extend_app.command("table")
def table_command(
    nope: Annotated[Path, typer.Argument(help="A run of `language train` without positions (none).")],
    rope: Annotated[Path, typer.Argument(help="Its matched pair: the same training with rotary positions.")],
    out: Annotated[Path, typer.Option(help="Folder for the table; the same command resumes it.")],
    times: Annotated[str, typer.Option(help="Contexts, as multiples of the trained length.")] = "1,2,4,8,16",
    fitted: Annotated[str, typer.Option(help="Lengths to fit at, likewise.")] = "2,4,8",
    windows: Windows = 256,
    search_windows: Annotated[int, typer.Option(min=1, help="The same for the search of scales.")] = 64,
    scored: Scored = 256,
    steps: Annotated[int, typer.Option(min=1)] = 200,
    batch: Annotated[int, typer.Option(min=1)] = 8,
    learning_rate: Annotated[float, typer.Option(help="Of head scales; published: 0.1 or 0.05.")] = 0.1,
    depths: Annotated[int, typer.Option(min=1)] = 10,
    trials: Annotated[int, typer.Option(min=0, help="Keys at each length and depth; 0 for no passkey test.")] = 10,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    entropy: Annotated[bool, typer.Option("--entropy", help="Also head scales by entropy, without training.")] = False,
    store: Store = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Make the published table from a matched pair of runs, line by line; resumes an interrupted table."""
    from lengthwise.context_extension.extending import make_table, read_lengths, show_table

    settings = {
        "times": tuple(read_lengths(times)), "fitted": tuple(read_lengths(fitted)), "windows": windows,
        "scored": scored, "search_windows": search_windows, "steps": steps, "batch": batch,
        "learning_rate": learning_rate, "depths": depths, "trials": trials, "seed": seed,
        "entropy": entropy,
    }  # fmt: skip
    try:
        with _watching() as listener:
            rows = make_table(nope, rope, out, settings, store, device, listener)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes with the lines that are left.")
        raise typer.Exit(130) from None
    if as_json:
        console.print_json(json.dumps(rows))
        return
    show_table(rows, out, console)
    console.print(f"Rows in {out}", highlight=False, soft_wrap=True)


@extend_app.command("study")
def study_command(
    study: Annotated[str, typer.Argument(help="headscale-small, or a .toml file.")],
    corpus: Annotated[Path, typer.Option(help="A folder of texts, or what `language prepare` made of it.")],
    out: Annotated[Path, typer.Option(help="Folder for both models and the table; the same command resumes them.")],
    settings: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, e.g. training.tokens=1000000.")
    ] = [],  # noqa: B006
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between saved states.")] = 20.0,
    device: Device = "auto",
) -> None:
    """Train a matched pair of language models (NoPE, rotary) on a corpus, then make the published table from it."""
    from lengthwise.context_extension.extending import finish_table, show_table
    from lengthwise.context_extension.matched_pair import load_extension_study, run_extension_study

    chosen = load_extension_study(study, settings)
    try:
        with _watching() as listener:
            run_extension_study(chosen, corpus, out, device, save_every, listener)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes.")
        raise typer.Exit(130) from None
    show_table(finish_table(out / "table"), out / "table", console)
    console.print(f"Rows in {out / 'table'}", highlight=False, soft_wrap=True)


@extend_app.command("report")
def report_command(
    tables: Annotated[Path, typer.Argument(help="A folder that `extend table` or `extend study` has written.")],
    out: Annotated[
        Path | None,
        typer.Option(help="A .html page (context-extension.html), perplexity by context as .svg or .png, or a folder."),
    ] = None,
    kind: Annotated[
        ExtensionReportFormat | None,
        typer.Option("--format", help="csv: a folder of tables; svg, png: a folder of figures."),
    ] = None,
) -> None:
    """Write a page about a table of extended models, beside the published one, or its tables and figures."""
    from lengthwise.report.context_extension_export import write_extension_report

    written = write_extension_report(tables, out, kind)
    console.print(f"Wrote {written}", highlight=False, soft_wrap=True)


@contextmanager
def _extending(
    contexts: str, times: "list[int] | None" = None, out: Path | None = None, **wanted: Any
) -> "Iterator[Extending]":
    """`times`: the default contexts, as multiples of the trained length. `out`: where rows will be written."""
    from lengthwise.context_extension.extending import Extending, Wanted, read_lengths, require_place

    require_place(out)
    with _watching() as listener:
        made = Extending(Wanted(contexts=read_lengths(contexts), **wanted), listener)
        if times and not contexts:
            made.contexts = [each * made.subject.trained for each in times]
        yield made


def _show(extending: "Extending", tables: "list[Table]", out: Path | None, as_json: bool) -> None:
    from lengthwise.context_extension.extending import keep
    from lengthwise.report.terminal.table import to_terminal

    keep(extending.rows, out)
    if as_json:
        console.print_json(json.dumps(extending.rows))
        return
    for table in tables:
        console.print(to_terminal(table))
        console.print()


@contextmanager
def _watching() -> "Iterator[Listener]":
    """A bar while something is fitted; notes as plain lines."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    from lengthwise.runtime import Listener

    columns = (BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bars:
        bar = bars.add_task("", total=None, visible=False)

        def step(done: int, steps: int) -> None:
            bars.update(bar, completed=done, total=steps, visible=done < steps)

        yield Listener(step=step, note=lambda text: messages.print(text, style="dim", markup=False))
