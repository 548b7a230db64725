"""Examples that went wrong, packed for the page: as many as fit, spread evenly over runs and lengths."""

import json
from collections import defaultdict
from typing import Any

from lengthwise.records.results import Results
from lengthwise.records.rows import Row
from lengthwise.report.model.summaries import in_order

BYTES = 2_200_000
"""Of failures in a page at most, so that a whole battery stays below 5 MB."""

TIE = "\u2040"
"""A symbol that begins with it is written without a space before it (see `lengthwise.data.vocabulary`)."""

GOLDEN = 0.6180339887


def packed(results: Results, most: int = BYTES) -> dict[str, Any]:
    """`examples`: (prompt, target), each once, since all runs are asked the same; `failures`: (number of the run,
    length, number of the example, characters of the target that are right, what came instead, kind); `recorded`: how
    many there are on disk."""
    examples: dict[tuple[str, str], int] = {}
    chosen: list[tuple[int, int, int, int, str, str]] = []
    size = 0
    for run, failure in _spread(results):
        key = failure["prompt"], failure["target"]
        right, wrong = _split(failure)
        entry = (run, failure["length"], examples.get(key, len(examples)), right, wrong, failure["kind"])
        size += _bytes(entry) + (0 if key in examples else _bytes(key))
        if size > most:
            break
        examples.setdefault(key, len(examples))
        chosen.append(entry)
    return {
        "examples": list(examples),
        "failures": sorted(chosen),
        "recorded": sum(len(run.failures) for run in results.runs),
    }


def _bytes(value: object) -> int:
    """That it takes in the page."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def _spread(results: Results) -> list[tuple[int, Row]]:
    """All failures with the numbers of their runs, in an order of which every beginning is spread evenly.

    First one of each run and length, then a second one of each; among these, lengths in the order of multiples of the
    golden ratio, which never stay long in one part.
    """
    ordered = []
    for number, run in enumerate(in_order(results)):
        met: dict[int, int] = defaultdict(int)
        for failure in run.failures:
            met[failure["length"]] += 1
            ordered.append((met[failure["length"]], failure["length"] * GOLDEN % 1, number, failure))
    ordered.sort(key=lambda entry: entry[:3])
    return [(number, failure) for _, _, number, failure in ordered]


def _split(failure: Row) -> tuple[int, str]:
    """How many characters of the target are right, and what was written instead of what follows.

    Tokens before the first wrong one are those of the target, so their text is its beginning. The end of a text has no
    symbol: there, what was written is empty.
    """
    *before, wrong = failure["predicted"] or [""]
    # Results of earlier versions do not say the text of what was right.
    text = failure.get("right_text", " ".join(before).replace(f" {TIE}", "").removeprefix(TIE))
    right = len(text) if failure["target"].startswith(text) else 0
    if failure["kind"] == "stopped early":
        wrong = ""
    return right, wrong.removeprefix(TIE)
