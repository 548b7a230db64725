"""The report as Markdown, for papers and notes."""

from lengthwise.records.comparison import Comparison
from lengthwise.records.completeness import missing
from lengthwise.records.facets import counted
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.merging import told_apart
from lengthwise.records.outcomes import outcomes
from lengthwise.records.ranking import ranking
from lengthwise.records.results import Results
from lengthwise.report.markdown.table import notes, plain, section, to_markdown
from lengthwise.report.model import agreement, reference, summaries
from lengthwise.report.model.accuracy_tables import accuracy_table, scratchpad_table
from lengthwise.report.model.axis_columns import with_axes
from lengthwise.report.model.difference_tables import difference_table
from lengthwise.report.model.finding_tables import distance_table, first_error_table, probe_table, statistics_table
from lengthwise.report.model.findings import TaskFindings, findings
from lengthwise.report.model.length_tables import length_table
from lengthwise.report.model.outcome_tables import error_table
from lengthwise.report.model.phrases import places, plural
from lengthwise.report.model.published_tables import agreement_table, comparison_table
from lengthwise.report.model.ranking_table import ranking_table
from lengthwise.report.model.run_tables import origin_table
from lengthwise.report.model.table import Table


def document(results: Results, analysis: AnalysisRows | None = None) -> str:
    """The whole report."""
    partial, summary = missing(results), plain(results.study.get("summary", ""))
    errors, differences = error_table(results), difference_table(results)
    parts = [
        f"# {plain(results.study.get('name', 'study'))}",
        f"The whole study: {summary}" if partial and summary else summary,
        f"**{plain(partial.words)}.**" if partial else "",
        *(f"**{plain(line)}.**" for line in told_apart(results)),
        _measured(results),
        section(ranking_table(results)),
        _best_order(results),
        section(with_axes(accuracy_table(results, seen=False), results)),
        section(with_axes(accuracy_table(results, seen=True), results)),
        _published(results),
        section(differences) if differences.rows else "",
        section(with_axes(scratchpad_table(results), results)) if results.has_scratchpads else "",
        section(errors),
        *(section(length_table(results, task)) for task in results.tasks),
        *(section(table) for found in findings(results, analysis or AnalysisRows()) for table in _tables(found)),
        section(origin_table(results)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(results: Results) -> str:
    found = outcomes(results)
    seeds = sorted({run.description["seed"] for run in results.runs})
    tasks, points = counted(results)
    at = f" at {points} points of a grid" if points > 1 else ""
    lines = [
        f"{plural(len(results.runs), 'finished run')}: {plural(tasks, 'task')}{at}, "
        f"{plural(len(results.encodings), 'encoding')}, seeds {', '.join(map(str, seeds))}; last checkpoint."
    ]
    if results.unfinished:
        lines.append(f"Unfinished, and in no number: {plural(len(results.unfinished), 'run')}.")
    lines.append(f"Not learned ({summaries.LEARNED} on training lengths): {plural(len(found.unlearned), 'run')}.")
    return "\n".join(lines)


def _best_order(results: Results) -> str:
    """The order at the other checkpoint."""
    if not summaries.has_best(results):
        return ""
    order = [f"{places(p.places)} {p.encoding} ({p.reciprocal_rank:.2f})" for p in ranking(results, "best")]
    return f"At the best checkpoint: {plain(', '.join(each.strip() for each in order))}." if order else ""


def _published(results: Results) -> str:
    comparison = reference.comparison(results)
    if comparison is None:
        return plain(reference.why_nothing(results))
    departures = "\n".join(f"- {plain(line)}" for line in comparison.departures)
    cells = with_axes(comparison_table(results, comparison), results)
    parts = [
        "## Unseen lengths, ours / published",
        to_markdown(cells),
        notes(cells),
        *_agreement(comparison),
        f"{agreement.correlation_words(comparison)} Published: {reference.CITATION}.".strip(),
        departures and f"Departures from the published protocol:\n\n{departures}",
    ]
    return "\n\n".join(part for part in parts if part)


def _agreement(comparison: Comparison) -> list[str]:
    """How many cells agree of those that may be judged."""
    parts = [section(agreement_table(comparison), level=3)] if comparison.counts else []
    if comparison.other_lengths:
        said = "; ".join(comparison.other_lengths)
        parts.append(f"Not judged, since lengths are not the published ones: {plain(said)}.")
    return parts


def _tables(found: TaskFindings) -> list[Table]:
    """Nothing of analyses that were not made."""
    return [
        *map(distance_table, found.comparisons),
        *([statistics_table(found.task, found.statistics)] if found.statistics else []),
        *([probe_table(found.task, found.best)] if found.best else []),
        *([first_error_table(found.task, found.first_errors)] if found.first_errors else []),
    ]
