"""Extended models as tables: perplexity beside the published ratios, passkey accuracy, scales, entropy, fits."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.records.statistics import is_range
from lengthwise.report.model.context_extension import (
    ExtensionRows,
    FittedLine,
    Row,
    family_words,
    line_words,
    times_words,
)
from lengthwise.report.model.context_extension_claims import HELD
from lengthwise.report.model.phrases import known, perplexity, plain, published_ratio, ratio
from lengthwise.report.model.run_tables import fact_table
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Table,
    TableRow,
    Words,
    heading_row,
    number_cell,
    text_cell,
    value_table,
)

GROWTH = "1 + a ln(i / trained length)"
LOOKS = {
    "first": "on the first token",
    "near": "near",
    "far": "farther",
    "beyond": "beyond the trained length",
}
"""Shares of attention, as rows have them -> as headings say them."""


def ratio_table(rows: ExtensionRows) -> Table:
    """Perplexity at each context; its ratio to that of the same model as trained at 1x, and the published ratio."""
    found, intervals = [], []
    for family in rows.families:
        lines = [line for line in rows.lines if rows.family(line) == family]
        found.append(heading_row(family_words(family)))
        for line in lines:
            cells = [_ratio(rows, line, each) for each in rows.times]
            intervals += [each for each in rows.times if rows.ratio_interval(line, each)]
            found.append(TableRow((text_cell(line_words(line)), *cells)))
    counts = sorted({row["tokens"] for row in rows.perplexity})
    targets = " or ".join(f"{count:,}" for count in counts)
    seeds = len(rows.seeds)
    title = f"Perplexity of the same {targets} tokens at every context; its ratio to 1x as trained"
    published = any(rows.published(line, times) for line in rows.lines for times in rows.times)
    notes = ["published: PG19, arXiv 2404.12224"] if published else []
    if seeds > 1:
        how = "their range" if is_range(1, seeds) else "95 % CI over seeds"
        notes.append(f"means of {seeds} seeds" + (f", in brackets {how}" if intervals else ""))
    identity = ", ".join(sorted(filter(None, rows.targets)))
    if identity:
        notes.append(f"targets {identity}")
    return Table(
        "perplexity",
        title + ("; the published ratio" if published else ""),
        (Column("line", "left"), *(Column(times_words(each)) for each in rows.times)),
        tuple(found),
        tuple(notes),
    )


def _ratio(rows: ExtensionRows, line: str, times: float) -> Cell:
    found, own = rows.perplexity_of(line, times), rows.ratio(line, times)
    if found is None:
        return MISSING
    published, ends = rows.published(line, times), rows.ratio_interval(line, times)
    ours = "?" if own is None else ratio(own)
    theirs = published_ratio(published) if published else ""
    between = f" ({ratio(ends[0])} to {ratio(ends[1])})" if ends else ""
    notes = [Note((Words(f"{ours}{between} ours" if published else f"{ours}{between}"),), short=ours)]
    if published:
        notes.append(Note((Words(f"{theirs} published"),), short=theirs))
    return Cell(
        (Words(perplexity(found), "main"),),
        notes=tuple(notes),
        share=0.7 if own is not None and own <= HELD else None,
    )


def long_table(rows: Sequence[Row]) -> Table:
    """Contexts far beyond the table's."""
    found = [
        TableRow(
            (
                text_cell(f"{row['model']}, {row['variant']}"),
                number_cell(f"{row['context']:,}"),
                number_cell(perplexity(row["perplexity"])),
                number_cell(f"{row['tokens']:,}"),
                number_cell(f"{memory / 2**30:.1f} GiB") if (memory := row.get("memory_bytes")) else MISSING,
            )
        )
        for row in rows
    ]
    columns = (Column("model", "left"), *map(Column, ("context", "perplexity", "tokens", "GPU memory")))
    return Table("", "Far beyond: perplexity at very long contexts", columns, tuple(found))


def key_table(rows: ExtensionRows) -> Table:
    """Passkey accuracy by length, over all depths and seeds."""
    lengths = sorted({row["length"] for row in rows.passkey})
    found = []
    for line in dict.fromkeys(row["line"] for row in rows.passkey):
        shares = rows.keys_by_length(line)
        cells = (_keys(rows, line, each, shares[each]) if each in shares else MISSING for each in lengths)
        found.append(TableRow((text_cell(line_words(line)), *cells)))
    columns = (Column("line", "left"), *(Column(f"{length:,}") for length in lengths))
    over = f"all depths and {len(rows.seeds)} seeds" if len(rows.seeds) > 1 else "all depths"
    return Table("passkeys", f"Passkey accuracy, over {over}", columns, tuple(found))


def _keys(rows: ExtensionRows, line: str, length: int, share: float) -> Cell:
    ends = rows.keys_interval(line, length)
    words = f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else ""
    return Cell((Words(f"{share:.2f}", "main"),), notes=(Note((Words(words),), short=""),) if words else ())


def look_table(rows: ExtensionRows) -> Table:
    """What heads look at, by line, at the longest context: means over layers, heads and seeds."""
    times = max(row["times"] for row in rows.heads)
    found: dict[str, list[Row]] = {}
    for row in rows.heads:
        if row["times"] == times:
            found.setdefault(row["line"], []).append(row)
    table = []
    for line, of in found.items():
        means = {name: sum(row[name] for row in of) / len(of) for name in ("bits", "distance", *LOOKS)}
        shares = (number_cell(f"{means[name]:.2f}") for name in LOOKS)
        numbers = (number_cell(f"{means['bits']:.2f}"), number_cell(f"{means['distance']:,.0f}"))
        table.append(TableRow((text_cell(line_words(line)), *numbers, *shares)))
    columns = (Column("line", "left"), *map(Column, ("entropy, bits", "mean distance", *LOOKS.values())))
    title = f"Where heads look when they predict scored tokens, at {times_words(times)}"
    return Table("heads", title, columns, tuple(table))


