"""How many symbols examples will have, before any is drawn: scratchpads may grow with the square of the length."""

import math

from lengthwise.errors import UserError
from lengthwise.tasks.task import Task

MOST_SYMBOLS = 4_000_000
"""Of all examples together, their steps included: a second or two, and some hundred megabytes."""


def refuse_too_many(task: Task, length: int, count: int) -> None:
    """Refuses to draw what would take minutes or more memory than there is."""
    symbols = count * symbols_of(task, length)
    if symbols > MOST_SYMBOLS:
        raise UserError(
            f"{count:,} examples of length {length:,} would have about {symbols:.2g} symbols, their steps included; "
            f"at most {MOST_SYMBOLS:,} are drawn: choose a smaller --length or --count"
        )


def symbols_of(task: Task, length: int) -> float:
    """Of an example: what shorter ones have, and how that grows. 0 where the task has no short ones."""
    measured = [(each, found) for each in (16, 32, 64) if (found := _measured(task, min(each, length)))]
    if not measured:
        return 0.0
    (shorter, few), (longer, many) = measured[0], measured[-1]
    if length <= longer or shorter == longer:
        return many * max(1.0, length / longer)
    growth = math.log(many / few) / math.log(longer / shorter)
    return many * (length / longer) ** max(1.0, growth)


def _measured(task: Task, length: int) -> int:
    try:
        return len(task.drawn(length, 1, 0).tokens)
    except UserError:  # it has no examples of that length
        return 0
