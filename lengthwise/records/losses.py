"""The training loss of a run by step, thinned: a page draws a line, and a log may have a hundred thousand rows."""

import json
import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.records.directory import StudyDirectory

PLACES = 48
"""Of the line: at most so many points."""
READ = 2048
"""Bytes that are read at each place, some fifteen rows; a point is their mean, since single losses are noisy."""

Points = list[tuple[int, float]]
"""Steps and losses."""


def losses(folders: Sequence[Path]) -> dict[str, Points]:
    """Fingerprint -> the loss of training by step, of those runs in these folders that have a log.

    Collected results have none. What is damaged is left out: the line is an aid, and no number is made of it.
    """
    found = {}
    for directory in chain.from_iterable(StudyDirectory(folder).runs() for folder in folders if folder.is_dir()):
        points = _thinned(directory.training)
        if len(points) > 1:
            found[directory.path.name.rpartition("-")[2]] = points
    return found


def _thinned(log: Path) -> Points:
    try:
        size = log.stat().st_size
        with log.open("rb") as file:
            pieces = []
            for place in range(PLACES) if size > PLACES * READ else (0,):
                file.seek(place * (size - READ) // (PLACES - 1))
                piece = file.read(READ if size > PLACES * READ else PLACES * READ)
                pieces.append(piece if place == 0 else piece.partition(b"\n")[2])
    except OSError:
        return []
    groups = [list(filter(None, map(_point, piece.split(b"\n")))) for piece in pieces]
    if len(groups) == 1:  # a short log, read whole
        (every,) = groups
        together = -(-len(every) // PLACES) or 1
        groups = [every[first : first + together] for first in range(0, len(every), together)]
    return [(group[-1][0], round(fmean(loss for _, loss in group), 4)) for group in groups if group]


def _point(line: bytes) -> tuple[int, float] | None:
    """Step and loss of a row; None for one of a validation, half a row or rubbish."""
    try:
        row: Any = json.loads(line)
        step, loss = row["step"], row["loss"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fits = type(step) is int and 0 < step < 10**12 and type(loss) is float and math.isfinite(loss)
    return (step, loss) if fits else None
