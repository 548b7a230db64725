"""Our results beside the published ones: every cell, verdicts on them, correlations, orders, curves."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from lengthwise.errors import UserError
from lengthwise.records import published
from lengthwise.records.agreement import Baselines, Counts, Pair, baselines, counts
from lengthwise.records.completeness import Missing, missing
from lengthwise.records.correlations import Correlations, Values, correlations
from lengthwise.records.departures import departures, has_published_lengths, other_lengths
from lengthwise.records.equivalence import Extreme, Verdict
from lengthwise.records.outcomes import chance, learned, require_checkpoint
from lengthwise.records.published import Score
from lengthwise.records.ranking import Place, ranking
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.records.statistics import Interval, ranks, spearman
from lengthwise.records.task_names import scratchpad_name, task_name


@dataclass(frozen=True)
class ComparedCell:
    """Accuracy on unseen lengths of one encoding on one task: ours and the published one, None where missing."""

    title: str
    """What our results call the task; the published name where we have no run."""
    task: str
    """The published name."""
    scratchpad: str
    encoding: str
    ours: Score | None
    published: Score | None
    ours_seen: float | None
    """Accuracy in distribution: of ours on held-out prompts, of theirs in validation."""
    published_seen: float | None
    unlearned: list[int]
    """Our seeds that did not learn their training lengths: no failure to generalize."""
    chance: float | None = None
    """Accuracy of a guesser; None where we have no run."""
    difference: float | None = None
    """Ours minus published."""
    # What follows is a verdict, and None where lengths are not the published ones: such numbers need not agree.
    interval: Interval | None = None
    """90 % interval of the difference over seeds; also None where neither side has a standard deviation."""
    borrowed_deviation: bool | None = None
    """Whether one side has a single seed, and was given the standard deviation of the other for the interval."""
    verdict: Verdict | None = None
    """Equivalent, different or undecided; also None where there is no interval."""
    close: bool | None = None
    """Whether the difference is at most 0.10, whatever the seeds say about it."""
    informative: bool | None = None
    """False where both sides are at the floor or at the ceiling: such a cell is in no count."""
    extreme: Extreme | None = None
    """Which of the two."""


@dataclass(frozen=True)
class TaskCorrelation:
    """Spearman's rank correlation over the encodings of one task; None below three, or where one side is constant."""

    title: str
    correlation: float | None
    encodings: int


@dataclass(frozen=True)
class ComparedPlace:
    """Mean reciprocal ranks of one encoding; ranked among the encodings that both sides have."""

    encoding: str
    ours: float | None
    """Over our (task, seed) pairs of shared tasks; None while no pair is finished for all encodings."""
    places: list[int] | None
    """First and last rank that our seeds leave open; None with fewer than three seeds."""
    at_other: float | None
    """As `ours`, at the other checkpoint; None where not all runs have it."""
    places_at_other: list[int] | None
    published: float | None
    """As published, over 17 tasks x 3 seeds; None for results with scratchpads, which it is not about."""
    published_here: float
    """From the published means of the shared tasks alone, one column a task: like is compared with like."""


@dataclass(frozen=True)
class ComparedPoint:
    """Accuracy at one length; None on the side that does not have it."""

    title: str
    task: str
    encoding: str
    length: int
    ours: Score | None
    ours_seen: bool | None
    """Whether our models were trained on this length; theirs may have been where ours were not."""
    published: Score | None
    published_seen: bool | None


