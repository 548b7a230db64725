"""What a table of extended models left in its folder, as the page about it reads it: rows, scales, settings."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from lengthwise.door import SMALL, Schema, refuse_unreadable
from lengthwise.errors import RunError, UserError
from lengthwise.records.extension_schema import ENTROPY, FIT, LONG, PASSKEY, PERPLEXITY, TABLE, UNIFORM
from lengthwise.records.files import REMEDY, read_json, read_rows
from lengthwise.records.published_ratios import PublishedRatio, ratios
from lengthwise.report.model.displayed import displayed_table

Row = dict[str, Any]
FAMILIES = {"none": "Without positions", "rotary": "Rotary positions"}
ABLATIONS = {", without start": ", no init", ", without floor": ", no constraint"}
"""Endings of lines, as rows have them -> as the paper says them."""


def line_words(line: str) -> str:
    """The name of a line for readers; rows keep the name under which it was measured."""
    for recorded, words in ABLATIONS.items():
        line = line.replace(recorded, words)
    return line


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
    """Learned head scales, layers x heads; None where all parameters were trained."""


@dataclass(frozen=True)
class ExtensionRows:
    perplexity: list[Row]
    passkey: list[Row] = field(default_factory=list)
    fits: list[FittedLine] = field(default_factory=list)
    uniform: dict[str, Any] | None = None
    """The search of uniform scales."""
    entropy: list[Row] = field(default_factory=list)
    long: list[Row] = field(default_factory=list)
    """Perplexities at contexts far beyond the table's."""
    about: dict[str, Any] = field(default_factory=dict)
    """Settings of the table, length of training."""

    @property
    def lines(self) -> list[str]:
        return list(dict.fromkeys(row["line"] for row in self.perplexity))

    @property
    def times(self) -> list[int]:
        """Contexts, as multiples of the trained length."""
        return sorted({row["times"] for row in self.perplexity})

    def row(self, line: str, times: int) -> Row | None:
        return next((row for row in self.perplexity if (row["line"], row["times"]) == (line, times)), None)

    def family(self, line: str) -> str:
        return next(row["family"] for row in self.perplexity if row["line"] == line)

    def ratio(self, line: str, times: int) -> float | None:
        """To the perplexity of the same model as trained, at the trained length."""
        found, base = self.row(line, times), self.row(self.family(line), 1)
        return found["perplexity"] / base["perplexity"] if found and base else None

    def keys_by_length(self, line: str) -> dict[int, float]:
        """Length -> passkey accuracy, over all depths."""
        found: dict[int, list[Row]] = {}
        for row in self.passkey:
            if row["line"] == line:
                found.setdefault(row["length"], []).append(row)
        return {
            length: sum(row["correct"] for row in rows) / sum(row["n"] for row in rows)
            for length, rows in sorted(found.items())
        }

    def keys_found(self, line: str, longest: int) -> float | None:
        """Mean over the lengths up to one."""
        shares = [share for length, share in self.keys_by_length(line).items() if length <= longest]
        return sum(shares) / len(shares) if shares else None

    def published(self, line: str, times: int) -> PublishedRatio | None:
        return ratios().get((line, times))


def load_extension_rows(folder: Path) -> ExtensionRows:
    """Of the folder of a table, or of a study that has one; unfinished ones too."""
    place = folder if (folder / "perplexity.jsonl").exists() else folder / "table"
    if not (place / "perplexity.jsonl").exists():
        raise UserError(f"{folder} holds no rows of a table; make them with `lengthwise extend table` or `study`")

    def rows(name: str, schema: Schema) -> list[Row]:
        return (
            [displayed_table(row) for row in read_rows(place / name, schema=schema)] if (place / name).exists() else []
        )

    def facts(name: str, schema: Schema) -> dict[str, Any] | None:
        return displayed_table(read_json(place / name, schema)) if (place / name).exists() else None

    perplexity = rows("perplexity.jsonl", PERPLEXITY)
    if not perplexity:
        raise UserError(f"{place}/perplexity.jsonl has no rows yet")
    lines = list(dict.fromkeys(row["line"] for row in perplexity))
    return ExtensionRows(
        perplexity,
        rows("passkey.jsonl", PASSKEY),
        list(_fits(place / "fits", lines)),
        facts("uniform.json", UNIFORM),
        rows("entropy.jsonl", ENTROPY),
        [row for row in rows("long.jsonl", LONG) if row["kind"] == "perplexity"],
        facts("table.json", TABLE) or {},
    )


def _fits(folder: Path, lines: Iterable[str]) -> Iterable[FittedLine]:
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
    return "".join(letter for letter in name if letter.isalnum())
