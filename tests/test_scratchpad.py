"""Scratchpads: every format of every task is read back, gold scores, near misses do not and say why."""

import numpy as np
import pytest

from lengthwise import registry
from lengthwise.evaluation.answers import Verdict, answer_in, judge_text
from lengthwise.examples import STEP_PARTS
from lengthwise.scratchpad import PUBLISHED, Scratchpad, parse
from lengthwise.seeding import stream
from lengthwise.sequences import render
from lengthwise.study import make_task

FORMATS = [
    "+".join(part.name.lower() for i, part in enumerate(STEP_PARTS) if bits >> i & 1) or "none" for bits in range(32)
]
STEPPED = [name for name in registry.tasks.names() if registry.tasks.get(name).step_parts]


def gold_targets(name: str, scratchpad: str, count: int = 12) -> tuple:
    task = make_task(name)
    buckets = task.buckets(task.train_lengths)
    bucket = buckets[len(buckets) // 2]
    sequences = render(task, task.examples(bucket, count, stream(3)), Scratchpad(scratchpad))
    rows = zip(sequences.tokens, sequences.prompt, sequences.size, strict=True)
    return task, [tokens[prompt:size] for tokens, prompt, size in rows]


def test_the_seven_published_tasks_and_one_more_have_steps() -> None:
    published = {"addition", "summation", "polynomial", "parity", "sort.symbols", "sort.numbers", "lego"}
    assert published | {"multiplication"} == set(STEPPED)


@pytest.mark.parametrize("scratchpad", FORMATS)
@pytest.mark.parametrize("name", STEPPED)
def test_gold_text_of_every_format_scores(name: str, scratchpad: str) -> None:
    task, golds = gold_targets(name, scratchpad)
    for gold in golds:
        assert judge_text(task, Scratchpad(scratchpad), gold, gold) is Verdict.RIGHT


@pytest.mark.parametrize("name", STEPPED)
def test_a_format_is_the_full_text_without_some_parts(name: str) -> None:
    """Rendering and reading back agree for all formats at once: each has the full format's parts, where it has any."""
    task, _ = gold_targets(name, "full")
    full = [
        parse(task.vocabulary.decode(g[:-1]), Scratchpad("full"), task.step_parts)
        for g in gold_targets(name, "full")[1]
    ]
    for scratchpad in FORMATS[1:]:
        chosen = Scratchpad(scratchpad)
        for gold, whole in zip(gold_targets(name, scratchpad)[1], full, strict=True):
            parsed = parse(task.vocabulary.decode(gold[:-1]), chosen, task.step_parts)
            assert parsed is not None and whole is not None
            assert parsed.answer == whole.answer
            assert parsed.steps == tuple({p: t for p, t in s.items() if p in chosen.steps} for s in whole.steps)


@pytest.mark.parametrize("scratchpad", ["full", "minimal", "full-output"])
@pytest.mark.parametrize("name", STEPPED)
def test_near_misses_score_nothing_and_say_why(name: str, scratchpad: str) -> None:
    task, golds = gold_targets(name, scratchpad)
    chosen, vocabulary = Scratchpad(scratchpad), task.vocabulary
    answers = {answer_in(task, chosen, vocabulary.decode(gold[:-1])) for gold in golds}
    assert len(answers) > 1 and None not in answers
    gold = golds[0]
    mine = answer_in(task, chosen, vocabulary.decode(gold[:-1]))
    other = next(g for g in golds if answer_in(task, chosen, vocabulary.decode(g[:-1])) != mine)
    thus = lambda g: int(np.flatnonzero(g == vocabulary.id("Thus,"))[0])  # noqa: E731
    wrong = np.concatenate([gold[: thus(gold)], other[thus(other) :]])
    assert judge_text(task, chosen, wrong, gold) is Verdict.WRONG_ANSWER
    assert judge_text(task, chosen, gold[:-1], gold) is Verdict.DID_NOT_STOP
    assert judge_text(task, chosen, gold[:0], gold) is Verdict.DID_NOT_STOP
    extra = np.concatenate([gold[:-1], gold[-2:]])
    assert judge_text(task, chosen, extra, gold) is Verdict.UNPARSED
    semicolon = int(np.flatnonzero(gold == vocabulary.id(";"))[-1])
    assert judge_text(task, chosen, np.delete(gold, semicolon), gold) is Verdict.UNPARSED
    cut = np.append(gold[: thus(gold) - 3], vocabulary.end)
    assert judge_text(task, chosen, cut, gold) is Verdict.UNPARSED


@pytest.mark.parametrize("name", STEPPED)
def test_a_right_answer_after_another_scratchpad_counts(name: str) -> None:
    """It is not an exact match, but the answer is right: that is why one pass is not enough here."""
    task, (gold, *_) = gold_targets(name, "full")
    step_end = np.flatnonzero(gold == task.vocabulary.id("#"))
    thus = int(np.flatnonzero(gold == task.vocabulary.id("Thus,"))[0])
    shortened = np.concatenate([gold[: step_end[-1]], gold[thus - 1 :]]) if len(step_end) else gold
    assert judge_text(task, Scratchpad("full"), shortened, gold) is Verdict.RIGHT


def test_published_names_are_formats() -> None:
    assert set(PUBLISHED) == {
        "full", "full-input", "full-computation", "full-output", "full-variables", "full-remaining", "minimal", "none"
    }  # fmt: skip
