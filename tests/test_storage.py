"""What a disk can do to us is one line that says what to do, and leaves what was there as it was."""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.errors import RunError, UserError
from lengthwise.records import packed
from lengthwise.records.directory import StudyDirectory, make_folder
from lengthwise.records.files import append_rows, read_json, read_rows, storage_error, write_json, write_rows
from lengthwise.records.packed import write_fitting, write_packed
from lengthwise.records.rows import load_results

SAID = {
    errno.EROFS: "read-only",
    errno.EFBIG: "ulimit",
    errno.EDQUOT: "your share of the disk",
    errno.ENOSPC: "the disk is full",
    errno.EIO: "the disk reports an error",
    errno.EACCES: "not allowed",
    errno.EPERM: "not allowed",
}
ROWS = [{"a": i} for i in range(3)]
WRITERS: dict[str, Callable[[Path], object]] = {
    "write_json": lambda path: write_json(path, {"a": 1}),
    "write_rows": lambda path: write_rows(path, ROWS),
    "append_rows": lambda path: append_rows(path, ROWS),
    "write_packed": lambda path: write_packed(path, ROWS),
    "write_fitting": lambda path: write_fitting(path, ROWS),
}


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "x")

    return fail


@pytest.mark.parametrize("number", SAID)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("where", ["open", "fsync", "replace"])
def test_writing(number: int, writer: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if writer == "append_rows" and where != "open":
        pytest.skip("rows that are appended are neither replaced nor waited for")
    file = tmp_path / "file.jsonl"
    file.write_text("before\n")
    if where == "open":
        opened = io.open

        def refusing(name: object, mode: str = "r", *rest: object, **more: object) -> object:
            if set(mode) & set("wa+"):
                failing(number)()
            return opened(name, mode, *rest, **more)  # type: ignore

        monkeypatch.setattr(io, "open", refusing)
    else:
        monkeypatch.setattr(os, where, failing(number))
    with pytest.raises(RunError) as told:
        WRITERS[writer](file)
    monkeypatch.undo()
    assert SAID[number] in str(told.value) and "file.jsonl" in str(told.value) and "\n" not in str(told.value)
    assert file.read_text() == "before\n" and list(tmp_path.iterdir()) == [file], "nothing is lost or left behind"


@pytest.mark.parametrize("number", SAID)
def test_removing_and_folders(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "LARGEST_PLAIN", 1)
    monkeypatch.setattr(os, "unlink", failing(number))
    with pytest.raises(RunError, match=SAID[number]):
        write_fitting(tmp_path / "file.jsonl", ROWS)
    monkeypatch.setattr(os, "mkdir", failing(number))
    with pytest.raises(UserError, match="cannot make the folder"):
        make_folder(tmp_path / "new")


@pytest.mark.parametrize("number", SAID)
def test_locks(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", failing(number))
    with pytest.raises(RunError, match=SAID[number]), StudyDirectory(tmp_path).lock():
        pass


@pytest.mark.parametrize("number", [28, 30, 5, 13, 27, 122])
def test_what_safetensors_says_is_understood(number: int) -> None:
    told = storage_error(Exception(f"Error while serializing: I/O error: something (os error {number})"), Path("x"))
    assert isinstance(told, RunError) and SAID[number] in str(told)
    assert str(storage_error(ValueError("other"), Path("x"))) == "other"


def test_what_may_not_be_read_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("{}")
    with monkeypatch.context() as patch:
        for call in ("open", "stat"):
            patch.setattr(os, call, failing(errno.EACCES))
        for read in (read_json, read_rows):
            with pytest.raises(RunError, match="not allowed to read"):
                read(tmp_path / "a.json")
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", failing(errno.EACCES))
        with pytest.raises(RunError, match="not allowed to read"):
            load_results(tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing(errno.EACCES))
        with pytest.raises(RunError, match="not allowed to read"):
            load_results(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        load_results(tmp_path / "absent")
    with pytest.raises(UserError, match="no such folder"):
        load_results(tmp_path / "a.json")
    with pytest.raises(UserError, match="no name of a folder"):
        load_results(tmp_path / "a\0b")


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    for path in (tmp_path / "f", tmp_path / "f/below", tmp_path / "a\0b"):
        with pytest.raises(UserError):
            make_folder(path)
