"""Small studies that train in seconds, shared by the tests."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of processes that tests start, too: pytest-xdist fills the cores

import pytest
import torch

from lengthwise import registry
from lengthwise.cli import printing  # noqa: F401 -- a console keeps the COLUMNS that it begins with, and some tests set it
from lengthwise.executors.local import run_study
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.study import Study, study_from

torch.set_num_threads(1)

with suppress(ModuleNotFoundError):  # the tests of a GPU run on images without it
    from hypothesis import HealthCheck, settings

    # How long an example takes says how busy the machine is, not whether the code is right.
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton interprets its kernels here, on the CPU: see `test_interpreted`."""


def slow(*values: Any) -> Any:
    """Of the parameters of a test, those that `make test-fast` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


SPREAD = 4
"""Of a test with more sets of parameters than this, `make test-fast` takes about so many, spread evenly."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as slow what a sample of the parameters stands for."""
    sets: dict[str, list[pytest.Item]] = {}
    for item in items:
        sets.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in sets.values():
        if len(several) > SPREAD:
            kept = {round(k * (len(several) - 1) / (SPREAD - 1)) for k in range(SPREAD)}
            for number, item in enumerate(several):
                if number not in kept:
                    item.add_marker(pytest.mark.slow)


def small_table(**changes: Any) -> dict[str, Any]:
    """The table of a study that trains in a second or two."""
    table: dict[str, Any] = {
        "name": "small",
        "summary": "a test",
        "tasks": [{"name": "copy.repeat", "symbols": 20}],
        "encodings": ["none", "alibi"],
        "seeds": [1, 2],
        "model": {"layers": 1, "width": 16, "heads": 2},
        "data": {
            "train_lengths": [2, 4],
            "test_lengths": [5, 6],
            "examples": 0,
            "validation": 30,
            "test_per_length": 10,
        },
        "training": {"steps": 30, "batch": 8, "learning_rate": 3e-3, "validate_every": 10},
    }
    return changed(table, changes)


def changed(table: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The table with other settings; `section__name` stands for a name in a section."""
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            table[section][name] = value
        else:
            table[section] = value
    return table


def small_study(**changes: Any) -> Study:
    return study_from(small_table(**changes))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """A finished small study and its results."""
    folder = tmp_path_factory.mktemp("finished") / "small"
    run_study(small_study(), folder, "cpu")
    return folder, load_results(folder)


OUTSIDE = Path(__file__).parent / "encodings_outside"
"""What a user might have: encodings of their own in a folder `encodings`, and a study."""


@pytest.fixture
def encodings_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the time of one test, encodings are searched for in OUTSIDE too."""
    monkeypatch.setenv(registry.VARIABLE, str(OUTSIDE))
    monkeypatch.setattr(registry, "encodings", registry.Registry("encoding", "encodings"))


@pytest.fixture(autouse=INTERPRETED)
def mended_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6 interprets bf16 products as products of the bit patterns, and loops not at all with NumPy 2.4."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    patch, dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def widened(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return dot(self, widened(a), widened(b), *others)

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_tensor)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


def load_script(path: str) -> ModuleType:
    """A program of the repository that is no part of the package, as a module."""
    file = Path(__file__).parent.parent / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # programs of a folder import each other
    spec.loader.exec_module(module)
    return module
