"""Tables as HTML: signs of encodings, notes below numbers, the colour of a share behind it."""

import re
from collections.abc import Mapping
from html import escape

from lengthwise.report.figures.palette import DARK_SCALE, shade, text_on
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Table,
    TableRow,
    Tone,
    Words,
    heading_lines,
    widest,
)

Styles = Mapping[str, tuple[str, str]]
"""Encoding -> colour and shape of its sign."""

BREAKS = re.compile(r"([._/(|])(?=\w)")
PLAIN = re.compile(r"[-−+]?[\d,]*\.?\d+")
CLASSES: dict[Tone, str] = {
    "main": "mean", "warning": "mark", "mark": "swing", "quiet": "quiet", "bold": "mean", "spoken": "hidden",
    "good": "good", "bad": "bad",
}  # fmt: skip


def to_html(
    table: Table, styles: Styles, identity: str = "", kind: str = "", scrolls: bool = True, headed: bool = True
) -> str:
    """`identity`, `kind`: id and class of the table; `scrolls`: whether it has a place of its own to scroll in;
    `headed`: whether it has headings of columns."""
    shown = table.shown()
    bars = any(column.swatch for column in shown.columns)
    attributes = {
        "id": identity,
        "data-table": table.name,
        "data-task": table.task if table.name else "",
        "class": kind,
    }
    headings = "".join(_heading(shown, i, styles) for i in range(len(shown.columns)))
    if bars:
        headings += '<td class="wide" aria-hidden="true"></td>'
    body = [
        _tag("table", attributes),
        f"<caption>{escape(table.title)}</caption>",
        f"<thead><tr>{headings}</tr></thead>" if headed else "",
        "<tbody>",
    ]
    for i, row in enumerate(shown.rows):
        if row.heads:
            body.append("</tbody>\n<tbody>" if i else "")
            body.append(
                f'<tr class="group"><th scope="rowgroup" colspan="{len(shown.columns)}">'
                f"<span>{escape(row.cells[0].text)}</span></th></tr>"
            )
        else:
            body.append(_row(shown, row, styles, bars))
    body.append("</tbody>\n</table>")
    written = "\n".join(part for part in body if part)
    if not scrolls:
        return written
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">\n{written}\n</div>'


def sign(encoding: str, styles: Styles) -> str:
    """The shape of an encoding in its colour; nothing where it has none."""
    if encoding not in styles:
        return ""
    colour, shape = styles[encoding]
    drawn = f'<path d="M0,0{shape}" fill="{colour}"/>'
    return f'<svg class="sign" viewBox="-1.4 -1.4 2.8 2.8" aria-hidden="true">{drawn}</svg>'


def words(parts: tuple[Words, ...], hangs: bool = False) -> str:
    """`hangs`: a mark at the end takes no room, so that numbers with and without one stay below each other."""
    seen = [part for part in parts if part.tone != "spoken"]
    written = []
    for part in parts:
        kind = CLASSES.get(part.tone, "")
        if part.tone == "mark" and hangs and part is seen[-1]:
            kind += " hanging"
        written.append(f'<span class="{kind}">{escape(part.text)}</span>' if kind else escape(part.text))
    return "".join(written)


def _heading(table: Table, number: int, styles: Styles) -> str:
    column = table.columns[number]
    swatch = f'<i class="swatch {column.swatch}"></i>' if column.swatch else ""
    if column.encoding:
        said = f"{sign(column.encoding, styles)} {escape(column.heading)}"
    else:
        said = "<br>".join(map(escape, heading_lines(column.heading, max(10, widest(table, number)))))
        if table.heat:  # narrow columns with the names of tasks, which may break after each part
            said = BREAKS.sub(r"\1<wbr>", said)
    kind = ("number" if column.align == "right" else "") + (" label" if column.encoding else "")
    data = {f"data-{name}": value for name, value in column.data.items()}
    return _tag("th", {"scope": "col", "class": kind, **data}) + swatch + said + "</th>"


def _row(table: Table, row: TableRow, styles: Styles, bars: bool) -> str:
    kinds = f"{'boundary' if row.ruled else ''}{' quiet' if row.tone == 'quiet' else ''}".strip()
    attributes = {"class": kinds, **{f"data-{name}": value for name, value in row.data.items()}}
    pairs = zip(table.columns, row.cells, strict=True)
    cells = [_cell(column, cell, i == 0, styles, table.heat) for i, (column, cell) in enumerate(pairs)]
    return _tag("tr", attributes) + "".join(cells) + (_bar(table, row) if bars else "") + "</tr>"


def _cell(column: Column, cell: Cell, names: bool, styles: Styles, heat: bool) -> str:
    """`heat`: its share is shown by the colours of a heat map."""
    said = words(cell.words, hangs=True)
    if cell.link:
        said = f'<a href="#{escape(cell.link)}">{said}</a>'
    said = (f"{sign(cell.encoding, styles)} " if cell.encoding in styles else "") + said
    said = " ".join([said, *(_note(note) for note in cell.notes if note.words)])
    if names:
        return f'<th scope="row">{said}</th>'
    coloured = cell.share is not None and not column.swatch
    kinds = [
        "number" if column.align == "right" else "",
        "resolved" if column.wide else "",
        ("heat" if heat else "accuracy") if coloured else "",
        "unlearned" if cell.hatched else "",
        "missing" if heat and column.data and cell.words == MISSING.words else "",
    ]
    style = "" if cell.share is None or not coloured else _heat(cell.share) if heat else f"--value: {cell.share:.3f}"
    attributes = {"class": " ".join(filter(None, kinds)), "style": style, "title": cell.description}
    value = cell.values[0] if cell.values else None
    # For scripts that sort; what stands there as a plain number needs no other.
    if value is not None and (heat or (column.align == "right" and not PLAIN.fullmatch(cell.text))):
        attributes["data-value"] = str(value)
    return f"{_tag('td', attributes)}{said}</td>"


def _heat(share: float) -> str:
    """Colours of paper and ink, in the light and in the dark."""
    light, dark = shade(share), shade(share, DARK_SCALE)
    return f"--light:{light};--dark:{dark};--on-light:{text_on(light)};--on-dark:{text_on(dark)}"


def _note(note: Note) -> str:
    tones = list({part.tone for part in note.words if part.tone != "spoken"})
    if len(tones) == 1 and (kind := CLASSES.get(tones[0], "")):
        written = "".join(
            f'<span class="hidden">{escape(part.text)}</span>' if part.tone == "spoken" else escape(part.text)
            for part in note.words
        )
        return f'<small class="{kind}">{written}</small>'
    return f"<small>{words(note.words)}</small>"


def _bar(table: Table, row: TableRow) -> str:
    """The shares of the columns that have a swatch, side by side."""
    pairs = zip(table.columns, row.cells, strict=True)
    parts = [
        f'<i class="{column.swatch}" style="flex-grow: {cell.share:.4f}"></i>'
        for column, cell in pairs
        if column.swatch and cell.share is not None
    ]
    bar = "".join(parts)
    return f'<td class="wide" aria-hidden="true"><div class="bar">{bar}</div></td>'


def _tag(name: str, attributes: Mapping[str, str]) -> str:
    given = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f"<{name}{given}>"
