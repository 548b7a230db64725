"""Small studies that train in seconds, shared by the tests."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.executors.local import run_study
from lengthwise.records.rows import Results, load_results
from lengthwise.study import Study, study_from

torch.set_num_threads(1)  # pytest-xdist fills the cores


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
