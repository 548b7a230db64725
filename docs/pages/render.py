"""Pages whose numbers come from committed results: `python docs/pages/render.py` writes README.md and docs/results.md.

The tables of docs/methods.md come from the cards of methods.

A page is a template beside this file. Numbers in it are computed by the functions below, so that a page can say nothing
that the rows do not; a number that is no result (a setting, a date, a time that was read from a clock) stands in
`given("...")`, and a sentence that the rows must bear out in `provided(condition, "...")`.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from writing import write_changed

from lengthwise import configuration, registry
from lengthwise.encodings.choice import read_encoding, words_of
from lengthwise.equation import text_of
from lengthwise.presets import PRESETS
from lengthwise.records import published
from lengthwise.records.claims import Claim, PublishedNumber, judge_claim
from lengthwise.records.comparison import ComparedCell, Comparison, compare, score
from lengthwise.records.completeness import missing
from lengthwise.records.findings import load_analysis, read_findings
from lengthwise.records.paired_tests import holm
from lengthwise.records.published import Score
from lengthwise.records.ranking import Difference, Place, paired_differences, rankings
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.records.run_result import RunResult
from lengthwise.records.validations import mean_swing
from lengthwise.report.figures.drawing import Figure
from lengthwise.report.figures.gallery import figures
from lengthwise.report.model import agreement
from lengthwise.report.model.claim_tables import claim_table
from lengthwise.report.model.findings import relevant
from lengthwise.report.model.layouts import Layout, ahead, layouts
from lengthwise.report.model.phrases import places as places_words
from lengthwise.report.model.summaries import accuracy
from lengthwise.study import claim_of, shipped_studies

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = {
    "README.md.jinja": ROOT / "README.md",
    "results.md.jinja": ROOT / "docs/results.md",
    "layout.md.jinja": ROOT / "docs/layout.md",
    "claims.md.jinja": ROOT / "docs/claims.md",
    "methods.md.jinja": ROOT / "docs/methods.md",
}
"""Template -> page."""

PICTURES = {
    "quickstart.svg": ("quickstart", "accuracy-by-length"),
    "battery-heat-map.svg": ("battery-small", "heat-map"),
    "battery-by-length.svg": ("battery-small", "accuracy-by-length"),
    "layout-tiny.svg": ("layout-tiny", "accuracy-by-layout"),
    "layout.svg": ("layout", "accuracy-by-layout"),
    "why-first-errors.svg": ("quickstart", "first-errors-copy.repeat"),
    "why-first.svg": ("quickstart", "attention-first-copy.repeat"),
    "why-scan-distance.svg": ("scan-attention", "attention-distance-same-seeds-scan"),
    "why-scan-probes.svg": ("scan-attention", "probes-scan"),
    "why-scan-first-errors.svg": ("scan-attention", "first-errors-scan"),
}
"""File in docs/pictures -> results, and the figure of their report."""


@cache
def results(name: str) -> Results:
    return load_results(ROOT / "results" / name)


@cache
def comparison(name: str, checkpoint: str = "best") -> Comparison:
    return compare(results(name), checkpoint)


def runs(name: str, task: str, encoding: str) -> list[RunResult]:
    found = results(name).of(task, encoding)
    if not found:
        raise KeyError(f"results/{name} has no {task}/{encoding}")
    return found


def cell(name: str, task: str, encoding: str, checkpoint: str = "last", seen: bool = False) -> Score:
    """Accuracy on unseen (or seen) lengths: mean and standard deviation over seeds."""
    return score([run.accuracy(checkpoint, seen) for run in runs(name, task, encoding)])


def swing_of(name: str, task: str, encoding: str) -> float | None:
    """By how much accuracy on unseen lengths moves over the last validations; mean over seeds."""
    return mean_swing(runs(name, task, encoding))


def by_seed(name: str, task: str, encoding: str, checkpoint: str = "last") -> list[float]:
    return [run.accuracy(checkpoint, seen=False) for run in runs(name, task, encoding)]


def at_length(name: str, task: str, encoding: str, length: int, seed: int, checkpoint: str = "last") -> float:
    (run,) = [run for run in runs(name, task, encoding) if run.description["seed"] == seed]
    right, n = run.counts_by_length(checkpoint)[length]
    return right / n


def theirs(task: str, encoding: str) -> Score:
    """The published accuracy on unseen lengths."""
    return published.cells()[task, "none", encoding].unseen


def seen_range(name: str, tasks: Sequence[str] = (), checkpoint: str = "last") -> tuple[float, float]:
    """The least and the greatest accuracy of a run on the lengths it was trained on."""
    found = [
        run.accuracy(checkpoint, seen=True)
        for run in results(name).runs
        if not tasks or run.description["task"] in tasks
    ]
    return min(found), max(found)


def tested(name: str, seen: bool = False) -> list[int]:
    """How many examples runs were tested on, on unseen (or seen) lengths, at the last checkpoint; ascending."""
    return sorted({run.totals["last", seen].n for run in results(name).runs})


def tested_at_a_length(name: str, seen: bool = False) -> list[int]:
    """The same for each unseen (or seen) length."""
    found: set[int] = set()
    for run in results(name).runs:
        lengths = run.seen_lengths()
        found |= {n for length, (_, n) in run.counts_by_length("last").items() if lengths[length] == seen}
    return sorted(found)


def axes(name: str) -> str:
    """`17 tasks x 5 encodings x 3 seeds`, as the runs are."""
    found, seeds = results(name), {run.description["seed"] for run in results(name).runs}
    tasks = f"{len(found.tasks)} tasks" if len(found.tasks) > 1 else "1 task"
    return f"{tasks} x {len(found.encodings)} encodings x {len(seeds)} seeds"


def parameters(name: str) -> list[int]:
    """Of the models, ascending."""
    return sorted({run.description["parameters"] for run in results(name).runs})


def order(name: str, checkpoint: str = "last") -> list[str]:
    """Encodings by their rank over all tasks, best first."""
    return [each.encoding for each in rankings(results(name), checkpoint).everything]


def open_ranks(name: str, checkpoint: str = "last") -> list[str]:
    """Encodings whose rank is not decided."""
    return [
        each.encoding
        for each in rankings(results(name), checkpoint).everything
        if not each.places or each.places[0] != each.places[1]
    ]


def unlearned_tasks(name: str) -> list[str]:
    """Tasks of which some run stayed below 0.9 on its training lengths."""
    return [task for task in results(name).tasks if seen_range(name, [task])[0] < 0.9]


def best_steps(name: str, task: str, encoding: str) -> list[int]:
    return [run.finished["best_step"] for run in runs(name, task, encoding)]


def watched(name: str, task: str, encoding: str, last: int = 5) -> list[list[float]]:
    """For each seed, accuracy on the watched unseen lengths at the last validations."""
    return [[each["unseen"] for each in run.finished["validations"][-last:]] for run in runs(name, task, encoding)]


def validated(name: str, task: str, encoding: str) -> float:
    """The least accuracy in validation of any seed from its best checkpoint on."""
    return min(
        each["validation"]
        for run in runs(name, task, encoding)
        for each in run.finished["validations"]
        if each["step"] >= run.finished["best_step"]
    )


def difference(name: str, encoding: str, against: str = "none", checkpoint: str = "last") -> Difference:
    (found,) = [d for d in paired_differences(results(name), checkpoint, against) if d.encoding == encoding]
    return found


def place(name: str, encoding: str, kind: str = "everything", checkpoint: str = "last") -> Place:
    return {each.encoding: each for each in getattr(rankings(results(name), checkpoint), kind)}[encoding]


def finished(name: str) -> str:
    """`3 of 255 runs`."""
    absent = missing(results(name))
    return (
        f"{absent.finished:,} of {absent.expected:,} runs" if absent else f"complete: {len(results(name).runs):,} runs"
    )


def csv_rows(path: str) -> list[dict[str, str]]:
    with (ROOT / path).open() as file:
        return list(csv.DictReader(file))


def bias(name: str, **wanted: str) -> float:
    """Mean of `bias` in results/NAME/bias.csv over the rows that have the wanted values."""
    rows = csv_rows(f"results/{name}/bias.csv")
    chosen = [float(row["bias"]) for row in rows if all(row[key] == value for key, value in wanted.items())]
    return sum(chosen) / len(chosen)


def read_json(path: str) -> Any:
    return json.loads((ROOT / path).read_text())


def layout_steps(run: str) -> list[dict[str, Any]]:
    lines = (ROOT / "results/t5-layout/steps.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["run"] == run]


def bench(file: str, kind: str = "training", **wanted: Any) -> dict[str, Any]:
    """The row of a timing that has the wanted values."""
    (row,) = [
        row
        for row in read_json(f"results/bench/{file}")[kind]
        if all(row[key] == value for key, value in wanted.items())
    ]
    return row


def uniform_scales() -> dict[int, float]:
    """Context -> the best scale of attention for all heads, of the language model without positions."""
    found = read_json("results/headscale-small/table/uniform.json")["best"]
    return {int(context): scale for context, scale in found.items()}


def wrong_copies() -> tuple[int, int]:
    """Wrong answers of the quickstart on unseen lengths, and those whose first error is a wrong symbol."""
    rows = [row for row in results("quickstart").rows if row["checkpoint"] == "last" and not row["seen"]]
    return sum(row["n"] - row["correct"] for row in rows), sum(row["wrong_symbol"] for row in rows)


def cpu_ratios() -> list[float]:
    """How many times faster than the Trainer two processes train, in each round of timings, the least first."""
    found = []
    for number in (1, 2, 3):
        ours = sum(
            read_json(f"results/bench/cpu/train-{number}-{which}.json")["training"][0]["model_steps_per_second"]
            for which in ("first", "second")
        )
        trainer = read_json(f"results/bench/cpu/trainer-{number}.json")["trainer"]
        found.append(ours / max(row["model_steps_per_second"] for row in trainer))
    return sorted(found)


@cache
def separator_rows(name: str, kind: str) -> list[dict[str, Any]]:
    return read_findings(ROOT / "results" / name / "analysis", f"separator_{kind}")


def _of(name: str, kind: str, task: str, encoding: str, **wanted: Any) -> list[dict[str, Any]]:
    asked = {"task": task, "encoding": encoding, **wanted}
    found = [row for row in separator_rows(name, kind) if all(row[key] == value for key, value in asked.items())]
    if not found:
        raise KeyError(f"results/{name} has no {kind} of {asked}")
    return found


def exchanged(name: str, task: str, encoding: str, donor: str, ends: str, group: str = "seen") -> float:
    """Share of answers that end where `ends` says when all layers get the separator of a donor; mean over seeds."""
    rows = _of(name, "exchanges", task, encoding, donor=donor, layer=0)
    return sum(row[group][ends] / row[group]["n"] for row in rows) / len(rows)


def hidden(name: str, task: str, encoding: str, what: str, score: str = "correct", group: str = "seen") -> float:
    """Exact match with something hidden from the target in all layers; mean over seeds."""
    rows = _of(name, "knockouts", task, encoding, hidden=what, layer=0)
    return sum(row[group][score] / row[group]["n"] for row in rows) / len(rows)


def analyzed(name: str, group: str = "unseen") -> int:
    """Examples of each run that its separator was analyzed with."""
    (number,) = {row[group]["n"] for row in separator_rows(name, "knockouts")}
    return number


def counted_at_separator(name: str, task: str, encoding: str, part: str = "within", measure: str = "r2") -> float:
    """How well a probe reads the source's length at the separator token and layer that are best on seen lengths."""
    by_place: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in _of(name, "probes", task, encoding, weights="trained"):
        if row["place"].startswith("separator"):
            by_place[row["place"], row["layer"]].append(row)
    best = min(by_place.values(), key=lambda rows: sum(row["within"]["error"] for row in rows))
    return sum(row[part][measure] for row in best) / len(best)


