"""How long training examples take: drawn, split, tokenised, padded."""

import time
from collections.abc import Iterator
from typing import Any

from lengthwise import registry
from lengthwise.bench.report import Report
from lengthwise.data import splits
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import render
from lengthwise.data.splits import Split
from lengthwise.data.tokenization import SYMBOLS, make_tokens
from lengthwise.tasks.choosing import make_task


def bench_data(count: int = 100_000, seed: int = 0, tokens: str = SYMBOLS) -> Iterator[dict[str, Any]]:
    """For every task and, where it has steps, its full scratchpad: seconds for `count` training examples.

    Drawn, split, tokenised, padded: ready to train. The first number includes what a task prepares once.
    """
    for name in registry.tasks.names():
        if name == "file":
            continue
        task = make_task({"name": name, "kinds": 2} if name == "dyck" else name)  # T5 does not know braces
        chosen = make_tokens(task, tokens)
        for scratchpad in ("none", "full") if task.step_parts else ("none",):
            seconds = []
            for repeat in range(2):
                start = time.perf_counter()
                drawn = splits.draw(task, Split.TRAIN, task.train_lengths, count, seed, repeat, again=True)
                sequences = render(task, drawn, Scratchpad(scratchpad), tokens=chosen)
                seconds.append(time.perf_counter() - start)
            yield {
                "task": name,
                "scratchpad": scratchpad,
                "examples": len(sequences),
                "tokens": int(sequences.size.sum()),
                "longest": int(sequences.size.max()),
                "first_seconds": round(seconds[0], 3),
                "seconds": round(seconds[1], 3),
            }


def report_data(count: int, report: Report, tokens: str = SYMBOLS) -> None:
    """Every row of `bench_data`, in a table and in the report's file."""
    columns: dict[str, str] = {}
    for row in bench_data(count, tokens=tokens):
        columns = columns or {key: key.replace("_", " ") for key in row}
        report.add("rows", row)
    report.show("rows", columns)
