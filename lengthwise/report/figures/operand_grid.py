"""Accuracy of addition as maps: digits of the first operand across, of the second upwards, a map for each encoding."""

import numpy as np

from lengthwise.report.figures.drawing import Figure, Scale, element, labels, marks, path, shortened, text, ticks
from lengthwise.report.figures.palette import styles
from lengthwise.report.figures.panels import arranged
from lengthwise.report.figures.raster import raster
from lengthwise.report.model.length_curves import FEW
from lengthwise.report.model.operand_grid import OperandGrid

WIDTH, HEIGHT = 330.0, 332.0
LEFT, TOP, SIDE = 44.0, 28.0, 232.0
"""Where the map is, and how large it is in either direction."""
BOTTOM = TOP + SIDE
BAR, BAR_WIDTH = LEFT + SIDE + 14, 10.0
"""Where the colours are explained."""
HATCH = 7.0
"""Pixels between the lines that show where nothing was tested."""
FRAME = "#d9480f"
"""Of what was trained on; it stands out from both ends of both colour scales."""


def grid_figure(grid: OperandGrid, encodings: list[str]) -> Figure:
    """All encodings of a task."""
    panels = grid_panels(grid, encodings)
    return arranged(
        f"operand-grid-{grid.task}",
        f"Exact match on {grid.task} by digits of both operands",
        " ".join(each.description for each in panels),
        [each.body for each in panels],
        (WIDTH, HEIGHT),
        [],
    )


def grid_panels(grid: OperandGrid, encodings: list[str]) -> list[Figure]:
    """One for each encoding that has runs; `encodings`: all of the study, which decide what each looks like."""
    return [_panel(grid, encoding, encodings) for encoding in grid.cells]


def _panel(grid: OperandGrid, encoding: str, encodings: list[str]) -> Figure:
    colour, shape = styles(encodings)[encoding]
    means_JI = np.full((grid.size, grid.size), np.nan)  # the second operand's shortest below
    for (i, j), cell in grid.cells[encoding].items():
        means_JI[-j, i - 1] = cell.mean
    missing = bool(np.isnan(means_JI).any())
    body = [
        marks([(LEFT + 4, 12)], shape, 4, colour),
        text(shortened(encoding, 270, 13), LEFT + 14, 16, 13, weight=600),
        _hatching() if missing else "",
        raster(means_JI, LEFT, TOP, SIDE, SIDE),
        element("path", d=_square(LEFT, TOP, SIDE), fill="none", stroke="currentColor", stroke_opacity=0.35),
        _outline(grid),
        _axes(grid),
        _colours(),
        _notes(grid, encoding, missing),
    ]
    return Figure(
        f"operand-grid-{grid.task}-{encoding}",
        f"Exact match of {encoding} on {grid.task} by digits of both operands",
        spoken(grid, encoding),
        WIDTH,
        HEIGHT,
        "".join(body),
    )


def spoken(grid: OperandGrid, encoding: str) -> str:
    """What a screen reader says instead of the map."""
    regions = ", ".join(f"{region} {value:.2f}" for region, value in grid.region_means(encoding).items())
    missing = grid.size**2 - len(grid.cells[encoding])
    untested = f" {missing} of {grid.size**2} pairs were not tested." if missing else ""
    return (
        f"Exact match of {encoding} on {grid.task} by digits of the first and of the second operand, 1 to {grid.size}. "
        f"Trained on {_trained(grid)}. Mean over pairs: {regions}.{untested}"
    )


def _trained(grid: OperandGrid) -> str:
    first, last = grid.train_lengths
    return f"{first} to {last} digits" if first < last else f"{last} digits"


def _outline(grid: OperandGrid) -> str:
    """Around the pairs that were trained on: a square, or an angle where training leaves out short ones."""
    first, last = grid.train_lengths
    cell = SIDE / grid.size
    inner, outer = (min(digits, grid.size) * cell for digits in (first - 1, last))
    if first == 1:
        data = _square(LEFT, BOTTOM - outer, outer)
    else:
        corners = [(0, outer), (outer, outer), (outer, 0), (inner, 0), (inner, inner), (0, inner)]
        data = path((LEFT + across, BOTTOM - up) for across, up in corners) + "z"
    return element("path", class_="trained", d=data, fill="none", stroke=FRAME, stroke_width=2)


def _square(x: float, y: float, side: float) -> str:
    return path([(x, y), (x + side, y), (x + side, y + side), (x, y + side)]) + "z"


def _hatching() -> str:
    """Oblique lines below the map: they show through where it has no value."""
    data = []
    for number in range(1, int(2 * SIDE / HATCH)):
        near, far = max(0.0, number * HATCH - SIDE), min(number * HATCH, SIDE)
        data.append(path([(LEFT + near, TOP + far), (LEFT + far, TOP + near)]))
    return element("path", d="".join(data), stroke="currentColor", stroke_opacity=0.3, fill="none")


def _axes(grid: OperandGrid) -> str:
    across = Scale((0.5, grid.size + 0.5), (LEFT, LEFT + SIDE))
    up = Scale(across.domain, (BOTTOM, TOP))
    shown = ticks(1, grid.size, 8)
    second = text("digits of the second operand", 0, 0, 11, "middle", quiet=True)
    return "".join(
        [
            labels(((str(digits), across(digits), BOTTOM + 14) for digits in shown), 10.5, "middle"),
            labels(((str(digits), LEFT - 5, up(digits) + 4) for digits in shown), 10.5, "end"),
            text("digits of the first operand", LEFT + SIDE / 2, BOTTOM + 30, 11, "middle", quiet=True),
            element("g", second, transform=f"translate(14,{TOP + SIDE / 2:.0f})rotate(-90)"),
        ]
    )


def _colours() -> str:
    """What the colours mean: 1 above, 0 below."""
    steps = np.linspace(1, 0, 21)[:, None]
    at = Scale((0, 1), (BOTTOM, TOP))
    words = ((f"{value:g}", BAR + BAR_WIDTH + 4, at(value) + 8 * value) for value in (0, 0.5, 1))
    return raster(steps, BAR, TOP, BAR_WIDTH, SIDE) + labels(words, 10.5)


def _notes(grid: OperandGrid, encoding: str, missing: bool) -> str:
    lines = [f"framed: trained, {_trained(grid)}" + ("; hatched: not tested" if missing else "")]
    fewest = min(cell.n for cell in grid.cells[encoding].values())
    if fewest < FEW:
        lines.append(f"fewest examples of a pair: {fewest}")
    return labels(((words, LEFT, BOTTOM + 48 + 14 * number) for number, words in enumerate(lines)), 10)
