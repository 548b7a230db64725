"""What a model wrote, judged as text: did it stop, can an answer be read, is it right.

One pass cannot say this: a right answer may follow a scratchpad that differs from the gold one.
"""

from enum import StrEnum

import numpy as np

from lengthwise.data.scratchpad import Scratchpad, answer_of
from lengthwise.data.tokens import SymbolTokens, Tokens
from lengthwise.tasks.task import Task


class AnswerVerdict(StrEnum):
    RIGHT = "right"
    WRONG_ANSWER = "wrong answer"
    UNPARSED = "unparsed"
    DID_NOT_STOP = "did not stop"


def judge_text(
    task: Task, scratchpad: Scratchpad, written: np.ndarray, gold: np.ndarray, tokens: Tokens | None = None
) -> AnswerVerdict:
    """`written`, `gold`: ids of targets, the end included where there is one; of `tokens`, by default symbols."""
    tokens = tokens or SymbolTokens(task.vocabulary)
    if len(written) == 0 or written[-1] != tokens.end:
        return AnswerVerdict.DID_NOT_STOP
    found = answer_in(task, scratchpad, tokens.text(written[:-1]))
    if found is None:
        return AnswerVerdict.UNPARSED
    expected = answer_in(task, scratchpad, tokens.text(gold[:-1]))
    return AnswerVerdict.RIGHT if found == expected else AnswerVerdict.WRONG_ANSWER


def answer_in(task: Task, scratchpad: Scratchpad, text: str) -> str | None:
    """The answer in a whole target; None where none can be read.

    As published, it need not follow from the steps, nor need these have the form that the format asks for.
    """
    return task.read_answer(answer_of(text) if scratchpad.steps else text)
