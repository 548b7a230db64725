"""What analyses found in the runs of a study: a file for each run, or, in a collection, one file for each kind.

runs/scan/analysis/KIND/UNIT.jsonl        first what was asked, then the rows; UNIT: a run or a pair, at a checkpoint
runs/scan/analysis/KIND/UNIT.json         the same for what is one row
results/scan/analysis/KIND.jsonl.gz       the rows of all units: a sixth of the size
"""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from lengthwise.records.directory import make_folder
from lengthwise.records.files import read_json, read_rows
from lengthwise.records.packed import read_packed, write_packed

Row = dict[str, Any]

PACKED = ".jsonl.gz"


def read_findings(folder: Path, kind: str) -> list[Row]:
    """The rows of a kind; none where nobody has looked. A collection holds what it was collected with, so it is read
    before anything beside it."""
    packed = folder / f"{kind}{PACKED}"
    if packed.exists():
        return read_packed(packed)
    files = sorted((folder / kind).glob("*"))
    rows = [row for file in files if file.suffix == ".jsonl" for row in read_rows(file)[1:]]
    return rows + [read_json(file) for file in files if file.suffix == ".json"]


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
            earlier.unlink()
    for kind, rows in found.items():
        make_folder(folder)
        write_packed(folder / f"{kind}{PACKED}", rows)


def is_about(row: Row, runs: Container[str]) -> bool:
    """Whether the run of a row, and the one that it was compared with, are among these."""
    return row["run"] in runs and row.get("reference_run", row["run"]) in runs
