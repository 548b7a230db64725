"""A report in the form that is asked for: a page, Markdown, a folder of CSV tables, pictures."""

from pathlib import Path

from lengthwise.errors import UserError
from lengthwise.records.directory import make_folder
from lengthwise.records.facets import faceted
from lengthwise.records.files import write_text
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.results import Results
from lengthwise.report.model import summaries
from lengthwise.report.model.displayed import displayed, displayed_findings
from lengthwise.report.model.findings import relevant
from lengthwise.report.table_files import write_tables

ENDINGS = {".html": "html", ".md": "markdown", ".svg": "svg", ".png": "png"}
"""What a file's name says of its format."""

USUAL = {"html": "report.html", "markdown": "report.md", "csv": "report-csv", "svg": "report-svg", "png": "report-png"}
"""Where each format goes if nothing is said."""


def write_report(
    results: Results, out: Path | None = None, kind: str | None = None, analysis: AnalysisRows | None = None
) -> Path:
    """Writes the report and says where. `kind`: html, markdown, csv, svg or png; by default what the name ends in.

    Tables as CSV are a folder; so are figures as SVG or PNG, unless `out` names a file: then it gets the curves alone.
    """
    summaries.require_runs(results)
    results = faceted(displayed(results))
    analysis = displayed_findings(analysis) if analysis else None
    kind = kind or (ENDINGS.get(out.suffix.lower()) if out else "html")
    if kind is None:
        raise UserError(
            f"--out must end in .html, .svg or .png (or .md), not {out.name if out else ''!r}; or say --format"
        )
    if kind not in USUAL:
        raise UserError(f"no format {kind!r}; choose one of {', '.join(USUAL)}")
    path = out or Path(USUAL[kind])
    _refuse_other_ending(path, kind)
    {"html": _page, "markdown": _markdown, "csv": _tables, "svg": _pictures, "png": _pictures}[kind](
        results, relevant(results, analysis), path, kind
    )
    return path


def _refuse_other_ending(path: Path, kind: str) -> None:
    named = ENDINGS.get(path.suffix.lower())
    if named and named != kind:
        raise UserError(f"--format {kind} does not go into {path.name}; leave one of them out")


def _page(results: Results, analysis: AnalysisRows, path: Path, kind: str) -> None:
    from lengthwise.report.html.page import write_page

    write_page(results, path, analysis)


def _markdown(results: Results, analysis: AnalysisRows, path: Path, kind: str) -> None:
    from lengthwise.report.markdown.document import document

    write_text(path, document(results, analysis))


def _tables(results: Results, analysis: AnalysisRows, path: Path, kind: str) -> None:
    write_tables(results, analysis, path)


def _pictures(results: Results, analysis: AnalysisRows, path: Path, kind: str) -> None:
    from lengthwise.report.figures.gallery import figures
    from lengthwise.report.figures.picture import write_figure, write_picture

    if path.suffix.lower() == f".{kind}":
        write_picture(results, path)
        return
    make_folder(path)
    for figure in figures(results, analysis):
        write_figure(figure, path / f"{file_name(figure.name)}.{kind}")


def file_name(words: str) -> str:
    """A name that every file system takes."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in words)
