"""The tables of the `lengthwise extend` commands."""

from collections.abc import Sequence
from typing import Any

from lengthwise.context_extension.search import Growth, Search
from lengthwise.report.markdown.table import section
from lengthwise.report.model.context_extension import ExtensionRows
from lengthwise.report.model.context_extension_tables import (
    growth_words,
    key_table,
    look_table,
    ratio_table,
    scale_table,
)
from lengthwise.report.model.phrases import perplexity
from lengthwise.report.model.table import MISSING, Cell, Column, Table, TableRow, Words, number_cell, text_cell

Row = dict[str, Any]


def perplexity_table(title: str, rows: Sequence[Row]) -> Table:
    found = [
        TableRow(
            (
                text_cell(f"{row['context']:,}"),
                number_cell(perplexity(row["perplexity"])),
                number_cell(f"{row['loss']:.4f}"),
                MISSING if row["standard_error"] is None else number_cell(f"{row['standard_error']:.4f}"),
                number_cell(f"{row['tokens']:,}"),
            )
        )
        for row in rows
    ]
    return _table(title, ("context", "perplexity", "loss", "standard error", "targets"), found)


def position_table(title: str, rows: Sequence[Row]) -> Table:
    found = [
        TableRow((text_cell(f"{row['first']:,} to {row['last']:,}"), number_cell(f"{row['loss']:.4f}"))) for row in rows
    ]
    return _table(title, ("positions", "loss"), found)


def heat_map(title: str, rows: Sequence[Row], caption: str = "") -> Table:
    """Depth downwards, length to the right; green where all trials were answered right, red where none was."""
    lengths, depths = (list(dict.fromkeys(row[key] for row in rows)) for key in ("length", "depth"))
    shares = {(row["length"], row["depth"]): row["correct"] / row["n"] for row in rows}
    found = []
    for depth in depths:
        here = (shares.get((length, depth)) for length in lengths)
        cells = (MISSING if share is None else Cell((Words(f"{share:.1f}"),), share=share) for share in here)
        found.append(TableRow((text_cell(f"{depth:.0%}"), *cells), ruled=depth == depths[-1]))
    means = [[share for (length, _), share in shares.items() if length == wanted] for wanted in lengths]
    found.append(TableRow((text_cell("mean"), *(number_cell(f"{sum(each) / len(each):.2f}") for each in means))))
    columns = (Column("depth", "left"), *(Column(f"{length:,}") for length in lengths))
    return Table("", title, columns, tuple(found), (caption,) if caption else (), heat=True)


def uniform_table(title: str, found: dict[int, Search], growth: Growth | None) -> Table:
    best = {context: search.best for context, search in found.items()}
    losses = {context: search.losses for context, search in found.items()}
    return scale_table(title, best, losses, growth_words(growth.slope, growth.determination) if growth else "")


def entropy_table(title: str, rows: Sequence[Row]) -> Table:
    """Mean over the heads of each layer; columns are positions."""
    positions = list(dict.fromkeys(row["position"] for row in rows))
    shown = positions if len(positions) <= 8 else [positions[round(k * (len(positions) - 1) / 7)] for k in range(8)]
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    found = []
    for layer in layers:
        means = []
        for position in shown:
            bits = [row["bits"] for row in rows if row["layer"] == layer and row["position"] == position]
            means.append(number_cell(f"{sum(bits) / len(bits):.2f}"))
        found.append(TableRow((text_cell(str(layer + 1)), *means), ruled=layer == layers[-1]))
    bounds = {row["position"]: row["bound"] for row in rows}
    found.append(TableRow((text_cell("at most"), *(number_cell(f"{bounds[position]:.2f}") for position in shown))))
    return _table(title, ("layer", *(f"at {position:,}" for position in shown)), found)


def extension_tables(groups: Sequence[ExtensionRows]) -> list[Table]:
    """Perplexities and their ratios to the same model as trained at 1x, passkey accuracies; of each group of tables."""
    found = []
    for rows in groups:
        found.append(ratio_table(rows))
        if rows.passkey:
            found.append(key_table(rows))
        if rows.heads:
            found.append(look_table(rows))
    return found


def extension_markdown(groups: Sequence[ExtensionRows]) -> str:
    parts = []
    for rows in groups:
        parts += [f"## {rows.title}"] if len(groups) > 1 else []
        parts += [section(table) for table in extension_tables([rows])]
    return "\n\n".join(parts) + "\n"


def _table(title: str, headings: Sequence[str], rows: Sequence[TableRow]) -> Table:
    first, *others = headings
    return Table("", title, (Column(first, "left"), *map(Column, others)), tuple(rows))
