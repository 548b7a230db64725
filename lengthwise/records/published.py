"""The figures and the protocol of Kazemnejad et al. 2023 (arXiv 2305.19466), under this project's names."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

ENCODINGS = ("none", "t5", "alibi", "rotary", "sinusoidal")
"""In the published order, best first."""

PROTOCOL: dict[str, dict[str, Any]] = {
    "model": {"style": "t5", "layers": 12, "width": 768, "heads": 12, "dropout": 0.1},
    "training": {
        "steps": 40_000,
        "batch": 64,
        "learning_rate": 3e-5,
        "final_learning_rate": 1e-7,
        "warmup": 0.06,
        "weight_decay": 0.05,
        "decay_norms": True,
        "clip": 1.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "validate_every": 2000,
        "best": "earliest",
        "precision": "fp32",
    },
}
"""The same for all tasks and encodings; `pcfg` took 60,000 to 100,000 steps. Data and tokens: COUNTS and ROWS."""

CHECKPOINT = "best"
"""Published numbers are those of the checkpoint that was best in distribution."""

SEEDS = 3

ROWS = 32_100
"""Embedding rows: all pieces of T5's tokenizer."""

LONGEST_GENERATED = 256
"""Tokens of prompt and answer together at which generation stopped where there is no scratchpad. Only sequences of
`pcfg` are longer."""

PCFG_STEPS = (60_000, 100_000)

COUNTS: dict[str, tuple[int, int, int]] = {
    **dict.fromkeys(
        (
            *("copy.repeat", "copy.repeat_twice", "copy.words", "copy.words_twice"),
            *("reverse.words", "reverse.words_twice", "reverse.and_back"),
        ),
        (100_000, 7_494, 10_000),
    ),
    "copy.replace": (100_000, 7_057, 10_000),
    "addition": (100_000, 7_472, 9_984),
    **dict.fromkeys(("summation", "sort.symbols", "sort.numbers"), (100_000, 7_498, 10_000)),
    **dict.fromkeys(("parity", "polynomial"), (100_000, 7_500, 10_000)),
    "lego": (100_000, 7_498, 9_984),
    "scan": (15_997, 888, 3_136),
    "pcfg": (72_909, 4_050, 11_333),
}
"""Task -> examples of training, of validation, and of unseen lengths in the test."""

WHOLE_TESTS = ("scan", "pcfg")
"""Tasks whose test is all there is: more cannot be asked for."""

LENGTHS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    **dict.fromkeys(
        (
            *("copy.repeat", "copy.repeat_twice", "copy.replace", "copy.words", "copy.words_twice"),
            *("reverse.words", "reverse.words_twice", "reverse.and_back"),
        ),
        ((2, 20), (21, 40)),
    ),
    **dict.fromkeys(("summation", "sort.symbols", "sort.numbers"), ((2, 8), (9, 16))),
    **dict.fromkeys(("addition", "polynomial"), ((1, 8), (9, 16))),
    **dict.fromkeys(("parity", "lego"), ((4, 8), (9, 16))),
    "scan": ((1, 25), (26, 48)),
    "pcfg": ((1, 8), (9, 35)),
}
"""Task -> first and last length of training, first and last unseen length."""

TASK_SETTINGS: dict[str, dict[str, Any]] = {
    "copy.repeat": {"symbols": 6052},
    "copy.repeat_twice": {"symbols": 6052},
    "copy.replace": {"symbols": 78},
    "copy.words": {"symbols": 100, "distinct": False},
    "copy.words_twice": {"symbols": 100},
    "reverse.words": {"symbols": 100},
    "reverse.words_twice": {"symbols": 100},
    "reverse.and_back": {"symbols": 100},
    "sort.symbols": {"symbols": 50},
    "sort.numbers": {"smallest": 10, "largest": 9999},
    "addition": {
        **{"reversed": False, "padded": False, "hints": 0, "operands": 2},
        **{"sentence": True, "computes": "sum"},
    },
    "pcfg": {"test_set": "published"},
}
"""Task -> what all of its settings must be for the published task; tasks without settings are left out."""

ENCODING_SETTINGS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"base": 10000.0},
    "t5": {"buckets": 32, "max_distance": 128, "shared": True, "rate": 1.0, "initial": None},
    "rotary": {"fraction": 0.25, "base": 10000.0, "pairs": "interleaved", "exponent": "rotated"},
}
"""Encoding -> what all of its settings must be; encodings without settings are left out."""


@dataclass(frozen=True)
class Score:
    """A published mean over seeds."""

    mean: float
    deviation: float | None
    """Standard deviation over seeds; None for a single one."""
    seeds: int
    note: str = ""


@dataclass(frozen=True)
class PublishedCell:
    """Accuracy on unseen lengths of one encoding on one task, with a scratchpad format (`none`: without steps)."""

    task: str
    scratchpad: str
    encoding: str
    unseen: Score
    seen: float | None
    """Accuracy in distribution, where published."""


@cache
def cells() -> dict[tuple[str, str, str], PublishedCell]:
    """(task, scratchpad format, encoding) -> cell: 85 without and 215 with steps."""
    found: dict[tuple[str, str, str], PublishedCell] = {}
    for row in _rows("nope_scratchpad_overall.csv"):
        # Six runs of some tasks are pooled under this name; they are as near to the format as the source comes.
        name, _, pooled = row["format"].partition("(")
        note = f"{row['seeds'].partition('.')[0]} runs pooled in the source" if pooled else ""
        key = row["task"], name, row["encoding"]
        found[key] = PublishedCell(*key, _figure(row, "ood_accuracy", note), None)
    for row in _rows("nope_accuracy_overall.csv"):
        key = row["task"], "none", row["encoding"]
        found[key] = PublishedCell(*key, _figure(row, "ood_accuracy"), float(row["in_distribution_accuracy"]))
    return found


@cache
def curves() -> dict[tuple[str, str], dict[tuple[bool, int], Score]]:
    """(task, encoding) -> (seen, length) -> accuracy, without scratchpad."""
    found: dict[tuple[str, str], dict[tuple[bool, int], Score]] = {}
    for row in _rows("nope_accuracy_by_length.csv"):
        lengths = found.setdefault((row["task"], row["encoding"]), {})
        lengths[row["split"] == "valid", int(row["length"])] = _figure(row, "accuracy")
    return found


@cache
def reciprocal_ranks(scope: str = "all") -> dict[str, float]:
    """Encoding -> published mean reciprocal rank; `scope`: all, classic, maths or primitive."""
    rows = [row for row in _rows("nope_ranking.csv") if row["scope"] == scope]
    return {row["encoding"]: float(row["mean_reciprocal_rank"]) for row in rows}


def _figure(row: dict[str, str], name: str, note: str = "") -> Score:
    deviation = row[f"{name}_sd"]
    return Score(float(row[f"{name}_mean"]), float(deviation) if deviation else None, int(float(row["seeds"])), note)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        yield from csv.DictReader(file)