def layout_titles(name: str, task: str) -> dict[Layout, str]:
    return layouts(results(name))[task]


def layout_span(name: str, task: str, encoding: str, but: Sequence[Layout] = ()) -> tuple[float, float]:
    """The least and the greatest accuracy on unseen lengths over the layouts of a task; `but`: those left out."""
    titles = layout_titles(name, task)
    found = [cell(name, title, encoding).mean for layout, title in titles.items() if layout not in but]
    return min(found), max(found)


def first_in_all(name: str, encoding: str) -> int:
    """In how many layouts of all tasks there is no other encoding that it is not ahead of by more than 0.1; every one,
    or the page would have to say so."""
    found = layouts(results(name))
    others = [other for other in results(name).encodings if other != encoding]
    for task, titles in found.items():
        for other in others:
            if ahead(results(name), titles, encoding, other) < len(titles):
                raise ValueError(f"results/{name}: {encoding} is not ahead of {other} in every layout of {task}")
    return sum(map(len, found.values()))


def layout_axes(name: str) -> str:
    """`12 layouts, 3 tasks, 5 encodings, 3 seeds`."""
    found, seeds = layouts(results(name)), {run.description["seed"] for run in results(name).runs}
    (number,) = {len(titles) for titles in found.values()}
    tasks = f"{len(found)} tasks, " if len(found) > 1 else ""
    return f"{number} layouts, {tasks}{len(results(name).encodings)} encodings, {len(seeds)} seeds"


