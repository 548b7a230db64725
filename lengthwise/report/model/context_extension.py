"""What tables of extended models left in their folders, as the page about them reads it: rows, scales, settings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from lengthwise.door import SMALL, Schema, refuse_unreadable
from lengthwise.errors import RunError, UserError
from lengthwise.records.extension_schema import ENTROPY, FIT, HEADS, LONG, PASSKEY, PERPLEXITY, TABLE, UNIFORM
from lengthwise.records.files import REMEDY, read_json, read_rows
from lengthwise.records.points import grid_words
from lengthwise.records.published_ratios import PublishedRatio, ratios
from lengthwise.records.statistics import Interval, interval_over_seeds
from lengthwise.report.model.displayed import displayed_table

Row = dict[str, Any]
FAMILIES = {"none": "Without positions", "rotary": "Rotary positions"}
ABLATIONS = {", without start": ", no init", ", without floor": ", no constraint"}
"""Endings of lines, as rows have them -> as the paper says them."""
TABLES = ("", "table", "seed-*/table", "*/seed-*/table")
"""Where tables are within a folder: of a comparison, of an earlier study, of a study, of one with a grid."""


def line_words(line: str) -> str:
    """The name of a line for readers; rows keep the name under which it was measured."""
    for recorded, words in ABLATIONS.items():
        line = line.replace(recorded, words)
    return line


def family_words(family: str) -> str:
    return FAMILIES.get(family, family)


def times_words(times: float) -> str:
    return f"{times:g}x"


@dataclass(frozen=True)
class FittedLine:
    """A fit and what is worth saying of it."""

    line: str
    numbers: int
    """That were trained."""
    seconds: float
    first_loss: float
    last_loss: float
    """Mean of the last ten steps."""
    device: str
    scales_LH: list[list[float]] | None
    """Learned head scales, layers x heads (or x 1); None where all parameters were trained."""
    seed: int | None = None


@dataclass(frozen=True)
class ExtensionRows:
    """Tables that stand side by side: of the same targets, perhaps with several seeds. Each row has its `seed`."""

    perplexity: list[Row]
    passkey: list[Row] = field(default_factory=list)
    heads: list[Row] = field(default_factory=list)
    """Where heads look."""
    fits: list[FittedLine] = field(default_factory=list)
    uniform: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Model -> the searches of its uniform scales, one for each seed."""
    entropy: list[Row] = field(default_factory=list)
    long: list[Row] = field(default_factory=list)
    """Perplexities at contexts far beyond the table's."""
    about: dict[str, Any] = field(default_factory=dict)
    """Of the first table: settings, length of training, the study and the point of its grid."""

    @property
    def lines(self) -> list[str]:
        return list(dict.fromkeys(row["line"] for row in self.perplexity))

    @property
    def times(self) -> list[float]:
        """Contexts, as multiples of the trained length."""
        return sorted({row["times"] for row in self.perplexity})

    @property
    def seeds(self) -> list[int | None]:
        return list(dict.fromkeys(row.get("seed") for row in self.perplexity))

    @property
    def families(self) -> list[str]:
        """Models, those of the published table first."""
        found = dict.fromkeys(row["family"] for row in self.perplexity)
        return [*(each for each in FAMILIES if each in found), *(each for each in found if each not in FAMILIES)]

    @property
    def title(self) -> str:
        """Of the study and the point of its grid; empty for a table that stands alone."""
        about = self.about.get("about", {})
        point = grid_words(about["grid"]) if about.get("grid") else ""
        return ", ".join(filter(None, (str(about.get("study", "")), point)))

    @property
    def trained(self) -> int | None:
        """Tokens of the longest sequences of training, where that is the same for all models."""
        found = self.about.get("trained")
        lengths = set(found.values()) if isinstance(found, dict) else {found}
        return lengths.pop() if len(lengths) == 1 else None

    @property
    def targets(self) -> set[str]:
        """Which tokens were scored; tables of earlier versions do not say."""
        return {row.get("targets", "") for row in self.perplexity}

    @cached_property
    def _by_place(self) -> dict[tuple[str, float], list[Row]]:
        found: dict[tuple[str, float], list[Row]] = {}
        for row in self.perplexity:
            found.setdefault((row["line"], row["times"]), []).append(row)
        return found

    def rows(self, line: str, times: float) -> list[Row]:
        """One for each seed."""
        return self._by_place.get((line, times), [])

    def family(self, line: str) -> str:
        return next(row["family"] for row in self.perplexity if row["line"] == line)

    def perplexity_of(self, line: str, times: float) -> float | None:
        """Geometric mean over seeds."""
        found = [row["perplexity"] for row in self.rows(line, times)]
        return _geometric(found) if found else None

    @cached_property
    def _bases(self) -> dict[tuple[str, int | None], float]:
        """Model and seed -> perplexity as trained, at the trained length."""
        first: dict[str, str] = {}
        for row in self.perplexity:
            first.setdefault(row["family"], row["line"])
        return {
            (row["family"], row.get("seed")): row["perplexity"]
            for row in self.perplexity
            if row["times"] == 1 and row["line"] == first[row["family"]]
        }

    def own_ratio(self, row: Row) -> float | None:
        """To the perplexity of the same model as trained, with the same seed, at the trained length."""
        base = self._bases.get((row["family"], row.get("seed")))
        return row["perplexity"] / base if base else None

    def ratios(self, line: str, times: float) -> list[float]:
        """One for each seed."""
        found = (self.own_ratio(row) for row in self.rows(line, times))
        return [each for each in found if each is not None]

    def ratio(self, line: str, times: float) -> float | None:
        """Geometric mean over seeds."""
        found = self.ratios(line, times)
        return _geometric(found) if found else None

    def ratio_interval(self, line: str, times: float) -> Interval | None:
        """Over seeds: with fewer than six their range; None with fewer than three."""
        found = self.ratios(line, times)
        if not found or min(found) <= 0:
            return None
        interval = interval_over_seeds([np.log(np.array(found))[:, None]])
        return None if interval is None else (float(np.exp(interval[0][0])), float(np.exp(interval[0][1])))

    def keys_of_seeds(self, line: str, length: int) -> list[float]:
        """Passkey accuracy over all depths, one for each seed."""
        return _shares([row for row in self.passkey if row["line"] == line and row["length"] == length])

    def keys_by_length(self, line: str) -> dict[int, float]:
        """Length -> passkey accuracy, over all depths and seeds."""
        found: dict[int, list[Row]] = {}
        for row in self.passkey:
            if row["line"] == line:
                found.setdefault(row["length"], []).append(row)
        return {
            length: sum(row["correct"] for row in rows) / sum(row["n"] for row in rows)
            for length, rows in sorted(found.items())
        }

    def keys_interval(self, line: str, length: int) -> Interval | None:
        found = self.keys_of_seeds(line, length)
        interval = interval_over_seeds([np.array(found)[:, None]]) if found else None
        return interval[0] if interval else None

    def keys_found(self, line: str, longest: int) -> float | None:
        """Mean over the lengths up to one."""
        shares = [share for length, share in self.keys_by_length(line).items() if length <= longest]
        return sum(shares) / len(shares) if shares else None

    def published(self, line: str, times: float) -> PublishedRatio | None:
        return ratios().get((line, int(times))) if float(times).is_integer() else None


