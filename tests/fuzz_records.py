"""Hostile rows, runs and collections: several hundred, made from a good one by a seeded generator.

Each is read by what stands behind `show`, `report`, `compare` and `collect`. A case is fine where it is refused by a
UserError of one line, with nothing written, or where all of them give what they would give of good results.

python tests/fuzz_records.py        runs all of them, and says how many there were
"""

import contextlib
import gzip
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hostile_folders import (
    GONE,
    RAW,
    VALUES,
    Case,
    bomb,
    change,
    change_raw,
    check,
    cut,
    encode,
    first,
    not_plain,
    paths,
    rewrite,
    scramble,
    text,
)
from rich.console import Console
from synthetic import write_battery
from synthetic_analysis import write_analysis

from lengthwise.records.comparison import compare
from lengthwise.records.findings import load_analysis
from lengthwise.records.rows import collect, load_results
from lengthwise.report.export import write_report
from lengthwise.report.model.displayed import displayed
from lengthwise.report.terminal.comparison import comparison_tables
from lengthwise.report.terminal.show import show_tables


@cache
def good() -> Path:
    """A collection of 12 runs with findings, made once."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-records-"))
    tasks, encodings, seeds = ["copy.repeat", "parity"], ("none", "t5"), (1, 2, 3)
    write_battery(folder / "runs", tasks, encodings, seeds, failures=1, words=3, validations=2)
    write_analysis(folder / "runs", layers=2, heads=2, tokens=6)
    collect(load_results(folder / "runs"), folder / "c")
    for packed in folder.glob("c/*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return folder


def of_collection(changed: Callable[[Path], object], accepted: bool | None = None, of: str = "c") -> None:
    check(good() / of, COMMANDS, changed, accepted)


def cases(seed: int = 0) -> Iterator[Case]:
    """Name and check; a check raises AssertionError where a promise is broken."""
    generator = random.Random(seed)
    yield "good collection", lambda: of_collection(lambda folder: None, accepted=True)
    yield from _fields(generator)
    yield from _lines(generator)
    yield from _bytes(generator)
    yield from _folders()
    yield from _run_folders(generator)


FILES = ("study.json", "runs.jsonl", "rows.jsonl", "failures.jsonl")
KINDS = ("distance", "heads", "probes", "failures", "maps")
MEANINGLESS: tuple[tuple[str, str, Any], ...] = (
    ("rows.jsonl", "n", 0),
    ("rows.jsonl", "n", -1),
    ("rows.jsonl", "correct", 101),
    ("rows.jsonl", "correct", -1),
    ("rows.jsonl", "chance", 5),
    ("rows.jsonl", "length", 0),
    ("rows.jsonl", "seed", -1),
    ("rows.jsonl", "seed", 99),
    ("rows.jsonl", "task", "another"),
    ("rows.jsonl", "run", "another"),
    ("rows.jsonl", "checkpoint", "worst"),
    ("rows.jsonl", "seen", 1),
    ("runs.jsonl", "description.train_lengths", [5, 1]),
    ("runs.jsonl", "description.train_lengths", [1, 2, 3]),
    ("runs.jsonl", "description.seed", 1.5),
    ("runs.jsonl", "description.parameters", -5),
    ("runs.jsonl", "finished.trained_together", 0),
    ("runs.jsonl", "finished.seconds_together", -1),
    ("runs.jsonl", "finished.validations", [{"step": 1, "validation": 2}]),
    ("study.json", "version", 2),
    ("study.json", "seeds", ["a"]),
    ("study.json", "task_order", [["a"]]),
    ("failures.jsonl", "length", -1),
    ("failures.jsonl", "predicted", "text"),
)
"""(file, field, value) that must not be accepted."""


def _fields(generator: random.Random) -> Iterator[Case]:
    """Every field of every kind of file: left out, and with several other values."""
    for file, field, value in MEANINGLESS:
        yield (
            f"{file} {field}={value!r}",
            lambda f=file, p=field, v=value: of_collection(lambda c: change(c / f, p, v), False),
        )
    for file in (*FILES, *(f"analysis/{kind}.jsonl.gz" for kind in KINDS)):
        for path in paths(first(good() / "c" / file)):
            yield f"{file} without {path}", lambda f=file, p=path: of_collection(lambda c: change(c / f, p, GONE))
            for value in generator.sample(VALUES, 3):
                name = f"{file} {path}={str(value)[:20]!r}"
                yield name, lambda f=file, p=path, v=value: of_collection(lambda c: change(c / f, p, v))
            raw = generator.choice(RAW)
            name = f"{file} {path}={raw[:20]}"
            yield name, lambda f=file, p=path, v=raw: of_collection(lambda c: change_raw(c / f, p, v))


def _lines(generator: random.Random) -> Iterator[Case]:
    """Lines left out, doubled, in another order, cut, empty, of another kind."""

    def edit(file: str, changed: Callable[[list[str]], list[str]]) -> Callable[[], None]:
        return lambda: of_collection(
            lambda c: rewrite(c / file, "".join(changed(text(c / file).splitlines(keepends=True))))
        )

    for file in FILES[1:]:
        place = generator.randrange(1, 12)
        yield f"{file} line left out", edit(file, lambda lines, i=place: lines[:i] + lines[i + 1 :])
        yield f"{file} line twice", edit(file, lambda lines, i=place: [*lines[:i], lines[i], *lines[i:]])
        yield f"{file} reversed", edit(file, lambda lines: lines[::-1])
        yield f"{file} half", edit(file, lambda lines: lines[: len(lines) // 2])
        yield f"{file} empty line", edit(file, lambda lines, i=place: [*lines[:i], "\n", *lines[i:]])
        yield f"{file} nothing", edit(file, lambda lines: [])
        for other in ("[]\n", "1\n", "null\n", '"x"\n', "{}\n", "{},{}\n", "rubbish\n", "[" * 100_000 + "\n"):
            replaced = edit(file, lambda lines, i=place, o=other: [*lines[:i], o, *lines[i + 1 :]])
            yield f"{file} line {other[:8]!r}", replaced
        yield f"{file} two lines as one", edit(file, lambda lines: [lines[0].rstrip() + "," + lines[1], *lines[2:]])
        yield f"{file} a line in two", edit(file, lambda lines: [lines[0].replace(", ", ",\n", 1), *lines[1:]])


def _bytes(generator: random.Random) -> Iterator[Case]:
    """Files with some bytes changed, cut off anywhere, packed wrongly, and huge ones."""
    for file in (*FILES, "analysis/heads.jsonl.gz", "analysis/maps.jsonl.gz"):
        for number in range(6):
            seed = generator.randrange(2**32)
            yield f"{file} bytes {number}", lambda f=file, s=seed: of_collection(lambda c: scramble(c / f, s))
            share = generator.random()
            yield f"{file} cut {number}", lambda f=file, s=share: of_collection(lambda c: cut(c / f, s))
        yield f"{file} of UTF-16", lambda f=file: of_collection(lambda c: encode(c / f, "utf-16"), False)
        yield f"{file} of zeros", lambda f=file: of_collection(lambda c: (c / f).write_bytes(bytes(10_000)), False)
        yield f"{file} larger than is read", lambda f=file: of_collection(lambda c: os.truncate(c / f, 2**31), False)
    for file in ("rows.jsonl", "failures.jsonl"):
        yield f"{file} unpacks to 600 MB", lambda f=file: of_collection(lambda c: bomb(c / f), False)


def _folders() -> Iterator[Case]:
    """What is no plain file."""
    for file in (*FILES, "analysis/heads.jsonl.gz"):
        for name, replace in not_plain(file):
            yield name, lambda r=replace: of_collection(r)


def _run_folders(generator: random.Random) -> Iterator[Case]:
    """The same in folders of runs."""
    run = "copy.repeat/none"

    def first_run(folder: Path) -> Path:
        return sorted((folder / run).iterdir())[0]

    for file in ("run.json", "finished.json"):
        for path in paths(json.loads((first_run(good() / "runs") / file).read_text())):
            value = generator.choice((GONE, *VALUES))
            name = f"run folder {file} {path}={'nothing' if value is GONE else str(value)[:20]!r}"
            yield (
                name,
                lambda f=file, p=path, v=value: of_collection(lambda c: change(first_run(c) / f, p, v), of="runs"),
            )
    for file in ("rows.jsonl", "failures.jsonl"):
        for number in range(8):
            share = generator.random()
            yield (
                f"run folder {file} cut {number}",
                lambda f=file, s=share: of_collection(lambda c: cut(first_run(c) / f, s), of="runs"),
            )

    def twice(folder: Path) -> None:
        shutil.copytree(first_run(folder), first_run(folder).with_name("seed-9-x"))

    yield "run folder twice", lambda: of_collection(twice, False, "runs")


def _show(folder: Path, out: Path) -> None:
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, width=120)
        for table in show_tables(load_results(folder)):
            console.print(table)


def _compare(folder: Path, out: Path) -> None:
    results = displayed(load_results(folder))
    for table in comparison_tables(compare(results, "best"), results):
        with Path(os.devnull).open("w") as nowhere:
            Console(file=nowhere, width=120).print(table)


def _report(folder: Path, out: Path) -> None:
    results, analysis = load_results(folder), load_analysis(folder / "analysis")
    with contextlib.suppress(FileExistsError):
        out.mkdir()
    write_report(results, out / "r.html", analysis=analysis)


def _collect(folder: Path, out: Path) -> None:
    collect(load_results(folder), out)
    load_results(out)


COMMANDS: dict[str, Callable[[Path, Path], object]] = {
    "show": _show,
    "compare": _compare,
    "collect": _collect,
    "report": _report,
}


def main() -> None:
    number, broken = 0, []
    for name, run in cases():
        number += 1
        try:
            run()
        except AssertionError as problem:
            broken.append(name)
            print(f"{name}: {str(problem)[:300]}", flush=True)
    print(f"{number:,} hostile rows, runs and collections; {len(broken)} broke a promise")
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()
