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
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from synthetic import write_battery
from synthetic_analysis import write_analysis

from lengthwise.errors import UserError
from lengthwise.records.comparison import compare
from lengthwise.records.findings import load_analysis
from lengthwise.records.rows import collect, load_results
from lengthwise.report.export import write_report
from lengthwise.report.model.displayed import displayed
from lengthwise.report.terminal.comparison import comparison_tables
from lengthwise.report.terminal.show import show_tables

SECONDS, MEGABYTES = 10.0, 1024
"""That a case may take at most."""

Case = tuple[str, Callable[[], None]]

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    5,
    2**31,
    2**63,
    10**30,
    0.5,
    -0.5,
    1e308,
    "",
    "x",
    "\u202e\x1b[2J",
    "__proto__",
    "9" * 5000,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"b": {}}},
)
"""In place of a good one."""

RAW = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 5000, '{"a":' * 5000, '"\\ud800"', "1.5.2", "'x'", "")
"""The same, as text that JSON has no value for, or should have none."""


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


def cases(seed: int = 0) -> Iterator[Case]:
    """Name and check; a check raises AssertionError where a promise is broken."""
    generator = random.Random(seed)
    yield "good collection", lambda: check(lambda folder: None, accepted=True)
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
        yield f"{file} {field}={value!r}", lambda f=file, p=field, v=value: check(lambda c: _change(c / f, p, v), False)
    for file in (*FILES, *(f"analysis/{kind}.jsonl.gz" for kind in KINDS)):
        for path in _paths(_first(good() / "c" / file)):
            yield f"{file} without {path}", lambda f=file, p=path: check(lambda c: _change(c / f, p, _GONE))
            for value in generator.sample(VALUES, 3):
                name = f"{file} {path}={str(value)[:20]!r}"
                yield name, lambda f=file, p=path, v=value: check(lambda c: _change(c / f, p, v))
            raw = generator.choice(RAW)
            name = f"{file} {path}={raw[:20]}"
            yield name, lambda f=file, p=path, v=raw: check(lambda c: _change_raw(c / f, p, v))


def _lines(generator: random.Random) -> Iterator[Case]:
    """Lines left out, doubled, in another order, cut, empty, of another kind."""

    def edit(file: str, change: Callable[[list[str]], list[str]]) -> Callable[[], None]:
        return lambda: check(lambda c: _rewrite(c / file, "".join(change(_text(c / file).splitlines(keepends=True)))))

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
            yield f"{file} bytes {number}", lambda f=file, s=seed: check(lambda c: _scramble(c / f, s))
            share = generator.random()
            yield f"{file} cut {number}", lambda f=file, s=share: check(lambda c: _cut(c / f, s))
        yield f"{file} of UTF-16", lambda f=file: check(lambda c: _encode(c / f, "utf-16"), False)
        yield f"{file} of zeros", lambda f=file: check(lambda c: (c / f).write_bytes(bytes(10_000)), False)
        yield f"{file} larger than is read", lambda f=file: check(lambda c: os.truncate(c / f, 2**31), False)
    for file in ("rows.jsonl", "failures.jsonl"):
        yield f"{file} unpacks to 600 MB", lambda f=file: check(lambda c: _bomb(c / f), False)


def _folders() -> Iterator[Case]:
    """What is no plain file."""

    def replaced(file: str, make: Callable[[Path], object]) -> Callable[[], None]:
        def change(folder: Path) -> None:
            (folder / file).unlink()
            make(folder / file)

        return lambda: check(change)

    for file in (*FILES, "analysis/heads.jsonl.gz"):
        yield f"{file} is a pipe", replaced(file, os.mkfifo)
        yield f"{file} is endless", replaced(file, lambda path: path.symlink_to("/dev/zero"))
        yield f"{file} is a folder", replaced(file, lambda path: path.mkdir())
        yield f"{file} links to nothing", replaced(file, lambda path: path.symlink_to("absent"))
        yield f"{file} links to itself", replaced(file, lambda path: path.symlink_to(path.name))
        yield f"{file} is not there", replaced(file, lambda path: None)