def ahead_in(name: str, task: str, first: str, second: str) -> int:
    """In how many layouts of a task one encoding is ahead of another by more than 0.1."""
    return ahead(results(name), layout_titles(name, task), first, second)


def exchanging(name: str) -> list[tuple[str, str]]:
    """Pairs of encodings of which each is ahead by more than 0.1 in some layout of some task."""
    found, titles = results(name), layouts(results(name))
    return [
        (first, second)
        for i, first in enumerate(found.encodings)
        for second in found.encodings[i + 1 :]
        if any(ahead(found, each, first, second) and ahead(found, each, second, first) for each in titles.values())
    ]


DRAWN_ORDERS = 20_000


@dataclass(frozen=True)
class Trend:
    """How accuracy on unseen lengths goes with the tokens of the first word, or of the separator."""

    means: dict[int, float]
    """Number of tokens -> mean over seeds and over the numbers of the other word's tokens."""
    p: float
    """Two-sided: how often a random order of the layouts makes as steep a line over the logarithm of the tokens."""


def trend(name: str, task: str, encoding: str, axis: str) -> Trend:
    """`axis`: `prefix` or `separator`. Orders are drawn within each seed and number of the other word's tokens, since
    runs of a seed begin alike and the other word may matter, too."""
    table: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for layout, title in layout_titles(name, task).items():
        own, other = getattr(layout, axis), layout.separator if axis == "prefix" else layout.prefix
        for run in runs(name, title, encoding):
            table[other, run.description["seed"]][own] = run.accuracy("last", seen=False)
    tokens = sorted(next(iter(table.values())))
    accuracies_GT = np.array([[group[number] for number in tokens] for group in table.values()])
    return Trend(dict(zip(tokens, accuracies_GT.mean(axis=0).tolist(), strict=True)), trend_p(accuracies_GT, tokens))


