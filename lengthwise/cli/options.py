"""Arguments and options that several commands have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import completion


class Checkpoint(StrEnum):
    last = "last"
    best = "best"


class Dtype(StrEnum):
    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


Folders = Annotated[
    list[Path],
    typer.Argument(
        help="A study's folder, e.g. runs/quickstart; several are laid side by side.", autocompletion=completion.runs
    ),
]


Runs = Annotated[Path, typer.Argument(help="A study's folder, e.g. runs/quickstart.", autocompletion=completion.runs)]


Part = Annotated[
    str,
    typer.Option(
        "--only",
        help="A part of it, e.g. task=addition,encoding=none or layers=4.",
        autocompletion=completion.parts,
    ),
]


Baseline = Annotated[
    str,
    typer.Option(
        metavar="ENCODING",
        help="What others are measured against; by default none, or the first.",
        autocompletion=completion.encodings,
    ),
]


AtCheckpoint = Annotated[Checkpoint, typer.Option(help="The last checkpoint, or the one that is best in validation.")]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


Settings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, e.g. training.steps=2000.")
]
