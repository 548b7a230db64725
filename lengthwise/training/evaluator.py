"""What the models of a fleet get right: each on sequences of its own, in one pass, and what went wrong.

Shape letters: K parts, N models, W weights of one model, P predicted tokens, E examples.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.data.examples import offsets
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences
from lengthwise.data.tokens import Tokens
from lengthwise.evaluation.answers import AnswerVerdict
from lengthwise.evaluation.decoding import Decoding
from lengthwise.evaluation.exact import Outcomes, judge
from lengthwise.evaluation.verdicts import verdicts_by_bucket
from lengthwise.study import Run
from lengthwise.tasks.task import Task
from lengthwise.training.batches import best_row_width, collate
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.run_sizes import MEASURED

LARGEST_LOGITS = {"cpu": 2**25, "cuda": 2**29}
"""Elements of the largest logits tensor that is made at once (128 MiB and 2 GiB)."""
LARGEST_MAPS = {"cpu": 2**27, "cuda": 2**30}
"""Pairs of tokens, over all heads, whose logits may be in memory at once: some methods make a map of them."""
TOGETHER = 512
"""Examples of a model that are read in one go."""
FAILURES_KEPT = 3
"""Examples of each length that went wrong and are kept to be looked at."""


class Evaluator:
    """Examines the models of a fleet; `tasks` and `tokens` say what each was trained on."""

    def __init__(
        self,
        fleet: Fleet,
        tasks: Sequence[Task],
        tokens: Sequence[Tokens],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`note` is told what makes evaluation slower than it could be."""
        self.fleet, self.tasks, self.tokens, self.note = fleet, tasks, tokens, note

    @cached_property
    def decoding(self) -> Decoding:
        """Of any model of the fleet, whose weights are put into the one that they share: in the fleet's precision."""
        return Decoding(self.fleet.model, "bf16" if self.fleet.dtype == torch.bfloat16 else "fp32", self.note)

    def predicted(self, matrix_NW: Tensor, sequences: list[Sequences]) -> list[np.ndarray]:
        """Each model's most likely token (P,) at every target place of its sequences, in reading order."""
        fleet, pad = self.fleet, self.tokens[0].pad
        size = np.concatenate([each.size for each in sequences])
        width = best_row_width(size[:: max(1, len(size) // MEASURED)], TOGETHER, fleet.device.type)
        longest = max(int((each.size - each.prompt).max()) for each in sequences)
        rows = fleet.model.embedding.num_embeddings
        largest = LARGEST_LOGITS[fleet.device.type] // (fleet.count * rows * longest)
        whole_rows = LARGEST_MAPS[fleet.device.type] // (fleet.count * fleet.model.config.heads * width**2)
        largest = min(largest, max(1, whole_rows) * max(1, width // int(size.max())))
        batches = collate(sequences, pad, width, max(1, min(TOGETHER, largest, max(map(len, sequences)))))
        # All parts have one shape, so that they need one program.
        batches = replace(
            batches,
            rows_K=np.full_like(batches.rows_K, batches.rows_K.max()),
            predictions_K=np.full_like(batches.predictions_K, batches.predictions_K.max()),
        )
        weights_NW = matrix_NW.to(fleet.dtype)
        parts = range(len(batches.rows_K))
        tokens = [fleet.predictions(weights_NW, Batch.of(batches, part, fleet.device)) for part in parts]
        tokens_KNP = torch.stack(tokens).cpu().numpy()
        real_KNP = batches.targets_KNP >= 0
        return [tokens_KNP[:, i][real_KNP[:, i]] for i in range(fleet.count)]

    def outcomes(self, matrix_NW: Tensor, sequences: list[Sequences]) -> list[Outcomes]:
        predicted = self.predicted(matrix_NW, sequences)
        return [
            judge(tokens_P, each, tokens.end)
            for tokens_P, each, tokens in zip(predicted, sequences, self.tokens, strict=True)
        ]

    def rows(
        self, index: int, run: Run, matrix_NW: Tensor, test: Sequences, predicted_P: np.ndarray, outcomes: Outcomes
    ) -> Iterator[dict[str, Any]]:
        """What one model got right in each bucket; with a scratchpad also what it writes when nobody corrects it."""
        task, tokens, scratchpad = self.tasks[index], self.tokens[index], Scratchpad(run.data.scratchpad)
        written: dict[int, Counter[AnswerVerdict]] = {}
        if scratchpad.steps:
            self.fleet.model.load_state_dict(self.fleet.row(matrix_NW, index))
            self.decoding.refresh()
            written = verdicts_by_bucket(self.decoding, task, tokens, scratchpad, test, predicted_P, outcomes)
        sizes = mean_sizes(test)
        for counts in outcomes.by_bucket():
            length = task.length_of(counts["bucket"])
            row: dict[str, Any] = {"length": length, "seen": length <= run.data.spans(task)[0].last, **counts}
            row["chance"] = task.chance(counts["bucket"])
            row["sequence_tokens"] = sizes[counts["bucket"]]
            if scratchpad.steps:
                row["answers"] = {verdict.value: written[counts["bucket"]][verdict] for verdict in AnswerVerdict}
            yield row


def mean_sizes(sequences: Sequences) -> dict[int, float]:
    """Bucket -> mean length in tokens: prompt, target and end."""
    return {
        int(b): round(float(sequences.size[sequences.buckets == b].mean()), 2) for b in np.unique(sequences.buckets)
    }


def failures(
    task: Task, tokens: Tokens, test: Sequences, predicted_P: np.ndarray, outcomes: Outcomes
) -> Iterator[dict[str, Any]]:
    """Some examples of each length that went wrong, up to the first wrong token: what comes after it nobody knows."""
    starts_E = offsets(outcomes.tokens_E)
    kept: Counter[int] = Counter()
    kinds = {"wrong symbol": outcomes.wrong_symbol_E, "stopped early": outcomes.stopped_early_E}
    for example in np.flatnonzero(~outcomes.correct_E):
        length = task.length_of(int(test.buckets[example]))
        kept[length] += 1
        if kept[length] > FAILURES_KEPT:
            continue
        first = int(outcomes.first_error_E[example])
        prompt, size = int(test.prompt[example]), int(test.size[example])
        written = predicted_P[starts_E[example] : starts_E[example] + first + 1]
        yield {
            "length": length,
            "prompt": tokens.text(test.tokens[example, :prompt]),
            "target": tokens.text(test.tokens[example, prompt : size - 1]),
            "predicted": tokens.pieces(written),
            "right_text": tokens.text(written[:-1]),
            "first_error": first,
            "kind": next((kind for kind, is_so in kinds.items() if is_so[example]), "ran on"),
        }
