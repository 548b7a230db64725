"""Asking a placement once, for a few examples, before anything is drawn: what is wrong is one line."""

import numpy as np

from lengthwise.errors import UserError
from lengthwise.placements.placement import Generators, Placement
from lengthwise.registry import asking, written_in

SIZES_E = (1, 3, 5)


def check_placement(placement: Placement) -> None:
    """Positions are whole numbers from 0 up within reach, the same when asked twice, and change nothing."""
    what, cls = f"placement {placement.name}", type(placement)
    size_E, width = np.array(SIZES_E), max(SIZES_E)
    with asking(what, cls, "tracks"):
        tracks_EW = {name: np.zeros((len(size_E), width), dtype=np.int64) for name in placement.tracks}
    with asking(what, cls, "place"):
        found, again = (placement.place(size_E, tracks_EW, Generators(0, np.arange(len(size_E)))) for _ in range(2))
    with asking(what, cls, "reach"):
        reach = placement.reach(width)
    wrong = _wrong(found, reach)
    if not wrong and not np.array_equal(size_E, SIZES_E):
        wrong = "place must not change what it is given"
    if not wrong and not _equal(found, again):
        wrong = "place must answer the same when it is asked twice"
    if wrong:
        raise UserError(f"{written_in(what, cls)}: {wrong}")


def _equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _wrong(found: object, reach: object) -> str:
    width = max(SIZES_E)
    if type(reach) is not int or reach < width:
        return f"reach({width}) must be a whole number from {width} up, not {reach!r}"
    if found is None:
        return ""
    if not isinstance(found, np.ndarray) or found.shape != (len(SIZES_E), width):
        told = getattr(found, "shape", type(found).__name__)
        return f"place must return (examples, tokens) = {(len(SIZES_E), width)} or None, not {told}"
    if not np.issubdtype(found.dtype, np.integer):
        return f"place must return whole numbers, not {found.dtype}"
    real = found[np.arange(width) < np.array(SIZES_E)[:, None]]
    if real.min() < 0 or real.max() >= reach:
        return f"place must return positions from 0 to below {reach}, which is its reach({width})"
    return ""
