"""What every validation looks at: examples in distribution, which choose, and unseen lengths, which never do."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from lengthwise.data.sequences import Sequences
from lengthwise.records.directory import RunDirectory
from lengthwise.records.files import read_rows
from lengthwise.study import Run
from lengthwise.training.evaluator import Evaluator
from lengthwise.training.examples_of import validation_of, watched_of


class Validation:
    """Validates the models of a fleet as they are now."""

    def __init__(self, evaluator: Evaluator, runs: Sequence[Run]) -> None:
        self.evaluator, self.runs = evaluator, runs

    @cached_property
    def _examples(self) -> list[Sequences]:
        return [validation_of(run) for run in self.runs]

    def rows(self) -> list[dict[str, float]]:
        """For each model what its training log says of a validation."""
        outcomes = self.evaluator.outcomes(self.evaluator.fleet.matrix_NW, self._examples)
        rows = [
            {
                "validation_exact_match": float(outcome.correct_E.mean()),
                "validation_token_accuracy": float(outcome.right_tokens_E.sum() / outcome.tokens_E.sum()),
            }
            for outcome in outcomes
        ]
        for row, unseen in zip(rows, self._unseen(), strict=False):
            row["unseen_exact_match"] = unseen
        return rows

    def _unseen(self) -> list[float]:
        """Exact match of each model on its sample of unseen lengths; none where some run watches nothing."""
        watched = [sequences for run in self.runs if (sequences := watched_of(run)) is not None]
        if len(watched) < len(self.runs):
            return []
        outcomes = self.evaluator.outcomes(self.evaluator.fleet.matrix_NW, watched)
        return [float(outcome.correct_E.mean()) for outcome in outcomes]


def is_best(rule: str, score: float, best: float) -> bool:
    """Whether a checkpoint takes the place of the best one, by its score in distribution alone.

    `rule`: as `training.best` says.
    """
    return {"earliest": score > best, "latest": score >= best, "last": True}[rule]


def validations(directory: RunDirectory) -> list[dict[str, Any]]:
    """What each validation of a run found, in order: `validation` in distribution, `unseen` as it was watched."""
    names = {"step": "step", "validation_exact_match": "validation", "unseen_exact_match": "unseen"}
    return [
        {new: row[old] for old, new in names.items() if old in row}
        for row in read_rows(directory.training)
        if "validation_exact_match" in row
    ]
