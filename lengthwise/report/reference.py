"""The published numbers that a study's own can be laid beside: same task, same scratchpad, same training lengths."""

from lengthwise.records import published
from lengthwise.records.comparison import Comparison, compare
from lengthwise.records.naming import scratchpad_name, task_name
from lengthwise.records.published import Figure
from lengthwise.records.rows import Results

CITATION = "Kazemnejad et al. 2023 (arXiv 2305.19466)"


def name_and_format(results: Results, task: str) -> tuple[str, str]:
    """The task's own name and its scratchpad format; a study may call it by a title."""
    run = next(run for run in results.runs if run.description["task"] == task)
    return task_name(run), scratchpad_name(run)


def comparable(results: Results, task: str) -> bool:
    """Whether the published models were trained up to the same length."""
    name, _ = name_and_format(results, task)
    return name in published.LENGTHS and published.LENGTHS[name][0][1] == results.train_length(task)


def cell(results: Results, task: str, encoding: str) -> Figure | None:
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


def reciprocal_ranks(results: Results) -> dict[str, float]:
    """Encoding -> published mean reciprocal rank over all 17 tasks; empty if no task of the study is comparable."""
    if not any(comparable(results, task) for task in results.tasks):
        return {}
    ranks = published.reciprocal_ranks()
    return {encoding: ranks[encoding] for encoding in results.encodings if encoding in ranks}


def comparison(results: Results) -> Comparison | None:
    """Everything beside the published numbers; None if no cell of the study can be laid beside one."""
    pairs = ((task, encoding) for task in results.tasks for encoding in results.encodings)
    return compare(results) if any(cell(results, *pair) for pair in pairs) else None
