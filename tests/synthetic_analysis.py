"""Made-up findings of analyses for the runs of a made-up battery: what a report must be able to carry."""

import base64
import math
import random
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.records.findings import AnalysisFolder
from lengthwise.records.published import LENGTHS
from lengthwise.records.rows import load_results
from lengthwise.records.run_result import RunResult

SCORES = ("tokens_back", "entropy_share", "first", "diagonal", "previous", "induction")
EDGES = [0, 1, 2, 4, 8, 16, 32, 64]


def write_analysis(runs: Path, layers: int = 12, heads: int = 12, tokens: int = 60, sharp: bool = True) -> Path:
    """Every analysis of every run in a folder; `sharp`: attention that mostly looks at few tokens, as trained heads do.

    Sequences of training have half of `tokens`. Maps are of the runs with seed 1.
    """
    folder = AnalysisFolder(runs / "analysis")
    found = load_results(runs).runs
    for run in found:
        about = run.description
        generator = random.Random(about["name"])
        unit, identity = f"{about['fingerprint']}-last", _identity(run)
        reference = _reference(found, run)
        if reference is not None:
            asked: dict[str, Any] = {"count": 10, "lengths": []}
            rows = [{**identity, **row} for row in _distances(generator, about, reference, layers)]
            folder.write("distance", f"{about['fingerprint']}-{reference['fingerprint']}-last", asked, rows)
        for kind, rows in (
            ("heads", _heads(generator, layers, heads, tokens)),
            ("probes", _probes(generator, layers, tokens)),
            ("failures", _failures(generator, about["task"])),
        ):
            folder.write(kind, unit, {"count": 10, "lengths": []}, [{**identity, **row} for row in rows])
        if about["seed"] == 1:
            examples = [_map(size, size < tokens, layers, heads, sharp) for size in (tokens // 2, tokens)]
            folder.write_maps(unit, {**identity, "examples": examples})
    return runs / "analysis"


def _identity(run: RunResult) -> dict[str, Any]:
    about = run.description
    return {"run": about["fingerprint"], **{k: about[k] for k in ("task", "encoding", "seed")}, "checkpoint": "last"}


def _reference(found: list[RunResult], run: RunResult) -> dict[str, Any] | None:
    """Of an encoding the run of `none` with the same seed, of `none` itself that of seed 1."""
    about = run.description
    seed = 1 if about["encoding"] == "none" else about["seed"]
    others = (other.description for other in found if other is not run)
    wanted = (about["task"], "none", seed)
    return next((other for other in others if (other["task"], other["encoding"], other["seed"]) == wanted), None)


def _distances(
    generator: random.Random, about: dict[str, Any], reference: dict[str, Any], layers: int
) -> list[dict[str, Any]]:
    (first, longest), (_, last) = LENGTHS[about["task"]]
    known = {
        "reference": "none",
        "reference_run": reference["fingerprint"],
        "reference_seed": reference["seed"],
        "variant": "distance",
        "layers": layers,
    }
    return [
        {
            **known,
            "layer": layer,
            "length": length,
            "n": 10,
            "distance": round(generator.uniform(0.01, 0.5), 6),
            "deviation": 0.01,
            "mean_over_pairs": 0.6,
            "seen": length <= longest,
        }
        for layer in range(1, layers + 1)
        for length in range(first, last + 1)
    ]


def _heads(generator: random.Random, layers: int, heads: int, tokens: int) -> list[dict[str, Any]]:
    rows = []
    for group, size in (("seen", tokens // 2), ("unseen", tokens)):
        for layer in range(1, layers + 1):
            for head in range(1, heads + 1):
                shares = [generator.random() for _ in EDGES]
                scores = {score: round(generator.random(), 5) for score in SCORES}
                even = {
                    "tokens_back": size / 4,
                    "induction": 0.05,
                    **dict.fromkeys(("first", "diagonal", "previous"), 0.1),
                }
                rows.append(
                    {
                        "group": group, "layer": layer, "head": head, "n": 10, **scores,
                        "tokens_back": round(generator.uniform(0, size / 2), 5), "even": even,
                        "distance_up_to": EDGES, "distance_share": [round(share / sum(shares), 4) for share in shares],
                        "entropy_by_position": [round(0.7 * math.log(t), 4) for t in range(1, size + 1)],
                        "entropy_bound": [round(math.log(t), 4) for t in range(1, size + 1)],
                        "first_by_position": [round(1 / t, 4) for t in range(1, size + 1)],
                    }
                )  # fmt: skip
    return rows


def _probes(generator: random.Random, layers: int, tokens: int) -> list[dict[str, Any]]:
    def part(control: bool) -> dict[str, Any]:
        r2 = -0.01 if control else generator.random()
        return {"n": 100, "r2": round(r2, 4), "error": round(generator.uniform(0, 3), 4), "slope": 0.5}

    rows = []
    for target in ("position", "distance"):
        for layer in range(layers + 1):
            for probe in ("linear", "nonlinear"):
                for control in (False, True):
                    row = {
                        "target": target, "layer": layer, "probe": probe, "control": control,
                        "trained_tokens": tokens // 2, "fitted_to": 1000, "within": part(control),
                        "beyond": part(control), "accuracy_holds_until": {"length": 20, "tokens": tokens // 2 + 3},
                    }  # fmt: skip
                    if not control:
                        errors = [round(generator.random() * (1 + i / 10), 3) for i in range(tokens)]
                        row["holds_until"] = tokens // 2
                        row["by_position"] = {"position": list(range(tokens)), "estimate": errors, "error": errors}
                    rows.append(row)
    return rows


def _failures(generator: random.Random, task: str) -> list[dict[str, Any]]:
    (first, longest), (_, last) = LENGTHS[task]
    rows = []
    for length in range(first, last + 1):
        parts = [generator.randrange(4) for _ in range(10)]
        wrong = sum(parts)
        kinds = {"wrong_symbol": wrong // 2, "stopped_early": wrong // 4, "ran_on": wrong - wrong // 2 - wrong // 4}
        rows.append(
            {
                "length": length, "n": 50, "correct": 50 - wrong, **kinds, "first_error_part": parts,
                "first_error_place": parts, "first_error_share": 0.5 if wrong else None, "beyond_trained": wrong // 2,
                "seen": length <= longest,
            }
        )  # fmt: skip
    return rows


def _map(size: int, seen: bool, layers: int, heads: int, sharp: bool) -> dict[str, Any]:
    """The last query of head h (from 0) of layer 1 looks at key h alone."""
    generator = np.random.default_rng(size)
    rows, columns = np.tril_indices(size)
    logits = generator.normal(size=(layers, heads, size, size)) * (8 if sharp else 1)
    logits[0, :, -1] = -1e9
    logits[0, range(heads), -1, range(heads)] = 0
    logits[..., np.triu(np.ones((size, size), bool), 1)] = -np.inf
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return {
        "length": size // 3, "seen": seen, "prompt_tokens": size // 2,
        "tokens": [f"w<{i}>" for i in range(size)], "layers": layers, "heads": heads,
        "weights": base64.b64encode((weights[..., rows, columns] * 255).round().astype(np.uint8).tobytes()).decode(),
    }  # fmt: skip
