"""Results of analyses as rows in the study's folder: one file for each run or pair, whole or not there at all.

runs/scan/analysis/
  distance/RUN-REFERENCE-last.jsonl       first what was asked, then the rows
  heads/RUN-last.jsonl, probes/RUN-last.jsonl, failures/RUN-last.jsonl
  maps/RUN-last.json                      attention maps of a few examples, to be looked at
Imports no torch, so that reports can read them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lengthwise.records.directory import make_folder
from lengthwise.records.files import read_json, read_rows, write_json, write_rows

Row = dict[str, Any]

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
    """All rows of a kind (`distance`, `distance-published`, `heads`, `probes`, `failures`) in an `analysis` folder."""
    return [row for file in sorted((path / kind).glob("*.jsonl")) for row in read_rows(file)[1:]]


def load_maps(path: Path) -> list[Row]:
    """The example attention maps of all runs that have some."""
    return [read_json(file) for file in sorted((path / "maps").glob("*.json"))]
