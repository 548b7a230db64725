"""A corpus is documents: text files, JSON lines or a Hugging Face dataset on disk, read one document at a time."""

import hashlib
import importlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any

from lengthwise import door
from lengthwise.errors import UserError

SPLITS = ("train", "validation", "test")
HELD_OUT = 0.05
"""Share of the documents in validation, and in test, where the corpus has no folders of these names."""
LONG_LINE = 1_000_000
"""Bytes from which a broken line of JSON is probably not meant to be a line."""
LONGEST_LINE, LONGEST_TEXT = 2**27, 2**30
"""Bytes of a line of JSON, and of a text file: a document is held in memory several times while it is encoded."""


@dataclass(frozen=True)
class Document:
    name: str
    """Its file within the corpus, and the line or row where a file has many."""
    text: str
    split: str


@dataclass(frozen=True)
class CorpusFile:
    path: Path
    name: str
    """Within the corpus."""
    split: str | None
    """By its folder; None where documents are divided one by one."""


class Corpus:
    """A folder (or a file) of documents.

    `.txt`: one document a file, UTF-8. `.jsonl`: one document a line, its text under `field`. `.arrow`: one document
    a row, as `Dataset.save_to_disk` writes them. If the folder has a folder `train`, then `train`, `validation` and
    `test` are the splits, and nothing else is read. Otherwise a hash of a document's name decides. A document is
    never divided.
    """

    def __init__(self, path: Path, field: str = "text", trains: bool = True) -> None:
        """`trains`: whether a model is to be trained on it, so that splits without `train` are refused."""
        self.path, self.field = path, field
        self.files = _files(path, trains)
        if any(file.path.suffix == ".arrow" for file in self.files):
            _pyarrow()

    @property
    def is_flat(self) -> bool:
        """Whether it has no folders that say which documents are of which split."""
        return all(file.split is None for file in self.files)

    def documents(self, splits: Collection[str] = SPLITS) -> Iterator[Document]:
        """Always in the same order."""
        for file in self.files:
            if file.split is not None and file.split not in splits:
                continue
            for name, text in _READERS[file.path.suffix](file, self.field):
                split = file.split or split_of(name)
                if split in splits:
                    yield Document(name, text, split)

    def hashes(self) -> list[tuple[str, str | None, str]]:
        """Name, split and SHA-256 of the content of every file."""
        return [(file.name, file.split, content_hash(file.path)) for file in self.files]


def split_of(name: str) -> str:
    """The split of a document that has no folder to say it."""
    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") / 2**64
    return "validation" if place < HELD_OUT else "test" if place < 2 * HELD_OUT else "train"


def _files(path: Path, trains: bool) -> list[CorpusFile]:
    if not path.exists():
        raise UserError(f"no corpus at {path}")
    if path.is_file():
        if path.suffix not in _READERS:
            raise UserError(f"{path} must be a folder, or a file that ends in {', '.join(_READERS)}")
        return [CorpusFile(path, path.name, None)]
    folders = [split for split in SPLITS if (path / split).is_dir()]
    if trains and folders and "train" not in folders:
        raise UserError(f"{path} has a folder {folders[0]}, but none called train")
    files = []
    for split in folders or [None]:
        for found in sorted((path / split if split else path).rglob("*")):
            inside = found.relative_to(path)
            # Hugging Face keeps what it has computed in files called cache-*.
            hidden = found.name.startswith("cache-") or any(part.startswith(".") for part in inside.parts)
            hidden = hidden or any(_is_ours(path / above) for above in inside.parents)
            if found.suffix in _READERS and found.is_file() and not hidden:
                files.append(CorpusFile(found, inside.as_posix(), split))
    if not files:
        raise UserError(f"{path} holds no document: no file in it ends in {', '.join(_READERS)}")
    return files


@cache
def _is_ours(folder: Path) -> bool:
    """Whether it is a run, prepared tokens or a fit: somebody may keep them beside the texts that they came from."""
    return any((folder / name).exists() for name in ("run.json", "manifest.json", "fit.json"))


