"""Asking a task once, for a few examples, before anything is trained: a mistake is one line, not a traceback."""

import numpy as np

from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.errors import UserError
from lengthwise.registry import asking, written_in
from lengthwise.seeding import stream
from lengthwise.tasks.task import Span, Task

COUNT = 2
"""Examples that are drawn: of one, the shape would not tell whether there is an axis of examples."""


def refuse_incomplete(task: Task) -> None:
    """Refuses a task that lacks something that every task needs."""
    missing = [name for name in ("train_lengths", "test_lengths", "length_means") if not hasattr(task, name)]
    missing += [hook for hook in ("symbols", "draw", "chance") if getattr(type(task), hook) is getattr(Task, hook)]
    if missing:
        told = f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} missing"
        raise UserError(f"{written_in(f'task {task.name}', type(task))}: {told}")


def check(task: Task, train: Span, test: Span) -> None:
    """Asks for chance and examples of the shortest and the longest lengths; what is wrong is one line with the file."""
    what, cls = f"task {task.name}", type(task)
    with asking(what, cls, "symbols"):
        known = len(task.vocabulary)
        again = tuple(task.symbols()) == tuple(task.symbols())
    if not again:
        raise UserError(f"{written_in(what, cls)}: symbols must be the same when they are asked for twice")
    with asking(what, cls, "refuse_spans"):
        task.refuse_spans(train, test)
    for span in (train, test):
        with asking(what, cls, "buckets"):
            buckets = sorted(task.buckets(span), key=task.length_of)
        for bucket in dict.fromkeys((*buckets[:1], *buckets[-1:])):
            with asking(what, cls, "chance"):
                chance, again = float(task.chance(bucket)), float(task.chance(bucket))
            if chance != again and chance == chance:
                raise UserError(f"{written_in(what, cls)}: chance({bucket}) is {chance:g}, then {again:g}")
            if not 0 <= chance <= 1:
                raise UserError(f"{written_in(what, cls)}: chance({bucket}) must be 0 to 1, not {chance:g}")
            with asking(what, cls, "draw"):
                drawn, once_more = (task.draw(bucket, COUNT, stream(0, "check", task.name, bucket)) for _ in range(2))
                wrong = _wrong(drawn, known) or _differ(drawn, once_more)
            if wrong:
                raise UserError(f"{written_in(what, cls)}: draw({bucket}, count={COUNT}) {wrong}")


def _differ(drawn: list[Column], again: list[Column]) -> str:
    """Examples must come from the generator that is given, and from nothing else."""
    same = len(drawn) == len(again) and all(
        part == other and np.array_equal(ids, others) for (part, ids), (other, others) in zip(drawn, again, strict=True)
    )
    return "" if same else "must return the same examples for the same generator"


def _wrong(columns: list[Column], known: int) -> str:
    """What is wrong with drawn examples, if anything; `known`: symbols that have ids."""
    for column in columns:
        if not isinstance(column, tuple) or len(column) != 2:
            return f"must return a list of (part, ids), not of {type(column).__name__}"
    for number, (part, ids) in enumerate(columns):
        column = f"column {number} ({Part(part).name})"
        if not isinstance(ids, np.ndarray) or not np.issubdtype(ids.dtype, np.integer):
            return f"must return arrays of whole numbers: {column} is {getattr(ids, 'dtype', type(ids).__name__)}"
        if ids.ndim not in (1, 2) or (ids.ndim == 2 and len(ids) not in (1, COUNT)):
            return f"must return arrays of (count, tokens) or (tokens): {column} has the shape {ids.shape}"
        if ids.size and (ids.min() < ABSENT or ids.max() >= known):
            wrong = ids.min() if ids.min() < ABSENT else ids.max()
            return f"must return ids of symbols, 0 to {known - 1}, or {ABSENT}: {column} holds {wrong}"
    parts = {part for part, _ in columns}
    for part in (Part.PROMPT, Part.ANSWER):
        if part not in parts:
            return f"must return a column of Part.{part.name}"
    before_E = sum((np.atleast_2d(ids) != ABSENT).sum(axis=1) for part, ids in columns if part <= Part.PROMPT)
    if not np.all(before_E):
        return "must return at least one token of a prompt: the first token of an answer is predicted from it"
    return ""
