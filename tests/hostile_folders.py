"""Changes that make a good folder of files a hostile one, and what must hold of a command that reads it."""

import gzip
import json
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lengthwise.errors import UserError

SECONDS, MEGABYTES = 10.0, 1024
"""That a case may take at most."""

Case = tuple[str, Callable[[], None]]
Commands = Mapping[str, Callable[[Path, Path], object]]
"""By name: what reads a folder and writes into another."""

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


# Changes

GONE = object()
_PLACE = "@raw value@"


def text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def rewrite(path: Path, text: str) -> None:
    content = text.encode(errors="surrogatepass")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def first(path: Path) -> Any:
    found = text(path)
    return json.loads(found if path.suffix == ".json" else found.splitlines()[0])


def paths(value: Any, before: str = "") -> list[str]:
    """Of every field, those in tables and in the first entry of lists of tables too."""
    found = []
    for name, each in value.items():
        path = f"{before}{name}"
        found.append(path)
        if isinstance(each, list) and each and isinstance(each[0], dict):
            path, each = f"{path}.0", each[0]
        if isinstance(each, dict):
            found += paths(each, f"{path}.")
    return found


def change(path: Path, field: str, value: Any) -> None:
    """In the first row, or in all of it."""
    whole = text(path)
    first, rest = (whole, "") if path.suffix == ".json" else whole.split("\n", 1)
    table = json.loads(first)
    *before, last = field.split(".")
    at = table
    for part in before:
        at = at[int(part) if isinstance(at, list) else part]
    if value is GONE:
        at.pop(last)
    else:
        at[last] = value
    rewrite(path, json.dumps(table) + ("\n" + rest if path.suffix != ".json" else ""))


def change_raw(path: Path, field: str, raw: str) -> None:
    change(path, field, _PLACE)
    rewrite(path, text(path).replace(json.dumps(_PLACE), raw, 1))


def encode(path: Path, encoding: str) -> None:
    path.write_bytes(text(path).encode(encoding))


def scramble(path: Path, seed: int) -> None:
    generator, content = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(generator.randrange(1, 20)):
        content[generator.randrange(len(content))] = generator.randrange(256)
    path.write_bytes(content)


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def bomb(path: Path) -> None:
    path.unlink()
    packed = path.with_name(path.name + ".gz")
    with gzip.open(packed, "wb", compresslevel=1) as file:
        for _ in range(600):
            file.write(bytes(2**20))


def replaced(file: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else in the place of a file."""

    def change(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return change


def not_plain(file: str) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What is no plain file, in the place of one."""
    yield f"{file} is a pipe", replaced(file, os.mkfifo)
    yield f"{file} is endless", replaced(file, lambda path: path.symlink_to("/dev/zero"))
    yield f"{file} is a folder", replaced(file, lambda path: path.mkdir())
    yield f"{file} links to nothing", replaced(file, lambda path: path.symlink_to("absent"))
    yield f"{file} links to itself", replaced(file, lambda path: path.symlink_to(path.name))
    yield f"{file} is not there", replaced(file, lambda path: None)


# Checks


def check(source: Path, commands: Commands, change: Callable[[Path], object], accepted: bool | None = None) -> None:
    """All commands on a changed copy. `accepted`: whether it must be, or None where either is fine."""
    with tempfile.TemporaryDirectory(prefix="fuzz-case-") as place:
        folder = Path(place) / "in"
        shutil.copytree(source, folder, symlinks=True)
        change(folder)
        began, refused = time.process_time(), []
        for name, command in commands.items():
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
        assert (seconds := time.process_time() - began) < SECONDS, f"took {seconds:.0f} s"
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
