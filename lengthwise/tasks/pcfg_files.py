"""Original PCFG SET files: an expression per line of a `.src` file, its result on the same line of a `.tgt` file."""

from pathlib import Path

from lengthwise.door import read_text
from lengthwise.errors import UserError
from lengthwise.tasks.pcfg_language import evaluate

MOST_BYTES = 2**28
"""Of a file; all of PCFG SET has a tenth of it."""


def import_pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    """The pairs (expression, result) of two files, every one checked against the interpreter."""
    expressions, results = _lines(source), _lines(target)
    if len(expressions) != len(results):
        raise UserError(f"{source} has {len(expressions)} lines, {target} has {len(results)}; they must be pairs")
    for number, (expression, result) in enumerate(zip(expressions, results, strict=True), start=1):
        try:
            found = evaluate(expression)
        except ValueError as error:
            raise UserError(f"{source}:{number}: {error}") from error
        if found != result:
            raise UserError(f"{target}:{number}: {expression!r} gives {found!r}, not {result!r}")
    return list(zip(expressions, results, strict=True))


def _lines(file: Path) -> list[str]:
    """The lines with single spaces between words."""
    return [" ".join(line.split()) for line in read_text(file, MOST_BYTES, UserError).splitlines()]
