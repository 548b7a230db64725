"""One self-contained HTML page about a table of extended models, beside the published one; it loads nothing."""

from pathlib import Path
from typing import Any

from lengthwise.records.files import replace
from lengthwise.report.figures.context_extension import entropy_figure, passkey_maps, ratio_figures, scale_maps
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
    ratio_table,
    scale_table,
    setting_table,
)
from lengthwise.report.model.table import Table


def write_extension_page(rows: ExtensionRows, path: Path) -> None:
    page = templates({}).get_template("context_extension.html.jinja").render(**content(rows))
    replace(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def content(rows: ExtensionRows) -> dict[str, Any]:
    correlations = [row for row in rows.entropy if row.get("kind") == "correlation"]
    settings = rows.about.get("settings", {})
    return {
        "trained": rows.about.get("trained"),
        "times": rows.times,
        "claims": claims(rows),
        "ratio_figures": ratio_figures(rows),
        "ratios": ratio_table(rows),
        "held": f"{HELD - 1:.0%}",
        "long": long_table(rows.long) if rows.long else None,
        "passkeys": passkey_maps(rows.passkey),
        "keys": key_table(rows),
        "trials": sorted({row["n"] for row in rows.passkey}),
        "fits": fit_table(rows.fits) if rows.fits else None,
        "scales": scale_maps(rows.fits),
        "uniform": _uniform(rows.uniform) if rows.uniform else None,
        "entropy": entropy_figure(rows.entropy),
        "correlations": list(map(correlation_table, correlations)),
        "settings": setting_table(settings) if settings else None,
        "tables": {table.name: table.data for table in extension_values(rows)},
    }


def _uniform(found: dict[str, Any]) -> Table:
    return scale_table(
        "Best scale for all heads, searched on validation documents; its download has every scale that was tried",
        {int(context): best for context, best in found["best"].items()},
        {int(context): dict(losses) for context, losses in found["losses"].items()},
        growth_words(found["slope"], found["determination"]),
    )