def trend_p(accuracies_GT: np.ndarray, tokens: Sequence[int]) -> float:
    """`accuracies_GT`: groups by numbers of tokens; orders are drawn within a group."""
    steps_T = np.log2(tokens) - np.log2(tokens).mean()
    generator = np.random.Generator(np.random.PCG64(0))
    observed = abs((accuracies_GT @ steps_T).sum()) - 1e-9
    drawn = (generator.permuted(accuracies_GT, axis=1) for _ in range(DRAWN_ORDERS))
    return (1 + sum(abs((each @ steps_T).sum()) >= observed for each in drawn)) / (1 + DRAWN_ORDERS)


@cache
def trends(name: str, *encodings: str) -> dict[tuple[str, str, str], Trend]:
    """(encoding, task, axis) -> trend; p-values are corrected for their number (Holm)."""
    keys = list(product(encodings, layouts(results(name)), ("prefix", "separator")))
    found = {key: trend(name, key[1], key[0], key[2]) for key in keys}
    corrected = dict(zip(keys, holm([each.p for each in found.values()]), strict=True))
    return {key: replace(each, p=corrected[key]) for key, each in found.items()}


def trend_table(name: str, *encodings: str) -> str:
    found = trends(name, *encodings)
    rows = []
    for encoding, task in product(encodings, layouts(results(name))):
        prefix, separator = (found[encoding, task, axis] for axis in ("prefix", "separator"))
        told = [
            f"{', '.join(f'{mean:.2f}' for mean in each.means.values())} | {each.p:.3f}" for each in (prefix, separator)
        ]
        rows.append([f"`{encoding}`", f"`{task}`", *told])
    first, second = (", ".join(map(str, found[encodings[0], task, axis].means)) for axis in ("prefix", "separator"))
    return table(["encoding", "task", f"first word of {first} tokens", "p", f"separator of {second} tokens", "p"], rows)


