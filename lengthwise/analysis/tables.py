"""Tables of analyses for the terminal: encodings by layers, means over heads, lengths and seeds."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from lengthwise.analysis.divergence import BOUND
from lengthwise.records.findings import HEAD_KINDS, KIND, Row, distance_label, is_kind
from lengthwise.records.published_distance import LAYERS, published_distances
from lengthwise.report.model.summaries import thinned
from lengthwise.report.terminal.results import MOST_LENGTHS
from lengthwise.report.terminal.table import plain_table, stacked

MOST_LAYERS = 13

Cells = dict[str, dict[int, str]]
"""Label -> layer -> text."""


def distance_tables(rows: Sequence[Row], reference: str, as_published: bool) -> list[Table]:
    """Nearest first. Published distances of the same lengths stand below ours where the divergence is the same one."""
    return [_distance_table(_of(rows, task), task, reference, as_published) for task in names(rows, "task")]


def _distance_table(rows: list[Row], task: str, reference: str, as_published: bool) -> Table:
    by_label: dict[str, list[Row]] = {}
    for row in rows:
        by_label.setdefault(distance_label(row), []).append(row)
    overall = {label: mean(row["distance"] for row in each) for label, each in by_label.items()}
    theirs = published_distances(task) if reference == "none" else {}
    lengths = {row["length"] for row in rows}
    alike = {row["layers"] for row in rows} == {LAYERS}
    cells: Cells = {}
    published_order = []
    for label in sorted(by_label, key=lambda label: overall[label]):
        by_layer = _by_layer(by_label[label], lambda row: row["distance"])
        cells[label] = {**{layer: f"{mean(v):.3f}" for layer, v in by_layer.items()}, 0: f"{overall[label]:.3f}"}
        known = {key: value for key, value in theirs.get(label, {}).items() if key[1] in lengths}
        if known:
            published_order.append((mean(known.values()), label))
        if known and as_published:
            of_layer = {layer: mean(v for key, v in known.items() if key[0] == layer) for layer, _ in known}
            shown = {layer: f"{value:.3f}" for layer, value in of_layer.items()} if alike else {}
            cells[f"  published {label}"] = {**shown, 0: f"{mean(known.values()):.3f}"}
    what = "published variant" if as_published else "Jensen-Shannon divergence, nats"
    table = layer_table(f"{task}: attention distance to {reference} ({what}), nearest heads", cells, "all layers")
    notes = [f"means over lengths and pairs of runs ({counted(rows)}); nearest first"]
    if not as_published:
        notes.append(f"at most ln 2 = {BOUND:.3f}, over all pairs of heads")
    if any(row["seed"] == row.get("reference_seed") for row in rows):
        notes.append("runs of the same seed began with the same weights; --across-seeds compares without that")
    if published_order:
        notes.append("published order, these lengths: " + ", ".join(label for _, label in sorted(published_order)))
        if not as_published:
            notes.append(
                "their values are of another divergence, unbounded, over 66 of 144 pairs of heads; "
                "--published-variant lays them beside ours"
            )
    table.caption = "\n".join(notes)
    return table


def head_tables(rows: Sequence[Row]) -> list[Table]:
    """How far, how sharply, at what: on unseen lengths, or seen ones where there are no others."""
    found = []
    for task in names(rows, "task"):
        of_task = _of(rows, task)
        group = "unseen" if any(row["group"] == "unseen" for row in of_task) else "seen"
        chosen = [row for row in of_task if row["group"] == group]
        where = f"{group} lengths ({counted(chosen)})"

        even = chosen[0]["even"]
        for title, cells, caption in (
            (
                "how far heads look, tokens back",
                _scores(chosen, "tokens_back", 1),
                f"even attention: {even['tokens_back']:.1f}",
            ),
            ("entropy of attention, share of its bound ln t", _scores(chosen, "entropy_share", 2), "even attention: 1"),
            ("attention on the first token", _scores(chosen, "first", 2), f"even attention: {even['first']:.2f}"),
            ("heads that look at the token before / at themselves / by induction", _kinds(chosen), KINDS),
        ):
            table = layer_table(f"{task}: {title}", cells)
            table.caption = f"{where}; {caption}"
            found.append(table)
    return found


KINDS = f"a head is of a kind from a score of {KIND} on, twice that of even attention at least"


def _scores(rows: list[Row], score: str, digits: int) -> Cells:
    return _encoding_cells(rows, lambda row: row[score], lambda values: f"{mean(values):.{digits}f}")


def _kinds(rows: list[Row]) -> Cells:
    """Heads of each kind, the mean over seeds."""

    def count(values: list[Row]) -> str:
        runs = len({row["run"] for row in values})
        return "/".join(f"{sum(is_kind(row, kind) for row in values) / runs:.3g}" for kind in HEAD_KINDS)

    return _encoding_cells(rows, lambda row: row, count)


def probe_tables(rows: Sequence[Row]) -> list[Table]:
    """Where position is known, by layer; then each encoding at its best layer, beside where accuracy breaks."""
    found = []
    for task in names(rows, "task"):
        of_task = _of(rows, task)
        for probe in ("linear", "nonlinear"):
            chosen = [r for r in of_task if r["target"] == "position" and r["probe"] == probe and not r["control"]]
            table = layer_table(
                f"{task}: absolute position in the residual stream, {probe} probe",
                _encoding_cells(chosen, lambda row: row, _within_beyond),
            )
            table.caption = "mean error in tokens within → beyond the training length; layer 0: the embedding"
            found.append(table)
        found.append(_best_layer_table(task, of_task))
    return found


def _within_beyond(rows: list[Row]) -> str:
    return "→".join(f"{mean(row[part]['error'] for row in rows):.1f}" for part in ("within", "beyond"))


def _best_layer_table(task: str, rows: list[Row]) -> Table:
    trained = rows[0]["trained_tokens"]
    title = f"{task}: probes at the layer that is best within the training length of {trained} tokens"
    table = plain_table(title, names=3)
    for heading in ("encoding", "of", "probe"):
        table.add_column(heading)
    for heading in ("layer", "error within", "beyond", "slope beyond", "control R²", "holds until", "accuracy until"):
        table.add_column(stacked(heading), justify="right")
    for encoding in names(rows, "encoding"):
        for target in names(rows, "target"):
            for probe in ("linear", "nonlinear"):
                here = [
                    r for r in rows if (r["encoding"], r["target"], r["probe"]) == (encoding, target, probe)
                ]  # fmt: skip
                true = [row for row in here if not row["control"] and row["within"]["r2"] is not None]
                if not true:
                    continue
                by_layer = _by_layer(true, lambda row: row["within"]["r2"])
                best = max(by_layer, key=lambda layer: mean(by_layer[layer]))
                at_best = [row for row in true if row["layer"] == best]
                control = [row["within"]["r2"] for row in here if row["control"] and row["layer"] == best]
                accuracy = [r["accuracy_holds_until"] for r in at_best if r.get("accuracy_holds_until")]
                table.add_row(
                    Text(encoding),
                    target,
                    probe,
                    str(best),
                    f"{mean(row['within']['error'] for row in at_best):.2f}",
                    f"{mean(row['beyond']['error'] for row in at_best):.2f}",
                    f"{mean(row['beyond']['slope'] for row in at_best):.2f}",
                    _short(mean(control)),
                    f"{mean(row['holds_until'] for row in at_best):.0f}",
                    f"{mean(each['tokens'] for each in accuracy):.0f}" if accuracy else "–",
                )
    table.caption = (
        f"errors in tokens, means over seeds ({counted(rows)}); holds until: the last position with an error at most "
        "twice that within, or one token\naccuracy until: tokens of the longest examples before exact match falls "
        "below a half"
    )
    return table


def failure_tables(rows: Sequence[Row]) -> list[Table]:
    """What kind of error comes first, and where."""
    return [
        table
        for task in names(rows, "task")
        for table in (_kind_table(task, _of(rows, task)), _place_table(task, _of(rows, task)))
    ]


def _kind_table(task: str, rows: list[Row]) -> Table:
    table = plain_table(f"{task}: the first error", names=2)
    table.add_column("encoding")
    headings = ("lengths", "examples", "wrong", "wrong symbol", "stopped early", "ran on", "place", "beyond trained")
    for heading in headings:
        table.add_column(stacked(heading), justify="right")
    for encoding in names(rows, "encoding"):
        for seen in (True, False):
            here = [row for row in rows if row["encoding"] == encoding and row["seen"] == seen]
            if not here:
                continue
            n, correct = sum(row["n"] for row in here), sum(row["correct"] for row in here)
            wrong = n - correct
            kinds = [sum(row[kind] for row in here) for kind in ("wrong_symbol", "stopped_early", "ran_on")]
            table.add_row(
                Text(encoding if seen or len(names(rows, "seen")) == 1 else ""),
                "seen" if seen else "unseen",
                str(n),
                f"{wrong / n:.2f}",
                *(f"{kind / n:.2f}" for kind in kinds),
                _place(here),
                f"{sum(row['beyond_trained'] for row in here) / wrong:.2f}" if wrong else "–",
            )
    table.caption = (
        "shares of all examples; place: where in the target the first error falls, 0 its beginning, 1 its end\n"
        "beyond trained: share of first errors at a place that no training target had"
    )
    return table


def _place_table(task: str, rows: list[Row]) -> Table:
    seen, unseen = (sorted({r["length"] for r in rows if r["seen"] == kind}) for kind in (True, False))
    seen, unseen, step = thinned(seen, unseen, MOST_LENGTHS)
    table = plain_table(f"{task}: place of the first error in the target, by length")
    table.add_column("encoding")
    for length in (*seen, *unseen):
        table.add_column(str(length), justify="right", header_style="dim" if length in seen else "bold")
    for encoding in names(rows, "encoding"):
        of_length = (
            [row for row in rows if row["encoding"] == encoding and row["length"] == length]
            for length in (*seen, *unseen)
        )
        table.add_row(Text(encoding), *map(_place, of_length))
    table.caption = "0 beginning, 1 end of the target; –: no error" + (f"; every {step}. length" if step > 1 else "")
    return table


def _place(rows: list[Row]) -> str:
    """Mean over errors, not over rows."""
    wrong = [(row["first_error_share"], row["n"] - row["correct"]) for row in rows if row["n"] > row["correct"]]
    return f"{sum(share * n for share, n in wrong) / sum(n for _, n in wrong):.2f}" if wrong else "–"


def layer_table(title: str, cells: Cells, last: str = "") -> Table:
    """Labels by layers, as many as fit; what stands under layer 0 comes last under the heading `last`, if given."""
    layers = chosen_layers({layer for each in cells.values() for layer in each if layer or not last})
    table = plain_table(title)
    table.add_column("layer")
    for heading in (*map(str, layers), *([last] if last else [])):
        table.add_column(heading, justify="right")
    for label, by_layer in cells.items():
        table.add_row(
            Text(label, style="dim" if label.startswith(" ") else ""),
            *(by_layer.get(layer, "–") for layer in (*layers, *([0] if last else []))),
        )
    return table


def chosen_layers(layers: Iterable[int]) -> list[int]:
    """As many as fit, evenly spread."""
    found = sorted(layers)
    if len(found) <= MOST_LAYERS:
        return found
    return [found[round(i * (len(found) - 1) / (MOST_LAYERS - 1))] for i in range(MOST_LAYERS)]


def _encoding_cells(rows: list[Row], value: Callable[[Row], object], shown: Callable[[list], str]) -> Cells:
    return {
        encoding: {
            layer: shown(values)
            for layer, values in _by_layer([r for r in rows if r["encoding"] == encoding], value).items()
        }
        for encoding in names(rows, "encoding")
    }


def _by_layer(rows: Iterable[Row], value: Callable[[Row], object]) -> dict[int, list]:
    found: dict[int, list] = {}
    for row in rows:
        found.setdefault(row["layer"], []).append(value(row))
    return found


def names(rows: Iterable[Row], key: str) -> list:
    return list(dict.fromkeys(row[key] for row in rows))


def _of(rows: Iterable[Row], task: str) -> list[Row]:
    return [row for row in rows if row["task"] == task]


def counted(rows: Sequence[Row]) -> str:
    seeds = len(names(rows, "seed"))
    return f"{seeds} seed{'' if seeds == 1 else 's'}"


def mean(values: Iterable[float]) -> float:
    listed = [value for value in values if value is not None]
    return float(np.mean(listed)) if listed else float("nan")


def _short(value: float) -> str:
    return "–" if value != value else "<-9" if value < -9 else f"{value:.2f}"
