"""Made-up results of a whole battery, written as run folders: what a report must be able to carry."""

import random
from pathlib import Path
from typing import Any

from lengthwise.records.files import write_json, write_rows
from lengthwise.records.published import ENCODINGS, LENGTHS, cells, curves

KINDS = ("wrong symbol", "stopped early", "ran on")


def write_battery(
    folder: Path,
    tasks: list[str] | None = None,
    encodings: tuple[str, ...] = ENCODINGS,
    seeds: tuple[int, ...] = (1, 2, 3),
    failures: int = 3,
    words: int = 40,
    validations: int = 0,
) -> Path:
    """Runs that resemble the published ones, with noise; `failures` kept of each length, of `words` words each.

    `validations`: how many each run has on record; none, as in results of earlier versions, unless said.
    """
    chosen = tasks or list(LENGTHS)
    folder.mkdir(parents=True, exist_ok=True)
    order = {"task_order": chosen, "encoding_order": list(encodings)}
    write_json(folder / "study.json", {"name": "battery-small", "summary": "Made-up numbers for a test.", **order})
    for task in chosen:
        for encoding in encodings:
            for seed in seeds:
                _write_run(folder, task, encoding, seed, failures, words, validations)
    return folder


def _write_run(folder: Path, task: str, encoding: str, seed: int, failures: int, words: int, validations: int) -> None:
    generator = random.Random(f"{task} {encoding} {seed}")
    fingerprint = f"{generator.getrandbits(48):012x}"
    run = folder / task / encoding / f"seed-{seed}-{fingerprint}"
    run.mkdir(parents=True)
    (first, longest), (_, last) = LENGTHS[task]
    write_json(run / "run.json", description(task, encoding, seed, fingerprint))
    published = {length: figure.mean for (_, length), figure in curves().get((task, encoding), {}).items()}
    unlearned = task == "parity" and encoding in ("sinusoidal", "rotary")
    rows, kept = [], []
    for length in range(first, last + 1):
        mean = published.get(length, 1.0 if length <= longest else cells()[task, "none", encoding].unseen.mean)
        mean = 0.55 if unlearned else min(1.0, max(0.0, mean + generator.gauss(0, 0.05) * (length > longest)))
        n, chance = 100, 0.5 if task in ("parity", "lego") else 0.1 if task in ("summation", "polynomial") else 0.0
        correct = round(n * max(mean, chance if length > longest else 0))
        row = {"run": fingerprint, "task": task, "encoding": encoding, "seed": seed, "length": length, "n": n}
        wrong = n - correct
        counts = {"correct": correct, "wrong_symbol": wrong // 2, "stopped_early": wrong // 4}
        counts["ran_on"] = wrong - wrong // 2 - wrong // 4
        for checkpoint in ("last", "best"):
            rows.append({**row, **counts, "checkpoint": checkpoint, "seen": length <= longest, "chance": chance})
        kept += [_failure(generator, fingerprint, length, words) for _ in range(min(failures, wrong))]
    write_rows(run / "rows.jsonl", rows)
    write_rows(run / "failures.jsonl", kept)
    finished = {"steps": 10_000, "best_step": 9000, "best_validation": 1.0, "diverged_at": None}
    if validations:
        finished["validations"] = [
            {"step": 1000 * number, "validation": generator.random(), "unseen": round(generator.random(), 3)}
            for number in range(1, validations + 1)
        ]
    write_json(run / "finished.json", {**finished, "trained_together": 15, "seconds_together": 900.0})


def _failure(generator: random.Random, fingerprint: str, length: int, words: int) -> dict[str, Any]:
    target = [f"w{generator.randrange(1000)}" for _ in range(words)]
    kind = generator.choice(KINDS)
    first = words if kind == "ran on" else generator.randrange(words)
    instead = "<end>" if kind == "stopped early" else "w<x>"
    return {
        "run": fingerprint,
        "length": length,
        "prompt": "Copy: " + " ".join(target),
        "target": " ".join(target),
        "predicted": [*target[:first], instead],
        "first_error": first,
        "kind": kind,
    }


def description(task: str, encoding: str, seed: int, fingerprint: str) -> dict[str, Any]:
    (first, longest), (first_unseen, last) = LENGTHS[task]
    return {
        "fingerprint": fingerprint,
        "name": f"{task}/{encoding}/seed-{seed}",
        "task": task,
        "encoding": encoding,
        "seed": seed,
        "settings": {
            "task": {"name": task, "symbols": 100},
            "encoding": [{"name": encoding}],
            "seed": seed,
            "model": {"size": "small", "style": "t5", "layers": 4, "width": 256, "heads": 8, "dropout": 0.0},
            "data": {"train_lengths": None, "test_lengths": None, "examples": 0, "scratchpad": "none", "anchor": True},
            "training": {"steps": 10_000, "batch": 64, "learning_rate": 3e-4, "precision": "bf16"},
            "numerics": 2,
        },
        "train_lengths": [first, longest],
        "test_lengths": [first_unseen, last],
        "lengths_with_shared_examples": [],
        "encoding_of_each_layer": [encoding] * 4,
        "encoding_resolved": {encoding: {"buckets": 32} if encoding == "t5" else {}},
        "attention_scale": 1.0,
        "parameters": 3_212_345,
        "parameters_of_encoding": 256 if encoding == "t5" else 0,
        "started": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789ab",
        "versions": {"python": "3.11.7", "lengthwise": "0.1.0", "torch": "2.11.0", "numpy": "2.4.6"},
        "hardware": {"device": "NVIDIA H200", "processors": 16, "machine": "x86_64"},
    }
