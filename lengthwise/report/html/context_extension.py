"""One self-contained HTML page about tables of extended models, beside the published one; it loads nothing."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lengthwise.records.files import replace
from lengthwise.report.figures.context_extension import (
    EDGE,
    entropy_figure,
    highest_ratio,
    look_figures,
    passkey_maps,
    ratio_figures,
    scale_maps,
)
from lengthwise.report.html.page import templates
from lengthwise.report.model.context_extension import ExtensionRows
from lengthwise.report.model.context_extension_claims import HELD, claims
from lengthwise.report.model.context_extension_tables import (
    correlation_table,
    extension_values,
    fit_table,
    growth_words,
    key_table,
    long_table,
    look_table,
    ratio_table,
    scale_table,
    setting_table,
)
from lengthwise.report.model.table import Table


def write_extension_page(groups: Sequence[ExtensionRows], path: Path) -> None:
    """`groups`: tables of the same targets each; those of different ones have sections of their own."""
    template = templates({}).get_template("context_extension.html.jinja")
    found = [content(rows, number if len(groups) > 1 else 0) for number, rows in enumerate(groups, start=1)]
    longest = max(max(rows.times) for rows in groups)
    lengths = {rows.trained for rows in groups}
    page = template.render(
        groups=found,
        trained=lengths.pop() if len(lengths) == 1 else None,
        longest=f"{longest:g}",
        several_targets=len({frozenset(rows.targets) for rows in groups}) > 1,
        tables={name: table for each in found for name, table in each["tables"].items()},
    )
    replace(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def content(rows: ExtensionRows, number: int = 0) -> dict[str, Any]:
    """What the page says of one group. `number`: of several, 0 for the only one; parts of the page are called by it."""
    correlations = [row for row in rows.entropy if row.get("kind") == "correlation"]
    settings = rows.about.get("settings", {})
    about = rows.about.get("about", {})
    end = f"-{number}" if number else ""

    def named(table: Table) -> Table:
        return dataclasses.replace(table, name=f"{table.name}{end}")

    return {
        "end": end,
        "title": rows.title or ", ".join(rows.families),
        "summary": about.get("summary", ""),
        "models": len(rows.families),
        "claims": claims(rows),
        "ratio_figures": ratio_figures(rows),
        "edge": EDGE if highest_ratio(rows) > EDGE else None,
        "ratios": named(ratio_table(rows)),
        "held": f"{HELD - 1:.0%}",
        "published": any(rows.published(line, times) for line in rows.lines for times in rows.times),
        "long": long_table(rows.long) if rows.long else None,
        "passkeys": passkey_maps(rows.passkey),
        "key_table": named(key_table(rows)),
        "trials": sorted({row["n"] for row in rows.passkey}),
        "looks": look_figures(rows),
        "look_table": named(look_table(rows)) if rows.heads else None,
        "fits": fit_table(rows.fits) if rows.fits else None,
        "scales": scale_maps(rows.fits),
        "uniform": [named(_uniform(model, search)) for model, several in rows.uniform.items() for search in several],
        "entropy": entropy_figure(rows.entropy),
        "correlations": list(map(correlation_table, correlations)),
        "settings": setting_table(settings) if settings else None,
        "tables": {f"{table.name}{end}": table.data for table in extension_values(rows)},
    }


def _uniform(model: str, found: dict[str, Any]) -> Table:
    return scale_table(
        f"Best scale for all heads of {model}, searched on validation documents; its download has all that were tried",
        {int(context): best for context, best in found["best"].items()},
        {int(context): dict(losses) for context, losses in found["losses"].items()},
        growth_words(found["slope"], found["determination"]),
    )
