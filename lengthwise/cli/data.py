"""The commands `list`, `sample` and `dataset`: what there is, and examples of tasks."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lengthwise import registry
from lengthwise.cli import completion
from lengthwise.cli.names import require_task
from lengthwise.cli.next_steps import after_dataset
from lengthwise.cli.options import AsJson, Settings
from lengthwise.cli.paths import named_path
from lengthwise.cli.printing import console, messages, plain, print_tables, say
from lengthwise.errors import UserError
from lengthwise.listing import component_rows, encoding_rows, study_rows, task_rows
from lengthwise.report.model.table import Cell, Column, Table, TableRow, Words, text_cell


class Listed(StrEnum):
    tasks = "tasks"
    encodings = "encodings"
    placements = "placements"
    mixers = "mixers"
    extensions = "extensions"
    studies = "studies"


def list_command(what: Annotated[Listed, typer.Argument(help="What to list.")], as_json: AsJson = False) -> None:
    """List the tasks, encodings, placements, mixers, extensions or studies there are."""
    rows = {
        "tasks": task_rows,
        "encodings": encoding_rows,
        "placements": lambda: component_rows(registry.placements),
        "mixers": lambda: component_rows(registry.mixers),
        "extensions": lambda: component_rows(registry.extensions),
        "studies": study_rows,
    }[what.value]()
    print_tables([_listed(rows)], rows, as_json)


def _listed(rows: list[dict[str, Any]]) -> Table:
    shown = [key for key in ("name", "train", "test", "runs") if rows and key in rows[0]]
    columns = [
        *(Column(key, "right" if key == "runs" else "left") for key in shown),
        Column("summary", "left", wide=True),
    ]
    lines = [
        TableRow((*(text_cell(str(row[key])) for key in shown), Cell((Words(row["summary"]), *_remarks(row)))))
        for row in rows
    ]
    steps = "(steps): with `--scratchpad full`, `minimal` or parts such as `input+output`"
    notes = (steps,) if any(row.get("steps") for row in rows) else ()
    return Table("", "", tuple(columns), tuple(lines), notes, names=len(shown))


def _remarks(row: dict[str, Any]) -> list[Words]:
    """What stands behind the summary of a listed thing."""
    settings = ", ".join(f"{name}={value}" for name, value in row.get("settings", {}).items())
    command = f"run by `lengthwise {row['command']}`" if row.get("command", "run") != "run" else ""
    found = (settings, "steps" if row.get("steps") else "", command)
    return [Words(f" ({each})", "quiet") for each in found if each]


def sample(
    task: Annotated[str, typer.Argument(help="A task, e.g. copy.words.", autocompletion=completion.tasks)],
    length: Annotated[int, typer.Option(min=1, max=100_000, help="What the task calls length.")] = 5,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
    scratchpad: Annotated[str, typer.Option(help="A scratchpad format: full, minimal, input+output ...")] = "none",
    tokens: Annotated[
        str, typer.Option(help="Show tokens: symbols, published (T5's pieces) or the file of a tokenizer.")
    ] = "",
    settings: Settings = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Print examples of a task, as text or as the tokens that a model reads."""
    from lengthwise import configuration
    from lengthwise.data.estimate import refuse_too_many
    from lengthwise.data.scratchpad import Scratchpad
    from lengthwise.data.sequences import pieces_of
    from lengthwise.tasks.choosing import make_task
    from lengthwise.training.recipe import DataConfig

    task = require_task(task)
    chosen = make_task(configuration.override({"name": task}, settings))
    data = configuration.read(DataConfig, {"tokens": tokens, "scratchpad": scratchpad} if tokens else {}, "data")
    refuse_too_many(chosen, length, count)
    drawn = chosen.formatted(chosen.drawn(length, count, seed), Scratchpad(scratchpad))
    rows: list[dict[str, Any]] = [
        {"task": task, "length": length, "prompt": prompt, "target": target}
        for prompt, target in (chosen.text(drawn, i) for i in range(count))
    ]
    pieces = pieces_of(drawn, data.make_tokens(chosen)) if tokens else []
    for row, (before, after) in zip(rows, pieces, strict=bool(tokens)):
        row |= {"pieces": [*before, *after], "tokens": len(before) + len(after)}
    if as_json:
        console.print_json(json.dumps(rows))
        return
    for i, row in enumerate(rows):
        prompt, target = (" ".join(each) for each in pieces[i]) if tokens else (row["prompt"], row["target"])
        told = f" [dim]({row['tokens']} tokens)[/dim]" if tokens else ""
        shown = f"[bold]{plain(prompt)}[/bold] [dim]->[/dim] {plain(target)}{told}"
        console.print(shown, highlight=False, soft_wrap=True)


def dataset(
    task: Annotated[str, typer.Argument(help="A task, e.g. addition.", autocompletion=completion.tasks)],
    out: Annotated[
        Path,
        typer.Option(
            parser=named_path,
            metavar="PATH",
            help="Folder for train, validation and test as JSON lines, and a manifest.",
        ),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
    scratchpad: Annotated[str, typer.Option(help="A scratchpad format: full, minimal, input+output ...")] = "none",
    count: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, help="Of training; validation has 15 and test 10 for each 100 of them."),
    ] = None,
    lengths: Annotated[str, typer.Option(help="Of training and validation, e.g. 2-10; by default the published.")] = "",
    test_lengths: Annotated[str, typer.Option(help="Of the test, e.g. 11-20,40; by default the published.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every example there is, each once.")] = False,
    imported: Annotated[
        Path | None,
        typer.Option("--import", help="pcfg: a folder of original .src and .tgt files."),
    ] = None,
    settings: Settings = [],  # noqa: B006
) -> None:
    """Write a task's examples to files: train, validation and test, by default in the published counts."""
    from lengthwise import configuration
    from lengthwise.data.dataset import counts_for, import_pcfg, write_all, write_dataset
    from lengthwise.data.lengths import read_lengths
    from lengthwise.data.scratchpad import Scratchpad
    from lengthwise.tasks.choosing import make_task

    task = require_task(task)
    chosen_lengths = read_lengths(lengths), read_lengths(test_lengths, "--test-lengths")
    if (everything or imported is not None) and (count or any(chosen_lengths)):
        raise UserError("--count and lengths choose what is drawn; leave them out beside --all and --import")
    length: int | None = None
    if imported is not None:
        if task != "pcfg":
            raise UserError("--import reads the files of PCFG SET: lengthwise dataset pcfg --import DIR --out DIR")
        written = import_pcfg(imported, out)
    else:
        chosen = make_task(configuration.override({"name": task}, settings) if settings else task)
        chosen_format = Scratchpad(scratchpad)
        length = chosen_lengths[0][0] if chosen_lengths[0] else chosen.train_lengths.first
        written = (
            write_all(chosen, out, chosen_format)
            if everything
            else write_dataset(chosen, out, seed, chosen_format, counts_for(count) if count else None, *chosen_lengths)
        )
    counts = ", ".join(f"{name} {count:,}" for name, count in written.items())
    say(f"Wrote {out}: {counts}")
    after_dataset(messages, out, length)
