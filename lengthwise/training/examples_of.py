"""What runs are trained and judged on, made once for all that share it: runs that differ in their encoding do."""

import json
from functools import lru_cache

from lengthwise.data.sequences import Sequences
from lengthwise.evaluation.test_set import test_set, validation_set, watched_set
from lengthwise.study import Run
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData
from lengthwise.training.recipe import DataConfig

KEPT = 24
"""Of each kind, the latest; a published training set takes 10 to 30 MB."""


def training_data(run: Run) -> TrainingData:
    return _training_data(json.dumps(run.task), run.data, run.seed)


def validation_of(run: Run) -> Sequences:
    return _validation(json.dumps(run.task), run.data)


def watched_of(run: Run) -> Sequences | None:
    return _watched(json.dumps(run.task), run.data)


def test_of(run: Run) -> Sequences:
    return _test(json.dumps(run.task), run.data)


@lru_cache(maxsize=KEPT)
def _training_data(task_table: str, data: DataConfig, seed: int) -> TrainingData:
    return TrainingData(make_task(json.loads(task_table)), data, seed)


@lru_cache(maxsize=KEPT)
def _validation(task_table: str, data: DataConfig) -> Sequences:
    return validation_set(make_task(json.loads(task_table)), data)


@lru_cache(maxsize=KEPT)
def _watched(task_table: str, data: DataConfig) -> Sequences | None:
    return watched_set(make_task(json.loads(task_table)), data)


@lru_cache(maxsize=KEPT)
def _test(task_table: str, data: DataConfig) -> Sequences:
    return test_set(make_task(json.loads(task_table)), data)