def attended(name: str, task: str, encoding: str, measure: str = "mean") -> float:
    """Share of a target token's attention that goes to the separator on unseen lengths: the mean over heads, what it
    would be if heads attended evenly, or how many heads give it more than half."""
    rows = _of(name, "attention", task, encoding, queries="target")
    shares = [row["unseen"]["separator"] for row in rows]
    if measure == "even":
        return sum(row["even"]["unseen"]["separator"] for row in rows) / len(rows)
    return sum(shares) / len(rows) if measure == "mean" else sum(share > 0.5 for share in shares)


# Tables.


def ahead_table(name: str, task: str) -> str:
    """For two encodings, in how many layouts of a task the row's is ahead of the column's by more than 0.1."""
    found, titles = results(name), layout_titles(name, task)
    rows = [
        [f"`{first}`", *("–" if first == second else ahead(found, titles, first, second) for second in found.encodings)]
        for first in found.encodings
    ]
    return table(["", *(f"`{encoding}`" for encoding in found.encodings)], rows)


def separator_table(name: str, task: str, separators: Sequence[int], encodings: Sequence[str]) -> str:
    """What exchanges, knock-outs and probes say, by the separator's tokens; the first word takes one."""
    rows = []
    for encoding in encodings:
        for separator in separators:
            title = layout_titles(name, task)[Layout(1, separator)]
            rows.append(
                [f"`{encoding}`", separator, plus_minus(cell(name, title, encoding)),
                 f"{attended(name, title, encoding):.2f} ({attended(name, title, encoding, 'even'):.2f})",
                 *(f"{exchanged(name, title, encoding, 'shorter', ends):.2f}" for ends in ("as_own", "as_donor")),
                 f"{hidden(name, title, encoding, 'separator'):.2f}",
                 f"{counted_at_separator(name, title, encoding):.2f}",
                 f"{counted_at_separator(name, title, encoding, 'beyond', 'slope'):.2f}"]
            )  # fmt: skip
    return table(
        ["encoding", "separator tokens", "unseen lengths", "attended to (evenly)", "exchanged: ends as its own",
         "ends as the other", "separator hidden: right", "probe R²", "slope beyond"],
        rows,
    )  # fmt: skip


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def plus_minus(value: Score | None) -> str:
    if value is None:
        return "–"
    return f"{value.mean:.2f}" + (f" ± {value.deviation:.2f}" if value.deviation is not None else "")


