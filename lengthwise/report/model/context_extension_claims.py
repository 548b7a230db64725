"""What the published table of extended models says, and whether ours does."""

from dataclasses import dataclass
from itertools import pairwise

from lengthwise.records.published_ratios import ablation_keys
from lengthwise.report.model.context_extension import ExtensionRows, line_words
from lengthwise.report.model.phrases import published_ratio
from lengthwise.report.model.phrases import ratio as ratio_words

HELD = 1.15
"""Perplexity at 4x relative to 1x that still counts as held."""
BREAKS = 2.0
"""Relative perplexity from which a model is called broken."""


@dataclass(frozen=True)
class Statement:
    """Something that the published table says, and whether ours does."""

    words: str
    found: str
    holds: bool


def claims(rows: ExtensionRows) -> list[Statement]:
    """Only those for which there are rows."""
    found = []
    for line, words in (("none", "without positions"), ("rotary", "with rotary positions")):
        if line in rows.lines and (ratio := rows.ratio(line, 2)) is not None:
            said = f"{ratio_words(ratio)} times the perplexity at 2x"
            found.append(Statement(f"As trained, the model {words} breaks at 2x", said, ratio >= BREAKS))
    raw, uniform = (rows.ratio(line, 2) if line in rows.lines else None for line in ("none", "uniform-scale for 2x"))
    if raw is not None and uniform is not None:
        said = f"{ratio_words(uniform)} instead of {ratio_words(raw)}"
        found.append(Statement("One scale for all heads rescues 2x", said, uniform < raw and uniform <= BREAKS))
    head, even = "head-scale for 4x", "uniform-scale for 4x"
    ratio = rows.ratio(head, 4) if head in rows.lines else None
    if ratio is not None:
        numbers = next((f" with {fit.numbers} trained parameters" for fit in rows.fits if fit.line == head), "")
        words = f"Head scales fitted at 4x hold the perplexity there within {HELD - 1:.0%} of 1x"
        published = rows.published(head, 4)
        theirs = f" (published {published_ratio(published)})" if published else ""
        found.append(Statement(words, f"{ratio_words(ratio)}{numbers}{theirs}", ratio <= HELD))
        other = rows.ratio(even, 4) if even in rows.lines else None
        if other is not None:
            said = f"{ratio_words(ratio)} against {ratio_words(other)}"
            found.append(Statement("They do better at 4x than one scale for all heads", said, ratio < other))
    return [*found, *_ablations(rows)]


def _ablations(rows: ExtensionRows) -> list[Statement]:
    """Published at 8x alone: the order of the full method, without its initialization, without its constraint."""
    lines, found = list(ablation_keys()), []
    if not set(lines) <= set(rows.lines):
        return []
    ours = {line: rows.ratio(line, 8) for line in lines}
    theirs = {line: published.ratio for line in lines if (published := rows.published(line, 8))}
    if all(ours.values()):
        words = "Head scales for 8x and their ablations have the published order of perplexities at 8x"
        found.append(_order(words, {line: ratio or 0.0 for line, ratio in ours.items()}, theirs))
    longest = 8 * (rows.trained or 0)
    keys = {line: rows.keys_found(line, longest) for line in lines}
    if all(share is not None for share in keys.values()):
        words = "They have the published order of passkey accuracy, too"
        found.append(_order(words, {line: share or 0.0 for line, share in keys.items()}, ablation_keys()))
    return found


def _order(words: str, ours: dict[str, float], theirs: dict[str, float]) -> Statement:
    """From the lowest published value on."""
    order = sorted(theirs, key=lambda line: theirs[line])
    said = ", ".join(
        f"{ablation or 'full'} {ratio_words(ours[line])} (published {ratio_words(theirs[line])})"
        for line in order
        for ablation in [line_words(line).partition(", ")[2]]
    )
    values = [ours[line] for line in order]
    return Statement(words, said, all(low < high for low, high in pairwise(values)))
