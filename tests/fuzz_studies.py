"""Hostile studies, settings, names and states; see `fuzz`."""

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import test_names
import test_states
import torch
from conftest import small_table

from lengthwise import configuration
from lengthwise.errors import UserError
from lengthwise.executors.local import LARGEST_FLEET
from lengthwise.model.config import ModelConfig
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.names import path_part
from lengthwise.study import load_study, study_from
from lengthwise.training.limits import host_memory, refuse_large_models
from lengthwise.training.plan import plan
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import TrainingState

Case = tuple[str, Callable[[], None]]
SECONDS = 10.0

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, -(2**63), 10**12, 10**30),
    *(0.0, -0.5, 0.5, 1.0, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", " ", "a", ".", "..", "../a", "/etc/passwd", "a\nb", "a\0b", "\x1b[31m", "\u202ea", "\ud800", "α", "x" * 5000),
    *([], [[]], [1, 2], [2, 1], [1, 10**12], [-5, 5], [0.5, 2], ["a", "b"], [None], [{}], list(range(1000))),
    *({}, {"name": "none"}, {"name": 3}, {"": 1}, {"a": {"b": {"c": 1}}}, {"name": "copy.repeat", "symbols": -1}),
]
TEXTS = [
    *("", "=", "==", "a", "a=", "=1", ".=1", "a.=1", ".a=1", "training.steps", "training.steps=", "training..steps=1"),
    *("training.steps=2\n[evil]", "training.steps=2\nbatch=1", "training.steps=1\r\n2", "training.steps=2 # ok\n"),
    *("summary=2020-01-01", "summary=07:32:00", "summary=1979-05-27T07:32:00Z", "training.steps=1e400"),
    *("training.steps=0x10", "training.steps=1_000", "training.steps=+5", "training.steps=inf", "training.steps=nan"),
    *("seeds=[" + "1," * 100_000 + "]", "seeds=" + "[" * 3000 + "]" * 3000, "tasks={" * 500, "a." * 3000 + "b=1"),
    *("training.steps=" + "9" * 10_000, "name='" + "x" * 10**6 + "'", "training=1", "training.steps.deep=1"),
    *("__class__=1", "name.__class__=1", "encodings=['none', 'none']", "tasks=['" + "a" * 10_000 + "']"),
    *("tasks=['/dev/zero.jsonl']", "tasks=['/etc/passwd.jsonl']", "tasks=['...jsonl']", "data.tokens='/dev/zero.json'"),
    *("data.placement='randomized(range=1e9)'", "data.placement='randomized(range=99999999999)'", "data.placement='('"),
    *("data.placement='randomized(range=4\nx=1)'", "data.placement=[]", "data.scratchpad='full+full'"),
    *("encodings=[[]]", "encodings=[[[]]]", "encodings=[{layers=[]}]", "encodings=[{layers={}}]", "encodings=[1]"),
    *("encodings=[{name='t5', label=3}]", "encodings=[{layers=[['none'],'none'],label=''}]", "scales=[[]]"),
    *("encodings=[{name='rotary', fraction=nan}]", "encodings=[{name='learned', rows=99999999999}]"),
    *("encodings=[{name='learned', rows=-1}]", "encodings=[{name='rotary', base=0.0}]", "normalizers=['none']"),
]
FILES = [
    *(b"", b"\0", b"\xff\xfe", b"=", b"[", b"[[", b"a = ", b'a = "', b"a = 1\na = 2", b"[a]\n[a]", b"tasks = 1"),
    *(b"[" * 5000, b"a" + b".a" * 5000 + b" = 1", b"a = " + b"[" * 5000, b"a = " + b"{b=" * 2000, b"#" * 2**21),
    *(b"name = 1979-05-27", b"seeds = [1979-05-27]", b"seeds = [" + b"9" * 5000 + b"]", b"model = 07:32:00"),
    *(b'name = "\\u0000"', b'name = "\\uD800"', b'name = "\x1b"', b'summary = """\n\n\n"""', b"\xef\xbb\xbfa = 1"),
]


def judged(work: Callable[[Path], object]) -> None:
    """Does some work in an empty folder: it may be refused in one line, at once; nothing may be written."""
    folder = Path(tempfile.mkdtemp())
    began = time.process_time()
    try:
        work(folder)
    except UserError:
        pass
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:300]}") from error
    finally:
        left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "bad.toml"]
        shutil.rmtree(folder, ignore_errors=True)
    assert time.process_time() - began < SECONDS, f"{time.process_time() - began:.0f} seconds"
    assert not left, f"wrote {left}"


