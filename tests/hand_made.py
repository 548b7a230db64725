"""Results with accuracies that a test chose, for tests of what is computed from them."""

from collections.abc import Mapping
from typing import Any

from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult

Key = tuple[str, str, int]
"""Task, encoding, seed."""


def made(
    unseen: Mapping[Key, float],
    order: list[str],
    seen: Mapping[Key, float] | None = None,
    chance: Mapping[str, float] | None = None,
    best: Mapping[Key, float] | None = None,
    validations: Mapping[Key, list[dict[str, float]]] | None = None,
    **about: Any,
) -> Results:
    """Accuracies out of 1000 on unseen lengths; 1.0 on seen ones, chance 0 and the same `best` unless said.

    `validations`: as a finished run has them. `about`: what every run's description says besides.
    """
    runs = []
    for key, accuracy in unseen.items():
        task, encoding, seed = key

        def row(checkpoint: str, trained: bool, share: float, task: str = task) -> dict[str, Any]:
            place = {"checkpoint": checkpoint, "seen": trained, "length": 4 if trained else 9}
            return {**place, "n": 1000, "correct": round(1000 * share), "chance": (chance or {}).get(task, 0.0)}

        trained = (seen or {}).get(key, 1.0)
        at_best = (best or {}).get(key, accuracy)
        rows = [row("last", True, trained), row("last", False, accuracy)]
        rows += [row("best", True, trained), row("best", False, at_best)]
        finished = {"validations": validations[key]} if validations and key in validations else {}
        runs.append(RunResult({"task": task, "encoding": encoding, "seed": seed, **about}, finished, rows))
    return Results(runs, [], {"encoding_order": order})
