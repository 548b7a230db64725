"""What is known of a table of extended models in the form that is asked for: a page, CSV tables, pictures."""

from collections.abc import Sequence
from pathlib import Path

from lengthwise.errors import UserError
from lengthwise.records.directory import make_folder
from lengthwise.records.files import write_text
from lengthwise.report.export import ENDINGS, file_name
from lengthwise.report.figures.context_extension import (
    entropy_figure,
    look_figures,
    passkey_maps,
    ratio_figures,
    scale_maps,
)
from lengthwise.report.figures.panels import side_by_side
from lengthwise.report.figures.picture import write_figure
from lengthwise.report.html.context_extension import write_extension_page
from lengthwise.report.model.context_extension import ExtensionRows, load_extension_tables
from lengthwise.report.model.context_extension_tables import extension_values
from lengthwise.report.model.table_csv import to_csv

USUAL = {
    "html": "context-extension.html",
    "csv": "context-extension-csv",
    "svg": "context-extension-svg",
    "png": "context-extension-png",
}
"""Where each format goes if nothing is said."""
PICTURED = ("perplexity-ratio-uniform", "perplexity-ratio-head-scale", "perplexity-ratio-rotary")
"""The figures that a single picture has, side by side."""


def write_extension_report(folders: Sequence[Path], out: Path | None = None, kind: str | None = None) -> Path:
    """From the folders that `lengthwise extend study` and `compare` left; returns where it was written.

    `kind`: html, csv, svg or png; by default what the name ends in. Tables as CSV are a folder; so are figures as SVG
    or PNG, unless `out` names a file: then it gets perplexity by context alone. Tables of different targets are in
    sections, and in folders, of their own.
    """
    path = out or Path(USUAL[kind or "html"])
    named = ENDINGS.get(path.suffix.lower())
    kind = kind or named
    if kind not in USUAL:
        raise UserError(f"--out must end in .html, .svg or .png, not {path.name!r}; or say --format")
    if named and named != kind:
        raise UserError(f"--format {kind} does not go into {path.name}; leave one of them out")
    groups = load_extension_tables(folders)
    if kind == "html":
        write_extension_page(groups, path)
        return path
    if named:
        if len(groups) > 1:
            raise UserError(f"{len(groups)} tables of different targets do not go into one picture; name one folder")
        figures = ratio_figures(groups[0])
        chosen = [figure for figure in figures if figure.name in PICTURED] or figures
        write_figure(side_by_side("perplexity-ratio", "Perplexity relative to 1x, by context", chosen), path)
        return path
    for number, rows in enumerate(groups, start=1):
        folder = path / f"{number}-{file_name(rows.title)}".rstrip("-") if len(groups) > 1 else path
        make_folder(folder)
        if kind == "csv":
            for table in extension_values(rows):
                write_text(folder / f"{table.name}.csv", to_csv(table))
        else:
            _pictures(rows, folder, kind)
    return path


def _pictures(rows: ExtensionRows, folder: Path, kind: str) -> None:
    keys = [figure for _, figure in passkey_maps(rows.passkey)]
    figures = [*ratio_figures(rows), *keys, *look_figures(rows), scale_maps(rows.fits), entropy_figure(rows.entropy)]
    for figure in figures:
        if figure is not None:
            write_figure(figure, folder / f"{file_name(figure.name)}.{kind}")
