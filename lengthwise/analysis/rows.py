"""Results of analyses as rows in the study's folder: one file for each run or pair, whole or not there at all.

runs/scan/analysis/
  distance/RUN-REFERENCE-last.jsonl       first what was asked, then the rows
  heads/RUN-last.jsonl, probes/RUN-last.jsonl, failures/RUN-last.jsonl
  separator_attention/RUN-last.jsonl, and likewise separator_probes, separator_knockouts, separator_exchanges
  maps/RUN-last.json                      attention maps of a few examples, to be looked at
A collection holds the same rows in one file for each kind (`lengthwise.records.findings`).
Imports no torch, so that reports can read them.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.records.directory import make_folder
from lengthwise.records.files import read_rows, write_json, write_rows
from lengthwise.records.findings import is_about, read_findings

Row = dict[str, Any]

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
        earlier, *rows = read_rows(file)
        return rows if earlier == {"asked": {**asked, "version": VERSION}} else None

    def write(self, kind: str, unit: str, asked: Mapping[str, Any], rows: Iterable[Row]) -> None:
        file = self.file(kind, unit)
        make_folder(file.parent)
        write_rows(file, [{"asked": {**asked, "version": VERSION}}, *rows])

    def write_maps(self, unit: str, maps: Mapping[str, Any]) -> None:
        make_folder(self.path / "maps")
        write_json(self.path / "maps" / f"{unit}.json", maps)


def load_rows(path: Path, kind: str) -> list[Row]:
    """All rows of a kind (`distance`, `distance-published`, `heads`, `probes`, `failures`, SEPARATOR_KINDS) in an
    `analysis` folder."""
    return read_findings(path, kind)


def load_maps(path: Path) -> list[Row]:
    """The example attention maps of all runs that have some."""
    return read_findings(path, "maps")


@dataclass(frozen=True)
class AnalysisRows:
    """All that was found by looking into the runs of a study; empty where nobody has looked."""

    distances: list[Row] = field(default_factory=list)
    """Of both variants, told apart by `variant`."""
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


def load_analysis(path: Path) -> AnalysisRows:
    """Everything in an `analysis` folder; it need not be there."""
    return AnalysisRows(
        [row for kind in DISTANCES for row in load_rows(path, kind)],
        load_rows(path, "heads"),
        load_rows(path, "probes"),
        load_rows(path, "failures"),
        load_maps(path),
    )


def is_kind(row: Row, kind: str) -> bool:
    """Whether the head of a row looks mostly at the token before (`previous`), at itself, or by `induction`."""
    score, even = row[kind], row["even"][kind]
    return score is not None and score >= KIND and score >= 2 * even


def distance_label(row: Row) -> str:
    return f"{row['encoding']} (other seed)" if row["encoding"] == row["reference"] else row["encoding"]
