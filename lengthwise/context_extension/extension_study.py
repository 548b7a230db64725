"""An extension study: models, trained here or given, and lines that say how each is extended; read from a TOML file.

OUT/
  tokens/                   the corpus as tokens, for all models; not there where the corpus is a prepared one
  [POINT/]seed-N/NAME/      the trained models, as `lengthwise language train` leaves them
  [POINT/]seed-N/table/     see `table`

Every part resumes where it was stopped; what is done is not done again. What cannot be done is refused before training.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise import configuration, grid
from lengthwise.context_extension.hugging_face import Positions
from lengthwise.context_extension.lines import Line, read_lines
from lengthwise.context_extension.loaded_model import LoadedModel, open_model
from lengthwise.context_extension.passkey import KeyDocuments
from lengthwise.context_extension.reader import DecoderReader
from lengthwise.context_extension.table import (
    About,
    LineTable,
    MeasureSettings,
    reach,
    refuse_unextendable,
    what_is_scored,
)
from lengthwise.door import visible
from lengthwise.errors import UserError, nearest
from lengthwise.language.model import build_language_model
from lengthwise.language.prepared import tokens_of
from lengthwise.language.settings import LanguageSettings, settings_from
from lengthwise.language.store import Documents
from lengthwise.language.training import train_language_model
from lengthwise.records.names import path_part, refuse_unfit
from lengthwise.records.points import grid_words
from lengthwise.runtime import Listener, choose_device
from lengthwise.words import spelled

SHIPPED = Path(__file__).parent
SECTIONS = ("model", "models", "data", "training", "measure", "fit")
"""Whose settings a grid may vary."""
MOST_PARTS = 1000
"""Points of a grid times seeds."""


@dataclass(frozen=True)
class ModelSettings:
    """What a study's file says under `[models.NAME]`: an encoding to train with, or a folder."""

    encoding: Any = None
    model: Any = field(default_factory=dict)
    data: Any = field(default_factory=dict)
    training: Any = field(default_factory=dict)
    """Settings that differ from those of the study."""
    folder: str = ""
    positions: Positions = "auto"
    trained: int = 0
    dtype: str = "auto"
    """Of a Hugging Face model, as on the command line."""

    def __post_init__(self) -> None:
        if (self.encoding is None) == (not self.folder):
            raise ValueError("needs an encoding to be trained with, or the folder of a model, and not both")
        foreign = self.positions != "auto" or self.trained or self.dtype != "auto"
        if foreign and not self.folder:
            raise ValueError("positions, trained and dtype are for the folder of a Hugging Face model")
        if self.folder and (self.model or self.data or self.training):
            raise ValueError("a model that is given is not trained: leave model, data and training out")


@dataclass(frozen=True)
class ExtensionStudy:
    """At one point of its grid."""

    summary: str
    models: Any
    lines: Any
    seeds: tuple[int, ...] = (0,)
    model: Any = field(default_factory=dict)
    data: Any = field(default_factory=dict)
    training: Any = field(default_factory=dict)
    """As in `lengthwise language train`, for all models."""
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    fit: Any = field(default_factory=dict)
    """Settings of all fits, which a line may change."""
    only_times: tuple[float, ...] = ()
    """Of lines that are repeated for several multiples of the trained length, only these."""
    name: str = ""
    grid: Any = field(default_factory=dict)
    """Axis -> value at this point."""

    def __post_init__(self) -> None:
        for name in ("models", "model", "data", "training", "fit"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"{name} must be a table, not {getattr(self, name)!r}")
        if not self.models:
            raise ValueError("models must name one model or more: [models.NAME]")
        if not isinstance(self.lines, list | tuple) or not self.lines:
            raise ValueError("lines must be one table or more: [[lines]]")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers from 0 up, not {list(self.seeds)}")

    @property
    def model_settings(self) -> dict[str, ModelSettings]:
        """The models by name."""
        found = {}
        for name, table in self.models.items():
            refuse_unfit(name, "the name of a model")
            if name in ("tokens", "table"):
                raise UserError(f"a model cannot be called {name}, which is the name of a folder beside it")
            found[name] = configuration.read(ModelSettings, table, f"models.{name}")
        return found

    @property
    def all_lines(self) -> list[Line]:
        found = read_lines(self.lines, self.model_settings, self.fit)
        if self.only_times:
            found = [line for line in found if line.times is None or line.times in self.only_times]
        return found

    def settings(self, name: str, seed: int) -> LanguageSettings:
        """Of a model that is trained here."""
        own = self.model_settings[name]
        parts = {part: {**getattr(self, part), **getattr(own, part)} for part in ("model", "data", "training")}
        return settings_from({"encoding": own.encoding, "seed": seed, **parts})

    def given(self, folders: Mapping[str, Path]) -> "ExtensionStudy":
        """With folders in the place of models that would be trained."""
        if unknown := [name for name in folders if name not in self.models]:
            raise UserError(f"the study has no model {visible(unknown[0], 60)!r}; it has {', '.join(self.models)}")
        own = {name: {"folder": str(folder)} for name, folder in folders.items()}
        return replace(self, models={**self.models, **own})


