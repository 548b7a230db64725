"""Agreement with published results in words: verdicts, counts beside baselines, correlations; for every output."""

from collections.abc import Iterator

from lengthwise.records.agreement import Counts
from lengthwise.records.comparison import Comparison
from lengthwise.records.equivalence import LEVEL, MARGIN, NEAR
from lengthwise.report.model.phrases import decimals, plural, probability

INTERVAL = f"{LEVEL:.0%} interval".replace("%", " %")


def verdict_notes(comparison: Comparison) -> Iterator[str]:
    """What the verdicts of cells mean, as far as there are such cells."""
    judged = comparison.judged
    if not judged:
        return
    yield (
        f"Equivalent: the {INTERVAL} of the difference (Welch's t over seeds) is inside ±{MARGIN:.2f}; different: it "
        "is wholly outside; else undecided."
    )
    if any(cell.extreme for cell in judged):
        yield (
            f"Floor: both sides are at most {NEAR}, or within {NEAR} of a higher chance; ceiling: both are at least "
            f"{1 - NEAR}. Such cells are not informative."
        )
    if any(cell.borrowed_deviation for cell in judged):
        yield "† One side has a single seed, and is given the standard deviation of the other."
    if any(cell.informative and not cell.verdict for cell in judged):
        yield "No verdict (–): both sides have a single seed."


def headings(counts: Counts) -> list[str]:
    """Of the columns of `rows`."""
    of_all = f"of all {counts.judged}"
    return ["equivalent", "undecided", "different", "close", f"equivalent, {of_all}", f"close, {of_all}"]


def rows(comparison: Comparison) -> Iterator[tuple[str, list[str]]]:
    """Name and cells of each line: our counts, then those of predictors that ignore the encoding."""
    if comparison.counts is None:
        return
    yield "these results", _counts(comparison.counts)
    if not (baselines := comparison.baselines):
        return
    if baselines.ours != comparison.counts:
        yield "complete tasks", _counts(baselines.ours)
    yield "task means", _counts(baselines.task_means)
    if permuted := baselines.permuted:
        found = permuted.equivalent, permuted.close, permuted.equivalent_of_all, permuted.close_of_all
        yield "permuted encodings", _without_verdicts([decimals(value, 1) for value in found])
        found = permuted.p_equivalent, permuted.p_close, permuted.p_equivalent_of_all, permuted.p_close_of_all
        yield "p-value", _without_verdicts([probability(value) for value in found])


def notes(comparison: Comparison) -> Iterator[str]:
    """What the lines of `rows` are."""
    if not (counts := comparison.counts):
        return
    yield (
        f"Informative: not both sides at the floor ({plural(counts.floor, 'cell')}) or at the ceiling "
        f"({counts.ceiling}). Close: a difference of at most {MARGIN:.2f}."
    )
    if counts.no_verdict:
        yield f"{plural(counts.no_verdict, 'cell')} without a verdict: both sides have a single seed."
    if not (baselines := comparison.baselines):
        yield "No baselines: no task has every encoding."
        return
    if baselines.ours != counts:
        yield f"Complete tasks: {plural(baselines.tasks, 'task')} with every encoding, which the lines below are about."
    yield (
        "Task means: a predictor that ignores the encoding and says the published mean of the task, on the same cells. "
        "Of all: with those at the floor and at the ceiling, where ours are right and a task mean may be wrong."
    )
    if permuted := baselines.permuted:
        yield (
            "Permuted encodings: our results under the names of other encodings, mean of "
            f"{plural(permuted.permutations, 'permutation')} ({permuted.informative:.1f} informative cells). "
            "P-value: the share of all permutations, ours among them, with at least as many as ours."
        )


def correlation_words(comparison: Comparison) -> str:
    """One sentence; empty where no correlation can be given."""
    found = comparison.correlations
    if found.plain is None:
        return ""
    plain = f"Spearman's rank correlation over {plural(len(comparison.shared), 'cell')} is {decimals(found.plain)}"
    if found.residual_spearman is None or found.residual_pearson is None:
        return f"{plain}."
    return (
        f"{plain}; with the mean of each task removed on both sides ({plural(found.residual_cells, 'cell')}) it is "
        f"{decimals(found.residual_spearman)}, and Pearson's {decimals(found.residual_pearson)}."
    )


def _counts(counts: Counts) -> list[str]:
    found = counts.equivalent, counts.undecided, counts.different, counts.close
    return [*map(str, found), str(counts.equivalent_of_all), str(counts.close_of_all)]


def _without_verdicts(values: list[str]) -> list[str]:
    """Undecided and different cells are not counted for permutations."""
    equivalent, *others = values
    return [equivalent, "", "", *others]
