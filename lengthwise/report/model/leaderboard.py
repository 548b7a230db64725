"""Methods by tasks: accuracy on unseen lengths with its interval, mean rank and what a step costs, as tables."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lengthwise.records.boards import Board, Standing, boards
from lengthwise.records.costs import Costs, costs_of_runs
from lengthwise.records.outcomes import LEARNED, require_checkpoint
from lengthwise.records.results import Results
from lengthwise.records.statistics import FEWEST_SEEDS
from lengthwise.report.model import phrases, summaries
from lengthwise.report.model.displayed import displayed
from lengthwise.report.model.numbers import ends, known, rounded
from lengthwise.report.model.phrases import plural
from lengthwise.report.model.summaries import Accuracy
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Table,
    TableRow,
    Value,
    Words,
    heading_row,
    number_cell,
    text_cell,
    value_table,
)

MOST_DIFFERENCES = 60
"""Settings that the heading of a board names; further ones are counted."""
NO_COST = "no run of none was trained beside the others in a fleet of the same size"


@dataclass(frozen=True)
class Leaderboard:
    boards: Sequence[Board]
    costs: Sequence[Costs]
    """Of each board."""
    folders: Sequence[tuple[str, Results]] = ()
    """Names of the folders, and what is in them."""
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Method -> what it changes, as its card says."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Task -> what kind of thing it asks."""
    study: str = ""
    """The name of the study of the first folder, where it comes with the package; else empty."""

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for board in self.boards for task in board.results.tasks))

    @property
    def has_costs(self) -> bool:
        return any(each.ratios for each in self.costs)

    @property
    def methods(self) -> list[str]:
        """Each once, the best of the first board first."""
        return list(dict.fromkeys(standing.method for board in self.boards for standing in board.standings))

    def results_of(self, method: str) -> Results:
        """Of the first board that has the method."""
        return next(board.results for board in self.boards if method in board.results.by_encoding)


def leaderboard(parts: Sequence[Results], names: Sequence[str], costs: Costs | None = None) -> Leaderboard:
    """`parts`: one for each folder, `names` what they are called; `costs`: of a benchmark, where there is one."""
    shown = [displayed(part) for part in parts]
    displayed(Results([run for part in parts for run in part.runs], [], {}))  # refuses names that look alike
    found = boards(shown)
    for board in found:
        require_checkpoint(board.results, "last")
    of_boards = [costs or costs_of_runs(board.results) for board in found]
    return Leaderboard(found, of_boards, list(zip(names, shown, strict=True)))


def leaderboard_table(found: Leaderboard, links: Mapping[str, str] | None = None) -> Table:
    """Methods down, tasks across, best first. `links`: method -> where more is said of it on the page."""
    several = len(found.folders) > 1
    columns = (
        Column("method", "left"),
        *(Column(heading) for heading in ("rank", "mean rank", "mean")),
        *([Column("cost")] if found.has_costs else []),
        *(Column(task, data={"family": found.families.get(task, "other")}) for task in found.tasks),
    )
    rows: list[TableRow] = []
    usual = usual_seeds(found.boards[0])
    for board, costs in zip(found.boards, found.costs, strict=True):
        if len(found.boards) > 1:
            rows.append(heading_row(_heading(board)))
        for standing in board.standings:
            cells = (
                _name(board, standing, several, links or {}),
                number_cell(phrases.places(standing.places), standing.places[0]) if standing.places else MISSING,
                MISSING if standing.rank is None else number_cell(f"{standing.rank:.1f}", rounded(standing.rank)),
                _mean(standing),
                *([_cost(costs, standing.method)] if found.has_costs else []),
                *(
                    _accuracy(summaries.accuracy(board.results, task, standing.method, seen=False), usual)
                    if task in board.results.by_task
                    else MISSING
                    for task in found.tasks
                ),
            )
            kinds = found.kinds.get(standing.method, ())
            rows.append(TableRow(cells, data={"kinds": " ".join(kinds), "method": standing.method}))
    title = "Exact match on unseen lengths, last checkpoint, methods by tasks"
    return Table("leaderboard", title, columns, tuple(rows), tuple(_notes(found)), heat=True)


def _heading(board: Board) -> str:
    if not board.differs:
        return "The same settings for all"
    named = "; ".join(board.differs[:MOST_DIFFERENCES])
    more = len(board.differs) - MOST_DIFFERENCES
    return f"Other settings, not to be compared with those above: {named}" + (f"; {more} more" if more > 0 else "")


def _name(board: Board, standing: Standing, several: bool, links: Mapping[str, str]) -> Cell:
    """With its folder where there are several, and how much of the board it lacks."""
    notes = [", ".join(board.sources[standing.method])] if several else []
    if standing.rank is None:
        notes.append(f"not ranked: {standing.tasks} of {plural(len(board.results.tasks), 'task')}, or fewer seeds")
    method = standing.method
    small = tuple(Note((Words(note, "quiet"),)) for note in notes)
    return Cell((Words(method),), (method,), small, encoding=method, link=links.get(method, ""))


def _mean(standing: Standing) -> Cell:
    notes = (Note((Words(phrases.interval(standing.interval)),)),) if standing.interval else ()
    return Cell((Words(f"{standing.accuracy:.2f}", "main"),), (rounded(standing.accuracy),), notes)


def _cost(costs: Costs, method: str) -> Cell:
    ratio = costs.ratios.get(method)
    return MISSING if ratio is None else number_cell(f"{ratio:.2f}", rounded(ratio))


