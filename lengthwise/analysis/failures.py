"""Where a wrong answer first goes wrong, and how: a wrong symbol, an end too early, no end where it was due."""

from typing import Any

import numpy as np

from lengthwise.analysis.inputs import Inputs
from lengthwise.analysis.model_adapter import ModelAdapter, Watch
from lengthwise.data.examples import offsets
from lengthwise.evaluation.exact import Outcomes, judge

PARTS = 10
"""Equal parts of the target in which first errors are counted."""


def outcomes_of(adapter: ModelAdapter, inputs: Inputs, end: int) -> Outcomes:
    """Exact match in one pass: what greedy decoding would write up to its first error."""
    sequences = inputs.sequences
    starts_E = offsets(sequences.size - sequences.prompt)
    predicted_P = np.zeros(starts_E[-1], dtype=np.int64)
    for batch in inputs.batches():
        chosen_BT = adapter.forward(batch.tokens_BT, Watch()).argmax(-1).cpu().numpy()
        for row, example in enumerate(batch.example_B):
            prompt, size = sequences.prompt[example], sequences.size[example]
            predicted_P[starts_E[example] : starts_E[example + 1]] = chosen_BT[row, prompt - 1 : size - 1]
    return judge(predicted_P, sequences, end)


def anatomy(outcomes: Outcomes, length_E: np.ndarray, trained_target: int) -> list[dict[str, Any]]:
    """One row for each length.

    `first_error_part`: how many first errors fall in each tenth of the target, its end included. `first_error_place`:
    how many at each place, counted from 0; the place after the last symbol is that of the end. `trained_target`:
    tokens of the longest target of training; `beyond_trained` counts the first errors at a place no training had.
    """
    rows = []
    for length in np.unique(length_E).tolist():
        here = length_E == length
        wrong = here & ~outcomes.correct_E
        first, tokens = outcomes.first_error_E[wrong], outcomes.tokens_E[wrong]
        rows.append(
            {
                "length": length,
                "n": int(here.sum()),
                "correct": int(outcomes.correct_E[here].sum()),
                "wrong_symbol": int(outcomes.wrong_symbol_E[here].sum()),
                "stopped_early": int(outcomes.stopped_early_E[here].sum()),
                "ran_on": int(outcomes.ran_on_E[here].sum()),
                "first_error_part": np.bincount(first * PARTS // tokens, minlength=PARTS).tolist(),
                "first_error_place": np.bincount(first).tolist(),
                "first_error_share": round(float((first / tokens).mean()), 4) if len(first) else None,
                "beyond_trained": int((first >= trained_target).sum()),
            }
        )
    return rows
