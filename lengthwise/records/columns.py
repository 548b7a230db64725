"""Results as columns, one for each (task, seed): what every encoding reached there, ready to be ranked."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from lengthwise.records.outcomes import LEARNED
from lengthwise.records.results import Results
from lengthwise.records.task_names import task_name


@dataclass(frozen=True)
class Columns:
    """Accuracies in the (task, seed) pairs that all of `encodings` have finished. S seeds, E encodings."""

    encodings: list[str]
    seeds: dict[str, list[int]]
    """Task, as the study titles it -> seeds; only tasks that have a column."""
    names: dict[str, str]
    """Task, as the study titles it -> its own name; several titles may be one task at several settings."""
    unseen_SE: dict[str, np.ndarray]
    seen_SE: dict[str, np.ndarray]

    @property
    def tasks(self) -> list[str]:
        return list(self.seeds)

    @property
    def tables(self) -> list[np.ndarray]:
        """For each task its accuracies on unseen lengths (S, E)."""
        return list(self.unseen_SE.values())

    def by_name(self, tables: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Tables as in `tables`, those of one task at several settings joined: they are one task, not several."""
        joined: dict[str, list[np.ndarray]] = {}
        for title, table in zip(self.tasks, tables, strict=True):
            joined.setdefault(self.names[title], []).append(table)
        return [np.concatenate(each) for each in joined.values()]

    def __len__(self) -> int:
        return sum(map(len, self.seeds.values()))

    def without(self, tasks: Collection[str]) -> "Columns":
        return self._keep({task: np.full(len(seeds), task not in tasks) for task, seeds in self.seeds.items()})

    def learned(self) -> "Columns":
        """Only columns in which every encoding learned its training lengths."""
        return self._keep({task: np.asarray((table >= LEARNED).all(axis=1)) for task, table in self.seen_SE.items()})

    def _keep(self, kept_S: dict[str, np.ndarray]) -> "Columns":
        tasks = [task for task in self.tasks if kept_S[task].any()]
        return Columns(
            self.encodings,
            {t: [seed for seed, keep in zip(self.seeds[t], kept_S[t], strict=True) if keep] for t in tasks},
            self.names,
            {t: self.unseen_SE[t][kept_S[t]] for t in tasks},
            {t: self.seen_SE[t][kept_S[t]] for t in tasks},
        )


def columns(
    results: Results,
    checkpoint: str = "last",
    tasks: Sequence[str] | None = None,
    encodings: Sequence[str] | None = None,
) -> Columns:
    """Columns in which one of the encodings is missing are left out. `tasks`, `encodings`: only these."""
    chosen = results.encodings if encodings is None else list(encodings)
    unseen, seen = (results.accuracies(checkpoint, kind) for kind in (False, True))
    seeds: dict[str, list[int]] = {}
    for task in results.tasks if tasks is None else tasks:
        found = [set(unseen.get((task, encoding), {})) for encoding in chosen]
        if found and (common := set.intersection(*found)):
            seeds[task] = sorted(common)

    def table(of: dict[tuple[str, str], dict[int, float]], task: str) -> np.ndarray:
        return np.array([[of[task, encoding][seed] for encoding in chosen] for seed in seeds[task]])

    return Columns(
        chosen,
        seeds,
        {task: task_name(runs[-1]) for task, runs in results.by_task.items()},
        {task: table(unseen, task) for task in seeds},
        {task: table(seen, task) for task in seeds},
    )
