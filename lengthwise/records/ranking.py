"""Which encoding is best overall: ranks within each task and seed, averaged, with intervals."""

from dataclasses import dataclass

import numpy as np

from lengthwise.records.rows import Results


@dataclass(frozen=True)
class Place:
    """One encoding's place in the ranking; intervals are 95 % bootstrap over seeds."""

    encoding: str
    reciprocal_rank: float
    reciprocal_rank_interval: tuple[float, float]
    rank: float
    accuracy: float
    columns: int
    """(task, seed) pairs that it is ranked in."""


def ranks(accuracies: np.ndarray) -> np.ndarray:
    """Rank of each entry along the last axis, 1 for the greatest; ties get the mean of the ranks they share."""
    above = (accuracies[..., None, :] > accuracies[..., :, None]).sum(-1)
    equal = (accuracies[..., None, :] == accuracies[..., :, None]).sum(-1)
    return above + (equal + 1) / 2


def ranking(results: Results, checkpoint: str = "last", resamples: int = 2000) -> list[Place]:
    """Best first. The paper's score: the mean over (task, seed) of 1 / rank by accuracy on unseen lengths.

    Where the paper gave ties to the first row, ties share their mean rank here. Columns in which an encoding is
    missing are left out for all.
    """
    accuracy = results.accuracies(checkpoint)
    encodings = results.encodings
    seeds = {task: _common_seeds(accuracy, task, encodings) for task in results.tasks}
    tables = [
        np.array([[accuracy[task, encoding][seed] for encoding in encodings] for seed in seeds[task]])
        for task in results.tasks
        if seeds[task]
    ]
    if not tables:
        return []
    generator = np.random.Generator(np.random.PCG64(0))
    reciprocal = [1 / ranks(table) for table in tables]
    columns = sum(len(table) for table in tables)

    def resampled() -> np.ndarray:
        drawn = [r[generator.integers(len(r), size=len(r))] for r in reciprocal]
        return np.concatenate(drawn).mean(axis=0)

    low, high = np.quantile([resampled() for _ in range(resamples)], [0.025, 0.975], axis=0)
    mean_reciprocal = np.concatenate(reciprocal).mean(axis=0)
    mean_rank = np.concatenate([ranks(table) for table in tables]).mean(axis=0)
    mean_accuracy = np.concatenate(tables).mean(axis=0)
    places = [
        Place(
            encoding,
            float(mean_reciprocal[i]),
            (float(low[i]), float(high[i])),
            float(mean_rank[i]),
            float(mean_accuracy[i]),
            columns,
        )
        for i, encoding in enumerate(encodings)
    ]
    return sorted(places, key=lambda place: -place.reciprocal_rank)


def _common_seeds(accuracy: dict[tuple[str, str], dict[int, float]], task: str, encodings: list[str]) -> list[int]:
    found = [set(accuracy.get((task, encoding), {})) for encoding in encodings]
    return sorted(set.intersection(*found)) if found else []
