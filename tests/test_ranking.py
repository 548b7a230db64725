"""Ranking, paired differences, outcomes and budgets of results whose answer is known."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_made import Key, made
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lengthwise.errors import UserError
from lengthwise.records.budgets import budget_warnings, budgets
from lengthwise.records.outcomes import Tally, Unlearned, outcomes
from lengthwise.records.ranking import paired_differences, ranking, rankings
from lengthwise.records.results import Results
from lengthwise.report.model.difference_tables import difference_table
from lengthwise.report.model.outcome_tables import budget_table, outcome_table
from lengthwise.report.model.ranking_table import ranking_table
from lengthwise.report.model.table import Table
from lengthwise.report.terminal.table import to_terminal

ORDER = ["none", "t5", "rotary"]


def grid(values: dict[str, dict[str, list[float]]]) -> dict[Key, float]:
    """Task -> encoding -> accuracy of seeds 1, 2, ..."""
    return {
        (task, encoding, seed): value
        for task, by_encoding in values.items()
        for encoding, by_seed in by_encoding.items()
        for seed, value in enumerate(by_seed, start=1)
    }


def printed(*things: object) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        for thing in things:
            console.print(to_terminal(thing) if isinstance(thing, Table) else thing)
    assert all(len(line) <= 100 for line in capture.get().splitlines())
    return " ".join(capture.get().split())


THREE_TASKS = grid(
    {
        "x": {"none": [0.9, 0.4, 0.8], "t5": [0.5, 0.5, 0.5], "rotary": [0.1, 0.1, 0.6]},
        "y": {"none": [0.3, 0.3, 0.4], "t5": [0.3, 0.2, 0.5], "rotary": [0.0, 0.1, 0.2]},
        "z": {"none": [0.9, 0.2, 0.3], "t5": [0.1, 0.1, 0.9], "rotary": [0.5, 0.7, 0.1]},
    }
)


def test_intervals_of_the_ranking_by_enumeration() -> None:
    """Two of three seeds are drawn again in each of three tasks: 729 equally likely scores."""
    first = ranking(made(THREE_TASKS, ORDER))[0]
    assert first.encoding == "none" and first.columns == 9
    x, y, z = [1, 1 / 2, 1], [1 / 1.5, 1, 1 / 2], [1, 1 / 2, 1 / 2]  # 1 / rank of none
    assert first.reciprocal_rank == pytest.approx((sum(x) + sum(y) + sum(z)) / 9)
    pairs = list(itertools.product(range(3), repeat=2))
    means = [
        np.mean([x[a[0]], x[a[1]], y[b[0]], y[b[1]], z[c[0]], z[c[1]]])
        for a, b, c in itertools.product(pairs, repeat=3)
    ]
    assert first.reciprocal_rank_interval is not None
    low, high = first.reciprocal_rank_interval
    assert np.quantile(means, 0.013) <= low <= np.quantile(means, 0.037)
    assert np.quantile(means, 0.963) <= high <= np.quantile(means, 0.987)
    assert first.interval_over_tasks is not None
    assert first.interval_over_tasks[0] <= low < high <= first.interval_over_tasks[1]


def test_no_interval_from_two_seeds_or_over_two_tasks() -> None:
    two_seeds = {key: value for key, value in THREE_TASKS.items() if key[2] < 3}
    place = ranking(made(two_seeds, ORDER))[0]
    assert place.reciprocal_rank_interval is None and place.interval_over_tasks is None
    two_tasks = {key: value for key, value in THREE_TASKS.items() if key[0] != "z"}
    place = ranking(made(two_tasks, ORDER))[0]
    assert place.reciprocal_rank_interval is not None and place.interval_over_tasks is None
    assert "fewer than 3 seeds" in printed(ranking_table(made(two_seeds, ORDER)))
    assert "no interval over tasks" in printed(ranking_table(made(two_tasks, ORDER)))


def test_one_task_at_three_settings_is_one_task() -> None:
    results = made(THREE_TASKS, ORDER, settings={"task": {"name": "addition"}})
    assert ranking(results)[0].reciprocal_rank == ranking(made(THREE_TASKS, ORDER))[0].reciprocal_rank
    assert ranking(results)[0].reciprocal_rank_interval is not None
    assert ranking(results)[0].interval_over_tasks is None
    assert paired_differences(results)[0].tasks == 1


@st.composite
def studies(draw: st.DrawFn) -> dict[Key, float]:
    """Up to three tasks, four encodings, three seeds, with many ties."""
    shape = [draw(st.integers(1, most)) for most in (3, 4, 3)]
    keys = itertools.product(["x", "y", "z"][: shape[0]], ["a", "b", "c", "d"][: shape[1]], range(shape[2]))
    return {key: draw(st.integers(0, 5)) / 1000 for key in keys}


def scores(results: Results) -> dict[str, tuple[float, float]]:
    return {place.encoding: (place.reciprocal_rank, place.rank) for place in ranking(results)}


@given(studies(), st.permutations(["a", "b", "c", "d"]), st.permutations(["x", "y", "z"]))
def test_ranking_does_not_depend_on_names(study: dict[Key, float], others: list[str], tasks: list[str]) -> None:
    name = dict(zip("abcd", others, strict=True))
    task = dict(zip("xyz", tasks, strict=True))
    before = scores(made(study, ["a", "b", "c", "d"]))
    after = scores(made({(task[t], name[e], s): v for (t, e, s), v in study.items()}, ["a", "b", "c", "d"]))
    assert {name[encoding]: pytest.approx(score) for encoding, score in before.items()} == after


@given(studies(), st.lists(st.integers(0, 1000), min_size=6, max_size=6, unique=True))
def test_ranking_depends_on_the_order_of_accuracies_only(study: dict[Key, float], values: list[int]) -> None:
    grown = sorted(values)  # a strictly increasing function of 0, ..., 5
    before = scores(made(study, []))
    assert scores(made({key: grown[round(1000 * v)] / 1000 for key, v in study.items()}, [])) == before


@given(studies())
def test_ranking_is_that_of_a_slow_one(study: dict[Key, float]) -> None:
    found = scores(made(study, []))
    columns = sorted({(task, seed) for task, _, seed in study})
    for encoding, (reciprocal, rank) in found.items():
        own = []
        for task, seed in columns:
            rivals = [study[task, other, seed] for other in found]
            mine = study[task, encoding, seed]
            places = [i + 1 for i, value in enumerate(sorted(rivals, reverse=True)) if value == mine]
            own.append(sum(places) / len(places))
        assert rank == pytest.approx(np.mean(own))
        assert reciprocal == pytest.approx(np.mean([1 / each for each in own]))


def test_differences_by_hand() -> None:
    results = made(THREE_TASKS, ORDER)
    t5, rotary = paired_differences(results)
    assert (t5.encoding, t5.against, t5.columns, t5.tasks) == ("t5", "none", 9, 3)
    gaps = [-0.4, 0.1, -0.3, 0.0, -0.1, 0.1, -0.8, -0.1, 0.6]
    assert t5.mean == pytest.approx(sum(gaps) / 9)
    assert (t5.wins, t5.ties, t5.losses) == (3, 1, 5)
    assert (rotary.wins, rotary.ties, rotary.losses) == (1, 0, 8)
    flips = [abs(np.dot(signs, gaps)) for signs in itertools.product([1, -1], repeat=9)]
    assert t5.p.over_columns == pytest.approx(np.mean([flip >= abs(sum(gaps)) - 1e-9 for flip in flips]))
    assert t5.p.over_tasks == 4 / 8  # -0.2, 0 and -0.1: as far from 0 with either sign of all, and with that of the 0
    assert t5.interval is not None and t5.interval[0] < t5.mean < t5.interval[1]
    assert t5.interval_over_tasks is not None and t5.interval_over_tasks[0] < t5.interval[0]
    (against,) = [each for each in paired_differences(results, against="t5") if each.encoding == "none"]
    assert against.mean == pytest.approx(-t5.mean) and (against.wins, against.losses) == (5, 3)
    text = printed(outcome_table(results), difference_table(results), budget_table(results))
    assert "minus that of none" in text and "3/1/5" in text and "corrected for 2 comparisons (Holm)" in text
    assert t5.p.wilcoxon == 2 / 4  # ranks -2 and -1, the 0 dropped: as far from 0 with either sign of both
    # rotary has -0.43, -0.23 and -0.03: 2 / 8 with sizes and with ranks; twice that for two comparisons.
    assert rotary.p.over_tasks == rotary.p.wilcoxon == 2 / 8
    assert (t5.corrected.wilcoxon, rotary.corrected.wilcoxon) == (2 / 4, 2 / 4)


def test_differences_use_what_both_have_and_the_first_without_none() -> None:
    study = {("x", "t5", 1): 0.5, ("x", "rotary", 1): 0.7, ("x", "t5", 2): 0.1, ("y", "alibi", 1): 0.3}
    (difference,) = paired_differences(made(study, ["t5", "rotary", "alibi"]))
    assert (difference.encoding, difference.against, difference.columns) == ("rotary", "t5", 1)
    assert difference.mean == pytest.approx(0.2) and difference.interval is None
    assert difference.p.over_columns == difference.corrected.over_columns == 1.0


def test_saturated_and_dead_tasks_are_named_and_left_out() -> None:
    study = grid(
        {
            "full": {"none": [1.0, 0.99], "t5": [0.995, 1.0]},
            "nearly": {"none": [1.0, 0.98], "t5": [0.995, 1.0]},
            "empty": {"none": [0.0, 0.01], "t5": [0.01, 0.0]},
            "coin": {"none": [0.5, 0.51], "t5": [0.49, 0.3]},
            "alive": {"none": [0.9, 0.9], "t5": [0.5, 0.511]},
        }
    )
    found = rankings(made(study, ["none", "t5"], chance={"coin": 0.5, "alive": 0.5}))
    assert found.outcomes.saturated == ["full"] and found.outcomes.at_chance == ["coin", "empty"]
    assert found.everything[0].columns == 10 and found.informative[0].columns == 4
    by_name = {place.encoding: place.reciprocal_rank for place in found.informative}
    assert by_name == {"none": pytest.approx((1 + 0.5 + 1 + 1) / 4), "t5": pytest.approx((0.5 + 1 + 0.5 + 0.5) / 4)}
    text = printed(ranking_table(made(study, ["none", "t5"], chance={"coin": 0.5, "alive": 0.5})))
    assert "1 task saturated" in text and "2 tasks at chance" in text and "coin, empty" in text
    assert "4 pairs of task and seed without them" in text


def test_luck_does_not_bring_a_task_to_life() -> None:
    """0.52 of 1,000 is within three standard errors (0.047) of chance 0.5; 0.55 is not."""
    lucky = grid({"coin": {"none": [0.5, 0.52], "t5": [0.49, 0.546]}})
    better = grid({"coin": {"none": [0.5, 0.52], "t5": [0.49, 0.55]}})
    assert outcomes(made(lucky, ["none", "t5"], chance={"coin": 0.5})).at_chance == ["coin"]
    assert outcomes(made(better, ["none", "t5"], chance={"coin": 0.5})).at_chance == []
    assert outcomes(made(better, ["none", "t5"])).at_chance == []  # no guesser gets a half


def test_places_are_open_where_the_seeds_do_not_tell() -> None:
    """x is always first; y and z change places with the seed; w is always last."""
    order = ["w", "z", "y", "x"]
    one = {"x": [0.9, 0.9, 0.9], "y": [0.5, 0.4, 0.5], "z": [0.4, 0.5, 0.3], "w": [0.1, 0.1, 0.1]}
    two = {"x": [0.8, 0.9, 0.9], "y": [0.3, 0.5, 0.4], "z": [0.4, 0.4, 0.6], "w": [0.0, 0.1, 0.2]}
    found = {place.encoding: place for place in ranking(made(grid({"a": one, "b": two}), order))}
    assert {name: place.places for name, place in found.items()} == {"x": (1, 1), "y": (2, 3), "z": (2, 3), "w": (4, 4)}
    assert [name for name, place in found.items() if place.open] == ["z", "y"]
    few = {(task, encoding, seed): v for (task, encoding, seed), v in grid({"a": one}).items() if seed < 3}
    assert all(place.places is None for place in ranking(made(few, order)))
    assert not found["x"].is_range and ranking(made(grid({"a": one}), order))[0].is_range
    text = printed(ranking_table(made(grid({"a": one, "b": two}), order)))
    assert "y 0.42 2.–3." in text and "x 1.00 1. 1.00 – 1.00" in text and "a rank such as 2.–3. is undecided" in text
    assert "range of mean mean encoding rank rank the seeds" in printed(ranking_table(made(grid({"a": one}), order)))


def test_what_was_not_learned_is_no_failure_to_generalize() -> None:
    study = grid({"x": {"none": [0.95, 0.95], "t5": [0.0, 0.96]}, "y": {"none": [0.2, 0.3], "t5": [0.1, 0.9]}})
    seen = {("x", "t5", 1): 0.899, ("y", "none", 2): 0.9}
    results = made(study, ["none", "t5"], seen=seen)
    found = outcomes(results)
    assert found.unlearned == [Unlearned("x", "t5", 1, 0.899)]
    assert found.tallies == [Tally("none", 4, 0, 2, 2), Tally("t5", 4, 1, 1, 2)]
    both = rankings(results)
    assert both.everything[0].columns == 4 and both.learned[0].columns == 3
    assert {p.encoding: p.reciprocal_rank for p in both.everything} == {"none": 0.75, "t5": 0.75}
    assert {p.encoding: round(p.reciprocal_rank, 9) for p in both.learned} == {"t5": 0.833333333, "none": 0.666666667}
    text = printed(ranking_table(results), outcome_table(results), difference_table(results), budget_table(results))
    assert "3 pairs of task and seed in which every encoding learned" in text
    assert "not learned: x/t5/seed-1 0.899" in text  # not 0.90, which is learned


def test_last_and_best() -> None:
    study = grid({"x": {"none": [0.9], "t5": [0.5]}})
    results = made(study, ["none", "t5"], best={("x", "t5", 1): 0.95})
    assert [place.encoding for place in ranking(results)] == ["none", "t5"]
    assert [place.encoding for place in ranking(results, "best")] == ["t5", "none"]
    assert paired_differences(results, "best")[0].wins == 1
    only_last = Results([replace(r, rows=r.rows[:2]) for r in results.runs], [], results.study)
    with pytest.raises(UserError, match="x/none/1 was not tested at its best checkpoint"):
        rankings(only_last, "best")
    with pytest.raises(UserError, match="no run is finished"):
        outcomes(Results([], [], {}))


def settings(**training: Any) -> dict[str, Any]:
    return {"training": {"steps": 100, "batch": 8, "learning_rate": 1e-3, **training}, "task": {"name": "x"}}


def test_budgets_and_where_they_differ() -> None:
    study = grid({"x": {"none": [0.9, 0.8], "t5": [0.5, 0.4]}})
    results = made(study, ["none", "t5"], settings=settings(), parameters=10)
    assert budget_warnings(results) == []
    assert [(b.encoding, b.runs, b.seeds, b.steps, b.examples, b.parameters) for b in budgets(results)] == [
        ("none", 2, [1, 2], [100], [800], [10]),
        ("t5", 2, [1, 2], [100], [800], [10]),
    ]
    assert "the same task, model, data and training settings" in printed(budget_table(results))
    first, second, third, fourth = results.runs
    longer = replace(first, description={**first.description, "settings": settings(steps=300)}, finished={"steps": 300})
    stopped = replace(fourth, finished={"steps": 60})
    changed = Results([longer, second, stopped], [], results.study)
    assert budget_warnings(Results([longer, second, third, fourth], [], {})) == [
        "training.steps differs between encodings (none 300, t5 100): x seed 1"
    ]
    (seeds, unfinished) = budget_warnings(changed)
    assert seeds == "x: not every encoding has every seed; missing: t5 1"
    assert unfinished == "x/t5/seed-2 took 60 of 100 steps"
    assert budgets(changed)[0].steps == [100, 300] and budgets(changed)[0].examples == [800, 2400]
    assert "warning: x: not every encoding" in printed(budget_table(changed))
    diverged = Results([replace(first, finished={"steps": 100, "diverged_at": 7}), third], [], {})
    assert budget_warnings(diverged) == ["x/none/seed-1 diverged at step 7"]
