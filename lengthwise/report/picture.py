"""The curves of a study as a picture file, drawn without a browser."""

from pathlib import Path

from lengthwise.errors import UserError
from lengthwise.records.files import replace
from lengthwise.records.rows import Results
from lengthwise.report.figures import accuracy_by_length

try:
    import vl_convert
except ImportError as error:
    raise UserError(f"reports need {error.name}: pip install 'lengthwise[report]'") from error


def write_picture(results: Results, path: Path, checkpoint: str = "last") -> None:
    """Writes `path`, which ends in .svg or .png (twice as many pixels as the drawing has points)."""
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise UserError(f"a picture's name must end in .svg or .png, not {path.name!r}")
    drawing = accuracy_by_length(results, checkpoint).to_json()
    if kind == ".svg":
        picture = vl_convert.vegalite_to_svg(drawing).encode()
    else:
        picture = vl_convert.vegalite_to_png(drawing, scale=2)
    replace(path, lambda partial: partial.write_bytes(picture))
