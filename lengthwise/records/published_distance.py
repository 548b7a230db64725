"""The attention distances to NoPE that Kazemnejad et al. 2023 (arXiv 2305.19466) published: their own divergence, over
head pairs i < j, on SCAN."""

import csv
from functools import cache

from lengthwise.records.published import DATA

OTHER_SEED = "none (other seed)"
"""NoPE compared with NoPE."""

LAYERS = 12


@cache
def published_distances(task: str) -> dict[str, dict[tuple[int, int], float]]:
    """Encoding -> (layer, length) -> mean distance; empty for a task that is not published."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    with (DATA / "nope_attention_distance.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["task"] == task and row["layer"] != "all":
                encoding = OTHER_SEED if row["encoding"] == "none(other seed)" else row["encoding"]
                found.setdefault(encoding, {})[int(row["layer"]), int(row["length"])] = float(row["distance_mean"])
    return found