def verdict_of(each: ComparedCell) -> str:
    said = each.extreme or each.verdict or "–"
    return str(said) + ("†" if each.borrowed_deviation and not each.extreme else "")


def compared_table(
    name: str, checkpoint: str = "best", encodings: Sequence[str] = (), informative: bool = False
) -> str:
    """Every cell that both sides have: ours, published, their difference, the verdict."""
    rows = []
    for each in comparison(name, checkpoint).shared:
        if encodings and each.encoding not in encodings:
            continue
        assert each.ours and each.interval is not None and each.difference is not None
        low, high = each.interval
        mark = "*" if each.unlearned else ""
        known = accuracy(results(name), each.title, each.encoding, seen=False, checkpoint=checkpoint)
        if known and known.swings:
            mark += f" ~{known.swing:.2f}"
        told = f"{_signed(each.difference)} ({_signed(low)} to {_signed(high)})"
        rows.append(
            [f"`{each.title}`", f"`{each.encoding}`", f"{plus_minus(each.ours)}{mark}", each.ours.seeds,
             plus_minus(each.published), told, verdict_of(each)]
        )  # fmt: skip
    return table(["task", "encoding", "ours", "seeds", "published", "difference (90 % interval)", "verdict"], rows)


def order_table(name: str, checkpoint: str = "last") -> str:
    tallies = {tally.encoding: tally for tally in rankings(results(name), checkpoint).outcomes.tallies}
    rows = []
    for each in rankings(results(name), checkpoint).everything:
        seeds, tasks = each.reciprocal_rank_interval, each.interval_over_tasks
        tally = tallies[each.encoding]
        rows.append(
            [f"`{each.encoding}`", places_words(each.places), f"{each.reciprocal_rank:.2f}", _interval(seeds),
             _interval(tasks), f"{published.reciprocal_ranks()[each.encoding]:.2f}", f"{each.accuracy:.2f}",
             f"{tally.generalized} of {tally.runs}"]
        )  # fmt: skip
    return table(
        ["encoding", "rank", "mean reciprocal rank", "95 % CI over seeds", "95 % CI over tasks", "published",
         "mean accuracy, unseen lengths", "runs at 0.9 or more on unseen lengths"],
        rows,
    )  # fmt: skip


@dataclass(frozen=True)
class ShownClaim:
    """A published claim as its page shows it."""

    study: str
    claim: Claim
    results: str
    """The folder in results/ that it is judged by; empty where there is none yet."""
    outcome: str
    table: str
    hardware: str = ""


JUDGED_BY = {"claim-running-on": "battery-small"}
"""Studies whose claim other results can judge, that have the same tasks."""


@cache
def claims() -> list[ShownClaim]:
    found = []
    for study, file in shipped_studies().items():
        claim = claim_of(file)
        if claim is None:
            continue
        own = ROOT / "results" / study
        name = study if own.exists() else JUDGED_BY.get(study, "")
        if not name:
            told = [[each.says, _told(each)] for each in claim.numbers]
            found.append(ShownClaim(study, claim, "", "not run yet", table(["what", "published"], told)))
            continue
        judged = judge_claim(claim, results(name), "best")
        made = claim_table(judged)
        lines = [[cell.text for cell in row.cells] for row in made.rows]
        seeds = [each.ours.seeds if each.ours else 0 for each in judged.numbers]
        lines = [[*line, n] for line, n in zip(lines, seeds, strict=True)]
        headings = [column.heading for column in made.columns]
        device = results(name).runs[0].description["hardware"]["device"]
        shown = table([*headings, "seeds"], lines)
        found.append(ShownClaim(study, claim, name, judged.outcome.value, shown, f"one {device}"))
    return found


def _told(number: PublishedNumber) -> str:
    sign = "≥ " if number.at_least is not None else "≤ " if number.at_most is not None else ""
    return f"{sign}{number.value:{'+.3f' if number.minus else '.3f'}}"


