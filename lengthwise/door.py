"""The one door for what comes from outside: every file is read here, within limits, and checked against a schema.

An error names the file, the line or field, what was expected and what to do. Nothing is believed before it is checked:
neither that a path is a file, nor how large it is, nor how deeply it is nested, nor what stands in it.
"""

import errno
import gzip
import io
import json
import math
import os
import re
import stat
import tomllib
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.errors import RunError, UserError

SMALL, LARGE = 16 * 2**20, 2**30
"""Bytes of a file that people write, and of one that programs write."""
DEEPEST = 64
"""Tables within tables."""
WHOLE = 2**63
"""Whole numbers are below this."""
LONGEST_LINE = 2**26
"""Bytes of a line in a file of rows."""
BLOCK = 2**20
"""Bytes that are read at once of a file of rows."""


class MissingFile(RunError):
    """A file that should be there is not."""


# Files


def _not_read(path: Path, problem: OSError) -> str:
    if problem.errno in (errno.EACCES, errno.EPERM):
        return f"not allowed to read {path}; ask its owner for the right to"
    return f"cannot read {path}: {problem.strerror or problem}"


def refuse_unreadable(path: Path, most: int, error: type[UserError] = RunError) -> None:
    """Refuses what is no plain file of at most `most` bytes: folders, pipes and devices among them."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise (MissingFile if error is RunError else error)(f"no such file: {path}") from None
    except OSError as problem:
        raise error(_not_read(path, problem)) from None
    except ValueError:
        raise error(f"{str(path)!r} is no name of a file") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no plain file"
        raise error(f"{path} is {kind}")
    if found.st_size > most:
        raise error(f"{path} has {found.st_size:,} bytes; at most {most:,} are read")


def _opened(path: Path, most: int, error: type[UserError]) -> tuple[io.FileIO, int]:
    """A file to be read, and its bytes. The same is refused: asked of the open file that takes half as long."""
    try:
        # What is a pipe may have nobody at its other end: that is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        refuse_unreadable(path, most, error)  # which says more
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        os.close(descriptor)
        refuse_unreadable(path, most, error)
        raise error(f"{path} changes while it is read")
    return io.FileIO(descriptor), found.st_size


def read_bytes(path: Path, most: int = LARGE, error: type[UserError] = RunError) -> bytes:
    try:
        file, size = _opened(path, most, error)
        with file:
            content = file.read(size + 1)
            while size < len(content) <= most and (more := file.read(BLOCK)):  # others write to it
                content += more
    except OSError as problem:
        raise error(_not_read(path, problem)) from None
    if len(content) > most:
        raise error(f"{path} grows while it is read; at most {most:,} bytes are")
    return content


def read_text(path: Path, most: int = LARGE, error: type[UserError] = RunError) -> str:
    content = read_bytes(path, most, error)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = content[: problem.start].count(b"\n") + 1
        raise error(f"{path}:{line} is no text in UTF-8") from None


def blocks_of_lines(path: Path, most: int = LARGE, error: type[UserError] = RunError) -> Iterator[str]:
    """The text of a file in pieces of whole lines, unpacked where its name ends in .gz; never all of it at once.

    What follows the last end of a line is a piece by itself, the last one.
    """
    rest, total, lines, before = b"", 0, 0, b""
    try:
        file, size = _opened(path, most, error)
        with file, gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file as text:
            # Room for a block is made before it is read: of most files less is enough.
            while piece := text.read(BLOCK if text is not file else min(BLOCK, size + 1)):
                lines += before.count(b"\n")  # only now: most files are one piece
                total += len(piece)
                if total > most:
                    raise error(f"{path} has more than {most:,} bytes of text, which is more than is read")
                whole, newline, after = (rest + piece).rpartition(b"\n")
                rest, before = after, whole + newline
                if newline:
                    yield _decoded(before, path, lines, error)
                elif len(rest) > LONGEST_LINE:
                    raise error(f"{path}:{lines + 1} has more than {LONGEST_LINE:,} bytes, which is no row")
            if rest:
                yield _decoded(rest, path, lines + before.count(b"\n"), error)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise error(f"{path} is damaged: no whole gzip file; restore it, or make it again") from None
    except OSError as problem:
        raise error(_not_read(path, problem)) from None


def _decoded(content: bytes, path: Path, lines: int, error: type[UserError]) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = lines + content[: problem.start].count(b"\n") + 1
        raise error(f"{path}:{line} is no text in UTF-8") from None


def read_unpacked(path: Path, most: int = LARGE, error: type[UserError] = RunError) -> str:
    """The text in a gzip file, of which no more than `most` bytes are ever unpacked."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(path, most, error))) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise error(f"{path} unpacks to more than {most:,} bytes, which is more than is read")
        return content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        raise error(f"{path} is no whole gzip file of text") from None


