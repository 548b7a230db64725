"""The `lengthwise theory` commands: parses and calls; imports nothing heavy before a command runs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lengthwise.cli.app import App
from lengthwise.cli.options import AsJson
from lengthwise.cli.printing import console, messages

if TYPE_CHECKING:
    from lengthwise.analysis.theory import AbsoluteResult, RelativeResult

theory_app = App(help="The theorems about decoders without position encoding, as explicit parameters.")

Length = Annotated[
    int, typer.Option(min=2, max=8192, help="The largest position; powers of two below it are tried too.")
]
Vocabulary = Annotated[int, typer.Option(min=2, max=100_000, help="How many tokens there are.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the tokens and of all random parameters.")]
Picture = Annotated[Path | None, typer.Option(help="A .svg or .png file for a picture at this length.")]


@theory_app.command("absolute")
def absolute_command(
    length: Length = 512, vocabulary: Vocabulary = 50, seed: Seed = 0, as_json: AsJson = False, picture: Picture = None
) -> None:
    """Theorem 1: the first layer writes absolute position."""
    from lengthwise.analysis.theory import CASES, lengths_up_to, verify_absolute

    with messages.status("Building decoders"):
        results = [verify_absolute(each, vocabulary, case, seed) for each in lengths_up_to(length) for case in CASES]
    if picture is not None:
        from lengthwise.analysis.theory_picture import absolute_figure
        from lengthwise.report.figures.picture import write_figure

        write_figure(absolute_figure(length, vocabulary, seed), picture)
    if as_json:
        _print_json("absolute", results)
        return
    _print_errors("1/t, which the attention head writes", [(r.length, r.case, r.inverse_error) for r in results])
    _print_errors("t, which the feed-forward layer writes", [(r.length, r.case, r.position_error) for r in results])


@theory_app.command("relative")
def relative_command(
    length: Length = 512, vocabulary: Vocabulary = 50, seed: Seed = 0, as_json: AsJson = False, picture: Picture = None
) -> None:
    """Theorem 2: in later layers logits are content - (t - i)."""
    from lengthwise.analysis.theory import CASES, lengths_up_to, verify_relative

    with messages.status("Building decoders"):
        results = [verify_relative(each, vocabulary, case, seed) for each in lengths_up_to(length) for case in CASES]
    if picture is not None:
        from lengthwise.analysis.theory_picture import relative_figure
        from lengthwise.report.figures.picture import write_figure

        write_figure(relative_figure(length, vocabulary, seed), picture)
    if as_json:
        _print_json("relative", results)
        return
    _print_errors("logits, beside content - (t - i)", [(r.length, r.case, r.logit_error) for r in results])


def _print_json(theorem: str, results: "list[AbsoluteResult] | list[RelativeResult]") -> None:
    console.print_json(json.dumps([{"theorem": theorem, **asdict(result)} for result in results]))


def _print_errors(what: str, errors: list[tuple[int, str, float]]) -> None:
    """`errors`: length, case, error; a row for each length and a column for each case."""
    from lengthwise.report.model.table import Column, Table, TableRow, number_cell, text_cell
    from lengthwise.report.terminal.table import to_terminal

    cases = list(dict.fromkeys(case for _, case, _ in errors))
    found = {(length, case): error for length, case, error in errors}
    rows = (
        TableRow((text_cell(str(length)), *(number_cell(_short(found[length, case])) for case in cases)))
        for length in dict.fromkeys(length for length, _, _ in errors)
    )
    columns = (Column("length", "left"), *map(Column, cases))
    console.print(to_terminal(Table("", f"Largest error of {what}", columns, tuple(rows))))
    console.print()


def _short(error: float) -> str:
    return f"{error:.0e}" if 0 < error < 0.01 else f"{error:.4g}"
