"""Arguments and options of the `lengthwise extend` commands, and the bar that they show."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lengthwise.cli import completion
from lengthwise.cli.options import Dtype
from lengthwise.cli.printing import messages

if TYPE_CHECKING:
    from lengthwise.runtime import Listener


class Positions(StrEnum):
    auto = "auto"
    rotary = "rotary"
    none = "none"


class DocumentSplit(StrEnum):
    train = "train"
    validation = "validation"
    test = "test"


class FitMethod(StrEnum):
    gradient = "gradient"
    entropy = "entropy"


class EntropyTarget(StrEnum):
    growth = "growth"
    same = "same"


class ScalesOf(StrEnum):
    head = "head"
    layer = "layer"


class FitSplit(StrEnum):
    train = "train"
    validation = "validation"


class ExtensionReportFormat(StrEnum):
    html = "html"
    csv = "csv"
    svg = "svg"
    png = "png"


Model = Annotated[Path, typer.Argument(help="A run of `language train`, or the folder of a Hugging Face model.")]
Extensions = Annotated[
    list[str],
    typer.Option(
        "--extension",
        help="E.g. yarn:factor=4; factor=auto follows the context. Repeated: one on another.",
        autocompletion=completion.extensions,
    ),
]
Fit = Annotated[Path | None, typer.Option(help="A folder that `extend fit` has written.")]
Contexts = Annotated[str, typer.Option("--context", help="E.g. 512,1024,2k; by default 1, 2, 4, 8 times the trained.")]
Corpus = Annotated[Path | None, typer.Option(help="Documents to read; by default what the run was trained on.")]
Split = Annotated[DocumentSplit, typer.Option(help="Which documents.")]
Windows = Annotated[int, typer.Option(min=1, help="Runs of scored tokens, spread over the documents.")]
Scored = Annotated[
    int,
    typer.Option(min=0, help="Tokens of a run, at the end of a window; 0: 256, or the shortest context if shorter."),
]
Store = Annotated[Path | None, typer.Option(help="Folder of tokens; by default `tokens` beside the run.")]
AtPositions = Annotated[Positions, typer.Option(help="Of a Hugging Face model: none where its rotation was removed.")]
Trained = Annotated[int, typer.Option(min=0, help="Training length of a Hugging Face model; 0: as its config says.")]
Weights = Annotated[
    Dtype, typer.Option("--dtype", help="Of a Hugging Face model's weights; auto: fp32 on a CPU, as saved on a GPU.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", autocompletion=completion.devices)]
Out = Annotated[Path | None, typer.Option(help="A .jsonl file to which the rows are added.")]


@contextmanager
def watching() -> "Iterator[Listener]":
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
