"""Figures of a study as files, drawn without a browser."""

from pathlib import Path

from lengthwise.errors import UserError
from lengthwise.records.files import replace
from lengthwise.records.results import Results
from lengthwise.report.figures.drawing import Figure
from lengthwise.report.figures.length_curves import accuracy_by_length

SCALE = 2
"""Pixels for each point of a drawing."""


def write_picture(results: Results, path: Path, checkpoint: str = "last") -> None:
    """Writes the curves of all tasks to `path`, which ends in .svg or .png."""
    write_figure(accuracy_by_length(results, checkpoint), path)


def write_figure(figure: Figure, path: Path) -> None:
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise UserError(f"a picture's name must end in .svg or .png, not {path.name!r}")
    content = figure.file().encode() if kind == ".svg" else _pixels(figure)
    replace(path, lambda partial: partial.write_bytes(content))


def _pixels(figure: Figure) -> bytes:
    try:
        import vl_convert
    except ImportError as error:
        raise UserError(f"PNG files need {error.name}: pip install 'lengthwise[report]'") from error
    return vl_convert.svg_to_png(figure.file(), scale=SCALE)
