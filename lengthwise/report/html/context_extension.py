"""One self-contained HTML page about a table of stretched models, beside the published one; it loads nothing."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lengthwise.records.files import replace
from lengthwise.records.published_ratios import ablation_keys
from lengthwise.report.figures.context_extension import entropy_figure, passkey_maps, ratio_figures, scale_maps
from lengthwise.report.html.page import templates
from lengthwise.report.model.context_extension import FAMILIES, StretchRows
from lengthwise.report.model.data_tables import Table
from lengthwise.report.model.phrases import perplexity as short
from lengthwise.report.model.phrases import published_ratio as published_words
from lengthwise.report.model.phrases import ratio as ratio_words

HELD = 1.15
"""Perplexity at 4x relative to 1x that still counts as held."""
BREAKS = 2.0
"""Relative perplexity from which a model is called broken."""


@dataclass(frozen=True)
class Claim:
    """Something that the published table says, and whether ours does."""

    words: str
    found: str
    holds: bool


def write_stretching_page(rows: StretchRows, path: Path) -> None:
    page = templates().get_template("stretching.html.jinja").render(**content(rows))
    replace(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def content(rows: StretchRows) -> dict[str, Any]:
    correlations = [row for row in rows.entropy if row.get("kind") == "correlation"]
    return {
        "trained": rows.about.get("trained"),
        "times": rows.times,
        "families": [
            (title, [_line(rows, line) for line in rows.lines if rows.family(line) == family])
            for family, title in FAMILIES.items()
        ],
        "claims": claims(rows),
        "ratio_figures": ratio_figures(rows),
        "long": [{"memory_bytes": None, **row, "perplexity": short(row["perplexity"])} for row in rows.long],
        "targets": max(row["tokens"] for row in rows.perplexity),
        "passkeys": passkey_maps(rows.passkey),
        "key_lengths": sorted({row["length"] for row in rows.passkey}),
        "keys_found": [
            (line, rows.keys_by_length(line)) for line in dict.fromkeys(row["line"] for row in rows.passkey)
        ],
        "trials": sorted({row["n"] for row in rows.passkey}),
        "fits": rows.fits,
        "scales": scale_maps(rows.fits),
        "uniform": rows.uniform,
        "entropy": entropy_figure(rows.entropy),
        "correlations": correlations,
        "settings": rows.about.get("settings", {}),
        "tables": {table.name: table.data() for table in stretching_tables(rows)},
    }


def _line(rows: StretchRows, line: str) -> dict[str, Any]:
    cells = []
    for times in rows.times:
        found, ratio = rows.row(line, times), rows.ratio(line, times)
        published = rows.published(line, times)
        cells.append(
            {
                "perplexity": short(found["perplexity"]) if found else None,
                "ratio": ratio_words(ratio) if ratio is not None else "?",
                "published": published_words(published) if published else None,
                "near": ratio is not None and ratio <= HELD,
            }
        )
    return {"name": line, "cells": cells}


def claims(rows: StretchRows) -> list[Claim]:
    """Only those for which there are rows."""
    found = []
    for line, words in (("none", "without positions"), ("rotary", "with rotary positions")):
        if line in rows.lines and (ratio := rows.ratio(line, 2)) is not None:
            said = f"{ratio_words(ratio)} times the perplexity at 2x"
            found.append(Claim(f"As trained, the model {words} breaks at 2x", said, ratio >= BREAKS))
    raw, uniform = (rows.ratio(line, 2) if line in rows.lines else None for line in ("none", "uniform-scale for 2x"))
    if raw is not None and uniform is not None:
        said = f"{ratio_words(uniform)} instead of {ratio_words(raw)}"
        found.append(Claim("One scale for all heads rescues 2x", said, uniform < raw and uniform <= BREAKS))
    head, even = "head-scale for 4x", "uniform-scale for 4x"
    ratio = rows.ratio(head, 4) if head in rows.lines else None
    if ratio is not None:
        numbers = next((f" with {fit.numbers} trained numbers" for fit in rows.fits if fit.line == head), "")
        words = f"Head scales fitted at 4x hold the perplexity there within {HELD - 1:.0%} of 1x"
        published = rows.published(head, 4)
        theirs = f" (published {published_words(published)})" if published else ""
        found.append(Claim(words, f"{ratio_words(ratio)}{numbers}{theirs}", ratio <= HELD))
        other = rows.ratio(even, 4) if even in rows.lines else None
        if other is not None:
            said = f"{ratio_words(ratio)} against {ratio_words(other)}"
            found.append(Claim("They do better at 4x than one scale for all heads", said, ratio < other))
    return [*found, *_ablations(rows)]


def _ablations(rows: StretchRows) -> list[Claim]:
    """Published at 8x alone: the order of the whole method, without its start, without its floor."""
    lines, found = list(ablation_keys()), []
    if not set(lines) <= set(rows.lines):
        return []
    ours = {line: rows.ratio(line, 8) for line in lines}
    theirs = {line: published.ratio for line in lines if (published := rows.published(line, 8))}
    if all(ours.values()):
        words = "Head scales for 8x and their ablations have the published order of perplexities at 8x"
        found.append(_order(words, {line: ratio or 0.0 for line, ratio in ours.items()}, theirs))
    longest = 8 * (rows.about.get("trained") or 0)
    keys = {line: rows.keys_found(line, longest) for line in lines}
    if all(share is not None for share in keys.values()):
        words = "They have the published order of keys found, too"
        found.append(_order(words, {line: share or 0.0 for line, share in keys.items()}, ablation_keys()))
    return found


def _order(words: str, ours: dict[str, float], theirs: dict[str, float]) -> Claim:
    """From the lowest published value on."""
    order = sorted(theirs, key=lambda line: theirs[line])
    said = ", ".join(
        f"{line.partition(', ')[2] or 'whole'} {ratio_words(ours[line])} (published {ratio_words(theirs[line])})"
        for line in order
    )
    values = [ours[line] for line in order]
    return Claim(words, said, all(low < high for low, high in pairwise(values)))


def stretching_tables(rows: StretchRows) -> list[Table]:
    """For downloads."""
    published = {(row["line"], row["times"]): rows.published(row["line"], row["times"]) for row in rows.perplexity}
    perplexity = Table(
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
    passkey = Table(
        "passkeys",
        "Keys found",
        ["line", "family", "length", "depth", "n", "correct"],
        [[row[name] for name in ("line", "family", "length", "depth", "n", "correct")] for row in rows.passkey],
    )
    scales = Table(
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
    uniform = Table(
        "uniform-search",
        "Losses of the uniform scales that were tried",
        ["context", "scale", "loss"],
        [
            [int(context), scale, loss]
            for context, tried in (rows.uniform or {"losses": {}})["losses"].items()
            for scale, loss in tried
        ],
    )
    entropy = Table(
        "entropy",
        "Entropy of attention",
        ["variant", "layer", "head", "position", "n", "bits", "bound"],
        [
            [row["variant"], row["layer"] + 1, row["head"] + 1, row["position"], row["n"], row["bits"], row["bound"]]
            for row in rows.entropy
            if "bits" in row
        ],
    )
    return [table for table in (perplexity, passkey, scales, uniform, entropy) if table.rows]