def planned(table: dict[str, Any], folder: Path) -> None:
    """All that happens to a study before anything is trained or written."""
    study = study_from(table)
    runs = study.runs()
    refuse_large_models([(run.model, run.training) for run in runs], host_memory(), "this machine")
    plan(runs, StudyDirectory(folder / "out"), LARGEST_FLEET["cpu"], "cpu")
    study.description()


def _table(path: tuple[str, ...], value: Any) -> None:
    table = small_table()
    inner = table
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = deepcopy(value)
    judged(lambda folder: planned(table, folder))


def _set(text: str) -> None:
    judged(lambda folder: planned(configuration.override(small_table(), [text]), folder))


def _file(content: bytes) -> None:
    def work(folder: Path) -> None:
        (folder / "bad.toml").write_bytes(content)
        planned(configuration.table(load_study(str(folder / "bad.toml"))), folder)

    judged(work)


def _name(name: str) -> None:
    test_names.test_a_part_leads_nowhere_else(name)
    assert path_part(name) == path_part(name)


def _state(kind: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        test_states.test_the_state_before_is_taken(folder, kind)
        shutil.rmtree(folder)
        folder.mkdir()
        test_states.test_without_a_good_state_nothing_is_taken(folder, kind)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bytes_of_state(seed: int) -> None:
    """Some bytes of a good state are others."""
    generator = random.Random(seed)
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "state.safetensors"
        test_states.saved(path, 5)
        content = bytearray(path.read_bytes())
        for _ in range(generator.choice((1, 3, 30))):
            content[generator.randrange(len(content))] = generator.randrange(256)
        path.write_bytes(content[: generator.choice((len(content), generator.randrange(len(content))))])
        state = TrainingState.begin(torch.zeros(2, 4))
        try:
            state.restore(path, steps=100)
        except UserError:
            assert state.step == 0 and not state.weights_NW.any()
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error
        else:
            assert state.step == 5 and bool((state.weights_NW == 5).all()), "a changed state was taken"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _paths() -> Iterator[tuple[str, ...]]:
    yield from ((key,) for key in (*small_table(), "scales", "normalizers", "unknown", "lr"))
    for section, kind in (("model", ModelConfig), ("data", DataConfig), ("training", TrainingConfig)):
        yield from ((section, name) for name in kind.__dataclass_fields__)


def cases(seed: int = 0) -> Iterator[Case]:
    """In an order of the seed: the first few are some of every kind."""
    found: list[Case] = []
    for path in _paths():
        shown = ".".join(path)
        found += [(f"study {shown} = {str(value)[:40]!r}", partial(_table, path, value)) for value in VALUES]
    found += [(f"set {text[:60]!r}", partial(_set, text)) for text in TEXTS]
    found += [(f"file {content[:40]!r}", partial(_file, content)) for content in FILES]
    found += [(f"name {name[:40]!r}", partial(_name, name)) for name in test_names.ODD]
    found += [(f"state: {kind}", partial(_state, kind)) for kind in (*test_states.MEANT, *test_states.DAMAGED)]
    found += [(f"bytes of a state {number}", partial(_bytes_of_state, number)) for number in range(100)]
    random.Random(seed).shuffle(found)
    judged(partial(planned, small_table()))  # what all have in common is made once
    yield from found
