"""The published numbers that a study's own can be laid beside: same task, same scratchpad, same training lengths."""

from dataclasses import dataclass

import numpy as np

from lengthwise.records import published
from lengthwise.records.columns import columns
from lengthwise.records.comparison import Comparison, compare
from lengthwise.records.facets import listed
from lengthwise.records.published import Score
from lengthwise.records.results import Results, once
from lengthwise.records.statistics import ranks
from lengthwise.records.task_names import scratchpad_name, task_name

CITATION = "Kazemnejad et al. 2023 (arXiv 2305.19466)"


def name_and_format(results: Results, task: str) -> tuple[str, str]:
    """The task's own name and its scratchpad format; a study may call it by a title."""
    run = results.by_task[task][0]
    return task_name(run), scratchpad_name(run)


def comparable(results: Results, task: str) -> bool:
    """Whether the published models were trained up to the same length."""
    name, _ = name_and_format(results, task)
    return name in published.LENGTHS and published.LENGTHS[name][0][1] == results.train_length(task)


def cell(results: Results, task: str, encoding: str) -> Score | None:
    """Accuracy on unseen lengths."""
    found = published.cells().get((*name_and_format(results, task), encoding))
    return found.unseen if found and comparable(results, task) else None


def curve(results: Results, task: str, encoding: str) -> dict[int, float]:
    """Length -> published accuracy."""
    name, scratchpad = name_and_format(results, task)
    if scratchpad != "none" or not comparable(results, task):
        return {}
    found = published.curves().get((name, encoding), {})
    return {length: figure.mean for (_, length), figure in sorted(found.items(), key=lambda pair: pair[0][1])}


@dataclass(frozen=True)
class PublishedRanks:
    """What may stand beside our mean reciprocal ranks."""

    scores: dict[str, float]
    """Encoding -> mean reciprocal rank; empty where nothing is published of two encodings on a task that is ranked."""
    called: str
    """For headings: over which tasks."""
    tasks: int
    """How many."""


def reciprocal_ranks(results: Results) -> PublishedRanks:
    """As published where all 17 tasks and five encodings are ranked; else from the published means of these tasks."""
    ranked = columns(results).tasks
    encodings = [encoding for encoding in results.encodings if encoding in published.ENCODINGS]
    tasks = [task for task in ranked if all(cell(results, task, encoding) for encoding in encodings)]
    if len(encodings) < 2 or not tasks:
        return PublishedRanks({}, "", 0)
    if {name_and_format(results, task) for task in tasks} == {(name, "none") for name in published.LENGTHS}:
        scores = published.reciprocal_ranks()
        if set(encodings) == set(scores):
            return PublishedRanks(
                {encoding: scores[encoding] for encoding in encodings}, "published", len(published.LENGTHS)
            )
    means = [[found.mean for e in encodings if (found := cell(results, task, e))] for task in tasks]
    here = (1 / ranks(np.array(means))).mean(axis=0).tolist()
    which = "these tasks" if tasks == ranked else f"{len(tasks)} of these tasks"
    return PublishedRanks(dict(zip(encodings, here, strict=True)), f"published, {which}", len(tasks))


def has_curves(results: Results) -> bool:
    """Whether a published curve is drawn anywhere."""
    return any(curve(results, task, encoding) for task in results.tasks for encoding in results.encodings)


@once
def comparison(results: Results) -> Comparison | None:
    """Everything beside the published numbers; None if no cell of the study can be laid beside one."""
    pairs = ((task, encoding) for task in results.tasks for encoding in results.encodings)
    return compare(results) if any(cell(results, *pair) for pair in pairs) else None


def why_nothing(results: Results) -> str:
    """Why no published number stands beside these; nothing to say where one does."""
    if comparison(results):
        return ""
    found: dict[str, list[str]] = {}
    for task in results.tasks:
        name, scratchpad = name_and_format(results, task)
        if any((name, scratchpad, encoding) in published.cells() for encoding in results.encodings):
            lengths = f"{published.LENGTHS[name][0][1]}, here {results.train_length(task)}"
            found.setdefault(lengths, []).append(task)
    if not found:
        return "No published numbers beside these: there are none for these tasks with these encodings."
    lengths = "; ".join(f"{each} ({listed(results, tasks)})" for each, tasks in found.items())
    return (
        f"No published numbers beside these: the published models were trained up to other lengths: {lengths}. "
        "The command lengthwise compare lays both side by side, without a verdict."
    )
