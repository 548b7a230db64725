"""What a training step of each method costs, as a ratio to `none`: from a benchmark's file, or from runs themselves."""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.door import List, Object, read_json
from lengthwise.errors import UserError
from lengthwise.records.ranking import BASELINE
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.records.schema import AMOUNT, FEW, NAME, WORDS

BENCH = Object(
    {},
    {
        "training": List(Object({"encoding": NAME, "size": NAME, "fleet": FEW}, {"end_to_end_ms": AMOUNT})),
        "hardware": Object({}, {"device": WORDS}),
    },
)
"""What is read of a file that `lengthwise bench train --out` wrote; a fleet that did not fit has no time."""
CONDITIONS = ("task", "size", "layers", "width", "fleet", "dropout", "precision", "threads", "batch", "row_width")
"""What must be the same in two rows of a benchmark for their ratio to mean anything."""


@dataclass(frozen=True)
class Costs:
    ratios: Mapping[str, float]
    """Method -> seconds of a step, those of `none` being 1."""
    words: str
    """Where they come from, a sentence without its full stop; empty where there are none."""


NO_COSTS = Costs({}, "")


def measured_costs(file: Path) -> Costs:
    """From a benchmark, at the size and the size of a fleet that most methods were timed at."""
    found = read_json(file, BENCH)
    groups: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for row in found.get("training", []):
        if row.get("end_to_end_ms"):
            groups[tuple(repr(row.get(name)) for name in CONDITIONS)][row["encoding"]] = row["end_to_end_ms"]
    compared = {key: times for key, times in groups.items() if BASELINE in times}
    if not compared:
        raise UserError(
            f"{file} has no time of `{BASELINE}`, which costs are compared with: "
            f"lengthwise bench train --encoding {BASELINE} --encoding alibi --out {file.name}"
        )
    key = max(compared, key=lambda each: len(compared[each]))
    times = compared[key]
    size, fleet = (key[CONDITIONS.index(name)].strip("'") for name in ("size", "fleet"))
    device = found.get("hardware", {}).get("device", "a machine that is not named")
    return Costs(
        {encoding: value / times[BASELINE] for encoding, value in times.items()},
        f"a training step relative to {BASELINE}, measured on {device} ({size} size, fleet of {fleet}, {file.name})",
    )


def costs_of_runs(results: Results) -> Costs:
    """From the seconds of the runs, each beside `none` on the same task, machine and size of fleet; the median.

    They hold all that a run does, from start-up to the test set, and other work on the machine: rough numbers.
    """
    own: dict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in results.runs:
        if value := _seconds(run):
            own[_conditions(run)][run.description["encoding"]].append(value)
    ratios: dict[str, list[float]] = defaultdict(list)
    for times in own.values():
        if BASELINE in times:
            first = statistics.median(times[BASELINE])
            for encoding, values in times.items():
                ratios[encoding].append(statistics.median(values) / first)
    if len(ratios) < 2:
        return NO_COSTS
    devices = sorted({run.description["hardware"]["device"] for run in results.runs})
    several = "; other machines have other ratios" if len(devices) > 1 else ""
    return Costs(
        {encoding: statistics.median(values) for encoding, values in ratios.items()},
        f"the time of a run relative to {BASELINE} on the same task and machine ({', '.join(devices)}), the median "
        f"over tasks; start-up and tests are in it, so it is rough{several}",
    )


def _seconds(run: RunResult) -> float:
    """Of a step of one model; 0 where it is not known."""
    finished = run.finished
    steps = finished.get("steps") or 0
    return finished["seconds_together"] / finished["trained_together"] / steps if steps else 0.0


def _conditions(run: RunResult) -> tuple[Any, ...]:
    about = run.description
    return about["task"], about["hardware"]["device"], run.finished["trained_together"], run.finished.get("steps")
