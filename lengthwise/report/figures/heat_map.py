"""Heat maps of accuracies: tasks by encodings."""

from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.report.figures.colour_bar import HEIGHT as BAR
from lengthwise.report.figures.colour_bar import colour_bar
from lengthwise.report.figures.drawing import Figure, element, marks, shortened, text, width_of
from lengthwise.report.figures.palette import DARK_SCALE, shade, styles, text_on


@dataclass(frozen=True)
class HeatCell:
    """One cell of a heat map."""

    value: float
    marked: bool = False
    """Some run did not learn the task."""


def heat_map(
    name: str,
    title: str,
    cells: Mapping[tuple[str, str], HeatCell],
    tasks: list[str],
    encodings: list[str],
    notes: Mapping[str, str],
    widest: float = 210.0,
) -> Figure:
    """Tasks by encodings, a number on the colour of each cell; `notes`: words behind the name of a task.

    `widest`: points that names of tasks take at most.
    """
    look = styles(encodings)
    labels = {task: f"{task} · {notes[task]}" if task in notes else task for task in tasks}
    left = min(widest, max(width_of(label, 11.5) for label in labels.values()) + 10)
    wide = max(48.0, min(92.0, max(width_of(encoding, 10.5) for encoding in encodings) + 8))
    top, tall = 56, 24
    body = [text(title, 2, 15, 13, weight=600)]
    for column, encoding in enumerate(encodings):
        x = left + wide * (column + 0.5)
        colour, shape = look[encoding]
        body.append(marks([(x, 34)], shape, 3.6, colour))
        body.append(text(shortened(encoding, wide, 10.5), x, 50, 10.5, "middle"))
    for row, task in enumerate(tasks):
        y = top + tall * row
        body.append(text(shortened(labels[task], left - 8, 11.5), left - 7, y + 16, 11.5, "end"))
        for column, encoding in enumerate(encodings):
            cell = cells.get((task, encoding))
            body.append(heat_cell(cell, left + wide * column, y, wide, tall))
    bottom = top + tall * len(tasks)
    width = max(left + wide * len(encodings) + 2, 1.2 * width_of(title, 13))  # one column is narrower than the title
    if any(cell.marked for cell in cells.values()):
        words = "△ some seed did not learn its training lengths"
        body.append(text(words, 2, bottom + 17, 10.5, quiet=True))
        bottom, width = bottom + 18, max(width, width_of(words, 10.5) + 4)
    bar, room = colour_bar(shade, [(0, "0"), (0.5, "0.5"), (1, "1")], "exact match", 2, bottom + 8)
    body.append(element("g", bar, class_="in-light"))
    dark, _ = colour_bar(
        lambda s: shade(s, DARK_SCALE), [(0, "0"), (0.5, "0.5"), (1, "1")], "exact match", 2, bottom + 8
    )
    body.append(element("g", dark, class_="in-dark", display="none"))
    bottom, width = bottom + BAR + 8, max(width, room + 4)
    description = f"{title}: {_spoken(cells, tasks, encodings)}"
    return Figure(name, title, description, width, bottom + 6, "".join(body))


def heat_cell(cell: HeatCell | None, x: float, y: float, wide: float, tall: float) -> str:
    if cell is None:
        return text("–", x + wide / 2, y + 16, 11.5, "middle", quiet=True)
    colour, dark = shade(cell.value), shade(cell.value, DARK_SCALE)
    words = f"{cell.value:.2f}" + (" △" if cell.marked else "")
    # A line of paper between cells. A page in the dark takes the other colours; a file of its own is on white paper.
    body = element("rect", x=x + 1, y=y + 1, width=wide - 2, height=tall - 2, rx=2, fill=colour, class_="ground")
    body += text(words, x + wide / 2, y + 16, 11.5, "middle", fill=text_on(colour))
    style = f"--light:{colour};--dark:{dark};--on-light:{text_on(colour)};--on-dark:{text_on(dark)}"
    return element("g", body, class_="heat", style=style)


def _spoken(cells: Mapping[tuple[str, str], HeatCell], tasks: list[str], encodings: list[str]) -> str:
    rows = (
        f"{task}: " + ", ".join(f"{name} {cells[task, name].value:.2f}" for name in encodings if (task, name) in cells)
        for task in tasks
    )
    return "; ".join(rows) + "."