# Values


def parse_json(text: str, where: str, error: type[UserError] = RunError, numbers: bool = True) -> Any:
    """A value of JSON without NaN and infinity, not deeper than DEEPEST.

    `numbers`: whether each of them is looked at here, too; a schema does that, and rows by the million have one.
    """
    refuse_deep(text, where, error)
    checks: dict[str, Any] = {"parse_int": _whole, "parse_float": _finite} if numbers else {}
    try:
        return json.loads(text, parse_constant=_no_constant, **checks)
    except json.JSONDecodeError as problem:
        place = f"line {problem.lineno}, column {problem.colno}"
        raise error(f"{where} is no JSON: {problem.msg} ({place}); mend the file, or make it again") from None
    except ValueError as problem:
        raise error(f"{where}: {problem}") from None


def refuse_deep(text: str, where: str, error: type[UserError] = RunError) -> None:
    """Before it is parsed: the parser goes one call deeper for each bracket."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = deepest = 0
    for bracket in _NO_BRACKETS.sub("", _TEXTS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise error(f"{where} is nested {deepest:,} deep; at most {DEEPEST} is read")


_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""In JSON; one that is not ended goes to the end, so that no letter is looked at twice."""
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -WHOLE <= (value := int(digits)) < WHOLE:
        raise ValueError(f"{digits[:24]} is no whole number of 64 bits")
    return value


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError(f"{digits[:24]} is too large a number")
    return value


def read_json(path: Path, schema: "Schema | None" = None, most: int = LARGE) -> dict[str, Any]:
    """A table of JSON that fits a schema."""
    found = parse_json(read_text(path, most), str(path))
    return (schema or ANY_OBJECT).checked(found, str(path))


def read_rows(path: Path, schema: "Schema | None" = None, most: int = LARGE) -> Iterator[dict[str, Any]]:
    """Tables of JSON, one a line, that fit a schema; a last line that is not ended is left out."""
    text = read_unpacked(path, most) if path.suffix == ".gz" else read_text(path, most)
    *lines, _ = text.split("\n")
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        yield (schema or ANY_OBJECT).checked(parse_json(line, where, numbers=schema is None), where)


def read_toml(path: Path, most: int = SMALL) -> dict[str, Any]:
    """A table of TOML without dates, of numbers of 64 bits, not deeper than DEEPEST."""
    text = read_text(path, most, UserError)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"{path} is not valid TOML: {problem}") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; at most {DEEPEST} is read") from None
    except ValueError as problem:  # a number that Python does not read
        raise UserError(f"{path}: {problem}") from None
    refuse_odd(found, str(path))
    return found


