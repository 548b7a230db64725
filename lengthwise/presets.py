"""Names of published choices that are made of encodings: settings of one, several in a layer, schedules over layers.

Published windows and chunks are for contexts of thousands of tokens; here they are 16 tokens. Where another size is
wanted, the whole choice is given in place of its name.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    summary: str
    layers: list[Any]
    """As a study says it."""
    source: str = ""
    arxiv: str = ""
    """As on a card."""


WHOLE = {"name": "rotary", "fraction": 1.0, "pairs": "halves"}
"""Rotary positions as Llama has them."""
NEAR = [WHOLE, {"name": "window", "size": 16}]

PRESETS = {
    "p-rope": Preset(
        "Rotary positions with the fastest quarter of the frequencies (Barbero et al. 2025; Gemma 4).",
        [{"name": "rotary", "fraction": 0.25, "exponent": "head"}],
        source="Barbero et al. 2025",
        arxiv="2410.06205",
    ),
    "path-fox": Preset(
        "PaTH with the forget gates of FoX (Yang et al. 2025).",
        [["path", "fox"]],
        source="Yang et al. 2025",
        arxiv="2505.16381",
    ),
    "smollm3": Preset(
        "Rotary positions, and none in every fourth layer (SmolLM3).",
        [*[{**WHOLE, "base": 2_000_000.0}] * 3, "none"],
        source="SmolLM3",
    ),
    "irope": Preset(
        "Rotary positions within chunks, and every fourth layer sees all without positions (Llama 4).",
        [*[[{**WHOLE, "base": 500_000.0}, {"name": "chunk", "size": 16}]] * 3, "none"],
        source="Llama 4",
    ),
    "rnope-swa": Preset(
        "Rotary positions within a window, and every fourth layer sees all without positions (Yang et al. 2025).",
        [*[NEAR] * 3, "none"],
        source="Yang et al. 2025",
        arxiv="2501.18795",
    ),
    "swan": Preset(
        "A layer that sees all without positions, its logits scaled with length, then three with rotary positions "
        "within a window (after SWAN-GPT, Puvvada et al. 2025; the ratio of layers is our guess).",
        [["none", "logn"], *[NEAR] * 3],
        source="Puvvada et al. 2025",
        arxiv="2504.08719",
    ),
}
"""By name, in lower case."""
