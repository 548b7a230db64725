"""The ranking as a table: mean reciprocal rank with intervals, beside the published one and what tells more."""

from collections.abc import Iterator

from lengthwise.records.facets import listed
from lengthwise.records.outcomes import AT_CHANCE, AT_CHANCE_ERRORS, SATURATED
from lengthwise.records.points import STUDY
from lengthwise.records.ranking import Place, Rankings, rankings
from lengthwise.records.results import Results
from lengthwise.records.statistics import FEWEST_SEEDS, FEWEST_TASKS
from lengthwise.report.model import phrases, reference
from lengthwise.report.model.numbers import accuracy_words, ends, known, rounded
from lengthwise.report.model.phrases import plural
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Table,
    TableRow,
    encoding_cell,
    number_cell,
    value_cells,
    value_columns,
)

NO_RANKING = "no pair of task and seed is finished for all encodings yet, so there is no ranking"
NO_COMMON_RANKING = (
    "no study has finished every encoding that one of them has, so there is no ranking; choose a study with "
    "--only study=NAME, or encodings with --only encoding=NAME"
)


def ranking_table(results: Results, checkpoint: str = "last") -> Table:
    """Best first. Columns that say nothing of any encoding are for programs alone."""
    found = rankings(results, checkpoint)
    places, known_outcomes = found.everything, found.outcomes
    published = reference.reciprocal_ranks(results)
    tallies = {tally.encoding: tally for tally in known_outcomes.tallies}
    first = places[0] if places else None
    apart = bool(known_outcomes.saturated or known_outcomes.at_chance)
    columns = (
        Column("encoding", "left", ("encoding",)),
        Column("mean reciprocal rank", fields=("mean_reciprocal_rank",)),
        Column("rank", fields=("from_rank", "to_rank"), shown=bool(first and first.places)),
        Column(
            phrases.spread_heading(bool(first and first.is_range)),
            fields=("low", "high"),
            shown=bool(first and first.reciprocal_rank_interval),
        ),
        Column(
            phrases.OVER_TASKS,
            fields=("low_over_tasks", "high_over_tasks"),
            shown=bool(first and first.interval_over_tasks),
        ),
        Column(published.called, shown=bool(published.scores), detail=True),
        Column("mean rank", fields=("mean_rank",)),
        Column("mean accuracy", fields=("mean_accuracy",)),
        Column("rank score without †", shown=bool(apart and found.informative)),
        Column("rank score where all learned", shown=bool(known_outcomes.unlearned and found.learned)),
        *value_columns(
            "pairs_of_task_and_seed",
            "runs",
            "not_learned",
            "not_generalized",
            "generalized",
            "published_mean_reciprocal_rank",
            "published_tasks",
        ),
    )
    rows = []
    for place in places:
        tally, theirs = tallies[place.encoding], published.scores.get(place.encoding)
        cells = (
            encoding_cell(place.encoding),
            number_cell(f"{place.reciprocal_rank:.2f}", rounded(place.reciprocal_rank), tone="main"),
            number_cell(phrases.places(place.places), *(place.places or (None, None))),
            number_cell(phrases.interval(place.reciprocal_rank_interval), *ends(place.reciprocal_rank_interval)),
            number_cell(phrases.interval(place.interval_over_tasks), *ends(place.interval_over_tasks)),
            MISSING if theirs is None else number_cell(f"{theirs:.2f}"),
            number_cell(f"{place.rank:.2f}", rounded(place.rank)),
            Cell((accuracy_words(place.accuracy),), (rounded(place.accuracy),)),
            _score(found.informative, place),
            _score(found.learned, place),
            *value_cells(
                [place.columns, tally.runs, tally.unlearned, tally.ungeneralized, tally.generalized,
                 known(theirs), None if theirs is None else published.tasks]
            ),
        )  # fmt: skip
        rows.append(TableRow(cells))
    title = f"Ranking on unseen lengths, {checkpoint} checkpoint"
    return Table("ranking", title, columns, tuple(rows), (*_notes(found, results), *_of_facets(results)))


def _score(places: list[Place], of: Place) -> Cell:
    scores = {place.encoding: place.reciprocal_rank for place in places}
    return number_cell(f"{scores[of.encoding]:.2f}") if of.encoding in scores else MISSING


def _of_facets(results: Results) -> list[str]:
    if not results.facets or not rankings(results).everything:
        return []
    what = "of every study" if STUDY in results.axes else "at every point of the grid"
    return [f"every task {what} is ranked by itself, and all of them count the same"]


def _notes(found: Rankings, results: Results) -> Iterator[str]:
    if not found.everything:
        yield NO_COMMON_RANKING if STUDY in results.axes else NO_RANKING
        return
    first, outcomes = found.everything[0], found.outcomes
    yield f"over {plural(first.columns, 'pair')} of task and seed; ties share their mean rank"
    if not first.reciprocal_rank_interval:
        few = f"some task has fewer than {FEWEST_SEEDS} seeds"
        yield f"no interval is given: {few}, too few to distinguish encodings"
    elif not first.interval_over_tasks:
        yield f"no interval over tasks is given: there are fewer than {FEWEST_TASKS} tasks"
    if any(place.open for place in found.everything):
        yield "a rank such as 2.–3. is undecided: the interval of the difference of reciprocal ranks includes 0"
    for name, tasks, meaning in (
        ("saturated", outcomes.saturated, f"every run at {SATURATED} or above on unseen lengths"),
        ("at chance", outcomes.at_chance, f"no run above chance by {AT_CHANCE} and {AT_CHANCE_ERRORS} standard errors"),
    ):
        yield (
            f"† {plural(len(tasks), 'task')} {name} ({meaning}): {listed(results, tasks)}"
            if tasks
            else f"no task is {name}"
        )
    if outcomes.saturated or outcomes.at_chance:
        yield _over(found.informative, "without them")
    if outcomes.unlearned:
        yield _over(found.learned, "in which every encoding learned its training lengths")


def _over(places: list[Place], which: str) -> str:
    return f"{plural(places[0].columns if places else 0, 'pair')} of task and seed {which}"
