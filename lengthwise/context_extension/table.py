"""The table of an extension study: every line at every context, measured once and kept.

OUT/
  table.json                what the table is of: models, lines, settings
  uniform/MODEL.json        the best uniform scales of a model, where a line asks for them
  fits/LINE/                what was fitted
  perplexity.jsonl          one row for each line and context, on test documents
  passkey.jsonl             one row for each line, length and depth
  heads.jsonl               one row for each line, context, layer and head: entropy, where it looks

A line is done when all its rows are there; the rest is done by the next call. Lines may be added to a table.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise import configuration
from lengthwise.context_extension.attention_spread import attention_spread, spread_rows
from lengthwise.context_extension.fit_files import is_fit, load_fit, save_fit
from lengthwise.context_extension.fitting_entropy import fit_by_method
from lengthwise.context_extension.fitting_rows import SCORED, Targets, TrainingWindows, choose_targets
from lengthwise.context_extension.lines import Line, extension_tables, fit_settings
from lengthwise.context_extension.loaded_model import LoadedModel, at_context
from lengthwise.context_extension.passkey import KeyDocuments, depths, draw, passkey_rows
from lengthwise.context_extension.perplexity import ModelAt, perplexities
from lengthwise.context_extension.reader import Reader
from lengthwise.context_extension.search import fit_growth
from lengthwise.context_extension.uniform import search_uniform
from lengthwise.context_extension.variant import Variant
from lengthwise.errors import UserError
from lengthwise.extensions.extended import make_extension
from lengthwise.language.store import Documents
from lengthwise.leftovers import clear_leftovers
from lengthwise.records.directory import StudyDirectory, differences, in_words, make_folder
from lengthwise.records.extension_schema import HEADS, PASSKEY, PERPLEXITY, TABLE, UNIFORM
from lengthwise.records.files import read_json, read_rows, write_json, write_rows
from lengthwise.records.names import path_part, places
from lengthwise.runtime import Listener

Row = dict[str, Any]
DocumentsOf = Callable[[LoadedModel, str], Documents]
"""A model and a split to the documents that it reads."""
SCHEMAS = {"perplexity.jsonl": PERPLEXITY, "passkey.jsonl": PASSKEY, "heads.jsonl": HEADS}


@dataclass(frozen=True)
class MeasureSettings:
    """What is measured of every line."""

    times: tuple[float, ...] = (1, 2, 4, 8, 16)
    """Contexts, as multiples of the trained length."""
    windows: int = 256
    """Runs of targets in test documents."""
    search_windows: int = 64
    """Runs of targets in validation documents, for the search of scales."""
    scored: int = SCORED
    depths: int = 10
    trials: int = 10
    """Key-recall documents of each length and depth; 0 for none at all."""
    heads: int = 4
    """Windows over which heads are watched; 0 for none."""
    seed: int = 0
    """Of the keys."""

    def __post_init__(self) -> None:
        if 1 not in self.times or min(self.times) < 1 or max(self.times) <= 1:
            raise ValueError(f"times must hold 1 and others above it, not {list(self.times)}")
        if len(set(self.times)) < len(self.times):
            raise ValueError(f"times names a multiple twice: {list(self.times)}")
        for name in ("windows", "search_windows", "scored", "depths"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("trials", "heads", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")

    def contexts(self, trained: int) -> list[int]:
        return [round(times * trained) for times in sorted(self.times)]


@dataclass(frozen=True)
class About:
    """Which part of a study a table is of."""

    study: str = ""
    summary: str = ""
    grid: dict[str, Any] = field(default_factory=dict)
    """Axis -> value, where the study has a grid."""
    seed: int | None = None
    """Of the trained models and of the fits; None where there is one seed alone."""


class LineTable:
    def __init__(
        self,
        models: Mapping[str, LoadedModel],
        lines: Sequence[Line],
        settings: MeasureSettings,
        out: Path,
        documents_of: DocumentsOf,
        listener: Listener | None = None,
        about: About | None = None,
    ) -> None:
        """`models`: the models by the names that lines call them."""
        self.models, self.lines, self.settings, self.out = dict(models), list(lines), settings, out
        self.documents_of, self.listener, self.about = documents_of, listener or Listener(), about or About()
        self.targets = {
            name: what_is_scored(
                settings,
                loaded.trained,
                reach(self.lines, name, settings),
                lambda split, of=loaded: documents_of(of, split),
                KeyDocuments(loaded.tokenizer, loaded.begins) if settings.trials else None,
            )
            for name, loaded in self.models.items()
        }
        for line in self.lines:
            loaded = self.models[line.model]
            refuse_unextendable(loaded.model, line, loaded.trained, settings)

    def run(self) -> None:
        """Does what is not done yet."""
        make_folder(self.out)
        with StudyDirectory(self.out).lock():
            for folder in (self.out, *self.out.glob("fits/*"), self.out / "uniform"):
                clear_leftovers(folder)
            self._agree()
            for line in self.lines:
                self._measure(line)

    def _measure(self, line: Line) -> None:
        loaded, scored = self.models[line.model], self.targets[line.model]
        contexts, settings = scored.contexts, self.settings
        rows = {name: by_line(self.out / name).get(line.name, []) for name in SCHEMAS}
        has_perplexity = [row["context"] for row in rows["perplexity.jsonl"]] == contexts
        asked, at_depths = [(row["length"], row["depth"]) for row in rows["passkey.jsonl"]], depths(settings.depths)
        has_keys = not settings.trials or asked == list(product(contexts, at_depths))
        watched = list(dict.fromkeys(row["context"] for row in rows["heads.jsonl"]))
        every = len(contexts) * loaded.model.layers * loaded.model.heads
        watches = settings.heads > 0 and loaded.model.attends
        has_heads = not watches or (watched == contexts and len(rows["heads.jsonl"]) == every)
        if has_perplexity and has_keys and has_heads:
            return
        self.listener.note(line.name)
        model_at = self._model_at(line)
        about = {"line": line.name, "family": line.model, "targets": scored.identity}
        times = dict(zip(contexts, sorted(settings.times), strict=True))
        if not has_perplexity:
            found = perplexities(model_at, scored.test, contexts)
            measured = [{**about, "times": times[each.context], **each.table()} for each in found]
            self._put("perplexity.jsonl", line.name, measured)
        if not has_keys:
            documents = KeyDocuments(loaded.tokenizer, loaded.begins)
            keys = passkey_rows(model_at, documents, contexts, at_depths, settings.trials, settings.seed)
            self._put("passkey.jsonl", line.name, [{**about, **row} for row in keys])
        if not has_heads:
            self._put("heads.jsonl", line.name, list(self._spread(model_at, scored, about, times)))

    def _spread(self, model_at: ModelAt, scored: "Scored", about: Row, times: Mapping[int, float]) -> "list[Row]":
        rows: list[Row] = []
        chosen = scored.few(self.settings.heads)
        for context in scored.contexts:
            read_RT = chosen.rows(context)[:, :-1]
            positions = np.arange(context - self.settings.scored, context)
            positions = positions[:: max(1, len(positions) // 32)]
            found = attention_spread(model_at(context), read_RT, positions)
            here = {**about, "times": times[context], "context": context}
            rows += [{**here, **row} for row in spread_rows(found, len(read_RT) * len(positions))]
        return rows

    def _model_at(self, line: Line) -> ModelAt:
        loaded, best = self.models[line.model], partial(self._best, line.model)
        tables = extension_tables(line, loaded.trained, best, partial(self._slope, line.model))
        if line.fitted is not None:
            return Variant(loaded, tables, load_fit(line.fitted, loaded))
        if line.fit is None:
            return Variant(loaded, tables)
        now, *earlier = places(self.out / "fits", line.name)
        folder = next(filter(is_fit, earlier), now)
        if not is_fit(folder):
            settings = fit_settings(
                line, loaded.trained, self.about.seed or 0, best, loaded.key_rows, self.settings.scored
            )
            windows = TrainingWindows(self.documents_of(loaded, settings.split), settings.length, settings.seed)
            save_fit(folder, loaded, fit_by_method(loaded, windows, settings, self.listener))
        return Variant(loaded, tables, load_fit(folder, loaded))

    def _best(self, model: str, context: int) -> float:
        """The best uniform scale of a model at a context; searched once."""
        file = self.out / "uniform" / f"{path_part(model)}.json"
        found: Row = read_json(file, UNIFORM) if file.exists() else {"best": {}, "losses": {}}
        if str(context) not in found["best"]:
            loaded = self.models[model]
            targets = self.targets[model].validation
            assert targets is not None
            search = search_uniform(loaded, targets, [context])[context]
            self.listener.note(f"best uniform scale of {model} at {context:,}: {search.best:g}")
            found["best"][str(context)] = search.best
            found["losses"][str(context)] = sorted(search.losses.items())
            for part in ("best", "losses"):
                found[part] = {str(each): found[part][str(each)] for each in sorted(map(int, found[part]))}
            beyond = {int(each): best for each, best in found["best"].items() if int(each) > loaded.trained}
            growth = fit_growth(beyond, loaded.trained) if beyond else None
            fitted = {
                "slope": growth.slope if growth else 0.0,
                "determination": growth.determination if growth else None,
            }
            make_folder(file.parent)
            write_json(file, {"trained": loaded.trained, **found, **fitted})
        return float(found["best"][str(context)])

    def _slope(self, model: str) -> float:
        """How the best scale grows with position, from all contexts beyond the trained length."""
        trained = self.models[model].trained
        beyond = {each: self._best(model, each) for each in self.targets[model].contexts if each > trained}
        return fit_growth(beyond, trained).slope

    def _agree(self) -> None:
        """A folder holds one table, to which lines may be added."""
        now = {
            "settings": configuration.table(self.settings),
            "models": {name: loaded.checksum for name, loaded in self.models.items()},
            "targets": {name: scored.identity for name, scored in self.targets.items()},
            "about": configuration.table(self.about),
        }
        lines = {line.name: line.table() for line in self.lines}
        file = self.out / "table.json"
        before: Row = {}
        if file.exists():
            before = read_json(file, TABLE)
            changes = [
                _what_changed(part, key, old, new)
                for part in ("settings", "models", "targets", "about")
                for key, old, new in differences(before.get(part, {}), now[part])
                if part != "about" or key != "summary"
            ]
            changes += [
                f"the line {name!r} was another one"
                for name, line in lines.items()
                if name in before.get("lines", {}) and before["lines"][name] != json.loads(json.dumps(line))
            ]
            if changes:
                raise UserError(f"{self.out} holds another table ({'; '.join(changes[:3])}); choose another folder")
        folders = {name: loaded.facts for name, loaded in self.models.items()}
        trained = {name: loaded.trained for name, loaded in self.models.items()}
        whole = {**before.get("lines", {}), **lines}
        write_json(file, {**now, "lines": whole, "trained": trained, "folders": folders})

    def _put(self, name: str, line: str, rows: Sequence[Row]) -> None:
        """Writes the file whole, so that a line is never cut off; where a part of it was there, in its place."""
        write_rows(self.out / name, chain.from_iterable({**by_line(self.out / name), line: rows}.values()))


def _what_changed(part: str, key: str, old: Any, new: Any) -> str:
    if part == "models":
        return f"of another model than {key}" if new is None else f"another model was called {key}"
    if part == "targets":
        return f"{key} was scored on other documents or windows"
    return f"{key} was {in_words(old)}, is {in_words(new)}"


def reach(lines: Sequence[Line], model: str, settings: MeasureSettings) -> dict[str, float]:
    """Split -> the largest multiple of the trained length at which documents of it are read for lines of a model."""
    found = {"test": max(settings.times)}
    for line in lines:
        if line.model != model:
            continue
        if line.searches or line.searches_growth:
            times = max(settings.times) if line.searches_growth else line.times or 1
            found["validation"] = max(found.get("validation", 0), times)
        if line.fit is not None:
            split = line.fit.get("split", "train")
            found[split] = max(found.get(split, 0), line.times or 1)
    return found


@dataclass(frozen=True)
class Scored:
    """What of its documents a model is measured on."""

    contexts: list[int]
    test: Targets
    validation: Targets | None
    """For the search of scales; None where nothing is searched."""
    identity: str
    """Of the test targets: numbers of other targets are not comparable."""

    def few(self, count: int) -> Targets:
        """Some of the runs of test targets, evenly."""
        ends = self.test.ends
        chosen = np.unique(np.linspace(0, len(ends) - 1, min(count, len(ends))).round().astype(np.int64))
        return replace(self.test, ends=ends[chosen])


def what_is_scored(
    settings: MeasureSettings,
    trained: int,
    reach: Mapping[str, float],
    documents: Callable[[str], Documents],
    keys: KeyDocuments | None,
) -> Scored:
    """Refuses documents of which no table can be made; asked without a model, so before one is trained.

    `reach`: see there. `keys`: None for no passkey test.
    """
    if settings.scored > trained:
        raise UserError(
            f"scored must be at most the {trained:,} tokens of the trained context, not {settings.scored}; set "
            f"measure.scored={trained} (--scored {trained})"
        )
    for split, times in reach.items():
        context, longest = round(times * trained), documents(split).longest
        if context >= longest:
            what = "measure.times (--context)" if split == "test" else "the times of lines that are searched or fitted"
            raise UserError(
                f"a context of {context:,} tokens ({times:g} x {trained:,}) is longer than any document of the {split} "
                f"split: the longest allows {longest - 1:,}; take {times:g} out of {what}, or give longer documents"
            )
    if keys is not None:
        try:
            draw(keys, trained, depths(settings.depths)[0], settings.seed, trial=0)
        except UserError as error:
            raise UserError(f"{error}, the trained context; set trials to 0, or train at a longer one") from error
    contexts = settings.contexts(trained)
    test = choose_targets(documents("test"), contexts, settings.windows, settings.scored)
    validation = None
    if "validation" in reach:
        read = [each for each in contexts if each <= round(reach["validation"] * trained)]
        validation = choose_targets(documents("validation"), read, settings.search_windows, settings.scored)
    return Scored(contexts, test, validation, identity_of(test))


def identity_of(targets: Targets) -> str:
    """The same for the same tokens in the same order, whatever is read before them."""
    text_RS = targets.rows(targets.scored)[:, 1:]
    return hashlib.sha256(np.ascontiguousarray(text_RS, dtype="<i8").tobytes()).hexdigest()[:12]


def refuse_unextendable(model: Reader, line: Line, trained: int, settings: MeasureSettings) -> None:
    """Refuses extensions that do not go with the model, before hours of other lines are measured."""
    longest = settings.contexts(trained)[-1]
    chosen = extension_tables(line, trained, lambda at: 1.5, lambda: 0.3)
    if line.fit is not None:
        chosen = [*(line.fit.get("extensions") or [{"name": "head-scale", "initial": 1.5}]), *chosen]
    try:
        model.extended([make_extension(at_context(table, longest, trained)) for table in chosen], longest)
    except UserError as error:
        raise UserError(f"line {line.name!r}: {error}") from error


def by_line(file: Path) -> dict[str, list[Row]]:
    """The rows of each line; none where there is no file yet."""
    found: dict[str, list[Row]] = {}
    for row in read_rows(file, schema=SCHEMAS[file.name]) if file.exists() else []:
        found.setdefault(row["line"], []).append(row)
    return found
