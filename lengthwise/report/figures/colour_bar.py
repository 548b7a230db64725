"""A colour bar: which colour stands for which number."""

from collections.abc import Callable, Sequence

from lengthwise.report.figures.drawing import element, text, width_of

WIDE, TALL, PARTS = 150.0, 9.0, 30
HEIGHT = 34.0
"""Of the bar with its numbers and its title."""


def colour_bar(
    colour: Callable[[float], str], marked: Sequence[tuple[float, str]], title: str, x: float, y: float
) -> tuple[str, float]:
    """The drawing with its upper left corner at (x, y), and its width.

    `colour`: of a share of the way from left to right; `marked`: shares and the numbers that stand there.
    """
    wide = WIDE / PARTS
    body = [
        element(
            "rect",
            x=x + i * wide,
            y=y + 14,
            width=wide + 0.3,
            height=TALL,
            fill=colour((i + 0.5) / PARTS),
        )
        for i in range(PARTS)
    ]
    body.append(text(title, x, y + 9, 10.5, quiet=True))
    for share, words in marked:
        anchor = "start" if share <= 0 else "end" if share >= 1 else "middle"
        body.append(text(words, x + share * WIDE, y + HEIGHT, 10, anchor, quiet=True))
    return "".join(body), max(WIDE, width_of(title, 10.5))
