"""Attention maps of a few examples, packed for the page: as many as fit, all encodings of a task before the next."""

import base64
import json
import zlib
from typing import Any

from lengthwise.records.findings import AnalysisRows, Row
from lengthwise.records.results import Results

ROOM = 100_000
"""Bytes of maps that a page has room for in any case."""


def packed(results: Results, analysis: AnalysisRows, most: int) -> dict[str, Any]:
    """`maps`: one for each run and example, with its weights deflated; `found`: how many there are on disk.

    At most `most` bytes. Unseen lengths first: where encodings part ways.
    """
    runs = sorted(
        analysis.maps,
        key=lambda run: (results.tasks.index(run["task"]), results.encodings.index(run["encoding"]), run["seed"]),
    )
    pairs = [(run, example) for run in runs for example in run["examples"]]
    pairs.sort(key=lambda pair: pair[1]["seen"])
    chosen: list[tuple[Row, Row]] = []
    left = max(most, ROOM)
    for run, example in pairs:
        entry = _entry(run, example)
        size = len(json.dumps(entry))
        if size <= left:
            left -= size
            chosen.append((run, entry))
    chosen.sort(key=lambda pair: (runs.index(pair[0]), not pair[1]["seen"]))
    return {"maps": [entry for _, entry in chosen], "found": len(pairs)}


def _entry(run: Row, example: Row) -> Row:
    weights = zlib.compress(base64.b64decode(example["weights"]), 9)
    return {
        **{name: run[name] for name in ("task", "encoding", "seed")},
        **{name: example[name] for name in ("length", "seen", "prompt_tokens", "layers", "heads")},
        "tokens": list(map(str, example["tokens"])),
        "weights": base64.b64encode(weights).decode(),
    }