def _accuracy(found: Accuracy | None, usual: int) -> Cell:
    if found is None:
        return MISSING
    seeds = len(found.by_seed)
    notes = [Note((Words(phrases.interval(found.interval)),))] if found.interval else []
    if seeds != usual:
        notes.append(Note((Words(plural(seeds, "seed")),)))
    if found.unlearned:
        words = Words(f"{len(found.unlearned)} of {seeds}", "warning"), Words(" not learned", "spoken")
        notes.append(Note(words, sign="*"))
    return Cell(
        (Words(f"{found.mean:.2f}", "main"),),
        (rounded(found.mean),),
        tuple(notes),
        share=found.mean,
        hatched=bool(found.unlearned),
        description=found.description,
    )


def usual_seeds(board: Board) -> int:
    """How many seeds most cells have."""
    results = board.results
    numbers = [len(results.of(task, method)) for task in results.tasks for method in results.encodings]
    return Counter(number for number in numbers if number).most_common(1)[0][0]


def _notes(found: Leaderboard) -> Iterator[str]:
    first = found.boards[0]
    spread = summaries.spread_words(first.results)
    yield (
        f"each cell: the mean over {plural(usual_seeds(first), 'seed')} where nothing else is said"
        f"{f', with the {spread}' if spread else ''}; a dash: not run"
    )
    if first.pairs:
        yield (
            f"sorted by mean rank over {plural(first.pairs, 'pair')} of task and seed, 1 the best, ties sharing their "
            "mean rank; mean: of exact match over the same pairs"
        )
        if first.standings[0].places:
            yield "rank: the first and last that the seeds leave open; below each mean its 95 % CI over seeds"
        else:
            yield f"no rank and no interval is given: some task has fewer than {FEWEST_SEEDS} seeds"
    else:
        yield "no pair of task and seed is finished for the methods, so there is no rank; sorted by mean exact match"
    if any(standing.rank is None for standing in first.standings):
        yield (
            "a method that lacks pairs which at least half of the methods have is not ranked; its mean is over what it "
            "has"
        )
    words = list(dict.fromkeys(costs.words for costs in found.costs if costs.words))
    yield f"cost: {'; '.join(words)}" if words else f"no cost is given: {NO_COST}"
    if any(
        each and each.unlearned
        for board in found.boards
        for each in (
            summaries.accuracy(board.results, task, method, seen=False)
            for task in board.results.tasks
            for method in board.results.encodings
        )
    ):
        yield f"* or △ 1 of 3: so many seeds did not learn the task, with less than {LEARNED} on their training lengths"
    left_out = Counter[tuple[str, str]]()
    for board in found.boards:
        left_out.update(board.left_out)
    for (folder, method), number in left_out.items():
        yield (
            f"{plural(number, 'run')} of {method} in {folder} gave other numbers than the same in an earlier folder, "
            "whose numbers are shown"
        )
    if len(found.boards) > 1:
        yield "methods under different headings had different settings: ranks are within a heading"


# For programs: a row for each method and task.


def leaderboard_values(found: Leaderboard) -> Table:
    rows: list[list[Value]] = []
    for board, costs in zip(found.boards, found.costs, strict=True):
        for standing in board.standings:
            method = standing.method
            for task in board.results.tasks:
                unseen, seen = (summaries.accuracy(board.results, task, method, kind) for kind in (False, True))
                if unseen is None or seen is None:
                    continue
                rows.append(
                    [method, " ".join(found.kinds.get(method, ())), ", ".join(board.sources[method]),
                     "; ".join(board.differs), task, found.families.get(task, ""), len(unseen.by_seed),
                     rounded(unseen.mean), *ends(unseen.interval),
                     " ".join(f"{value:.4g}" for value in unseen.by_seed.values()), len(unseen.unlearned),
                     rounded(seen.mean), rounded(summaries.chance(board.results, task, seen=False)),
                     known(standing.rank), *(standing.places or (None, None)), rounded(standing.accuracy),
                     *ends(standing.interval), known(costs.ratios.get(method))]
                )  # fmt: skip
    return value_table(
        "leaderboard",
        "Leaderboard",
        ["method", "kinds", "folders", "other_settings", "task", "family", "seeds", "unseen", "low", "high",
         "unseen_by_seed", "seeds_not_learned", "training_lengths", "chance", "mean_rank", "first_place", "last_place",
         "mean_unseen", "mean_low", "mean_high", "cost"],
        rows,
    )  # fmt: skip


def folder_table(found: Leaderboard) -> Table:
    """What each folder gave."""
    columns = (
        Column("folder", "left"),
        Column("study", "left"),
        Column("summary", "left", wide=True),
        *(Column(heading) for heading in ("runs", "unfinished", "methods", "tasks")),
        Column("device", "left"),
        Column("commit", "left"),
    )
    rows = []
    for name, results in found.folders:
        abouts = [run.description for run in results.runs]
        devices = dict.fromkeys(about["hardware"]["device"] for about in abouts)
        commits = dict.fromkeys(about["commit"] for about in abouts)
        counts = len(results.runs), len(results.unfinished), len(results.encodings), len(results.tasks)
        rows.append(
            TableRow(
                (
                    text_cell(name),
                    text_cell(str(results.study.get("name", "–"))),
                    text_cell(str(results.study.get("summary", ""))),
                    *(number_cell(f"{count:,}") for count in counts),
                    text_cell(", ".join(devices)),
                    text_cell(", ".join(commits)),
                )
            )
        )
    return Table("", "Folders that this page was made from", columns, tuple(rows))
