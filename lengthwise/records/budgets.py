"""What each encoding was given: steps, batch, learning rate, examples, weights; and warnings where that differs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lengthwise.records.earlier import in_full
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult

SECTIONS = ("task", "model", "data", "training")
"""Settings that must be the same for all encodings of a task and seed; they also fix every token that is trained on."""


@dataclass(frozen=True)
class Budget:
    """Of one encoding, the distinct values over its runs, in ascending order; empty where runs do not say."""

    encoding: str
    runs: int
    seeds: list[int]
    steps: list[int]
    """Taken, not planned."""
    batch: list[int]
    learning_rate: list[float]
    examples: list[int]
    """Shown in training: steps x batch. With equal settings and seeds these are the same examples and tokens."""
    parameters: list[int]
    parameters_of_encoding: list[int]


def budgets(results: Results) -> list[Budget]:
    """One for each encoding."""
    return [_budget(results, encoding) for encoding in results.encodings]


def budget_warnings(results: Results) -> list[str]:
    """Where encodings of the same task and seed did not get the same, or a run did not use what it was given."""
    return [*_different_settings(results), *_different_seeds(results), *_unused(results)]


def _budget(results: Results, encoding: str) -> Budget:
    runs = results.by_encoding[encoding]

    def distinct(values: Iterable[Any]) -> list[Any]:
        return sorted({value for value in values if value is not None})

    def training(run: RunResult, key: str) -> Any:
        return run.description.get("settings", {}).get("training", {}).get(key)

    def taken(run: RunResult) -> int | None:
        return run.finished.get("steps", training(run, "steps"))

    products = ((taken(run), training(run, "batch")) for run in runs)
    return Budget(
        encoding,
        len(runs),
        distinct(run.description["seed"] for run in runs),
        distinct(map(taken, runs)),
        distinct(training(run, "batch") for run in runs),
        distinct(training(run, "learning_rate") for run in runs),
        distinct(steps * batch for steps, batch in products if steps is not None and batch is not None),
        distinct(run.description.get("parameters") for run in runs),
        distinct(run.description.get("parameters_of_encoding") for run in runs),
    )


def _different_settings(results: Results) -> Iterator[str]:
    groups: dict[tuple[str, int], list[RunResult]] = defaultdict(list)
    for run in results.runs:
        groups[run.description["task"], run.description["seed"]].append(run)
    found: dict[str, list[str]] = defaultdict(list)
    for (task, seed), runs in groups.items():
        flat = {run.description["encoding"]: dict(_flat(in_full(run.description.get("settings", {})))) for run in runs}
        for key in sorted({key for settings in flat.values() for key in settings}):
            values = {encoding: settings.get(key) for encoding, settings in flat.items()}
            if len(set(map(repr, values.values()))) > 1:
                listed = ", ".join(f"{encoding} {value}" for encoding, value in values.items())
                found[f"{key} differs between encodings ({listed})"].append(f"{task} seed {seed}")
    for what, where in found.items():
        yield f"{what}: {_some(where)}"


def _different_seeds(results: Results) -> Iterator[str]:
    for task in results.tasks:
        seeds = {e: [run.description["seed"] for run in results.of(task, e)] for e in results.encodings}
        if len(set(map(tuple, seeds.values()))) > 1:
            every = sorted({seed for each in seeds.values() for seed in each})
            missing = [
                f"{encoding} {_numbers(set(every) - set(own))}" for encoding, own in seeds.items() if own != every
            ]
            yield f"{task}: not every encoding has every seed; missing: {', '.join(missing)}"


def _unused(results: Results) -> Iterator[str]:
    for run in results.runs:
        name = "{task}/{encoding}/seed-{seed}".format_map(run.description)
        planned = run.description.get("settings", {}).get("training", {}).get("steps")
        taken = run.finished.get("steps", planned)
        if run.finished.get("diverged_at") is not None:
            yield f"{name} diverged at step {run.finished['diverged_at']}"
        elif taken != planned:
            yield f"{name} took {taken} of {planned} steps"


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section in SECTIONS:
        for key, value in settings.get(section, {}).items():
            yield f"{section}.{key}", value


def _numbers(values: Iterable[int]) -> str:
    return " ".join(map(str, sorted(values)))


def _some(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
