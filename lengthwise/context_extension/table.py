"""The published table of perplexities from a matched pair: one model without positions, one with rotary ones.

OUT/
  table.json                what the table is of: models, lengths, counts
  uniform.json              the best uniform scales, searched on validation documents
  fits/LINE/                what was fitted, on training documents
  perplexity.jsonl          one row for each line and context, on test documents
  passkey.jsonl             one row for each line, length and depth

A line is done when all its rows are there; the rest is done by the next call.
"""

from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise import configuration
from lengthwise.context_extension.fit_files import is_fit, load_fit, save_fit
from lengthwise.context_extension.fitting import FitSettings
from lengthwise.context_extension.fitting_entropy import HALVINGS, fit_by_method
from lengthwise.context_extension.fitting_rows import SCORED, Targets, TrainingWindows, choose_targets
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.passkey import KeyDocuments, depths, draw, passkey_rows
from lengthwise.context_extension.perplexity import ModelAt, perplexities
from lengthwise.context_extension.search import fit_growth
from lengthwise.context_extension.uniform import search_uniform
from lengthwise.context_extension.variant import Variant
from lengthwise.errors import UserError
from lengthwise.language.store import TokenStore
from lengthwise.leftovers import clear_leftovers
from lengthwise.model.decoder import Decoder
from lengthwise.records.directory import StudyDirectory, differences, make_folder
from lengthwise.records.extension_schema import PASSKEY, PERPLEXITY, TABLE, UNIFORM
from lengthwise.records.files import read_json, read_rows, write_json, write_rows
from lengthwise.records.names import places
from lengthwise.runtime import Listener

Row = dict[str, Any]


