"""A fit on disk: what was learned and how, both there or neither.

FIT/
  learned.safetensors       the scales, or all weights; with a checksum
  fit.json                  written last: settings, model, losses, seconds
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lengthwise import configuration
from lengthwise.context_extension.fitting import FitSettings, Fitted, apply
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.reader import Reader
from lengthwise.errors import UserError
from lengthwise.leftovers import clear_leftovers
from lengthwise.records.directory import make_folder
from lengthwise.records.extension_schema import FIT
from lengthwise.records.files import read_json, write_json
from lengthwise.records.provenance import provenance
from lengthwise.runtime import device_name
from lengthwise.training.state import load_tensors, save_tensors

LEARNED, DESCRIPTION = "learned.safetensors", "fit.json"


@dataclass(frozen=True)
class SavedFit:
    settings: FitSettings
    learned: dict[str, Tensor]
    description: dict[str, Any]

    def extended(self, loaded: LoadedModel, context: int) -> Reader:
        return apply(loaded, self.settings, self.learned, context)


def save_fit(folder: Path, loaded: LoadedModel, fitted: Fitted, more: dict[str, Any] | None = None) -> None:
    """`more`: facts to be written with it."""
    facts = provenance(device_name(fitted.model.device))
    facts["finished"] = facts.pop("started")
    make_folder(folder)
    clear_leftovers(folder)
    (folder / DESCRIPTION).unlink(missing_ok=True)  # what is there is no longer what it describes
    save_tensors(folder / LEARNED, fitted.learned, {"kind": "fit"})
    write_json(
        folder / DESCRIPTION,
        {
            "kind": "fit",
            "settings": configuration.table(fitted.settings),
            "model": {"name": loaded.name, "checksum": loaded.checksum, "trained": loaded.trained, **loaded.facts},
            "trained_numbers": sum(value.numel() for value in fitted.learned.values()),
            "losses": fitted.losses,
            "seconds": round(fitted.seconds, 3),
            **(more or {}),
            **facts,
        },
    )


def holds_others(folder: Path) -> bool:
    """Whether there is more in a folder than what a fit leaves that was killed before its end."""
    clear_leftovers(folder)
    return any(each.name != LEARNED for each in folder.iterdir())


def is_fit(folder: Path) -> bool:
    return (folder / DESCRIPTION).exists()


def precision_of(folder: Path) -> str:
    """In which its model was read, as torch calls it; empty where it does not say."""
    if not is_fit(folder):
        raise UserError(f"no finished fit at {folder}; make one with `lengthwise extend fit`")
    return str(read_json(folder / DESCRIPTION, FIT)["model"].get("precision", ""))


def load_fit(folder: Path, loaded: LoadedModel) -> SavedFit:
    """Refuses a fit of another model."""
    if not is_fit(folder):
        raise UserError(f"no finished fit at {folder}; make one with `lengthwise extend fit`")
    description = read_json(folder / DESCRIPTION, FIT)
    if description["model"]["checksum"] != loaded.checksum:
        raise UserError(f"{folder} was fitted to {description['model']['name']} with other weights than {loaded.name}")
    tensors, _ = load_tensors(folder / LEARNED)
    settings = configuration.read(FitSettings, description["settings"], "settings")
    return SavedFit(settings, tensors, description)
