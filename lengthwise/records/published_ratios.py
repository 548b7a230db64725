"""The perplexities of Wang et al. 2024 (arXiv 2404.12224), under the names that the lines of a table have here."""

import csv
from dataclasses import dataclass
from functools import cache

from lengthwise.records.published import DATA

TRAINED = 2048
LENGTHS = {"2K": 1, "4K": 2, "8K": 4, "16K": 8}
"""Their contexts -> how many times the trained length."""
DATASET = "PG19"
NOPE, ROPE = "NoPE (TinyLlama-NoPE 1.1B, 50k steps)", "RoPE (TinyLlama 1.1B, 50k steps)"

LINES: dict[str, tuple[str, str]] = {
    "none": (NOPE, ""),
    "uniform-scale for 2x": ("UniformScale lambda=1.2/sqrt(d)", ""),
    "uniform-scale for 4x": ("UniformScale lambda=1.5/sqrt(d)", ""),
    "uniform-scale for 8x": ("UniformScale lambda=1.8/sqrt(d)", ""),
    "head-scale for 2x": ("HeadScale lambda^(h)", "4K"),
    "head-scale for 4x": ("HeadScale lambda^(h)", "8K"),
    "head-scale for 8x": ("HeadScale lambda^(h)", "18K"),
    "rotary": (ROPE, ""),
    "dynamic-ntk": ("NTK zero-shot", ""),
    "yarn": ("YaRN zero-shot", ""),
    **{f"position-interpolation for {k}x, trained": ("PI fair", n) for k, n in ((2, "4K"), (4, "8K"), (8, "16K"))},
    **{f"yarn for {k}x, trained": ("YaRN fair", n) for k, n in ((2, "4K"), (4, "8K"), (8, "16K"))},
}
"""Our line -> their model and target length. Their longest HeadScale was fitted at 18K, 9 times the trained length."""
ABLATIONS = {
    "head-scale for 8x": "HeadScale 18K",
    "head-scale for 8x, without start": "w/o initialization",
    "head-scale for 8x, without floor": "w/o focus constraint",
}
"""Published at 16K alone."""


@dataclass(frozen=True)
class PublishedRatio:
    """A perplexity relative to that of the same model as trained, at the trained length."""

    ratio: float
    at_least: bool
    """Whether it is only known to be above that."""


@cache
def ratios() -> dict[tuple[str, int], PublishedRatio]:
    """(our line, times the trained length) -> ratio."""
    rows: dict[tuple[str, str, int], tuple[float, bool]] = {}
    with (DATA / "headscale_perplexity.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["dataset"] == DATASET:
                key = row["model"], row["target_length"], LENGTHS[row["context"]]
                rows[key] = float(row["perplexity"]), row["relation"] == ">"
    found = {}
    for line, (model, target) in LINES.items():
        base, _ = rows[NOPE if family(line) == "none" else ROPE, "", 1]
        for times in LENGTHS.values():
            value, at_least = rows[model, target, times]
            found[line, times] = PublishedRatio(value / base, at_least)
    base, _ = rows[NOPE, "", 1]
    for line, perplexity in _ablation("PPL@16K PG19").items():
        found[line, 8] = PublishedRatio(perplexity / base, False)
    return found


@cache
def ablation_keys() -> dict[str, float]:
    """Our line -> passkey accuracy, mean over lengths up to 8 times the trained one."""
    return {line: percent / 100 for line, percent in _ablation("passkey average accuracy").items()}


def _ablation(metric: str) -> dict[str, float]:
    with (DATA / "headscale_ablation.csv").open(newline="") as file:
        known = {row["variant"]: float(row["value"]) for row in csv.DictReader(file) if metric in row["metric"]}
    return {line: known[variant] for line, variant in ABLATIONS.items()}


def family(line: str) -> str:
    """The encoding of the model that a line is about."""
    return "none" if line.startswith(("none", "uniform-scale", "head-scale")) else "rotary"
