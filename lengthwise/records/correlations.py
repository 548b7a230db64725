"""How two tables of tasks by encodings correlate, with and without the means of the tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lengthwise.records.statistics import EQUAL, pearson, spearman

Values = tuple[float, float]
"""Ours and published."""


@dataclass(frozen=True)
class Correlations:
    """Ours with published over cells. None with fewer than three cells, or where one side is the same everywhere."""

    plain: float | None
    """Spearman over all shared cells. Tasks differ more than encodings do, so a predictor that knows the tasks and
    ignores the encoding already correlates highly.
    """
    residual_spearman: float | None
    """Spearman after the mean of each task over the encodings is taken off, on each side: what is left says which
    encoding is better where, and by how much. Only tasks that have every encoding.
    """
    residual_pearson: float | None
    """Pearson's correlation of the same residuals."""
    residual_cells: int


def correlations(cells: Sequence[Values], by_task: Mapping[str, Sequence[Values]]) -> Correlations:
    """`cells`: all; `by_task`: those of tasks that have every encoding."""
    residuals = [_residuals(values) for values in by_task.values()]
    ours, theirs = np.concatenate(residuals).T.tolist() if residuals else ([], [])
    return Correlations(
        spearman([ours for ours, _ in cells], [theirs for _, theirs in cells]),
        spearman(ours, theirs),
        pearson(ours, theirs),
        len(ours),
    )


def _residuals(values: Sequence[Values]) -> np.ndarray:
    """Cells by sides, the mean over cells taken off. Rounded, so that equal ones are a tie whatever their mean was."""
    table = np.asarray(values, dtype=float)
    return np.round(table - table.mean(axis=0), round(-np.log10(EQUAL))) + 0.0  # no -0.0
