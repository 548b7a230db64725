"""The `lengthwise language` commands: parses and calls; imports nothing heavy before a command runs."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli import completion
from lengthwise.cli.app import App
from lengthwise.cli.next_steps import after_training, say_next
from lengthwise.cli.printing import console, messages, print_tables, say, warn
from lengthwise.door import visible
from lengthwise.report.model.table import Column, Table, TableRow, text_cell

if TYPE_CHECKING:
    from lengthwise.runtime import Listener

language_app = App(help="Train language models on a corpus of documents.")

FACTS = 18
"""Letters before what is said of a run."""
Size = Annotated[int | None, typer.Option(min=1, help="Instead of the size's own.")]


@language_app.command("prepare")
def prepare_command(
    corpus: Annotated[Path, typer.Argument(help="A folder of .txt files, .jsonl files or a saved dataset.")],
    out: Annotated[Path, typer.Option(help="Folder for tokenizer and tokens: a corpus that needs no text any more.")],
    settings: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="As in `train`, e.g. data.vocabulary=32000.")
    ] = [],  # noqa: B006
) -> None:
    """Make tokenizer and tokens of a corpus, to be trained on here or on another machine."""
    from lengthwise import configuration
    from lengthwise.language.corpus import Corpus
    from lengthwise.language.settings import settings_from
    from lengthwise.language.store import prepare_at

    data = settings_from(configuration.override({}, settings)).data
    store = prepare_at(Corpus(corpus, data.field), data, out, lambda text: messages.print(text, markup=False))
    store.check()
    for split, counts in store.manifest["splits"].items():
        console.print(f"{split}: {counts['documents']:,} documents, {counts['tokens']:,} tokens", highlight=False)
    size = sum(file.stat().st_size for file in out.iterdir())
    say(f"Prepared {out} ({size / 1e6:.1f} MB)")
    say_next(messages, ["lengthwise", "language", "train", out, "--out", "models/none"])


@language_app.command("train")
def train_command(
    corpus: Annotated[Path, typer.Argument(help="A folder of .txt files, .jsonl files, a saved dataset or prepared.")],
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    encoding: Annotated[
        list[str],
        typer.Option(
            help="By default none; repeated: a schedule that is cycled over the layers.",
            autocompletion=completion.encodings,
        ),
    ] = [],  # noqa: B006
    size: Annotated[str, typer.Option(help="lm-small (17 million parameters), tiny, small, base or 1b.")] = "lm-small",
    layers: Size = None,
    width: Size = None,
    heads: Size = None,
    groups: Annotated[int | None, typer.Option(min=1, help="Key-value heads.")] = None,
    context: Annotated[int, typer.Option(min=2, help="Tokens of a row.")] = 512,
    tokens: Annotated[str, typer.Option(help="The budget, e.g. 200M.")] = "200M",
    batch_tokens: Annotated[str, typer.Option(help="Tokens of a step, e.g. 32768.")] = "32768",
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", autocompletion=completion.devices)] = "auto",
    sharded: Annotated[bool, typer.Option("--sharded", help="Divide the model among the processes (FSDP2).")] = False,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between saved states.")] = 60.0,
    store: Annotated[Path | None, typer.Option(help="Folder for tokens; by default `tokens` beside the run.")] = None,
    begin_from: Annotated[
        Path | None, typer.Option(help="A finished run whose weights to begin with; the encoding may be another.")
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, e.g. training.learning_rate=0.002."),
    ] = [],  # noqa: B006
) -> None:
    """Train a language model; resumes an interrupted run by itself.

    On several GPUs: torchrun --nproc-per-node 8 --no-python lengthwise language train ...
    """
    from lengthwise import configuration
    from lengthwise.language.settings import read_count, settings_from

    shape = {"layers": layers, "width": width, "heads": heads, "key_value_heads": groups}
    table = {
        "encoding": encoding if len(encoding) > 1 else (encoding or ["none"])[0],
        "seed": seed,
        "model": {"size": size, **{name: value for name, value in shape.items() if value is not None}},
        "data": {"context": context},
        "training": {"tokens": read_count(tokens), "batch_tokens": read_count(batch_tokens), "sharded": sharded},
    }
    chosen = settings_from(configuration.override(table, settings))
    from lengthwise.language.training import train_language_model

    try:
        with _watching(chosen.training.batch_tokens) as listener:
            worked = train_language_model(corpus, chosen, out, device, listener, save_every, store, begin_from)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes from the last saved state.")
        raise typer.Exit(130) from None
    if _is_first():
        console.print(
            f"{'Finished' if worked else 'Nothing left to do'}: {out}", highlight=False, markup=False, soft_wrap=True
        )
        after_training(messages, out)


@language_app.command("info")
def info_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show what a run is: its model, its corpus, how far it is, its losses."""
    from lengthwise.language.description import read_description, read_finished, read_log

    description, rows, finished = read_description(run), read_log(run), read_finished(run)
    if as_json:
        console.print_json(json.dumps({"run": description, "training": rows, "finished": finished}))
        return
    for name, fact in _facts(description, rows, finished).items():
        say(f"{name:{FACTS}}{visible(fact, 2000)}")
    losses = [
        TableRow((text_cell(f"{row['step']:,}"), text_cell(f"{row['validation_loss']:.4f}")))
        for row in rows
        if "validation_loss" in row
    ]
    if losses:
        print_tables([Table("", "", (Column("step"), Column("validation loss")), tuple(losses))], rows, as_json=False)


def _facts(description: dict[str, Any], rows: list[dict[str, Any]], finished: dict[str, Any] | None) -> dict[str, str]:
    model, data = description["settings"]["model"], description["settings"]["data"]
    done = max((row["step"] for row in rows), default=0)
    splits = description["corpus"]["splits"]
    facts = {
        "encoding": ", ".join(description["encoding_of_each_layer"]),
        "model": f"{model['layers']} layers, width {model['width']}, {model['heads']} heads, style {model['style']}, "
        f"{description['parameters']:,} parameters",
        "corpus": description["corpus"]["corpus"],
        **{split: f"{n['documents']:,} documents, {n['tokens']:,} tokens" for split, n in splits.items()},
        "context": f"{data['context']} tokens",
        "passkey rows": f"{data['passkey_share']:.1%}",
        "budget": f"{description['settings']['training']['tokens']:,} tokens, {description['epochs']:.2f} epochs",
        "steps": f"{done:,} of {description['steps']:,}" + (" (finished)" if finished else ""),
    }
    if finished:
        speed = finished["tokens"] / max(finished["seconds"], 1e-9)
        facts["speed"] = f"{speed:,.0f} tokens/s on {description['hardware']['device']} x {finished['processes']}"
    return facts


def _is_first() -> bool:
    """Whether this is the first of the processes that torchrun has started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _watching(batch_tokens: int) -> "Iterator[Listener]":
    """A progress bar with tokens a second; plain lines where nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    from lengthwise.runtime import Listener

    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
    hidden = not (messages.is_terminal and _is_first())
    with Bars(*columns, console=messages, transient=True, disable=hidden) as bars:
        bar = bars.add_task("", total=None, speed="")
        began: list[tuple[float, int]] = []

        def step(done: int, steps: int) -> None:
            began[:] = began or [(time.monotonic(), done)]
            elapsed = time.monotonic() - began[0][0]
            speed = f"{(done - began[0][1]) * batch_tokens / elapsed:,.0f} tokens/s" if elapsed > 0.5 else ""
            bars.update(bar, completed=done, total=steps, speed=speed)

        yield Listener(step=step, note=warn)