def scale_table(
    title: str, best: Mapping[int, float], losses: Mapping[int, Mapping[float, float]], growth: str
) -> Table:
    """The best scale for all heads at each context; `growth`: how it grows, in words."""
    rows = [
        TableRow(
            (
                text_cell(f"{context:,}"),
                number_cell(f"{scale:.2f}"),
                number_cell(f"{losses[context][scale]:.4f}"),
                number_cell(f"{losses[context][1.0]:.4f}") if 1.0 in losses[context] else MISSING,
            )
        )
        for context, scale in best.items()
    ]
    columns = (Column("context", "left"), *map(Column, ("best scale", "loss there", "loss at 1")))
    return Table("uniform-search", title, columns, tuple(rows), (growth,) if growth else ())


def growth_words(slope: float, determination: float | None) -> str:
    explained = "" if determination is None else f", R² {determination:.3f}"
    return f"best scale = {GROWTH}: a = {slope:.3f}{explained} (published: 0.30 to 0.40)"


def correlation_table(found: Mapping[str, Any]) -> Table:
    """Of the learned scales with the entropy that heads have as trained."""
    values = {
        **{str(layer): value for layer, value in enumerate(found["by_layer"], start=1)},
        "mean of layers": found["within_layers"],
        "all heads": found["overall"],
    }
    rows = tuple(TableRow((text_cell(name), number_cell(known(value)))) for name, value in values.items())
    title = (
        "Correlation of the learned scales with the entropy that heads have as trained, at the trained length "
        "(published: negative within each layer)"
    )
    return Table("", title, (Column("layer", "left"), Column("correlation")), rows)


def fit_table(fits: Sequence[FittedLine]) -> Table:
    rows = [
        TableRow(
            (
                text_cell(line_words(fit.line)),
                number_cell(f"{fit.numbers:,}"),
                number_cell(f"{fit.seconds:.1f}"),
                number_cell(f"{fit.first_loss:.3f}"),
                number_cell(f"{fit.last_loss:.3f}"),
                text_cell(fit.device),
            )
        )
        for fit in fits
    ]
    headings = ("trained parameters", "seconds", "first loss", "loss at the end")
    columns = (Column("line", "left"), *map(Column, headings), Column("device", "left"))
    return Table("", "What was fitted", columns, tuple(rows))


def setting_table(settings: Mapping[str, Any]) -> Table:
    return fact_table(
        "Settings of the table", {name.replace("_", " "): plain(value) for name, value in settings.items()}
    )


def extension_values(rows: ExtensionRows) -> list[Table]:
    """For programs: everything that was measured."""
    ours = {(row["line"], row["times"]) for row in rows.perplexity}
    published = {key: rows.published(*key) for key in ours}
    by_context = value_table(
        "perplexity",
        "Perplexity by context",
        ["line", "family", "seed", "times", "context", "target_set", "targets", "loss", "standard_error", "perplexity",
         "ratio", "published_ratio", "published_is_a_lower_bound"],
        [
            [row["line"], row["family"], row.get("seed"), row["times"], row["context"], row.get("targets"),
             row["tokens"], row["loss"], row["standard_error"], row["perplexity"], rows.own_ratio(row),
             *((found.ratio, found.at_least) if (found := published[row["line"], row["times"]]) else (None, None))]
            for row in rows.perplexity
        ],
    )  # fmt: skip
    passkey = value_table(
        "passkeys",
        "Passkey accuracy",
        ["line", "family", "seed", "length", "depth", "n", "correct"],
        [[row[name] for name in ("line", "family", "seed", "length", "depth", "n", "correct")] for row in rows.passkey],
    )
    scales = value_table(
        "head-scales",
        "Learned head scales",
        ["line", "seed", "layer", "head", "scale"],
        [
            [fit.line, fit.seed, layer, head, scale]
            for fit in rows.fits
            for layer, row in enumerate(fit.scales_LH or [], start=1)
            for head, scale in enumerate(row, start=1)
        ],
    )
    uniform = value_table(
        "uniform-search",
        "Losses of the uniform scales that were tried",
        ["model", "search", "context", "scale", "loss"],
        [
            [model, number, int(context), scale, loss]
            for model, searches in rows.uniform.items()
            for number, search in enumerate(searches, start=1)
            for context, tried in search["losses"].items()
            for scale, loss in tried
        ],
    )
    names = ["line", "family", "seed", "times", "context", "layer", "head", "n", "bits", "distance", *LOOKS]
    heads = value_table("heads", "Where heads look", names, [[row.get(name) for name in names] for row in rows.heads])
    entropy = value_table(
        "entropy",
        "Entropy of attention",
        ["variant", "layer", "head", "position", "n", "bits", "bound"],
        [
            [row["variant"], row["layer"] + 1, row["head"] + 1, row["position"], row["n"], row["bits"], row["bound"]]
            for row in rows.entropy
            if "bits" in row
        ],
    )
    return [table for table in (by_context, passkey, scales, uniform, heads, entropy) if table.rows]