def _geometric(values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    return float(np.exp(np.log(np.array(values)).mean())) if min(values) > 0 else 0.0


def _shares(rows: Iterable[Row]) -> list[float]:
    by_seed: dict[Any, list[Row]] = {}
    for row in rows:
        by_seed.setdefault(row.get("seed"), []).append(row)
    return [sum(row["correct"] for row in each) / sum(row["n"] for row in each) for each in by_seed.values()]


def load_extension_tables(folders: Sequence[Path]) -> list[ExtensionRows]:
    """Of folders that `extend study` or `extend compare` wrote; unfinished ones too.

    Tables of the same targets stand side by side: seeds of a study, models that were compared in folders of their own.
    Others are apart.
    """
    found: list[ExtensionRows] = []
    for folder in folders:
        for place in _tables(folder):
            loaded = _load(place)
            with_ = next((k for k, other in enumerate(found) if _beside(other, loaded)), None)
            if with_ is None:
                found.append(loaded)
            else:
                found[with_] = _joined(found[with_], loaded)
    return found


def load_extension_rows(folder: Path) -> ExtensionRows:
    """Of one folder with one group of tables."""
    found = load_extension_tables([folder])
    if len(found) > 1:
        raise UserError(f"{folder} has {len(found)} tables that are not of the same targets; name one of them")
    return found[0]


def _tables(folder: Path) -> list[Path]:
    found = [place for pattern in TABLES for place in (sorted(folder.glob(pattern)) if pattern else [folder])]
    found = [place for place in found if (place / "perplexity.jsonl").exists()]
    if not found:
        raise UserError(
            f"{folder} holds no rows of a table; make them with `lengthwise extend compare` or `extend study`"
        )
    return found


def _beside(one: ExtensionRows, other: ExtensionRows) -> bool:
    """Whether rows of both may be compared: the same targets and point of the same study, and nothing twice."""
    if one.title != other.title or one.targets != other.targets or "" in one.targets:
        return False
    taken = {(row["line"], row["family"], row.get("seed")) for row in one.perplexity}
    return not any((row["line"], row["family"], row.get("seed")) in taken for row in other.perplexity)


def _joined(one: ExtensionRows, other: ExtensionRows) -> ExtensionRows:
    names = {**one.uniform, **other.uniform}
    uniform = {name: [*one.uniform.get(name, []), *other.uniform.get(name, [])] for name in names}
    return ExtensionRows(
        [*one.perplexity, *other.perplexity],
        [*one.passkey, *other.passkey],
        [*one.heads, *other.heads],
        [*one.fits, *other.fits],
        uniform,
        [*one.entropy, *other.entropy],
        [*one.long, *other.long],
        one.about,
    )


def _load(place: Path) -> ExtensionRows:
    about: Row = {}
    if (place / "table.json").exists():
        about = displayed_table(read_json(place / "table.json", TABLE))
    seed = about.get("about", {}).get("seed")

    def rows(name: str, schema: Schema) -> list[Row]:
        if not (place / name).exists():
            return []
        return [{**displayed_table(row), "seed": seed} for row in read_rows(place / name, schema=schema)]

    perplexity = rows("perplexity.jsonl", PERPLEXITY)
    if not perplexity:
        raise UserError(f"{place}/perplexity.jsonl has no rows yet")
    lines = list(dict.fromkeys(row["line"] for row in perplexity))
    searches = {file.stem: file for file in sorted((place / "uniform").glob("*.json"))}
    if (place / "uniform.json").exists():  # of an earlier version, which searched for one model
        searches["none"] = place / "uniform.json"
    return ExtensionRows(
        perplexity,
        rows("passkey.jsonl", PASSKEY),
        rows("heads.jsonl", HEADS),
        list(_fits(place / "fits", lines, seed)),
        {name: [displayed_table(read_json(file, UNIFORM))] for name, file in searches.items()},
        rows("entropy.jsonl", ENTROPY),
        [row for row in rows("long.jsonl", LONG) if row["kind"] == "perplexity"],
        about,
    )


def _fits(folder: Path, lines: Iterable[str], seed: int | None) -> Iterable[FittedLine]:
    """Of the lines that have one; weights of fine-tuned models need not be there."""
    known = {_plain(path.parent.name): path for path in sorted(folder.glob("*/fit.json"))}
    for line in lines:
        path = known.get(_plain(line))
        if path is None:
            continue
        fit = displayed_table(read_json(path, FIT))
        learned = path.with_name("learned.safetensors")
        has_scales = fit["settings"]["head_scale"] and learned.exists()
        last = fit["losses"][1:][-10:] or fit["losses"]
        yield FittedLine(
            line,
            fit["trained_numbers"],
            fit["seconds"],
            fit["losses"][0],
            sum(last) / len(last),
            fit["hardware"]["device"],
            _scales(learned) if has_scales else None,
            seed,
        )


def _scales(file: Path) -> list[list[float]]:
    """Layers x heads."""
    refuse_unreadable(file, SMALL)
    try:
        found = load_file(file)["scales_LH"]
    except (SafetensorError, KeyError, OSError) as error:
        raise RunError(f"{file} holds no learned scales ({error}); {REMEDY}") from error
    if found.ndim != 2 or not np.isfinite(found).all():
        raise RunError(f"{file} must hold a number for each layer and head; {REMEDY}")
    return found.tolist()


def _plain(name: str) -> str:
    """Names of folders keep letters and digits of the line's name; other signs may have become others."""
    return "".join(letter for letter in name.partition("~")[0] if letter.isalnum())
