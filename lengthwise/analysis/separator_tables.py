"""Tables about separators: tasks below each other, since their layouts are what is compared."""

from collections.abc import Callable, Iterable, Sequence

from lengthwise.analysis.exchanges import EQUAL, LONGER, OWN, SHORTER
from lengthwise.analysis.knockouts import KNOCKOUTS, NOTHING, SOURCE_FROM_SEPARATOR
from lengthwise.analysis.regions import REGIONS, Region
from lengthwise.analysis.tables import chosen_layers, counted, mean, names
from lengthwise.records.findings import Row
from lengthwise.report.model.table import Column, Table, TableRow, heading_row, number_cell, text_cell

GROUPS = ("seen", "unseen")
PARTS = ("within", "beyond")
TRAINED, INITIAL = "trained", "initial"


def attention_tables(rows: Sequence[Row]) -> list[Table]:
    """Where target tokens look; then by layer who looks most at the separator, and which separator at the source."""
    return [
        _region_table(rows),
        _most_table(rows, Region.TARGET, Region.SEPARATOR),
        _most_table(rows, Region.SEPARATOR, Region.SOURCE),
    ]


def _region_table(rows: Sequence[Row]) -> Table:
    found: list[TableRow] = []
    chosen = [row for row in rows if row["queries"] == Region.TARGET.title]
    for _, of_task in _by_task(found, chosen):
        even = _region_cells(row["even"] for row in of_task)
        found.append(_row(f"  even, {_tokens(of_task)}", even, quiet=True))
        for encoding, here in _by(of_task, "encoding"):
            found.append(_row(f"  {encoding}", _region_cells(here)))
    note = f"share of attention, seen → unseen lengths ({counted(rows)}); the target is that so far, itself too"
    title = "where target tokens look, mean over layers and heads"
    return _table(title, ["", *(region.title for region in REGIONS)], found, note)


def _tokens(rows: Sequence[Row]) -> str:
    """How many tokens the separator takes."""
    tokens = max(row["separator_tokens"] for row in rows)
    return f"{tokens} separator token{'' if tokens == 1 else 's'}"


def _region_cells(rows: Iterable[Row]) -> list[str]:
    listed = list(rows)
    return [_change(listed, lambda group, region=region: group[region.title]) for region in REGIONS]


def _most_table(rows: Sequence[Row], queries: Region, keys: Region) -> Table:
    """Of each layer the head with the greatest share on unseen lengths (seen ones, where there are no others)."""
    chosen = [row for row in rows if row["queries"] == queries.title]
    layers = chosen_layers({row["layer"] for row in chosen})
    found: list[TableRow] = []
    for _, of_task in _by_task(found, chosen):
        for encoding, here in _by(of_task, "encoding"):
            cells = [
                _change(_greatest(of_layer, keys.title), lambda group: group[keys.title])
                for of_layer in ([row for row in here if row["layer"] == layer] for layer in layers)
            ]
            even = _change([row["even"] for row in here], lambda group: group[keys.title])
            found.append(_row(f"  {encoding}", [even, *cells]))
    note = f"share of its attention, seen → unseen lengths ({counted(rows)}); even: of one that looks evenly"
    title = f"{queries.title} looks at {keys.title}: by layer, the head that does so most"
    return _table(title, ["layer", "even", *map(str, layers)], found, note)


def _greatest(rows: Sequence[Row], key: str) -> list[Row]:
    """Of each run the head with most."""

    def share(row: Row) -> float:
        return (row["unseen"] or row["seen"])[key]

    return [max(here, key=share) for _, here in _by(rows, "run")]


def probe_tables(rows: Sequence[Row]) -> list[Table]:
    """Errors at every place; then all measures at the separator token where they are least."""
    return [_place_table(rows), _separator_table(rows)]


def _place_table(rows: Sequence[Row]) -> Table:
    found: list[TableRow] = []
    for _, of_task in _by_task(found, rows):
        last = max(row["separator_tokens"] for row in of_task)
        places = ["source", "separator 1", f"separator {last}", "target"]
        for encoding, here in _by(of_task, "encoding"):
            for weights, label in ((TRAINED, f"  {encoding}"), (INITIAL, "    before training")):
                cells = [_errors(_best(here, weights, place)) for place in places]
                found.append(_row(label, cells, quiet=weights == INITIAL))
    return _table(
        "counting the source: mean error of a ridge probe, in tokens",
        ["", "last of source", "first of separator", "last of separator", "first of target"],
        found,
        f"seen → unseen lengths ({counted(rows)}); fitted to seen ones, each at the layer that is best on those",
        "before training: the same model at its initial weights",
    )


def _separator_table(rows: Sequence[Row]) -> Table:
    found: list[TableRow] = []
    for _, of_task in _by_task(found, rows):
        for encoding, here in _by(of_task, "encoding"):
            for weights, label in ((TRAINED, f"  {encoding}"), (INITIAL, "    before training")):
                best = _best(here, weights, "separator")
                cells = [
                    best[0]["place"].removeprefix("separator "),
                    str(best[0]["layer"]),
                    *(_short(mean(row[part]["r2"] for row in best)) for part in PARTS),
                    *(_short(mean(row["beyond"][key] for row in best)) for key in ("correlation", "slope")),
                    str(sum(row["beyond"]["n"] for row in best)),
                ]
                found.append(_row(label, cells, quiet=weights == INITIAL))
    return _table(
        "counting the source at the separator token that is best for it",
        ["", "token", "layer", "R² seen", "R² unseen", "correlation unseen", "slope unseen", "examples unseen"],
        found,
        "token and layer: where the error on seen lengths is least",
        "slope: by how much the estimate grows when the count grows by one; 1 for a count that continues",
    )


