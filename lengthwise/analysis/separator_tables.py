"""Tables about separators for the terminal: tasks below each other, since their layouts are what is compared."""

from collections.abc import Callable, Iterable, Sequence

from rich.table import Table
from rich.text import Text

from lengthwise.analysis.exchanges import EQUAL, LONGER, OWN, SHORTER
from lengthwise.analysis.knockouts import KNOCKOUTS, NOTHING, SOURCE_FROM_SEPARATOR
from lengthwise.analysis.regions import REGIONS, Region
from lengthwise.analysis.tables import chosen_layers, counted, mean, names
from lengthwise.records.findings import Row
from lengthwise.report.terminal.table import plain_table, stacked

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
    table = plain_table("where target tokens look, mean over layers and heads")
    table.add_column("")
    for region in REGIONS:
        table.add_column(region.title, justify="right")
    chosen = [row for row in rows if row["queries"] == Region.TARGET.title]
    for _, of_task in _by_task(table, chosen):
        even = _region_cells(row["even"] for row in of_task)
        table.add_row(Text(f"  even, {_tokens(of_task)}", style="dim"), *even)
        for encoding, here in _by(of_task, "encoding"):
            table.add_row(Text(f"  {encoding}"), *_region_cells(here))
    table.caption = (
        f"share of attention, seen → unseen lengths ({counted(rows)}); the target is that so far, itself too"
    )
    return table


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
    table = plain_table(f"{queries.title} looks at {keys.title}: by layer, the head that does so most")
    table.add_column("layer")
    for heading in ("even", *layers):
        table.add_column(str(heading), justify="right")
    for _, of_task in _by_task(table, chosen):
        for encoding, here in _by(of_task, "encoding"):
            cells = [
                _change(_greatest(of_layer, keys.title), lambda group: group[keys.title])
                for of_layer in ([row for row in here if row["layer"] == layer] for layer in layers)
            ]
            even = _change([row["even"] for row in here], lambda group: group[keys.title])
            table.add_row(Text(f"  {encoding}"), even, *cells)
    table.caption = f"share of its attention, seen → unseen lengths ({counted(rows)}); even: of one that looks evenly"
    return table


def _greatest(rows: Sequence[Row], key: str) -> list[Row]:
    """Of each run the head with most."""

    def share(row: Row) -> float:
        return (row["unseen"] or row["seen"])[key]

    return [max(here, key=share) for _, here in _by(rows, "run")]


def probe_tables(rows: Sequence[Row]) -> list[Table]:
    """Errors at every place; then all measures at the separator token where they are least."""
    return [_place_table(rows), _separator_table(rows)]


def _place_table(rows: Sequence[Row]) -> Table:
    table = plain_table("counting the source: mean error of a ridge probe, in tokens")
    table.add_column("")
    for heading in ("last of source", "first of separator", "last of separator", "first of target"):
        table.add_column(stacked(heading), justify="right")
    for _, of_task in _by_task(table, rows):
        last = max(row["separator_tokens"] for row in of_task)
        places = ["source", "separator 1", f"separator {last}", "target"]
        for encoding, here in _by(of_task, "encoding"):
            for weights, label in ((TRAINED, f"  {encoding}"), (INITIAL, "    before training")):
                found = [_best(here, weights, place) for place in places]
                cells = [_errors(each) for each in found]
                table.add_row(Text(label, style="" if weights == TRAINED else "dim"), *cells)
    table.caption = (
        f"seen → unseen lengths ({counted(rows)}); fitted to seen ones, each at the layer that is best on those\n"
        "before training: the same model at its initial weights"
    )
    return table


def _separator_table(rows: Sequence[Row]) -> Table:
    table = plain_table("counting the source at the separator token that is best for it")
    table.add_column("")
    for heading in ("token", "layer", "R² seen", "R² unseen", "correlation unseen", "slope unseen", "examples unseen"):
        table.add_column(stacked(heading), justify="right")
    for _, of_task in _by_task(table, rows):
        for encoding, here in _by(of_task, "encoding"):
            for weights, label in ((TRAINED, f"  {encoding}"), (INITIAL, "    before training")):
                found = _best(here, weights, "separator")
                table.add_row(
                    Text(label, style="" if weights == TRAINED else "dim"),
                    found[0]["place"].removeprefix("separator "),
                    str(found[0]["layer"]),
                    *(_short(mean(row[part]["r2"] for row in found)) for part in PARTS),
                    *(_short(mean(row["beyond"][key] for row in found)) for key in ("correlation", "slope")),
                    str(sum(row["beyond"]["n"] for row in found)),
                )
    table.caption = (
        "token and layer: where the error on seen lengths is least\n"
        "slope: by how much the estimate grows when the count grows by one; 1 for a count that goes on"
    )
    return table


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
    table = plain_table(title)
    hidden = [NOTHING, *(knockout.name for knockout in KNOCKOUTS)]
    table.add_column("")
    for name in hidden:
        table.add_column(stacked("source*" if name == SOURCE_FROM_SEPARATOR else name), justify="right")
    for _, of_task in _by_task(table, rows):
        for encoding, here in _by(of_task, "encoding"):
            everywhere = [row for row in here if row["layer"] == 0]
            for group in GROUPS:
                cells = [_share([row for row in everywhere if row["hidden"] == name], group, score) for name in hidden]
                table.add_row(Text(f"  {encoding} {group}"), *cells)
                if any(row["layer"] for row in here):
                    cells = [_worst([row for row in here if row["hidden"] == name], group, score) for name in hidden]
                    table.add_row(Text("    in one layer", style="dim"), *cells)
    examples = {group: _examples(rows, group) for group in GROUPS}
    table.caption = (
        f"hidden in all layers ({counted(rows)}; {examples['seen']} seen, {examples['unseen']} unseen examples each)\n"
        "in one layer: hidden in the one layer where that does most harm / which layer\n"
        "source*: it is the separator that does not see the source"
    )
    return table


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
    table = plain_table("where answers end when the separator says what another example's says")
    table.add_column("its target:")
    for heading in ("nothing changed own", "equal own", "shorter own", "shorter its", "longer own", "longer later"):
        table.add_column(stacked(heading), justify="right")
    columns = ((OWN, "as_own"), (EQUAL, "as_own"), (SHORTER, "as_own"), (SHORTER, "as_donor"), (LONGER, "as_own"))
    for _, of_task in _by_task(table, rows):
        for encoding, here in _by(of_task, "encoding"):
            everywhere = [row for row in here if row["layer"] == 0]
            for group in GROUPS:
                cells = [
                    _share([row for row in everywhere if row["donor"] == donor], group, key)
                    for donor, key in (*columns, (LONGER, "not_yet"))
                ]
                table.add_row(Text(f"  {encoding} {group}"), *cells)
    table.caption = (
        f"shares of answers ({counted(rows)}), exchanged in all layers; own: end where they should\n"
        "its: end where those of the other example should; later: go on longer than they should"
    )
    return [table]


def _by_task(table: Table, rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    """Each task with its rows, its name in a row of its own before what is said of it."""
    for task, of_task in _by(rows, "task"):
        table.add_row(Text(task, style="bold"))
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
