"""Tables of analyses: encodings by layers, means over heads, lengths and seeds; what the report says of them too."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lengthwise.records.findings import HEAD_KINDS, KIND, AnalysisRows, Row, is_kind
from lengthwise.report.model.attention_distances import comparisons
from lengthwise.report.model.finding_tables import distance_table, first_error_table, probe_table
from lengthwise.report.model.first_errors import first_errors
from lengthwise.report.model.phrases import plural
from lengthwise.report.model.probes import best_layers, probed
from lengthwise.report.model.summaries import thinned
from lengthwise.report.model.table import MISSING, Cell, Column, Table, TableRow, number_cell, text_cell

MOST_LAYERS = 13
MOST_LENGTHS = 16
"""Columns at most."""

ByLayer = dict[str, dict[int, str]]
"""Encoding -> layer -> text."""


def distance_tables(rows: Sequence[Row]) -> list[Table]:
    """Nearest first."""
    analysis = AnalysisRows(distances=list(rows))
    return [distance_table(each) for task in names(rows, "task") for each in comparisons(analysis, task)]


def head_tables(rows: Sequence[Row]) -> list[Table]:
    """How far, how sharply, at what: on unseen lengths, or seen ones where there are no others."""
    found = []
    for task in names(rows, "task"):
        of_task = _of(rows, task)
        group = "unseen" if any(row["group"] == "unseen" for row in of_task) else "seen"
        chosen = [row for row in of_task if row["group"] == group]
        where = f"{group} lengths ({counted(chosen)})"

        even = chosen[0]["even"]
        for title, by_layer, note in (
            (
                "how far heads look, tokens back",
                _scores(chosen, "tokens_back", 1),
                f"even attention: {even['tokens_back']:.1f}",
            ),
            ("entropy of attention, share of its bound ln t", _scores(chosen, "entropy_share", 2), "even attention: 1"),
            ("attention on the first token", _scores(chosen, "first", 2), f"even attention: {even['first']:.2f}"),
            ("heads that look at the token before / at themselves / by induction", _kinds(chosen), KINDS),
        ):
            found.append(layer_table(f"{task}: {title}", by_layer, f"{where}; {note}"))
    return found


KINDS = f"a head is of a kind from a score of {KIND} on, twice that of even attention at least"


def _scores(rows: list[Row], score: str, digits: int) -> ByLayer:
    return _by_encoding(rows, lambda row: row[score], lambda values: f"{mean(values):.{digits}f}")


def _kinds(rows: list[Row]) -> ByLayer:
    """Heads of each kind, the mean over seeds."""

    def count(values: list[Row]) -> str:
        runs = len({row["run"] for row in values})
        return "/".join(f"{sum(is_kind(row, kind) for row in values) / runs:.3g}" for kind in HEAD_KINDS)

    return _by_encoding(rows, lambda row: row, count)


def probe_tables(rows: Sequence[Row]) -> list[Table]:
    """Where position is known, by layer; then each encoding at its best layer, beside where accuracy breaks."""
    found, analysis = [], AnalysisRows(probes=list(rows))
    for task in names(rows, "task"):
        of_task = _of(rows, task)
        for probe in ("linear", "nonlinear"):
            chosen = [r for r in of_task if r["target"] == "position" and r["probe"] == probe and not r["control"]]
            found.append(
                layer_table(
                    f"{task}: absolute position in the residual stream, {probe} probe",
                    _by_encoding(chosen, lambda row: row, _within_beyond),
                    "mean error in tokens within → beyond the training length; layer 0: the embedding",
                )
            )
        if best := best_layers(probed(analysis, task)):
            found.append(probe_table(task, best))
    return found


def _within_beyond(rows: list[Row]) -> str:
    return "→".join(f"{mean(row[part]['error'] for row in rows):.1f}" for part in ("within", "beyond"))


def failure_tables(rows: Sequence[Row]) -> list[Table]:
    """What kind of error comes first, and where."""
    analysis = AnalysisRows(failures=list(rows))
    found = []
    for task in names(rows, "task"):
        found.append(first_error_table(task, first_errors(analysis, task, by_length=False)))
        found.append(_place_table(task, _of(rows, task)))
    return found


def _place_table(task: str, rows: list[Row]) -> Table:
    seen, unseen = (sorted({r["length"] for r in rows if r["seen"] == kind}) for kind in (True, False))
    seen, unseen, step = thinned(seen, unseen, MOST_LENGTHS)
    columns = (
        Column("encoding", "left"),
        *(Column(str(length), tone="quiet" if length in seen else "") for length in (*seen, *unseen)),
    )
    found = []
    for encoding in names(rows, "encoding"):
        of_length = (
            [row for row in rows if row["encoding"] == encoding and row["length"] == length]
            for length in (*seen, *unseen)
        )
        found.append(TableRow((text_cell(encoding), *map(_place, of_length))))
    note = "0 beginning, 1 end of the target; –: no error" + (f"; every {step}. length" if step > 1 else "")
    return Table("", f"{task}: place of the first error in the target, by length", columns, tuple(found), (note,))


def _place(rows: list[Row]) -> Cell:
    """Mean over errors, not over rows."""
    wrong = [(row["first_error_share"], row["n"] - row["correct"]) for row in rows if row["n"] > row["correct"]]
    if not wrong:
        return MISSING
    return number_cell(f"{sum(share * n for share, n in wrong) / sum(n for _, n in wrong):.2f}")


def layer_table(title: str, by_encoding: ByLayer, note: str) -> Table:
    """Encodings by layers, as many as fit."""
    layers = chosen_layers({layer for each in by_encoding.values() for layer in each})
    rows = (
        TableRow((text_cell(name), *(number_cell(own[layer]) if layer in own else MISSING for layer in layers)))
        for name, own in by_encoding.items()
    )
    columns = (Column("layer", "left"), *(Column(str(layer)) for layer in layers))
    return Table("", title, columns, tuple(rows), (note,))


def chosen_layers(layers: Iterable[int]) -> list[int]:
    """As many as fit, evenly spread."""
    found = sorted(layers)
    if len(found) <= MOST_LAYERS:
        return found
    return [found[round(i * (len(found) - 1) / (MOST_LAYERS - 1))] for i in range(MOST_LAYERS)]


def _by_encoding(rows: list[Row], value: Callable[[Row], object], shown: Callable[[list[Any]], str]) -> ByLayer:
    found: ByLayer = {}
    for encoding in names(rows, "encoding"):
        by_layer: dict[int, list[Any]] = {}
        for row in rows:
            if row["encoding"] == encoding:
                by_layer.setdefault(row["layer"], []).append(value(row))
        found[encoding] = {layer: shown(values) for layer, values in by_layer.items()}
    return found


def names(rows: Iterable[Row], key: str) -> list:
    return list(dict.fromkeys(row[key] for row in rows))


def _of(rows: Iterable[Row], task: str) -> list[Row]:
    return [row for row in rows if row["task"] == task]


def counted(rows: Sequence[Row]) -> str:
    return plural(len(names(rows, "seed")), "seed")


def mean(values: Iterable[float]) -> float:
    listed = [value for value in values if value is not None]
    return float(np.mean(listed)) if listed else float("nan")