def _run_folders(generator: random.Random) -> Iterator[Case]:
    """The same in folders of runs."""
    run = "copy.repeat/none"

    def first(folder: Path) -> Path:
        return sorted((folder / run).iterdir())[0]

    for file in ("run.json", "finished.json"):
        for path in _paths(json.loads((first(good() / "runs") / file).read_text())):
            value = generator.choice((_GONE, *VALUES))
            name = f"run folder {file} {path}={'nothing' if value is _GONE else str(value)[:20]!r}"
            yield name, lambda f=file, p=path, v=value: check(lambda c: _change(first(c) / f, p, v), of="runs")
    for file in ("rows.jsonl", "failures.jsonl"):
        for number in range(8):
            share = generator.random()
            yield (
                f"run folder {file} cut {number}",
                lambda f=file, s=share: check(lambda c: _cut(first(c) / f, s), of="runs"),
            )

    def twice(folder: Path) -> None:
        shutil.copytree(first(folder), first(folder).with_name("seed-9-x"))

    yield "run folder twice", lambda: check(twice, False, "runs")


# Changes

_GONE = object()
_RAW = "@raw value@"


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def _rewrite(path: Path, text: str) -> None:
    content = text.encode(errors="surrogatepass")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _first(path: Path) -> Any:
    text = _text(path)
    return json.loads(text if path.suffix == ".json" else text.splitlines()[0])


def _paths(value: Any, before: str = "") -> list[str]:
    """Of every field, those in tables and in the first entry of lists of tables too."""
    found = []
    for name, each in value.items():
        path = f"{before}{name}"
        found.append(path)
        if isinstance(each, list) and each and isinstance(each[0], dict):
            path, each = f"{path}.0", each[0]
        if isinstance(each, dict):
            found += _paths(each, f"{path}.")
    return found


def _change(path: Path, field: str, value: Any) -> None:
    """In the first row, or in all of it."""
    whole = _text(path)
    first, rest = (whole, "") if path.suffix == ".json" else whole.split("\n", 1)
    table = json.loads(first)
    *before, last = (int(part) if part.isdigit() else part for part in field.split("."))
    at = table
    for part in before:
        at = at[part]
    if value is _GONE:
        at.pop(last)
    else:
        at[last] = value
    _rewrite(path, json.dumps(table) + ("\n" + rest if path.suffix != ".json" else ""))


def _change_raw(path: Path, field: str, raw: str) -> None:
    _change(path, field, _RAW)
    _rewrite(path, _text(path).replace(json.dumps(_RAW), raw, 1))


def _encode(path: Path, encoding: str) -> None:
    path.write_bytes(_text(path).encode(encoding))


def _scramble(path: Path, seed: int) -> None:
    generator, content = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(generator.randrange(1, 20)):
        content[generator.randrange(len(content))] = generator.randrange(256)
    path.write_bytes(content)


def _cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def _bomb(path: Path) -> None:
    path.unlink()
    packed = path.with_name(path.name + ".gz")
    with gzip.open(packed, "wb", compresslevel=1) as file:
        for _ in range(600):
            file.write(bytes(2**20))


# Checks


def check(change: Callable[[Path], object], accepted: bool | None = None, of: str = "c") -> None:
    """All commands on a changed copy. `accepted`: whether it must be, or None where either is fine."""
    with tempfile.TemporaryDirectory(prefix="fuzz-case-") as place:
        folder = Path(place) / "in"
        shutil.copytree(good() / of, folder, symlinks=True)
        change(folder)
        began, refused = time.monotonic(), []
        for name, command in COMMANDS.items():
            out = Path(place) / "out"
            problem = _problem(command, folder, out)
            written = sorted(path.name for path in out.iterdir()) if out.exists() else []
            if problem is not None:
                refused.append(name)
                assert 0 < len(problem) < 3000 and "\n" not in problem, f"{name}: not one line: {problem[:200]!r}"
                assert not any(0 < ord(letter) < 32 for letter in problem), f"{name}: {problem!r}"
                assert not written, f"{name} was refused ({problem}) and wrote {written}"
            shutil.rmtree(out, ignore_errors=True)
        assert set(path.name for path in Path(place).iterdir()) <= {"in", "out"}, "something was written elsewhere"
        assert accepted is not True or not refused, f"good results were refused: {problem}"
        assert accepted is not False or refused, "what means nothing was accepted"
        assert (seconds := time.monotonic() - began) < SECONDS, f"took {seconds:.0f} s"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    assert peak < MEGABYTES, f"took {peak:,} MB"


def _problem(command: Callable[[Path, Path], object], folder: Path, out: Path) -> str | None:
    try:
        command(folder, out)
    except UserError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    return None


def _show(folder: Path, out: Path) -> None:
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, width=120)
        for table in show_tables(load_results(folder)):
            console.print(table)


def _compare(folder: Path, out: Path) -> None:
    for table in comparison_tables(compare(displayed(load_results(folder)), "best")):
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