def _read_text(file: CorpusFile, _field: str) -> Iterator[tuple[str, str]]:
    yield file.name, _decoded(door.read_bytes(file.path, LONGEST_TEXT, UserError), file.path, line=1)


def _read_lines(file: CorpusFile, field: str) -> Iterator[tuple[str, str]]:
    with _opened(file.path) as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), start=1):
            if not line.strip():
                continue
            where = f"{file.path}:{number}"
            if len(line) > LONGEST_LINE:
                raise UserError(f"{where} has more than {LONGEST_LINE:,} bytes: is it one line for each document?")
            try:
                value = json.loads(_decoded(line, file.path, number))
            except RecursionError:
                raise UserError(f"{where} is nested too deeply to be a document") from None
            except json.JSONDecodeError as error:
                long = f"; the line has {len(line):,} bytes: is it one line for each document?"
                raise UserError(f"{where} is not JSON ({error.msg}){long if len(line) > LONG_LINE else ''}") from None
            except ValueError:  # a number of thousands of digits, which Python does not read
                raise UserError(f"{where} holds a number that is too long") from None
            yield f"{file.name}:{number}", _text_in(value, field, where)


def _read_arrow(file: CorpusFile, field: str) -> Iterator[tuple[str, str]]:
    arrow = _pyarrow()
    number = 0
    with arrow.memory_map(str(file.path)) as source:
        try:
            # `datasets` writes streams; other programs may have written files.
            is_file = file.path.stat().st_size > 6 and source.read(6) == b"ARROW1"
            source.seek(0)
            if is_file:
                reader = arrow.ipc.open_file(source)
                batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
            else:
                batches = iter(arrow.ipc.open_stream(source))
            for batch in batches:
                if field not in batch.schema.names:
                    raise UserError(f"{file.path} has no column {field!r}; it has {', '.join(batch.schema.names)}")
                for value in batch.column(field):
                    yield f"{file.name}:{number}", _text_in({field: value.as_py()}, field, f"{file.path}, row {number}")
                    number += 1
        except (arrow.ArrowException, OSError) as error:
            words = " ".join(str(error).split())
            raise UserError(f"{file.path} is not a whole Arrow file ({door.visible(words)})") from None


_READERS: dict[str, Callable[[CorpusFile, str], Iterator[tuple[str, str]]]] = {
    ".txt": _read_text,
    ".jsonl": _read_lines,
    ".arrow": _read_arrow,
}


def _pyarrow() -> Any:
    """The library, or an error that says how to get it."""
    try:
        importlib.import_module("pyarrow.ipc")
        return importlib.import_module("pyarrow")
    except ImportError:
        raise UserError("a Hugging Face dataset is read with pyarrow, which is missing: pip install pyarrow") from None


def _opened(path: Path) -> BufferedReader:
    door.refuse_unreadable(path, 2**63, UserError)
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _decoded(content: bytes, path: Path, line: int) -> str:
    """`line`: the number of the first one."""
    nothing = content.find(b"\0")
    if nothing >= 0:
        at = line + content.count(b"\n", 0, nothing)
        raise UserError(f"{path}:{at} holds a zero byte: this is no text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = line + content.count(b"\n", 0, error.start)
        raise UserError(
            f"{path}:{at} is not UTF-8 (byte {content[error.start]:#04x}): convert it, or leave it out"
        ) from None


def _text_in(value: object, field: str, where: str) -> str:
    if not isinstance(value, dict) or field not in value:
        names = door.visible(", ".join(map(str, value))) if isinstance(value, dict) else ""
        has = f"it has {names}" if isinstance(value, dict) else f"it is a {type(value).__name__}"
        raise UserError(f"{where} has no field {field!r}; {has}")
    text = value[field]
    if not isinstance(text, str):
        raise UserError(f"{where}: {field!r} must be a text, not {type(text).__name__}")
    try:
        text.encode()  # JSON can hold halves of characters, which no tokenizer can read
    except UnicodeEncodeError:
        raise UserError(f"{where}: {field!r} holds half of a character (a lone surrogate)") from None
    return text


def content_hash(path: Path) -> str:
    """SHA-256."""
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