@dataclass(frozen=True)
class TableSettings:
    """All that decides the numbers, but the models and their corpus."""

    times: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Contexts, as multiples of the trained length."""
    fitted: tuple[int, ...] = (2, 4, 8)
    """Lengths at which something is searched or fitted, likewise."""
    windows: int = 256
    """Runs of targets in test documents."""
    search_windows: int = 64
    """Runs of targets in validation documents, for the search of scales."""
    scored: int = SCORED
    steps: int = 200
    batch: int = 8
    learning_rate: float = 0.1
    """Of head scales."""
    fine_tuning_rate: float = 1e-4
    """Of all parameters."""
    depths: int = 10
    trials: int = 10
    """Key-recall documents of each length and depth; 0 for none at all."""
    seed: int = 0
    entropy: bool = False
    """Whether there are also head scales that are found without training, by entropy; see `fitting_entropy`."""

    def __post_init__(self) -> None:
        if 1 not in self.times or not set(self.fitted) <= set(self.times) or min(self.fitted, default=2) < 2:
            raise ValueError("times must hold 1 and all of fitted, which are 2 or more")
        if min(self.times) < 1 or max(self.times) < 2:
            raise ValueError(f"times must be 1 or more and hold one above 1, not {list(self.times)}")
        for name in ("windows", "search_windows", "scored", "steps", "batch", "depths"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("trials", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for name in ("learning_rate", "fine_tuning_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")

    def contexts(self, trained: int) -> list[int]:
        return [times * trained for times in sorted(self.times)]


@dataclass(frozen=True)
class TableLine:
    name: str
    family: str
    """`none` or `rotary`: whose line it is."""
    extensions: list[dict[str, Any]] = field(default_factory=list)
    fit: FitSettings | None = None


class ExtensionTable:
    def __init__(
        self, nope: LoadedModel, rope: LoadedModel, settings: TableSettings, out: Path, listener: Listener | None = None
    ) -> None:
        self.subjects = {"none": nope, "rotary": rope}
        self.settings, self.out, self.listener = settings, out, listener or Listener()
        _refuse_strangers(nope, rope)
        assert nope.store is not None
        self.trained = nope.trained
        self.contexts = settings.contexts(self.trained)
        # Before anything is computed: it may be that no table can be made of these documents.
        self.test, self.validation = what_is_scored(settings, nope.store, self.trained)

    def run(self) -> None:
        """Does what is not done yet."""
        make_folder(self.out)
        with StudyDirectory(self.out).lock():
            for folder in (self.out, *self.out.glob("fits/*")):
                clear_leftovers(folder)
            self._agree()
            scales = self._scales()
            for line in lines(self.settings, self.trained, scales):
                self._measure(line)

    def _measure(self, line: TableLine) -> None:
        settings = self.settings
        perplexity, passkey = self.out / "perplexity.jsonl", self.out / "passkey.jsonl"
        at_depths = depths(settings.depths)
        measured = [row["context"] for row in _by_line(perplexity).get(line.name, [])]
        has_perplexity = measured == self.contexts
        asked = [(row["length"], row["depth"]) for row in _by_line(passkey).get(line.name, [])]
        has_passkey = not settings.trials or asked == list(product(self.contexts, at_depths))
        if has_perplexity and has_passkey:
            return
        self.listener.note(line.name)
        model_at, about = self._model_at(line), {"line": line.name, "family": line.family}
        if not has_perplexity:
            found = perplexities(model_at, self.test, self.contexts)
            rows = [{**about, "times": each.context // self.trained, **each.table()} for each in found]
            _put_line(perplexity, line.name, rows)
        if not has_passkey:
            subject = self.subjects[line.family]
            documents = KeyDocuments(subject.tokenizer, subject.begins)
            keys = passkey_rows(model_at, documents, self.contexts, at_depths, settings.trials, settings.seed)
            _put_line(passkey, line.name, [{**about, **row} for row in keys])

    def _model_at(self, line: TableLine) -> ModelAt:
        subject = self.subjects[line.family]
        if line.fit is None:
            return Variant(subject, line.extensions)
        now, *earlier = places(self.out / "fits", line.name)
        folder = next(filter(is_fit, earlier), now)
        if not is_fit(folder):
            windows = TrainingWindows(subject.documents("train"), line.fit.length, line.fit.seed)
            save_fit(folder, subject, fit_by_method(subject, windows, line.fit, self.listener))
        return Variant(subject, fitted=load_fit(folder, subject))

    def _scales(self) -> dict[int, float]:
        """Context -> best uniform scale of the model without positions."""
        file = self.out / "uniform.json"
        found: dict[str, Any] = read_json(file, UNIFORM) if file.exists() else {"best": {}, "losses": {}}
        for context in self.contexts:
            if context > self.trained and str(context) not in found["best"]:
                search = search_uniform(self.subjects["none"], self.validation, [context])[context]
                self.listener.note(f"best uniform scale at {context}: {search.best:g}")
                found["best"][str(context)] = search.best
                found["losses"][str(context)] = sorted(search.losses.items())
                growth = fit_growth({int(each): best for each, best in found["best"].items()}, self.trained)
                fitted = {"slope": growth.slope, "determination": growth.determination}
                write_json(file, {"trained": self.trained, **found, **fitted})
        return {int(context): scale for context, scale in found["best"].items()}

    def _agree(self) -> None:
        """A folder holds one table."""
        now = {
            "settings": configuration.table(self.settings),
            "models": {family: subject.checksum for family, subject in self.subjects.items()},
        }
        file = self.out / "table.json"
        if not file.exists():
            facts = {family: subject.facts for family, subject in self.subjects.items()}
            write_json(file, {**now, "trained": self.trained, "folders": facts})
            return
        before = read_json(file, TABLE)
        before["settings"].setdefault("entropy", False)  # which older tables do not say
        changes = [
            f"{key} was {old!r}, is {new!r}"
            for part in ("settings", "models")
            for key, old, new in differences(before[part], now[part])
        ]
        if changes:
            raise UserError(f"{self.out} holds another table ({'; '.join(changes[:3])}); choose another folder")


def what_is_scored(settings: TableSettings, store: TokenStore, trained: int) -> tuple[Targets, Targets]:
    """Runs of targets in test and in validation documents; refuses documents of which no table can be made.

    It needs no models, so that it can be asked before they are trained. `trained`: their context.
    """
    if settings.scored > trained:
        raise UserError(f"scored must be at most the {trained:,} tokens of the trained context, not {settings.scored}")
    for split, setting in (("test", "times"), ("validation", "times"), ("train", "fitted")):
        times, longest = max(getattr(settings, setting), default=0), store.documents(split).longest
        if times * trained >= longest:
            raise UserError(
                f"a context of {times * trained:,} tokens ({times} x {trained:,}) is longer than any document of the "
                f"{split} split: the longest allows {longest - 1:,}; take {times} out of {setting}, or give longer ones"
            )
    if settings.trials:
        documents = KeyDocuments(store.tokenizer, np.array([store.tokenizer.begin]))
        try:
            draw(documents, trained, depths(settings.depths)[0], settings.seed, trial=0)
        except UserError as error:
            raise UserError(f"{error}, the trained context; set trials to 0, or train at a longer one") from error
    contexts, scored = settings.contexts(trained), settings.scored
    return (
        choose_targets(store.documents("test"), contexts, settings.windows, scored),
        choose_targets(store.documents("validation"), contexts, settings.search_windows, scored),
    )


def lines(settings: TableSettings, trained: int, scales: dict[int, float]) -> list[TableLine]:
    """All lines; `scales`: context -> best uniform scale."""
    from_scales = fit_growth(scales, trained)
    common = {"steps": settings.steps, "batch": settings.batch, "seed": settings.seed}
    found = [TableLine("none", "none")]
    for times in settings.fitted:
        table = {"name": "uniform-scale", "constant": scales[times * trained]}
        found.append(TableLine(f"uniform-scale for {times}x", "none", [table]))
    slope = {"name": "uniform-scale", "slope": max(0.0, from_scales.slope)}
    found.append(TableLine("uniform-scale by position", "none", [slope]))
    for times in settings.fitted:
        best = scales[times * trained]
        ablations = {
            "": (max(1.0, best), 1.0),
            ", without start": (1.0, 1.0),
            ", without floor": (best, 0.0),
        }
        for name, (initial, floor) in ablations.items():
            chosen = FitSettings(
                times * trained, initial=initial, floor=floor, learning_rate=settings.learning_rate, **common
            )
            found.append(TableLine(f"head-scale for {times}x{name}", "none", fit=chosen))
    for times in settings.fitted if settings.entropy else ():
        chosen = FitSettings(
            times * trained, method="entropy", steps=HALVINGS, batch=settings.batch, seed=settings.seed
        )
        found.append(TableLine(f"head-scale for {times}x, by entropy", "none", fit=chosen))
    found += [
        TableLine("rotary", "rotary"),
        # Each context with the factor that leads to it; dynamic NTK with 1 does so by itself.
        TableLine("position-interpolation", "rotary", [{"name": "position-interpolation", "factor": "auto"}]),
        TableLine("dynamic-ntk", "rotary", [{"name": "dynamic-ntk", "factor": 1.0}]),
        TableLine("yarn", "rotary", [{"name": "yarn", "factor": "auto"}]),
    ]
    for name in ("position-interpolation", "yarn"):
        for times in settings.fitted:
            chosen = FitSettings(
                times * trained,
                head_scale=False,
                extensions=({"name": name, "factor": float(times)},),
                learning_rate=settings.fine_tuning_rate,
                **common,
            )
            found.append(TableLine(f"{name} for {times}x, trained", "rotary", fit=chosen))
    return found


def refuse_other_encoding(name: str, model: Decoder, wanted: str) -> None:
    names = set(model.encoding_names())
    if names != {wanted}:
        raise UserError(f"{name} has the encoding {', '.join(sorted(names))}, not {wanted}")


def _refuse_strangers(nope: LoadedModel, rope: LoadedModel) -> None:
    for subject, wanted in ((nope, "none"), (rope, "rotary")):
        refuse_other_encoding(subject.name, subject.model, wanted)
        if subject.store is None:
            raise UserError(f"the tokens of {subject.name} are not beside it; say with --store where they are")
    assert nope.store is not None and rope.store is not None
    if nope.trained != rope.trained or nope.store.key != rope.store.key:
        raise UserError(
            f"{nope.name} and {rope.name} were trained on other tokens or at other lengths: not a matched pair"
        )
    first, second = nope.facts["precision"], rope.facts["precision"]
    if first != second:
        raise UserError(f"{nope.name} was trained in {first}, {rope.name} in {second}: not a matched pair")


def _by_line(file: Path) -> dict[str, list[Row]]:
    """The rows of each line; none where there is no file yet."""
    found: dict[str, list[Row]] = {}
    schema = PASSKEY if file.name == "passkey.jsonl" else PERPLEXITY
    for row in read_rows(file, schema=schema) if file.exists() else []:
        found.setdefault(row["line"], []).append(row)
    return found


def _put_line(file: Path, name: str, rows: list[Row]) -> None:
    """Writes the file whole, so that a line is never cut off; where a part of it was there, in its place."""
    write_rows(file, chain.from_iterable({**_by_line(file), name: rows}.values()))
