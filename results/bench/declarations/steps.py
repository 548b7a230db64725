"""Milliseconds of a training step on a GPU, of whichever `lengthwise` is found first: for two commits in turn.

    PYTHONPATH=. python results/bench/declarations/steps.py NAME OUT.jsonl

Medians of 24 stretches of 64 steps, whose examples are ready on the host.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch

from lengthwise.bench.training import session
from lengthwise.bench.workload import workload

CASES = [("base", 1, "none"), ("base", 1, "t5"), ("small", 15, "none"), ("small", 15, "t5"), ("base", 1, "fox")]


def main(name: str, out: str) -> None:
    for size, fleet, encoding in CASES:
        try:
            asked = workload(size, encoding, fleet)
            asked.runs()
        except Exception:
            continue  # an encoding that this commit does not have
        with session(asked, torch.device("cuda")) as timed:
            timed.first_step()
            for _ in range(4):
                stretches = [timed.source.steps(first, first + 64) for first in range(0, 256, 64)]
                for each in stretches:
                    timed.do(each)
            milliseconds = []
            for _ in range(6):
                for each in stretches:
                    start = time.perf_counter()
                    timed.do(each)
                    milliseconds.append(1e3 * (time.perf_counter() - start) / 64)
        row = {"engine": name, "size": size, "fleet": fleet, "encoding": encoding}
        row |= {"median": statistics.median(milliseconds), "least": min(milliseconds), "most": max(milliseconds)}
        with Path(out).open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
