"""What is read of the files of a language run, as anybody may have sent them. Imports no torch."""

import math
from pathlib import Path
from typing import Any

from lengthwise import door
from lengthwise.errors import RunError, UserError
from lengthwise.records.files import read_rows

_COUNTS = door.Object({"documents": door.COUNT, "tokens": door.COUNT})
_SPLITS = door.Object({"train": _COUNTS, "validation": _COUNTS, "test": _COUNTS}, others=False)
_MODEL = door.Object({"layers": door.COUNT, "width": door.COUNT, "heads": door.COUNT, "style": door.Text()})
DESCRIPTION = door.Object(
    {
        "settings": door.Object(
            {
                "model": _MODEL,
                "data": door.Object({"context": door.COUNT, "passkey_share": door.SHARE}),
                "training": door.Object({"batch_tokens": door.COUNT, "tokens": door.COUNT}),
            }
        ),
        "tokens": door.Text(most=64),
        "corpus": door.Object({"corpus": door.Text(), "splits": _SPLITS}),
        "encoding_of_each_layer": door.List(door.Text()),
        "parameters": door.COUNT,
        "steps": door.COUNT,
        "epochs": door.Number(least=0),
        "hardware": door.Object({"device": door.Text()}),
    },
    {"tokens_folder": door.Text(), "precision": door.Text()},
)
FINISHED = door.Object(
    {"steps": door.COUNT, "tokens": door.COUNT, "seconds": door.Number(least=0), "processes": door.COUNT}
)


def no_language_model(run: Path) -> str:
    """What is wrong with a folder that holds none."""
    said = f"no language model at {run}"
    if not run.exists():
        return f"{said}: there is no such folder, and nothing is downloaded"
    if (run / "study.json").exists() or any(run.glob("*/*/seed-*/run.json")):
        return f"{said}, but a study of tasks; `lengthwise language train` makes one"
    return f"{said}: it has neither the files of `lengthwise language train` nor a config.json"


def read_description(run: Path) -> dict[str, Any]:
    """Its `run.json`."""
    file = run / "run.json"
    description = door.read_json(file) if file.exists() else {}
    if description.get("kind") != "language model":
        raise UserError(no_language_model(run))
    return DESCRIPTION.checked(description, str(file))


def read_finished(run: Path) -> dict[str, Any] | None:
    """Its `finished.json`; None where it goes on."""
    file = run / "finished.json"
    return door.read_json(file, FINISHED) if file.exists() else None


def read_log(run: Path) -> list[dict[str, Any]]:
    """Its `training.jsonl`; losses that are not finite are how a training may end."""
    file = run / "training.jsonl"
    if not file.exists():
        return []
    door.refuse_unreadable(file, door.LARGE)
    try:
        rows = read_rows(file)
    except RecursionError:
        raise RunError(f"{file} is nested too deeply; restore it") from None
    for number, row in enumerate(rows, start=1):
        where = f"{file}:{number}"
        door.Object({"step": door.COUNT}).checked(row, where)
        loss = row.get("validation_loss", 0.0)
        if not isinstance(loss, float) or math.isinf(loss):
            door.Number().checked(loss, f"{where}: validation_loss")
    return rows
