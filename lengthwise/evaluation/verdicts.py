"""What models make of examples whose answer has steps, when nobody corrects them.

Shape letters: P predicted tokens, E examples.
"""

from collections import Counter

import numpy as np

from lengthwise.data.examples import offsets
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences
from lengthwise.data.tokens import Tokens
from lengthwise.evaluation.answers import AnswerVerdict, judge_text
from lengthwise.evaluation.decoding import Decoding
from lengthwise.evaluation.exact import Outcomes
from lengthwise.evaluation.generate import MARGIN
from lengthwise.tasks.task import Task


def verdicts_by_bucket(
    decoding: Decoding,
    task: Task,
    tokens: Tokens,
    scratchpad: Scratchpad,
    sequences: Sequences,
    predicted_P: np.ndarray,
    outcomes: Outcomes,
) -> dict[int, Counter[AnswerVerdict]]:
    """Bucket -> how often each verdict, with what the model writes itself; the budget follows the gold length.

    `predicted_P` and `outcomes` are those of one pass. It says what the model writes up to and including its first
    error, so only what comes after that has to be generated, and nothing where there is none.
    """
    starts_E = offsets(outcomes.tokens_E)
    last_E = np.minimum(outcomes.first_error_E + 1, outcomes.tokens_E)
    rows = zip(sequences.tokens, sequences.prompt, sequences.size, strict=True)
    golds = [ids[prompt:size] for ids, prompt, size in rows]
    known = [predicted_P[start : start + last] for start, last in zip(starts_E[:-1], last_E, strict=True)]
    left_E = np.array([len(gold) + MARGIN - len(text) for gold, text in zip(golds, known, strict=True)])
    unfinished = np.flatnonzero([text[-1] != tokens.end for text in known])
    prompts = [np.concatenate([sequences.tokens[e, : sequences.prompt[e]], known[e]]) for e in unfinished]
    written = decoding.generate(prompts, tokens, left_E[unfinished].tolist())
    for example, text in zip(unfinished, written, strict=True):
        known[example] = np.concatenate([known[example], text])
    found: dict[int, Counter[AnswerVerdict]] = {}
    for bucket, text, gold in zip(sequences.buckets, known, golds, strict=True):
        found.setdefault(int(bucket), Counter())[judge_text(task, scratchpad, text, gold, tokens)] += 1
    return found
