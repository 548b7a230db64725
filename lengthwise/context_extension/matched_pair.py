"""From a corpus to the table: a matched pair is trained, then extended in every way of the published table.

OUT/
  tokens/         the corpus as tokens, for both; not there where the corpus is a prepared one
  none, rotary/   the two trained models, as `lengthwise language train` leaves them
  table/          see `table`

Every part resumes where it was stopped; what is done is not done again. What cannot be done is refused before training.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lengthwise import configuration
from lengthwise.context_extension.loaded_model import open_model
from lengthwise.context_extension.table import ExtensionTable, TableSettings, refuse_other_encoding, what_is_scored
from lengthwise.errors import UserError, nearest
from lengthwise.language.model import build_language_model
from lengthwise.language.prepared import tokens_of
from lengthwise.language.settings import LanguageSettings, settings_from
from lengthwise.language.training import train_language_model
from lengthwise.runtime import Listener, choose_device

SHIPPED = Path(__file__).parent
PAIR = ("none", "rotary")
"""Models that differ in their encoding alone; folders and settings have these names."""


@dataclass(frozen=True)
class ExtensionStudy:
    summary: str
    twins: Any = field(default_factory=dict)
    """The encoding of each model of the pair."""
    seed: int = 0
    model: Any = field(default_factory=dict)
    data: Any = field(default_factory=dict)
    training: Any = field(default_factory=dict)
    """As in `lengthwise language train`."""
    table: TableSettings = field(default_factory=TableSettings)

    def __post_init__(self) -> None:
        for name in ("twins", "model", "data", "training"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"{name} must be a table, not {getattr(self, name)!r}")
        if set(self.twins) != set(PAIR):
            raise ValueError(f"twins must name the encodings of both {' and '.join(PAIR)}, not {list(self.twins)}")

    def settings(self, name: str) -> LanguageSettings:
        parts = {"seed": self.seed, "model": self.model, "data": self.data, "training": self.training}
        return settings_from({"encoding": self.twins[name], **parts})


def load_extension_study(name: str, assignments: Iterable[str] = ()) -> ExtensionStudy:
    """A shipped one by its name, or any by its file; `assignments` as in `--set training.tokens=1000000`."""
    shipped = {path.stem: path for path in SHIPPED.glob("*.toml")}
    if name not in shipped and Path(name).suffix != ".toml":
        raise UserError(f"unknown study {name!r}; {nearest(name, shipped)} (a file must end in .toml)")
    table = configuration.load(shipped.get(name, Path(name)))
    study = configuration.read(ExtensionStudy, configuration.override(table, list(assignments)), "")
    for each in PAIR:
        study.settings(each)  # a wrong setting is an error now, not after the first model is trained
    return study


def run_extension_study(
    study: ExtensionStudy, corpus: Path, out: Path, device: str, save_every: float, listener: Listener
) -> None:
    place = choose_device(device)
    refuse_impossible(study, corpus, out, listener)
    for each in PAIR:
        listener.note(f"Training the model with the encoding {each}")
        train_language_model(corpus, study.settings(each), out / each, device, listener, save_every, out / "tokens")
    nope, rope = (open_model(out / each, place) for each in PAIR)
    ExtensionTable(nope, rope, study.table, out / "table", listener).run()


def refuse_impossible(study: ExtensionStudy, corpus: Path, out: Path, listener: Listener) -> None:
    """Refuses models or documents of which no table can be made: now, not after hours of training."""
    data = study.settings(PAIR[0]).data
    for each in PAIR:
        with torch.device("meta"):  # it needs no parameters
            refuse_other_encoding(each, build_language_model(study.settings(each), data.vocabulary), each)
    store = tokens_of(corpus, data, out / "tokens", listener.note)
    what_is_scored(study.table, store, data.context)
