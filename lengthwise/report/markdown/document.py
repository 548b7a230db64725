"""The tables of a report as Markdown, for papers and notes."""

from lengthwise.records.comparison import ComparedCell, Comparison
from lengthwise.records.completeness import missing
from lengthwise.records.equivalence import Verdict
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.outcomes import outcomes
from lengthwise.records.ranking import paired_differences, ranking
from lengthwise.records.rows import Results
from lengthwise.records.statistics import Interval
from lengthwise.report.figures.findings import findings
from lengthwise.report.markdown.table import plain as _plain
from lengthwise.report.markdown.table import table
from lengthwise.report.markdown.why import why_parts
from lengthwise.report.model import agreement, reference, summaries, swings
from lengthwise.report.model.phrases import chance, plural, probability, signed, span
from lengthwise.report.model.phrases import places as places_words


def document(results: Results, analysis: AnalysisRows | None = None) -> str:
    """The whole report."""
    partial, summary = missing(results), _plain(results.study.get("summary", ""))
    parts = [
        f"# {_plain(results.study.get('name', 'study'))}",
        f"The whole study: {summary}" if partial and summary else summary,
        f"**{_plain(partial.words)}.**" if partial else "",
        _measured(results),
        _ranking(results),
        _accuracies(results, seen=False, title="Exact match on unseen lengths"),
        _accuracies(results, seen=True, title="Exact match on training lengths"),
        _published(results),
        _differences(results),
        _scratchpads(results),
        _errors(results),
        *(_by_length(results, task) for task in results.tasks),
        *(part for each in findings(results, analysis or AnalysisRows()) for part in why_parts(each)),
        _provenance(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(results: Results) -> str:
    found = outcomes(results)
    seeds = sorted({run.description["seed"] for run in results.runs})
    lines = [
        f"{plural(len(results.runs), 'finished run')}: {plural(len(results.tasks), 'task')}, "
        f"{plural(len(results.encodings), 'encoding')}, seeds {', '.join(map(str, seeds))}; last checkpoint."
    ]
    if results.unfinished:
        lines.append(f"Unfinished, and in no number: {plural(len(results.unfinished), 'run')}.")
    lines.append(f"Not learned ({summaries.LEARNED} on training lengths): {plural(len(found.unlearned), 'run')}.")
    for word, tasks in (("Saturated", found.saturated), ("Dead", found.dead)):
        if tasks:
            lines.append(f"{word} tasks: {', '.join(tasks)}.")
    return "\n".join(lines)


def _ranking(results: Results) -> str:
    places = ranking(results)
    if not places:
        return "No pair of task and seed is finished for all encodings yet, so there is no ranking."
    published = reference.reciprocal_ranks(results)
    scores = published.scores
    theirs = {p.encoding: [f"{scores[p.encoding]:.2f}" if p.encoding in scores else "–"] for p in places}
    rows = [
        [p.encoding, f"{p.reciprocal_rank:.2f}", places_words(p.places) or "–", _interval(p.reciprocal_rank_interval),
         _interval(p.interval_over_tasks), f"{p.rank:.2f}", f"{p.accuracy:.2f}",
         *(theirs[p.encoding] if scores else [])]
        for p in places
    ]  # fmt: skip
    seeds = "range of the seeds" if places[0].is_range else "95 %, other seeds"
    headings = ["encoding", "mean reciprocal rank", "place", seeds, "95 %, other tasks", "mean rank", "mean accuracy"]
    headings += [published.called] if scores else []
    note = "Last checkpoint."
    if any(place.open for place in places):
        note += (
            " A place such as 2.–3. is left open by the seeds: the interval over seeds of the paired difference of "
            "reciprocal ranks holds 0."
        )
    elif places[0].places is None:
        note += " Too few seeds to say which encodings are told apart."
    if summaries.has_best(results):
        order = (f"{places_words(p.places)} {p.encoding} ({p.reciprocal_rank:.2f})" for p in ranking(results, "best"))
        note += f" At the best checkpoint: {_plain(', '.join(each.strip() for each in order))}."
    return f"## Ranking over {plural(places[0].columns, 'pair')} of task and seed\n\n{table(headings, rows)}\n\n{note}"


def _accuracies(results: Results, seen: bool, title: str) -> str:
    rows, every = [], {}
    for task in results.tasks:
        cells = {(task, encoding): summaries.cell(results, task, encoding, seen) for encoding in results.encodings}
        rows.append([task, *map(_cell, cells.values()), chance(summaries.chance(results, task, seen))])
        every |= cells
    spread = summaries.spread_words(results)
    note = (
        f"Mean over seeds{f' ({spread})' if spread else ''}; "
        f"* some seed stayed below {summaries.LEARNED} on its training lengths: it did not learn the task."
    )
    if said := swings.note(every):
        note += f"\n\n{_plain(said)}."
    return f"## {title}\n\n{table(['task', *results.encodings, 'chance'], rows)}\n\n{note}"


def _cell(cell: summaries.Cell | None) -> str:
    if cell is None:
        return "–"
    interval = f" ({cell.interval[0]:.2f}–{cell.interval[1]:.2f})" if cell.interval else ""
    return f"{cell.mean:.2f}{'*' if cell.unlearned else ''}{swings.mark(cell)}{interval}"


def _published(results: Results) -> str:
    comparison = reference.comparison(results)
    if comparison is None:
        return _plain(reference.why_nothing(results))
    cells = {(cell.title, cell.encoding): cell for cell in comparison.shared}
    rows = [[task, *(_pair(cells.get((task, encoding))) for encoding in results.encodings)] for task in results.tasks]
    departures = "\n".join(f"- {line}" for line in comparison.departures)
    return "\n\n".join(
        part
        for part in (
            "## Unseen lengths, ours / published",
            table(["task", *results.encodings], rows),
            _judged(comparison),
            f"{agreement.correlation_words(comparison)} Published: {reference.CITATION}.".strip(),
            departures and f"Departures from the published protocol:\n\n{departures}",
        )
        if part
    )


MARKS = {Verdict.equivalent: "=", Verdict.undecided: "?", Verdict.different: "≠"}


def _judged(comparison: Comparison) -> str:
    """What the marks mean, and how many cells agree of those that may be judged."""
    parts = []
    if comparison.counts:
        marks = ", ".join(f"{mark} {verdict}" for verdict, mark in MARKS.items())
        informative = plural(comparison.counts.informative, "informative cell")
        parts = [
            " ".join([f"{marks}; no mark: not informative, or no verdict.", *agreement.verdict_notes(comparison)]),
            f"Agreement with the published results, of {informative}:",
            table(
                ["", *agreement.headings(comparison.counts)], ([name, *row] for name, row in agreement.rows(comparison))
            ),
            " ".join(agreement.notes(comparison)),
        ]
    if comparison.other_lengths:
        parts.append(
            f"Not judged, since lengths are not the published ones: {_plain('; '.join(comparison.other_lengths))}."
        )
    return "\n\n".join(parts)


def _pair(cell: ComparedCell | None) -> str:
    if cell is None or cell.ours is None or cell.published is None:
        return "–"
    mark = f" {MARKS[cell.verdict]}" if cell.verdict and cell.informative else ""
    return f"{cell.ours.mean:.2f} / {cell.published.mean:.2f}{mark}{'†' if mark and cell.borrowed_deviation else ''}"


def _differences(results: Results) -> str:
    found = paired_differences(results)
    if not found:
        return ""
    rows = [
        [d.encoding, signed(d.mean), _interval(d.interval, signs=True), _interval(d.interval_over_tasks, signs=True),
         f"{d.wins} / {d.ties} / {d.losses}", probability(d.corrected.over_columns),
         probability(d.corrected.over_tasks), probability(d.corrected.wilcoxon)]
        for d in found
    ]  # fmt: skip
    headings = [
        "encoding",
        "mean",
        "range of the seeds" if found[0].is_range else "95 %, other seeds",
        "95 %, other tasks",
        "wins / ties / losses",
        "p, pairs",
        "p, tasks",
        "p, Wilcoxon",
    ]
    note = (
        "p: permutation tests over pairs of task and seed and over tasks, Wilcoxon's signed-rank test over tasks; "
        f"corrected for {plural(len(found), 'comparison')} (Holm)."
    )
    return f"## Paired differences from {found[0].against}, unseen lengths\n\n{table(headings, rows)}\n\n{note}"


def _scratchpads(results: Results) -> str:
    if not results.has_scratchpads:
        return ""
    rows = []
    for task in results.tasks:
        name, scratchpad = reference.name_and_format(results, task)
        pairs = [
            (summaries.cell(results, task, e, seen=False), summaries.cell(results, task, e, seen=False, measure="text"))
            for e in results.encodings
        ]
        cells = [f"{answer.mean:.2f} / {text.mean:.2f}" if answer and text else "–" for answer, text in pairs]
        rows.append([name, scratchpad, *cells])
    return f"## Scratchpads: final answer / whole text\n\n{table(['task', 'scratchpad', *results.encodings], rows)}"


def _errors(results: Results) -> str:
    rows = [
        [encoding, *(f"{share:.2f}" for share in summaries.error_kinds(results, encoding).values())]
        for encoding in results.encodings
    ]
    headings = ["encoding", "correct", "wrong symbol", "stopped early", "ran on"]
    note = "Shares of the test examples of each task, the mean over tasks and seeds."
    return f"## How answers to unseen lengths go wrong\n\n{table(headings, rows)}\n\n{note}"


def _by_length(results: Results, task: str) -> str:
    values = {encoding: results.by_length(task, encoding) for encoding in results.encodings}
    rows = [
        [str(length), *(f"{sum(v[length]) / len(v[length]):.2f}" if length in v else "–" for v in values.values())]
        for length in summaries.lengths(results, task)
    ]
    title = f"## {_plain(task)} by length (trained to {results.train_length(task)})"
    return f"{title}\n\n{table(['length', *results.encodings], rows)}"


def _provenance(results: Results) -> str:
    abouts = [run.description for run in results.runs]
    facts = {
        "commit": {about["commit"] for about in abouts},
        "device": {about["hardware"]["device"] for about in abouts},
        "started": {about["started"][:10] for about in abouts},
        "parameters": {span(about["parameters"] for about in abouts)},
        **{f"{name} version": {a["versions"].get(name, "–") for a in abouts} for name in abouts[0]["versions"]},
    }
    return "## Provenance\n\n" + table(
        ["fact", "value"], ([key, ", ".join(sorted(values))] for key, values in facts.items())
    )


def _interval(interval: Interval | None, signs: bool = False) -> str:
    if interval is None:
        return "–"
    return " to ".join(signed(end) if signs else f"{end:.2f}" for end in interval)
