"""What the `lengthwise extend` commands print: tables, heat maps, and the table beside the published one."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lengthwise.records.published_ratios import ratios
from lengthwise.report.model.phrases import perplexity as short
from lengthwise.report.model.phrases import published_ratio as published_words
from lengthwise.report.model.phrases import ratio as ratio_words
from lengthwise.stretching.search import Growth, Search

Row = dict[str, Any]


def perplexity_table(title: str, rows: Sequence[Row]) -> Group:
    table = new_table("context", "perplexity", "loss", "standard error", "targets")
    for row in rows:
        error = "" if row["standard_error"] is None else f"{row['standard_error']:.4f}"
        cells = (f"{row['context']:,}", short(row["perplexity"]), f"{row['loss']:.4f}", error, f"{row['tokens']:,}")
        table.add_row(*cells)
    return titled(title, table)


def position_table(title: str, rows: Sequence[Row]) -> Group:
    table = new_table("positions", "loss")
    for row in rows:
        table.add_row(f"{row['first']:,} to {row['last']:,}", f"{row['loss']:.4f}")
    return titled(title, table)


def heat_map(title: str, rows: Sequence[Row], caption: str = "") -> Group:
    """Depth downwards, length to the right; green where all trials were answered right, red where none was."""
    lengths = list(dict.fromkeys(row["length"] for row in rows))
    cells = {(row["length"], row["depth"]): row["correct"] / row["n"] for row in rows}
    table = new_table("depth", *(f"{length:,}" for length in lengths))
    for depth in dict.fromkeys(row["depth"] for row in rows):
        table.add_row(f"{depth:.0%}", *(_heat(cells[length, depth]) for length in lengths))
    means = [[share for (length, _), share in cells.items() if length == wanted] for wanted in lengths]
    table.add_section()
    table.add_row("mean", *(f"{sum(each) / len(each):.2f}" for each in means))
    return titled(title, table, caption)


def _heat(share: float) -> Text:
    red, green = round(200 * (1 - share)), round(160 * share)
    return Text(f" {share:.1f} ", style=f"white on rgb({red},{green},40)")


def uniform_table(title: str, found: dict[int, Search], growth: Growth | None) -> Group:
    table = new_table("context", "best scale", "loss there", "loss at 1")
    for context, search in found.items():
        losses = search.losses
        table.add_row(f"{context:,}", f"{search.best:.2f}", f"{losses[search.best]:.4f}", f"{losses[1.0]:.4f}")
    caption = ""
    if growth is not None:
        explained = "" if growth.determination is None else f", R squared {growth.determination:.3f}"
        caption = f"1 + a ln(i / trained length): a = {growth.slope:.3f}{explained} (published: 0.30 to 0.40)"
    return titled(title, table, caption)


def entropy_table(title: str, rows: Sequence[Row]) -> Group:
    """Mean over the heads of each layer; columns are positions."""
    positions = list(dict.fromkeys(row["position"] for row in rows))
    shown = positions if len(positions) <= 8 else [positions[round(k * (len(positions) - 1) / 7)] for k in range(8)]
    table = new_table("layer", *(f"at {position:,}" for position in shown))
    for layer in dict.fromkeys(row["layer"] for row in rows):
        means = []
        for position in shown:
            bits = [row["bits"] for row in rows if row["layer"] == layer and row["position"] == position]
            means.append(f"{sum(bits) / len(bits):.2f}")
        table.add_row(str(layer + 1), *means)
    bounds = {row["position"]: row["bound"] for row in rows}
    table.add_section()
    table.add_row("at most", *(f"{bounds[position]:.2f}" for position in shown))
    return titled(title, table)


def stretch_table(rows: Sequence[Row]) -> Group:
    """Perplexities, and their ratio to the same model as trained at 1x, beside the published ratio."""
    times = sorted({row["times"] for row in rows})
    table = new_table("line", *(f"{each}x" for each in times))
    for line, cells in _cells(rows, times).items():
        table.add_row(line, *cells)
    return titled("Perplexity (ratio to 1x as trained; published ratio)", table)


def stretch_markdown(rows: Sequence[Row]) -> str:
    times = sorted({row["times"] for row in rows})
    head = ["line", *(f"{each}x" for each in times)]
    body = [[line, *cells] for line, cells in _cells(rows, times).items()]
    written = "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body))
    return (
        "Perplexity on the same targets at every context, in brackets its ratio to that of the same model as trained at"
        f" 1x, then the published ratio (PG19, arXiv 2404.12224).\n\n{written}\n"
    )


def _cells(rows: Sequence[Row], times: Sequence[int]) -> dict[str, list[str]]:
    found = {(row["line"], row["times"]): row for row in rows}
    family = {row["line"]: row["family"] for row in rows}

    def cell(line: str, each: int) -> str:
        row, base = found.get((line, each)), found.get((family[line], 1))
        if row is None:
            return ""
        ratio = f"{ratio_words(row['perplexity'] / base['perplexity'])}" if base else "?"
        return f"{short(row['perplexity'])} ({ratio}; {published_words(ratios().get((line, each)))})"

    return {line: [cell(line, each) for each in times] for line in family}


def titled(title: str, table: Table, caption: str = "") -> Group:
    """Beside the table's own width: a title inside would be broken at it."""
    below = [Text(caption, style="dim")] if caption else []
    return Group(Text(title, style="bold italic"), table, *below)


def new_table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