def agreement_table(name: str, checkpoint: str = "best") -> str:
    found = comparison(name, checkpoint)
    assert found.counts
    return table(["", *agreement.headings(found.counts)], [[words, *cells] for words, cells in agreement.rows(found)])


def paired_table(name: str, checkpoint: str = "last") -> str:
    """Differences to `none` with p-values over tasks, corrected for the number of encodings (Holm)."""
    rows = []
    for each in paired_differences(results(name), checkpoint):
        rows.append(
            [f"`{each.encoding}`", f"{each.mean:+.2f}", _interval(each.interval), _interval(each.interval_over_tasks),
             f"{each.p.over_tasks:.3f}", f"{each.corrected.over_tasks:.3f}", f"{each.p.wilcoxon:.3f}",
             f"{each.corrected.wilcoxon:.3f}"]
        )  # fmt: skip
    return table(
        ["encoding", "minus `none`", "95 % CI over seeds", "95 % CI over tasks", "sign flips: p", "corrected",
         "Wilcoxon: p", "corrected"],
        rows,
    )  # fmt: skip


def means_table(name: str, extra: dict[str, list[str]] | None = None, checkpoint: str = "last") -> str:
    """Encodings down, tasks across: mean accuracy on unseen lengths; `extra`: columns before these."""
    found = results(name)
    rows = [
        [f"`{encoding}`", *(column[i] for column in (extra or {}).values()),
         *(f"{cell(name, task, encoding, checkpoint).mean:.2f}" for task in found.tasks)]
        for i, encoding in enumerate(found.encodings)
    ]  # fmt: skip
    return table(["encoding", *(extra or {}), *(f"`{task}`" for task in found.tasks)], rows)


def lengths_table(lines: Sequence[tuple[str, str, str, int]], task: str, lengths: Sequence[int]) -> str:
    """`lines`: (what it is called, results, encoding, seed); accuracy at each length and on all unseen ones."""
    rows = []
    for words, name, encoding, seed in lines:
        (run,) = [run for run in runs(name, task, encoding) if run.description["seed"] == seed]
        cells = [f"{at_length(name, task, encoding, length, seed):.2f}" for length in lengths]
        rows.append([words, seed, *cells, f"{run.accuracy('last', seen=False):.2f}"])
    return table(["", "seed", *lengths, "mean"], rows)


def cells_where(name: str, checkpoint: str, encoding: str) -> dict[str, list[ComparedCell]]:
    """Verdict (or floor, ceiling) -> cells of an encoding."""
    found: dict[str, list[ComparedCell]] = defaultdict(list)
    for each in comparison(name, checkpoint).judged:
        if each.encoding == encoding:
            found[str(each.extreme or each.verdict)].append(each)
    return found


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.corrcoef(first, second)[0, 1])


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # no -0.00


