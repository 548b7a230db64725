"""What analyses found in the runs of a study: a file for each run or pair, or, in a collection, one file for each kind.

runs/scan/analysis/KIND/UNIT.jsonl        first what was asked, then the rows; UNIT: a run or a pair, at a checkpoint
  distance/RUN-REFERENCE-last.jsonl, heads/RUN-last.jsonl, probes/RUN-last.jsonl, failures/RUN-last.jsonl
  separator_attention/RUN-last.jsonl, and likewise separator_probes, separator_knockouts, separator_exchanges
runs/scan/analysis/KIND/UNIT.json         the same for what is one row
  maps/RUN-last.json                      attention maps of a few examples, to be looked at
results/scan/analysis/KIND.jsonl.gz       the rows of all units: a sixth of the size
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.door import ANY_OBJECT, Schema
from lengthwise.records.directory import make_folder
from lengthwise.records.files import iterate_rows, read_json, read_rows, remove, write_json, write_rows
from lengthwise.records.packed import read_packed, write_packed
from lengthwise.records.schema import finding

Row = dict[str, Any]

PACKED = ".jsonl.gz"

DISTANCES = ("distance", "distance-published")
"""Ours, and the published variant."""

ATTENTION, PROBES, KNOCKOUTS, EXCHANGES = SEPARATOR_KINDS = tuple(
    f"separator_{what}" for what in ("attention", "probes", "knockouts", "exchanges")
)
"""What is asked about the separator of a task."""

HEAD_KINDS = ("previous", "diagonal", "induction")
KIND = 0.5
"""A head is of a kind from this score on, if it is also at least twice that of a head that looks evenly."""

VERSION = 1
"""Part of what was asked: raised when a change to this code changes the numbers, so that they are computed again."""


def read_findings(folder: Path, kind: str) -> list[Row]:
    """The rows of a kind; none where nobody has looked. A collection holds what it was collected with, so it is read
    before anything beside it."""
    packed, schema = folder / f"{kind}{PACKED}", finding(kind)
    if packed.exists():
        return read_packed(packed, schema)
    files = sorted((folder / kind).glob("*"))
    rows = [row for file in files if file.suffix == ".jsonl" for row in _after_first(file, schema)]
    return rows + [read_json(file, schema) for file in files if file.suffix == ".json"]


def _after_first(file: Path, schema: Schema) -> list[Row]:
    """The rows that follow what was asked."""
    return [
        schema.checked(row, f"{file}:{number}")
        for number, row in enumerate(iterate_rows(file, grows=True, schema=ANY_OBJECT), start=1)
        if number > 1
    ]


def read_all_findings(folder: Path, runs: Container[str]) -> dict[str, list[Row]]:
    """Kind -> its rows about these runs (fingerprints); kinds without any are left out."""
    kinds = {path.name for path in folder.glob("*") if path.is_dir()}
    kinds |= {path.name.removesuffix(PACKED) for path in folder.glob(f"*{PACKED}")}
    found = {kind: [row for row in read_findings(folder, kind) if is_about(row, runs)] for kind in sorted(kinds)}
    return {kind: rows for kind, rows in found.items() if rows}


def write_packed_findings(folder: Path, found: Mapping[str, list[Row]]) -> None:
    """These and no others: what an earlier collection left is removed."""
    for earlier in folder.glob(f"*{PACKED}"):
        if earlier.name.removesuffix(PACKED) not in found:
            remove(earlier)
    for kind, rows in found.items():
        make_folder(folder)
        write_packed(folder / f"{kind}{PACKED}", rows)


def is_about(row: Row, runs: Container[str]) -> bool:
    """Whether the run of a row, and the one that it was compared with, are among these."""
    return row["run"] in runs and row.get("reference_run", row["run"]) in runs


class AnalysisFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, kind: str, unit: str) -> Path:
        return self.path / kind / f"{unit}.jsonl"

    def found(self, kind: str, unit: str, asked: Mapping[str, Any]) -> list[Row] | None:
        """The rows of an earlier call that asked for the same; None where there are none."""
        file = self.file(kind, unit)
        if not file.exists():
            return None
        earlier, *rows = read_rows(file) or [{}]
        return rows if earlier == {"asked": {**asked, "version": VERSION}} else None

    def write(self, kind: str, unit: str, asked: Mapping[str, Any], rows: Iterable[Row]) -> None:
        file = self.file(kind, unit)
        make_folder(file.parent)
        write_rows(file, [{"asked": {**asked, "version": VERSION}}, *rows])

    def write_maps(self, unit: str, maps: Mapping[str, Any]) -> None:
        make_folder(self.path / "maps")
        write_json(self.path / "maps" / f"{unit}.json", maps)


@dataclass(frozen=True)
class AnalysisRows:
    """All that was found by looking into the runs of a study; empty where nobody has looked."""

    distances: list[Row] = field(default_factory=list)
    """Of both variants, which `variant` names."""
    heads: list[Row] = field(default_factory=list)
    probes: list[Row] = field(default_factory=list)
    failures: list[Row] = field(default_factory=list)
    maps: list[Row] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.distances, self.heads, self.probes, self.failures, self.maps))

    def of_runs(self, runs: Container[str], checkpoint: str = "last") -> "AnalysisRows":
        """Only of these runs (fingerprints), at this checkpoint: a folder keeps rows of runs that are gone."""

        def kept(rows: list[Row]) -> list[Row]:
            return [row for row in rows if is_about(row, runs) and row["checkpoint"] == checkpoint]

        return AnalysisRows(*map(kept, (self.distances, self.heads, self.probes, self.failures, self.maps)))


def joined_analysis(paths: Sequence[Path]) -> AnalysisRows:
    """What was found in several folders; a row that two of them have comes once."""
    found = [load_analysis(path) for path in paths]
    if len(found) == 1:
        return found[0]
    kinds = ("distances", "heads", "probes", "failures", "maps")
    every = ([row for each in found for row in getattr(each, kind)] for kind in kinds)
    return AnalysisRows(*(list({json.dumps(row, sort_keys=True): row for row in rows}.values()) for rows in every))


def load_analysis(path: Path) -> AnalysisRows:
    """Everything in an `analysis` folder; it need not be there."""
    return AnalysisRows(
        [row for kind in DISTANCES for row in read_findings(path, kind)],
        read_findings(path, "heads"),
        read_findings(path, "probes"),
        read_findings(path, "failures"),
        read_findings(path, "maps"),
    )


def is_kind(row: Row, kind: str) -> bool:
    """Whether the head of a row looks mostly at the token before (`previous`), at itself, or by `induction`."""
    score, even = row[kind], row["even"][kind]
    return score is not None and score >= KIND and score >= 2 * even


def distance_label(row: Row) -> str:
    return f"{row['encoding']} (other seed)" if row["encoding"] == row["reference"] else row["encoding"]
