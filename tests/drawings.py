"""What an SVG says and shows, apart from how it is written: its words in order, its shapes with their places."""

import re
from xml.etree import ElementTree

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
PLACED = ("d", "transform", "points", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "width", "height", "viewBox")
"""Attributes that say where something is."""
SAID = 0.011
"""How much a number in words may differ: the last of two decimals."""
PLACE = 0.11
"""And a place, in pixels: one digit of rounding."""


def assert_same_drawing(first: str, second: str, said: float = SAID) -> None:
    """The same words in the same order, and the same shapes, each at the same place, but for rounding."""
    ours, theirs = (list(ElementTree.fromstring(text).iter()) for text in (first, second))
    assert [each.tag for each in ours] == [each.tag for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        words, others = _words(one), _words(other)
        assert NUMBER.split(words) == NUMBER.split(others)
        assert _near(words, others, said), (words, others)
        for name in PLACED:
            assert _near(one.get(name, ""), other.get(name, ""), PLACE), (one.tag, name)


def _near(first: str, second: str, tolerance: float) -> bool:
    """Whether both hold as many numbers, and these are alike."""
    ours, theirs = (list(map(float, NUMBER.findall(text))) for text in (first, second))
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(abs(one - other) <= tolerance for one, other in pairs)


def _words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split()) if element.tag.endswith(("text", "title", "desc")) else ""