@dataclass(frozen=True)
class Comparison:
    """Everything that `lengthwise compare` says."""

    checkpoint: str
    cells: list[ComparedCell]
    """Shared ones, ours alone, and published ones of the scratchpad formats that we have."""
    counts: Counts | None
    """Of the judged cells; None where there are none."""
    baselines: Baselines | None
    """What predictors that ignore the encoding would get; None where no task has all encodings judged."""
    correlations: Correlations
    """Over the shared cells, judged or not."""
    by_task: list[TaskCorrelation]
    order: list[ComparedPlace]
    """Best first by the published score of the shared tasks."""
    curves: list[ComparedPoint]
    """Without scratchpad: by-length figures with steps are not published."""
    departures: list[str]
    """Where our runs depart from the published protocol."""
    other_lengths: list[str]
    """Lengths that are not the published ones, with their tasks: cells of these are not judged."""
    missing: Missing | None
    """Runs of our study that are not there yet."""

    @property
    def other_checkpoint(self) -> str:
        return other_checkpoint(self.checkpoint)

    @property
    def shared(self) -> list[ComparedCell]:
        return [cell for cell in self.cells if cell.ours and cell.published]

    @property
    def only_ours(self) -> list[ComparedCell]:
        return [cell for cell in self.cells if not cell.published]

    @property
    def only_published(self) -> list[ComparedCell]:
        return [cell for cell in self.cells if not cell.ours]

    @property
    def judged(self) -> list[ComparedCell]:
        """Shared ones at the published lengths."""
        return [cell for cell in self.shared if cell.informative is not None]


def compare(results: Results, checkpoint: str = "last") -> Comparison:
    """Our results beside the published ones. Raises where they have nothing in common."""
    require_checkpoint(results, checkpoint)
    cells = _cells(results, checkpoint)
    shared = [cell for cell in cells if cell.ours and cell.published]
    if not shared:
        raise UserError(
            f"nothing to compare: the runs have {_names({c.task for c in cells if c.ours})} with "
            f"{_names({c.encoding for c in cells if c.ours})}; published are {_names(published.LENGTHS)} with "
            f"{_names(published.ENCODINGS)}"
        )
    judged = [cell for cell in shared if cell.informative is not None]
    complete_judged, complete = (_complete(each, results.encodings) for each in (judged, shared))
    titles = list(dict.fromkeys(cell.title for cell in shared))
    return Comparison(
        checkpoint,
        cells,
        counts(pair.judgement for pair in _pairs(judged)) if judged else None,
        baselines({title: _pairs(of_task) for title, of_task in complete_judged.items()}),
        correlations(_values(shared), {title: _values(of_task) for title, of_task in complete.items()}),
        [TaskCorrelation(title, *_correlation([c for c in shared if c.title == title])) for title in titles],
        _order(results, complete, checkpoint),
        _curves(results, shared, checkpoint),
        departures(_shared_runs(results, shared), checkpoint),
        other_lengths(_shared_runs(results, shared)),
        missing(results),
    )


def other_checkpoint(checkpoint: str) -> str:
    return {"last": "best", "best": "last"}[checkpoint]