def refuse_odd(value: Any, where: str, depth: int = 0) -> None:
    """Refuses what no setting is: dates, numbers beyond 64 bits, tables within tables without end, odd letters."""
    if depth > DEEPEST:
        raise UserError(f"{where} is nested more than {DEEPEST} deep")
    if isinstance(value, Mapping):
        for key, each in value.items():
            refuse_odd_letters(str(key), f"a name in {where}")
            refuse_odd(each, f"{where}: {key}" if depth == 0 else f"{where}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            refuse_odd(each, f"{where}[{index}]", depth + 1)
    elif isinstance(value, str):
        refuse_odd_letters(value, where)
    elif isinstance(value, int) and not isinstance(value, bool) and not -WHOLE <= value < WHOLE:
        raise UserError(f"{where} must be a whole number of 64 bits")
    elif not (value is None or isinstance(value, bool | int | float)):
        raise UserError(f"{where} cannot be the {type(value).__name__} {value}; write it as a text")


# Words


def is_odd(letter: str) -> bool:
    """Control, escape, bidirectional and private letters, and halves of pairs: nobody sees what they do."""
    return unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def refuse_odd_letters(text: str, where: str) -> None:
    for letter in text:
        if is_odd(letter) and letter not in "\n\t\u2040":
            raise UserError(f"{where} has the letter U+{ord(letter):04X}, which cannot be seen; leave it out")


def visible(text: str, most: int = 200) -> str:
    """The text as it may be shown: what cannot be seen is written out, what is too long is cut."""
    shown = "".join(f"\\u{ord(letter):04x}" if is_odd(letter) else letter for letter in text[: most + 1])
    return shown if len(text) <= most else shown[:most] + "…"


def shown(message: str) -> str:
    """The same for what may have several lines and be long."""
    return "".join(f"\\u{ord(letter):04x}" if is_odd(letter) and letter != "\n" else letter for letter in message)


# Schemas


@dataclass(frozen=True)
class Schema:
    """What a value may be; `checked` returns it or says where it does not fit."""

    nullable: bool = field(default=False, kw_only=True)

    def checked(self, value: Any, where: str) -> Any:
        if value is None and self.nullable:
            return None
        if (problem := self.problem(value)) is not None:
            raise RunError(f"{where} {problem}; restore the file, or make it again")
        return value

    def problem(self, value: Any) -> str | None:
        return None


@dataclass(frozen=True)
class Number(Schema):
    least: float = -math.inf
    most: float = math.inf
    whole: bool = False

    def problem(self, value: Any) -> str | None:
        kinds = int if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
            return f"must be a {'whole ' * self.whole}number, not {_shown(value)}"
        if not self.least <= value <= self.most:
            return f"must be from {self.least:g} to {self.most:g}, not {_shown(value)}"
        return None


@dataclass(frozen=True)
class Text(Schema):
    most: int = 10_000
    choices: Sequence[str] = ()

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, str):
            return f"must be a text, not {_shown(value)}"
        if len(value) > self.most:
            return f"must have at most {self.most} letters, not {len(value):,}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}, not {_shown(value)}"
        return None


@dataclass(frozen=True)
class Truth(Schema):
    def problem(self, value: Any) -> str | None:
        return None if isinstance(value, bool) else f"must be true or false, not {_shown(value)}"


@dataclass(frozen=True)
class List(Schema):
    of: Schema = field(default_factory=Schema)
    most: int = 10_000_000

    def checked(self, value: Any, where: str) -> Any:
        if value is None and self.nullable:
            return None
        if not isinstance(value, list):
            raise RunError(f"{where} must be a list, not {_shown(value)}; restore the file, or make it again")
        if len(value) > self.most:
            raise RunError(f"{where} must have at most {self.most:,} entries, not {len(value):,}")
        for index, each in enumerate(value):
            self.of.checked(each, f"{where}[{index}]")
        return value


@dataclass(frozen=True)
class Object(Schema):
    needed: Mapping[str, Schema] = field(default_factory=dict)
    allowed: Mapping[str, Schema] = field(default_factory=dict)
    others: bool = True
    """Whether further fields may be there: newer versions write more."""

    def checked(self, value: Any, where: str) -> Any:
        if value is None and self.nullable:
            return None
        if not isinstance(value, dict):
            raise RunError(f"{where} must be a table, not {_shown(value)}; restore the file, or make it again")
        for name, schema in self.needed.items():
            if name not in value:
                raise RunError(f"{where} has no {name!r}; restore the file, or make it again")
            schema.checked(value[name], f"{where}: {name}")
        for name, schema in self.allowed.items():
            if name in value:
                schema.checked(value[name], f"{where}: {name}")
        if not self.others and (unknown := value.keys() - self.needed.keys() - self.allowed.keys()):
            raise RunError(f"{where} has the unknown field '{visible(min(unknown))}'")
        return value


ANY_OBJECT = Object()
WHOLE_NUMBER, COUNT = Number(whole=True), Number(least=0, most=WHOLE, whole=True)
SHARE = Number(least=0, most=1)


def _shown(value: Any) -> str:
    names = {str: "the text", bool: "the truth value", list: "a list", dict: "a table", type(None): "nothing"}
    if isinstance(value, list | dict) or value is None:
        return names[type(value)]
    return f"{names.get(type(value), 'the number')} {visible(json.dumps(value), 60)}"
