"""The mark of numbers that swing between validations, and the words that explain it."""

from collections.abc import Mapping

from lengthwise.records.validations import LAST, NOTICEABLE
from lengthwise.report.model.summaries import Accuracy
from lengthwise.report.model.table import Words

MARK = "~"
"""Stands behind a number whose swing exceeds the interval over seeds."""

NAMED = 3
"""Numbers that a note names, the largest swings first."""


def marked(cell: Accuracy) -> tuple[Words, ...]:
    """The mark of a number, or nothing; who hears the page is told the swing itself."""
    return (Words(MARK, "mark"), Words(f" swing {cell.swing:.2f}", "spoken")) if cell.swings else ()


def note(cells: Mapping[tuple[str, str], Accuracy | None]) -> str:
    """What the mark means, and the largest swings that have it; nothing where no number is marked.

    `cells`: (task, encoding) -> accuracy on unseen lengths, as the table shows it.
    """
    marked = {key: cell for key, cell in cells.items() if cell and cell.swings and cell.swing is not None}
    if not marked:
        return ""
    limits = [f"than {NOTICEABLE}"]
    if any(cell.interval for cell in marked.values()):
        limits.append("than the interval over seeds is wide")
    largest = sorted(marked, key=lambda key: marked[key].swing or 0.0, reverse=True)[:NAMED]
    named = ", ".join(f"{encoding} on {task} {marked[task, encoding].swing:.2f}" for task, encoding in largest)
    rest = len(marked) - len(largest)
    return (
        f"{MARK} swings between validations by more {' and '.join(limits)}. Largest swings (range over the last {LAST} "
        f"validations, mean over seeds): {named}" + (f"; {rest} more" if rest else "")
    )
