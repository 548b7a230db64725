"""Extended models as tables: perplexity beside the published ratios, passkey accuracy, scales, entropy, fits."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.report.model.context_extension import FAMILIES, ExtensionRows, FittedLine, Row, line_words
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


def ratio_table(rows: ExtensionRows) -> Table:
    """Perplexity at each context; its ratio to that of the same model as trained at 1x, and the published ratio."""
    found = []
    for family, title in FAMILIES.items():
        lines = [line for line in rows.lines if rows.family(line) == family]
        if lines:
            found.append(heading_row(title))
        found += [
            TableRow((text_cell(line_words(line)), *(_ratio(rows, line, each) for each in rows.times)))
            for line in lines
        ]
    targets = max(row["tokens"] for row in rows.perplexity)
    return Table(
        "perplexity",
        f"Perplexity of the same {targets:,} tokens at every context; its ratio to 1x as trained; the published ratio",
        (Column("line", "left"), *(Column(f"{each}x") for each in rows.times)),
        tuple(found),
        ("published: PG19, arXiv 2404.12224",),
    )


def _ratio(rows: ExtensionRows, line: str, times: int) -> Cell:
    found, own = rows.row(line, times), rows.ratio(line, times)
    if found is None:
        return MISSING
    published = rows.published(line, times)
    ours, theirs = "?" if own is None else ratio(own), published_ratio(published)
    return Cell(
        (Words(perplexity(found["perplexity"]), "main"),),
        notes=(
            Note((Words(f"{ours} ours"),), short=ours),
            Note((Words(f"{theirs} published"),) if published else (), short=theirs),
        ),
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
    """Passkey accuracy by length, over all depths."""
    lengths = sorted({row["length"] for row in rows.passkey})
    found = []
    for line in dict.fromkeys(row["line"] for row in rows.passkey):
        shares = rows.keys_by_length(line)
        cells = (number_cell(f"{shares[each]:.2f}") if each in shares else MISSING for each in lengths)
        found.append(TableRow((text_cell(line_words(line)), *cells)))
    columns = (Column("line", "left"), *(Column(f"{length:,}") for length in lengths))
    return Table("passkeys", "Passkey accuracy, over all depths", columns, tuple(found))


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
    published = {(row["line"], row["times"]): rows.published(row["line"], row["times"]) for row in rows.perplexity}
    by_context = value_table(
        "perplexity",
        "Perplexity by context",
        ["line", "family", "times", "context", "targets", "loss", "standard_error", "perplexity", "ratio",
         "published_ratio", "published_is_a_lower_bound"],
        [
            [row["line"], row["family"], row["times"], row["context"], row["tokens"], row["loss"],
             row["standard_error"], row["perplexity"], rows.ratio(row["line"], row["times"]),
             *((found.ratio, found.at_least) if (found := published[row["line"], row["times"]]) else (None, None))]
            for row in rows.perplexity
        ],
    )  # fmt: skip
    passkey = value_table(
        "passkeys",
        "Passkey accuracy",
        ["line", "family", "length", "depth", "n", "correct"],
        [[row[name] for name in ("line", "family", "length", "depth", "n", "correct")] for row in rows.passkey],
    )
    scales = value_table(
        "head-scales",
        "Learned head scales",
        ["line", "layer", "head", "scale"],
        [
            [fit.line, layer, head, scale]
            for fit in rows.fits
            for layer, row in enumerate(fit.scales_LH or [], start=1)
            for head, scale in enumerate(row, start=1)
        ],
    )
    uniform = value_table(
        "uniform-search",
        "Losses of the uniform scales that were tried",
        ["context", "scale", "loss"],
        [
            [int(context), scale, loss]
            for context, tried in (rows.uniform or {"losses": {}})["losses"].items()
            for scale, loss in tried
        ],
    )
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
    return [table for table in (by_context, passkey, scales, uniform, entropy) if table.rows]