def _interval(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def methods_table(*kinds: str) -> str:
    """Methods whose cards say one of these kinds."""
    from lengthwise.model.backend import explain
    from lengthwise.model.build import Lengths, build
    from lengthwise.model.config import ModelConfig

    config = ModelConfig(layers=2, width=64, heads=4)
    rows = []
    for name, entry in registry.encodings.entries.items():
        if entry.card.get("kind") not in kinds:
            continue
        encoding = build(config, 24, [{"name": name}], Lengths(64, 64)).encoding_at(0)
        aliases = [alias for alias, known in registry.encodings.aliases.items() if known == name]
        names = [f"[`{name}`](../lengthwise/encodings/{entry.file.name})", *(f"`{alias}`" for alias in aliases)]
        card, learned = entry.card, "yes" if list(encoding.parameters()) else "no"
        rows.append(
            [", ".join(names), f"`{text_of(card['equation'])}`", entry.summary, learned,
             explain(encoding, config).split(":")[0], _source(card.get("source", ""), card.get("arxiv", ""))]
        )  # fmt: skip
    return table(["method", "equation", "what it does", "learned", "runs", "source"], rows)


def presets_table() -> str:
    rows = [
        [f"`{name}`", f"`{words_of(read_encoding(name).layers)}`", preset.summary, _source(preset.source, preset.arxiv)]
        for name, preset in PRESETS.items()
    ]
    return table(["preset", "layers", "what it is", "source"], rows)


def _source(words: str, arxiv: str) -> str:
    link = f"[{arxiv}](https://arxiv.org/abs/{arxiv})" if arxiv else ""
    return ", ".join(each for each in (words, link) if each)


def given(words: str) -> str:
    """A number that is no result: a setting, a date, a count of things that everybody can see."""
    return words


def provided(condition: bool, words: str) -> str:
    """Words that are true as long as the results say so."""
    if not condition:
        raise ValueError(f"the results no longer say: {words}")
    return words


def bucket_of(distance: int) -> tuple[int, int]:
    """The first and the last distance that share a number of T5's published table with this one."""
    from lengthwise.encodings.t5 import bucket_of_distance

    table = published.ENCODING_SETTINGS["t5"]
    found = bucket_of_distance(table["buckets"], table["max_distance"])
    alike = [other for other, number in enumerate(found) if number == found[distance]]
    return alike[0], alike[-1]


def setting(study: str, key: str) -> Any:
    """Of a shipped study's file, as `training.steps`."""
    value: Any = configuration.load(ROOT / "lengthwise/studies" / f"{study}.toml")
    for part in key.split("."):
        value = value[part]
    return value


def published_recipe(key: str) -> Any:
    """Of the published training, such as `steps`."""
    return published.PROTOCOL["training"][key]


FUNCTIONS = (
    *(results, runs, comparison, cell, by_seed, at_length, theirs, seen_range, unlearned_tasks, best_steps, watched),
    *(difference, place, finished, csv_rows, bias, read_json, layout_steps, bench, compared_table, order_table),
    *(agreement_table, paired_table, means_table, lengths_table, cells_where, correlation, given, setting, table),
    *(uniform_scales, wrong_copies, cpu_ratios, exchanged, hidden, counted_at_separator, layout_titles, layout_span),
    swing_of,
    *(ahead_table, separator_table, Layout, claims, methods_table, presets_table),
    *(tested, tested_at_a_length, axes, parameters, order, open_ranks, validated, attended, provided),
    *(
        analyzed,
        layout_axes,
        bucket_of,
        published_recipe,
        first_in_all,
        ahead_in,
        exchanging,
        trend,
        trends,
        trend_table,
    ),
    *(plus_minus, min, max, sum, len, range, round, sorted, zip, list, enumerate, abs),
)


def render(template: str) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "two": lambda value: f"{value:.2f}",
        "one": lambda value: f"{value:.1f}",
        "three": lambda value: f"{value:.3f}",
        "signed": lambda value: f"{value:+.2f}",
        "each_two": lambda values: ", ".join(f"{value:.2f}" for value in values),
        "and_two": lambda values: _and([f"{value:.2f}" for value in values]),
        "and_words": lambda values: _and([str(value) for value in values]),
        "code": lambda values: _and([f"`{value}`" for value in values]),
        "whole": lambda value: f"{value:,.0f}",
    }
    named = {function.__name__: function for function in FUNCTIONS} | {"published_rows": published.ROWS}
    return environment.get_template(template).render(**named)


def picture(name: str) -> str:
    study, wanted = PICTURES[name]
    return drawn(study)[wanted].file()


@cache
def drawn(study: str) -> dict[str, Figure]:
    """Every figure of a study and of what was analyzed of it, by name."""
    analysis = relevant(results(study), load_analysis(ROOT / "results" / study / "analysis"))
    return {figure.name: figure for figure in figures(results(study), analysis)}


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def contents() -> dict[Path, str]:
    """Every file that is made from results, and what it must hold."""
    pages = {page: render(template) for template, page in PAGES.items()}
    return pages | {ROOT / "docs/pictures" / name: picture(name) for name in PICTURES}


if __name__ == "__main__":
    write_changed(contents(), ROOT)
