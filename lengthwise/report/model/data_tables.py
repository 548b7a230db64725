"""Every table of a report as plain values: what the page shows, offers for download, and what is written for papers."""

import csv
import dataclasses
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lengthwise.records.agreement import Counts
from lengthwise.records.comparison import Comparison
from lengthwise.records.outcomes import outcomes
from lengthwise.records.ranking import paired_differences, ranking
from lengthwise.records.rows import Results, RunResult
from lengthwise.records.statistics import Interval
from lengthwise.records.validations import mean_swing, validations
from lengthwise.report.figures.length_curves import Curves, curves_of
from lengthwise.report.model import reference, summaries

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows of values; None is an empty cell."""

    name: str
    caption: str
    columns: list[str]
    rows: list[list[Value]]

    def csv(self) -> str:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if value is None else value for value in row] for row in self.rows])
        return file.getvalue()

    def data(self) -> dict[str, Any]:
        """For the scripts of the page."""
        return {"columns": self.columns, "rows": self.rows}


def tables(results: Results, curves: list[Curves] | None = None) -> list[Table]:
    """All of them but the failures."""
    every = curves or [curves_of(results, task) for task in results.tasks]
    found = [
        ranking_table(results), cells_table(results), by_length_table(results, every), differences_table(results),
        errors_table(results), tasks_table(results), runs_table(results),
    ]  # fmt: skip
    if results.has_scratchpads:
        found.append(scratchpads_table(results))
    if (during_training := validations_table(results)).rows:
        found.append(during_training)
    if comparison := reference.comparison(results):
        found += [comparison_table(comparison), agreement_table(comparison), order_table(comparison)]
    return found


def ranking_table(results: Results) -> Table:
    published = reference.reciprocal_ranks(results)
    tallies = {tally.encoding: tally for tally in outcomes(results).tallies}
    return Table(
        "ranking",
        "Ranking on unseen lengths, last checkpoint",
        ["encoding", "mean_reciprocal_rank", "from_place", "to_place", "low", "high",
         "low_over_tasks", "high_over_tasks", "mean_rank", "mean_accuracy",
         "pairs_of_task_and_seed", "runs", "not_learned", "not_generalized", "generalized",
         "published_mean_reciprocal_rank", "published_tasks"],
        [
            [place.encoding, _rounded(place.reciprocal_rank), *(place.places or (None, None)),
             *_ends(place.reciprocal_rank_interval), *_ends(place.interval_over_tasks), _rounded(place.rank),
             _rounded(place.accuracy), place.columns, tallies[place.encoding].runs,
             tallies[place.encoding].unlearned, tallies[place.encoding].ungeneralized,
             tallies[place.encoding].generalized, _known(published.scores.get(place.encoding)),
             published.tasks if place.encoding in published.scores else None]
            for place in ranking(results)
        ],
    )  # fmt: skip


def cells_table(results: Results) -> Table:
    """Each task and encoding: unseen and training lengths, last and best checkpoint, and the published number."""
    has_best = summaries.has_best(results)
    rows: list[list[Value]] = []
    for task in results.tasks:
        chance = summaries.chance(results, task, seen=False)
        unseen_n, seen_n = (_examples(results, task, kind) for kind in (False, True))
        for encoding in results.encodings:
            unseen = summaries.cell(results, task, encoding, seen=False)
            seen = summaries.cell(results, task, encoding, seen=True)
            if unseen is None or seen is None:
                continue
            best = summaries.cell(results, task, encoding, seen=False, checkpoint="best") if has_best else None
            published = reference.cell(results, task, encoding)
            rows.append(
                [task, reference.name_and_format(results, task)[1], encoding, len(unseen.by_seed), unseen_n,
                 _rounded(unseen.mean), *_ends(unseen.interval), _joined(unseen.by_seed),
                 _known(mean_swing(results.of(task, encoding))), seen_n, _rounded(seen.mean), _joined(seen.by_seed),
                 len(unseen.unlearned), _rounded(best.mean) if best else None, _rounded(chance),
                 published.mean if published else None, published.deviation if published else None,
                 published.seeds if published else None,
                 _rounded(unseen.mean - published.mean) if published else None]
            )  # fmt: skip
    return Table(
        "accuracies",
        "Accuracy of each encoding on each task",
        ["task", "scratchpad", "encoding", "seeds", "n", "unseen", "low", "high", "unseen_by_seed", "swing",
         "training_lengths_n", "training_lengths", "training_lengths_by_seed",
         "seeds_not_learned", "unseen_best_checkpoint", "chance", "published",
         "published_deviation", "published_seeds", "difference"],
        rows,
    )  # fmt: skip


def by_length_table(results: Results, every: list[Curves]) -> Table:
    return Table(
        "by-length",
        "Accuracy by length, last checkpoint",
        ["task", "encoding", "length", "trained", "n", "mean", "low", "high", "by_seed", "chance", "published"],
        [
            [curves.task, point.encoding, point.length, point.length <= curves.longest_trained, point.n,
             _rounded(point.mean), *_ends(point.interval),
             " ".join(f"{value:.3g}" for value in point.by_seed), _rounded(point.chance),
             point.published]
            for curves in every
            for point in curves.points
        ],
    )  # fmt: skip


def differences_table(results: Results) -> Table:
    """With p-values as they are, and corrected for the number of comparisons."""
    found = paired_differences(results)
    return Table(
        "paired-differences",
        "Differences on unseen lengths, paired over task and seed",
        ["encoding", "against", "mean", "low", "high", "low_over_tasks", "high_over_tasks", "wins", "ties", "losses",
         "p_over_pairs", "p_over_tasks", "p_wilcoxon_over_tasks", "holm_p_over_pairs", "holm_p_over_tasks",
         "holm_p_wilcoxon_over_tasks", "comparisons", "pairs", "tasks"],
        [
            [each.encoding, each.against, _rounded(each.mean), *_ends(each.interval), *_ends(each.interval_over_tasks),
             each.wins, each.ties, each.losses,
             *(_digits(p) for kind in (each.p, each.corrected) for p in dataclasses.astuple(kind)),
             len(found), each.columns, each.tasks]
            for each in found
        ],
    )  # fmt: skip


def errors_table(results: Results) -> Table:
    kinds = {encoding: summaries.error_kinds(results, encoding) for encoding in results.encodings}
    return Table(
        "errors",
        "How answers to unseen lengths go wrong: shares of test examples, mean over tasks and seeds",
        ["encoding", "correct", "wrong_symbol", "stopped_early", "ran_on"],
        [[encoding, *map(_rounded, shares.values())] for encoding, shares in kinds.items()],
    )


def comparison_table(comparison: Comparison) -> Table:
    """Every cell that both sides have."""
    return Table(
        "comparison",
        "Accuracy on unseen lengths beside the published one",
        ["task", "scratchpad", "encoding", "ours", "deviation", "seeds", "seeds_not_learned", "published",
         "published_deviation", "published_seeds", "chance", "difference", "low", "high", "borrowed_deviation",
         "verdict", "close", "informative"],
        [
            [cell.title, cell.scratchpad, cell.encoding, _rounded(cell.ours.mean), _known(cell.ours.deviation),
             cell.ours.seeds, len(cell.unlearned), cell.published.mean, cell.published.deviation, cell.published.seeds,
             _known(cell.chance), _known(cell.difference), *_ends(cell.interval), cell.borrowed_deviation,
             cell.verdict, cell.close, cell.informative]
            for cell in comparison.shared
            if cell.ours and cell.published
        ],
    )  # fmt: skip


def agreement_table(comparison: Comparison) -> Table:
    """How many cells agree, and what predictors that ignore the encoding would get."""
    return Table(
        "agreement",
        "Cells that agree with the published ones, beside predictors that ignore the encoding",
        ["results", "tasks", "judged", "floor", "ceiling", "informative", "equivalent", "undecided", "different",
         "no_verdict", "close", "equivalent_of_all", "close_of_all"],
        list(_agreement_rows(comparison)),
    )  # fmt: skip


def _agreement_rows(comparison: Comparison) -> Iterator[list[Value]]:
    def row(name: str, tasks: int, counts: Counts) -> list[Value]:
        return [name, tasks, counts.judged, counts.floor, counts.ceiling, counts.informative, counts.equivalent,
                counts.undecided, counts.different, counts.no_verdict, counts.close, counts.equivalent_of_all,
                counts.close_of_all]  # fmt: skip

    if comparison.counts:
        yield row("ours", len({cell.title for cell in comparison.judged}), comparison.counts)
    if found := comparison.baselines:
        yield row("ours, tasks with every encoding", found.tasks, found.ours)
        yield row("task means", found.tasks, found.task_means)
        if permuted := found.permuted:
            nothing: list[Value] = [None, None]
            yield ["permuted encodings, mean", found.tasks, found.ours.judged, *nothing, _rounded(permuted.informative),
                   _rounded(permuted.equivalent), *nothing, None, _rounded(permuted.close),
                   _rounded(permuted.equivalent_of_all), _rounded(permuted.close_of_all)]  # fmt: skip
            yield ["permuted encodings, p", found.tasks, None, *nothing, None, _digits(permuted.p_equivalent), *nothing,
                   None, _digits(permuted.p_close), _digits(permuted.p_equivalent_of_all),
                   _digits(permuted.p_close_of_all)]  # fmt: skip


def order_table(comparison: Comparison) -> Table:
    """Mean reciprocal ranks, and the places that our seeds leave open."""
    here, other = comparison.checkpoint, comparison.other_checkpoint
    return Table(
        "order",
        "Order of the encodings by mean reciprocal rank, ours and published",
        ["encoding", f"ours_{here}", f"ours_{here}_from_place", f"ours_{here}_to_place", f"ours_{other}",
         f"ours_{other}_from_place", f"ours_{other}_to_place", "published_these_tasks", "published_all_tasks"],
        [
            [place.encoding, _known(place.ours), *(place.places or (None, None)), _known(place.at_other),
             *(place.places_at_other or (None, None)), _rounded(place.published_here), place.published]
            for place in comparison.order
        ],
    )  # fmt: skip


def tasks_table(results: Results) -> Table:
    found = outcomes(results)
    return Table(
        "tasks",
        "Tasks",
        ["task", "scratchpad", "first_trained", "last_trained", "first_unseen", "last_unseen", "chance", "saturated",
         "dead", "published_lengths_alike"],
        [
            [task, reference.name_and_format(results, task)[1], *description["train_lengths"],
             *description["test_lengths"], _rounded(summaries.chance(results, task, seen=False)),
             task in found.saturated, task in found.dead, reference.comparable(results, task)]
            for task in results.tasks
            for description in [next(r for r in results.runs if r.description["task"] == task).description]
        ],
    )  # fmt: skip


def scratchpads_table(results: Results) -> Table:
    """Final answers and whole texts apart."""
    return Table(
        "scratchpads",
        "Scratchpads: final answers and whole texts on unseen lengths",
        ["task", "scratchpad", "encoding", "answers", "low", "high", "whole_texts", "published"],
        [
            [name, scratchpad, encoding, _rounded(answer.mean), *_ends(answer.interval), _rounded(text.mean),
             published.mean if published else None]
            for task in results.tasks
            for name, scratchpad in [reference.name_and_format(results, task)]
            for encoding in results.encodings
            for published in [reference.cell(results, task, encoding)]
            for answer, text in _answers_and_texts(results, task, encoding)
        ],
    )  # fmt: skip


def _answers_and_texts(results: Results, task: str, encoding: str) -> Iterator[tuple[summaries.Cell, summaries.Cell]]:
    answer = summaries.cell(results, task, encoding, seen=False)
    text = summaries.cell(results, task, encoding, seen=False, measure="text")
    if answer and text:
        yield answer, text


def runs_table(results: Results) -> Table:
    """Every run with its provenance."""
    return Table(
        "runs",
        "Runs",
        ["run", "task", "encoding", "seed", "fingerprint", "unseen", "training_lengths", "learned", "diverged_at",
         "steps", "best_step", "parameters", "parameters_of_encoding", "device", "commit", "started", "seconds"],
        [
            [run.description["name"], run.description["task"], run.description["encoding"], run.description["seed"],
             run.description["fingerprint"], _rounded(run.accuracy("last", seen=False)),
             _rounded(run.accuracy("last", seen=True)), summaries.learned(run), run.finished.get("diverged_at"),
             run.finished.get("steps"), run.finished.get("best_step"), run.description["parameters"],
             run.description["parameters_of_encoding"], run.description["hardware"]["device"],
             run.description["commit"], run.description["started"], round(seconds(run), 1)]
            for run in summaries.in_order(results)
        ],
    )  # fmt: skip


def validations_table(results: Results) -> Table:
    """Every validation of every run: in distribution, and on the sample of unseen lengths that was watched."""
    return Table(
        "validations",
        "Exact match at each validation: in distribution, and on a sample of unseen lengths",
        ["task", "encoding", "seed", "step", "validation", "unseen"],
        [
            [run.description["task"], run.description["encoding"], run.description["seed"], each.step,
             _rounded(each.validation), _known(each.unseen)]
            for run in summaries.in_order(results)
            for each in validations(run)
        ],
    )  # fmt: skip


def failures_table(results: Results) -> Table:
    """Every example that was kept of those that went wrong."""
    return Table(
        "failures",
        "Examples that went wrong",
        ["task", "encoding", "seed", "length", "kind", "first_error", "prompt", "target", "predicted"],
        [
            [run.description["task"], run.description["encoding"], run.description["seed"], failure["length"],
             failure["kind"], failure["first_error"], failure["prompt"], failure["target"],
             " ".join(failure["predicted"])]
            for run in summaries.in_order(results)
            for failure in run.failures
        ],
    )  # fmt: skip


def seconds(run: RunResult) -> float:
    """Its share of the time of the runs that it was trained together with."""
    return run.finished["seconds_together"] / run.finished["trained_together"]


def _examples(results: Results, task: str, seen: bool) -> int:
    """Test examples that a run has, the fewest of all runs."""
    runs = [run for run in results.runs if run.description["task"] == task]
    return min(sum(row["n"] for row in run.rows if row["checkpoint"] == "last" and row["seen"] == seen) for run in runs)


def _known(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _digits(value: float) -> float:
    """Small ones too: what is not 0 does not become 0."""
    return float(f"{value:.3g}")


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (_rounded(interval[0]), _rounded(interval[1])) if interval else (None, None)


def _joined(by_seed: dict[int, float]) -> str:
    return " ".join(f"{value:.4g}" for value in by_seed.values())


def _rounded(value: float) -> float:
    return round(value, 4)