def load_extension_study(name: str, assignments: Iterable[str] = ()) -> list[ExtensionStudy]:
    """At every point of its grid: a shipped one by its name, or any by its file.

    `assignments`: as in `--set training.tokens=1000000`. A wrong setting is an error now, not after hours of training.
    """
    shipped = {path.stem: path for path in SHIPPED.glob("*.toml")}
    name = spelled(name, shipped) or name
    if name not in shipped and Path(name).suffix != ".toml":
        raise UserError(f"unknown study {name!r}; {nearest(name, shipped)} (a file must end in .toml)")
    table = configuration.override(configuration.load(shipped.get(name, Path(name))), list(assignments))
    if "name" in table:
        raise UserError("a study is called as its file is; leave name out")
    axes = _axes(table.pop(grid.GRID, None))
    studies = [
        configuration.read(ExtensionStudy, {**_with(table, values), "name": Path(name).stem, "grid": values}, "")
        for values in axes
    ]
    if len(studies) * len(studies[0].seeds) > MOST_PARTS:
        raise UserError(
            f"{len(studies) * len(studies[0].seeds):,} points and seeds are too many; at most {MOST_PARTS:,}"
        )
    for study in studies:
        for each, settings in study.model_settings.items():
            if not settings.folder:
                for seed in study.seeds:
                    study.settings(each, seed)
        _ = study.all_lines
    return studies