def _best(rows: Sequence[Row], weights: str, place: str) -> list[Row]:
    """All runs at the layer (and of several such places, the place) whose error on seen lengths is least on the mean;
    unseen lengths choose nothing."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row["weights"] == weights and f"{row['place']} ".startswith(f"{place} "):
            found.setdefault((row["place"], row["layer"]), []).append(row)

    def error(rows: list[Row]) -> float:
        within = mean(row["within"]["error"] for row in rows)
        return within if within == within else float("inf")

    return min(found.values(), key=error)


def _errors(rows: Sequence[Row]) -> str:
    return " → ".join(_fixed(mean(row[part]["error"] for row in rows), 1) for part in PARTS)


def knockout_tables(rows: Sequence[Row]) -> list[Table]:
    """Exact match with something hidden; then whether answers end where they should."""
    return [
        _knockout_table(rows, "correct", "exact match when target tokens do not see"),
        _knockout_table(rows, "counted", "answers that end where they should when target tokens do not see"),
    ]


def _knockout_table(rows: Sequence[Row], score: str, title: str) -> Table:
    hidden = [NOTHING, *(knockout.name for knockout in KNOCKOUTS)]
    found: list[TableRow] = []
    for _, of_task in _by_task(found, rows):
        for encoding, here in _by(of_task, "encoding"):
            everywhere = [row for row in here if row["layer"] == 0]
            for group in GROUPS:
                cells = [_share([row for row in everywhere if row["hidden"] == name], group, score) for name in hidden]
                found.append(_row(f"  {encoding} {group}", cells))
                if any(row["layer"] for row in here):
                    cells = [_worst([row for row in here if row["hidden"] == name], group, score) for name in hidden]
                    found.append(_row("    in one layer", cells, quiet=True))
    examples = {group: _examples(rows, group) for group in GROUPS}
    return _table(
        title,
        ["", *("source*" if name == SOURCE_FROM_SEPARATOR else name for name in hidden)],
        found,
        f"hidden in all layers ({counted(rows)}; {examples['seen']} seen, {examples['unseen']} unseen examples each)",
        "in one layer: hidden in the one layer where that does most harm / which layer",
        "source*: it is the separator that does not see the source",
    )


def _examples(rows: Sequence[Row], group: str) -> str:
    """Of a run; a range where runs differ."""
    found = sorted({row[group]["n"] for row in rows if row[group]})
    return "no" if not found else str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _share(rows: Sequence[Row], group: str, score: str) -> str:
    return _fixed(mean(row[group][score] / row[group]["n"] for row in rows if row[group]), 2)


def _worst(rows: Sequence[Row], group: str, score: str) -> str:
    """The least mean share over single layers, and the layer."""
    by_layer = {layer: here for layer, here in _by(rows, "layer") if layer and all(row[group] for row in here)}
    if not by_layer:
        return ""
    shares = {layer: mean(row[group][score] / row[group]["n"] for row in here) for layer, here in by_layer.items()}
    least = min(shares, key=lambda layer: shares[layer])
    return f"{shares[least]:.2f}/{least}"


def exchange_tables(rows: Sequence[Row]) -> list[Table]:
    """Where answers end when the separator says what that of another example says."""
    found: list[TableRow] = []
    columns = ((OWN, "as_own"), (EQUAL, "as_own"), (SHORTER, "as_own"), (SHORTER, "as_donor"), (LONGER, "as_own"))
    for _, of_task in _by_task(found, rows):
        for encoding, here in _by(of_task, "encoding"):
            everywhere = [row for row in here if row["layer"] == 0]
            for group in GROUPS:
                cells = [
                    _share([row for row in everywhere if row["donor"] == donor], group, key)
                    for donor, key in (*columns, (LONGER, "not_yet"))
                ]
                found.append(_row(f"  {encoding} {group}", cells))
    table = _table(
        "where answers end when the separator says what another example's says",
        ["its target:", "nothing changed own", "equal own", "shorter own", "shorter its", "longer own", "longer later"],
        found,
        f"shares of answers ({counted(rows)}), exchanged in all layers; own: end where they should",
        "its: end where those of the other example should; later: run on longer than they should",
    )
    return [table]


def _table(title: str, headings: Sequence[str], rows: Sequence[TableRow], *notes: str) -> Table:
    first, *others = headings
    return Table("", title, (Column(first, "left"), *map(Column, others)), tuple(rows), notes)


def _row(label: str, cells: Sequence[str], quiet: bool = False) -> TableRow:
    return TableRow((text_cell(label, "quiet" if quiet else ""), *map(number_cell, cells)))


def _by_task(found: list[TableRow], rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    """Each task with its rows, its name in a row of its own before what is said of it."""
    for task, of_task in _by(rows, "task"):
        found.append(heading_row(task))
        yield task, of_task


def _by(rows: Sequence[Row], key: str) -> list[tuple[str, list[Row]]]:
    return [(name, [row for row in rows if row[key] == name]) for name in names(rows, key)]


def _change(rows: Sequence[Row], value: Callable[[Row], float]) -> str:
    """Means over seen and over unseen lengths."""
    means = [mean(value(row[group]) for row in rows if row[group]) for group in GROUPS]
    return "→".join(_fixed(each, 2) for each in means)


def _fixed(value: float, digits: int) -> str:
    return "–" if value != value else f"{value:.{digits}f}"


def _short(value: float) -> str:
    return "<-9" if value < -9 else _fixed(value, 2)
