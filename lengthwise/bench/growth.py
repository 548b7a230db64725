"""What a step costs as the work grows: longer rows, wider models, larger fleets."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lengthwise.bench.workload import Workload, default_size, workload
from lengthwise.tasks.choosing import task_table

LENGTHS = (64, 128, 256, 512, 1024, 2048)
TOKENS = {"cpu": 2048, "cuda": 16_384}
"""In a step, whatever the length of its rows."""
WIDTHS = {"cpu": (32, 64, 128, 256), "cuda": (128, 256, 512, 1024)}
FLEETS = {"cpu": (1, 2, 4, 8), "cuda": (1, 5, 15, 30, 60)}
SIZES = {"cpu": "tiny", "cuda": "small"}
"""Of the models whose width or number grows."""
SYMBOLS = 500
"""Few, so that the output layer does not hide what the layers cost."""


@dataclass(frozen=True)
class Point:
    """One workload of a series."""

    grows: str
    value: int
    workload: Workload


def points(what: str, device: str, encoding: str = "none") -> Iterator[Point]:
    """A series: `length`, `width` or `fleet`; `device`: its kind."""
    if what == "length":
        for length in LENGTHS:
            yield Point(what, length, rows_of(length, TOKENS[device], default_size(device), encoding))
    elif what == "width":
        for width in WIDTHS[device]:
            base = workload(SIZES[device], encoding)
            heads = max(1, width // 64) if device == "cuda" else 4
            yield Point(what, width, replace(base, model={**base.model, "width": width, "heads": heads}))
    else:
        for fleet in FLEETS[device]:
            yield Point(what, fleet, workload(SIZES[device], encoding, fleet))


def rows_of(length: int, tokens: int, size: str, encoding: str) -> Workload:
    """`tokens` tokens in rows of `length`, each row one example: `copy.repeat` of n symbols is 2 n + 3 tokens."""
    symbols = (length - 3) // 2
    batch = max(1, tokens // length)
    base = workload(size, encoding)
    return Workload(
        task=task_table({"name": "copy.repeat", "symbols": SYMBOLS}),
        encoding=encoding,
        model=base.model,
        data={
            "train_lengths": [symbols, symbols],
            "test_lengths": [symbols + 1, symbols + 1],
            "examples": 16 * batch,
            "validation": 1,
            "test_per_length": 1,
        },
        training={"batch": batch},
    )


def growth_row(point: Point, times: dict[str, Any]) -> dict[str, Any]:
    """A row of times with its place in the series."""
    cost = {"microseconds_per_token": 1e6 / times["tokens_per_second"]} if times.get("tokens_per_second") else {}
    return {"grows": point.grows, "value": point.value, **times, **cost}