def _axes(table: Any) -> list[dict[str, Any]]:
    """Every combination of what the table `[grid]` says; one without values where there is none."""
    axes: dict[str, list[Any]] = {}
    for name, values in grid.flat(table).items():
        shown = f"{grid.GRID}.{visible(name, 60)}"
        if name.partition(".")[0] not in SECTIONS or "." not in name:
            raise UserError(f"{shown} must be a setting of one of {', '.join(SECTIONS)}")
        if not isinstance(values, list) or not values:
            raise UserError(f"{shown} must be a list of values, such as [2, 4], not {values!r}")
        axes[name] = values
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _with(table: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The study's table with the values of a point in it."""
    found = dict(table)
    for name, value in values.items():
        *sections, last = name.split(".")
        here = found
        for section in sections:
            here[section] = dict(here.get(section, {}))
            here = here[section]
        here[last] = value
    return found


@dataclass(frozen=True)
class StudyPart:
    """One point of the grid with one seed."""

    study: ExtensionStudy
    seed: int
    folder: Path

    @property
    def about(self) -> About:
        seeds = self.study.seeds
        return About(self.study.name, self.study.summary, self.study.grid, self.seed if len(seeds) > 1 else None)

    @property
    def words(self) -> str:
        """Where it is, as an addition to a sentence."""
        found = [grid_words(self.study.grid)] if self.study.grid else []
        found += [f"seed {self.seed}"] if len(self.study.seeds) > 1 else []
        return f" ({', '.join(found)})" if found else ""


def parts(studies: Iterable[ExtensionStudy], out: Path) -> list[StudyPart]:
    """All seeds of a point before those of the next."""
    found = []
    for study in studies:
        place = out / path_part(grid_words(study.grid)) if study.grid else out
        found += [StudyPart(study, seed, place / f"seed-{seed}") for seed in study.seeds]
    return found


def run_extension_study(
    studies: Sequence[ExtensionStudy],
    corpus: Path | None,
    out: Path,
    device: str,
    save_every: float,
    listener: Listener,
) -> list[Path]:
    """Trains what is to be trained, then measures every line; returns the folders of the tables.

    `corpus`: what models are trained on, and what those of Hugging Face read.
    """
    place = choose_device(device)
    documents_of = DocumentsOfModels(corpus, listener.note)
    given: dict[tuple[str, Positions, int, str], LoadedModel] = {}
    for study in studies:
        for settings in study.model_settings.values():
            key = settings.folder, settings.positions, settings.trained, settings.dtype
            if settings.folder and key not in given:
                given[key] = open_model(Path(settings.folder), place, None, *key[1:])
        refuse_impossible(study, corpus, out, listener)
    tables = []
    for part in parts(studies, out):
        models = {}
        for name, settings in part.study.model_settings.items():
            if settings.folder:
                models[name] = given[settings.folder, settings.positions, settings.trained, settings.dtype]
                continue
            assert corpus is not None
            listener.note(f"Training {name}{part.words}")
            own = part.study.settings(name, part.seed)
            train_language_model(corpus, own, part.folder / name, device, listener, save_every, out / "tokens")
            models[name] = open_model(part.folder / name, place, out / "tokens" if (out / "tokens").is_dir() else None)
        refuse_other_precision([each for name, each in models.items() if not part.study.model_settings[name].folder])
        lines, folder = part.study.all_lines, part.folder / "table"
        table = LineTable(models, lines, part.study.measure, folder, documents_of, listener, part.about)
        listener.note(f"Measuring {len(lines)} lines{part.words}")
        table.run()
        tables.append(folder)
    return tables


class DocumentsOfModels:
    """What a model reads of a split: tokens that it was trained on, or the corpus as its own tokenizer has it."""

    def __init__(self, corpus: Path | None, note: Callable[[str], None] = lambda text: None) -> None:
        self.corpus, self.note = corpus, note
        self._read: dict[tuple[int, str], Documents] = {}

    def __call__(self, loaded: LoadedModel, split: str) -> Documents:
        if loaded.store is not None:
            return loaded.documents(split)
        key = loaded.checksum, split
        if key not in self._read:
            self._read[key] = loaded.documents(split, self.corpus, note=self.note)
        return self._read[key]


def refuse_impossible(study: ExtensionStudy, corpus: Path | None, out: Path, listener: Listener) -> None:
    """Refuses models or documents of which no table can be made: now, not after hours of training."""
    trained = [name for name, settings in study.model_settings.items() if not settings.folder]
    if trained and corpus is None:
        raise UserError(f"{trained[0]} is to be trained: say with --corpus on what, or with --model where it is")
    for name in trained:
        assert corpus is not None
        settings = study.settings(name, study.seeds[0])
        with torch.device("meta"):  # it needs no parameters
            model = DecoderReader(build_language_model(settings, settings.data.vocabulary))
        store = tokens_of(corpus, settings.data, out / "tokens", listener.note)
        keys = KeyDocuments(store.tokenizer, np.array([store.tokenizer.begin])) if study.measure.trials else None
        lines = [line for line in study.all_lines if line.model == name]
        what_is_scored(study.measure, settings.data.context, reach(lines, name, study.measure), store.documents, keys)
        for line in lines:
            refuse_unextendable(model, line, settings.data.context, study.measure)


def refuse_other_precision(trained: Sequence[LoadedModel]) -> None:
    """Models of a study that were trained in different precision differ in more than the study says."""
    found = {loaded.name: str(loaded.facts["precision"]) for loaded in trained}
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} in {precision}" for name, precision in found.items())
        raise UserError(f"the models were trained in different precision ({said}): train them on one kind of device")