def score(values: list[float]) -> Score:
    """Mean and sample standard deviation over seeds."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Score(float(np.mean(values)), deviation, len(values))


def _cells(results: Results, checkpoint: str) -> list[ComparedCell]:
    groups: dict[tuple[str, str, str, str], list[RunResult]] = defaultdict(list)
    for title in results.tasks:
        for encoding in results.encodings:
            for run in results.of(title, encoding):
                groups[title, task_name(run), scratchpad_name(run), encoding].append(run)
    found = [_cell(*key, runs, checkpoint) for key, runs in groups.items()]
    formats = {cell.scratchpad for cell in found}
    have = {(cell.task, cell.scratchpad, cell.encoding) for cell in found}
    titles = {(cell.task, cell.scratchpad): cell.title for cell in found}
    for key, theirs in published.cells().items():
        if theirs.scratchpad in formats and key not in have:
            title = titles.get(key[:2], theirs.task)
            found.append(ComparedCell(title, *key, None, theirs.unseen, None, theirs.seen, []))
    return found


def _cell(
    title: str, task: str, scratchpad: str, encoding: str, runs: list[RunResult], checkpoint: str
) -> ComparedCell:
    ours = score([run.accuracy(checkpoint, seen=False) for run in runs])
    seen = score([run.accuracy(checkpoint, seen=True) for run in runs]).mean
    unlearned = [run.description["seed"] for run in runs if not learned(run, checkpoint)]
    guessed = float(np.mean([chance(run) for run in runs]))
    theirs = published.cells().get((task, scratchpad, encoding))
    if theirs is None:
        return ComparedCell(title, task, scratchpad, encoding, ours, None, seen, None, unlearned, guessed)
    cell = ComparedCell(
        *(title, task, scratchpad, encoding, ours, theirs.unseen, seen, theirs.seen, unlearned, guessed),
        difference=ours.mean - theirs.unseen.mean,
    )
    if not all(map(has_published_lengths, runs)):
        return cell
    found = Pair(ours, theirs.unseen, guessed).judgement
    return replace(
        cell,
        interval=found.interval,
        borrowed_deviation=found.borrowed_deviation,
        verdict=found.verdict,
        close=found.close,
        informative=found.informative,
        extreme=found.extreme,
    )


def _pairs(cells: Iterable[ComparedCell]) -> list[Pair]:
    return [
        Pair(cell.ours, cell.published, cell.chance)
        for cell in cells
        if cell.ours and cell.published and cell.chance is not None
    ]


def _values(cells: Iterable[ComparedCell]) -> list[Values]:
    return [(pair.ours.mean, pair.published.mean) for pair in _pairs(cells)]


def _complete(cells: Iterable[ComparedCell], order: Iterable[str]) -> dict[str, list[ComparedCell]]:
    """Title -> its cells, in one order of encodings: of tasks that have every encoding which any of the cells has."""
    found: dict[str, dict[str, ComparedCell]] = defaultdict(dict)
    for cell in cells:
        found[cell.title][cell.encoding] = cell
    encodings = [encoding for encoding in order if any(encoding in of_task for of_task in found.values())]
    return {
        title: [of_task[encoding] for encoding in encodings]
        for title, of_task in found.items()
        if len(of_task) == len(encodings)
    }


def _correlation(cells: list[ComparedCell]) -> tuple[float | None, int]:
    pairs = _values(cells)
    return spearman([ours for ours, _ in pairs], [theirs for _, theirs in pairs]), len(pairs)


def _order(results: Results, complete: dict[str, list[ComparedCell]], checkpoint: str) -> list[ComparedPlace]:
    """Over the tasks of which we have every encoding that is shared at all; one encoding alone has no order."""
    encodings = [cell.encoding for cell in next(iter(complete.values()), [])]
    if len(encodings) < 2:
        return []
    tasks = list(complete)
    ours = {place.encoding: place for place in ranking(results, checkpoint, tasks, encodings)}
    other = other_checkpoint(checkpoint)
    tested = all(any(at == other for at, _ in run.totals) for run in results.runs)
    at_other = {place.encoding: place for place in ranking(results, other, tasks, encodings)} if tested else {}
    table = np.array([[theirs for _, theirs in _values(of_task)] for of_task in complete.values()])
    here = (1 / ranks(table)).mean(axis=0)
    steps = any(cell.scratchpad != "none" for of_task in complete.values() for cell in of_task)
    theirs = {} if steps else published.reciprocal_ranks()
    places = [
        ComparedPlace(
            encoding,
            *_score(ours.get(encoding)),
            *_score(at_other.get(encoding)),
            theirs.get(encoding),
            float(here[i]),
        )
        for i, encoding in enumerate(encodings)
    ]
    return sorted(places, key=lambda place: -place.published_here)


def _score(place: Place | None) -> tuple[float | None, list[int] | None]:
    """Mean reciprocal rank, and the places that are open."""
    return (place.reciprocal_rank, list(place.places) if place.places else None) if place else (None, None)


def _curves(results: Results, shared: list[ComparedCell], checkpoint: str) -> list[ComparedPoint]:
    points = []
    for cell in shared:
        if cell.scratchpad != "none":
            continue
        theirs = {length: (seen, at) for (seen, length), at in published.curves()[cell.task, cell.encoding].items()}
        ours = results.by_length(cell.title, cell.encoding, checkpoint)
        trained: dict[int, bool] = {}
        for run in results.of(cell.title, cell.encoding):
            trained |= run.seen_lengths()
        for length in sorted({*ours, *theirs}):
            seen, at = theirs.get(length, (None, None))
            mine = score(ours[length]) if length in ours else None
            points.append(
                ComparedPoint(cell.title, cell.task, cell.encoding, length, mine, trained.get(length), at, seen)
            )
    return points


def _shared_runs(results: Results, shared: list[ComparedCell]) -> list[RunResult]:
    keys = {(cell.title, cell.encoding) for cell in shared}
    return [run for run in results.runs if (run.description["task"], run.description["encoding"]) in keys]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
