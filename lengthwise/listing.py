"""What there is: tasks, encodings, extensions and studies, a row for each, for `lengthwise list`."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from lengthwise import registry

if TYPE_CHECKING:
    from lengthwise.tasks.task import Task


def task_rows() -> list[dict[str, Any]]:
    from lengthwise.tasks.choosing import make_task

    rows = []
    for name, entry in registry.tasks.entries.items():
        row = {"name": name, "summary": entry.summary, "settings": entry.settings, "file": str(entry.file)}
        about = {"family": "other", "published": "", "train": "", "test": "", "length_means": ""}
        about |= {"symbols": [], "chance": {}, "steps": []}
        if name != "file":  # which has nothing to show before it is given a file
            task = make_task(name)
            row["settings"] = dataclasses.asdict(task.config)
            about = {
                "family": task.family,
                "published": task.published_split,
                "train": str(task.train_lengths),
                "test": str(task.test_lengths),
                "length_means": task.length_means,
                "symbols": list(task.vocabulary.symbols),
                "chance": _chances(task),
                "steps": [part.name.lower() for part in task.step_parts],
            }
        rows.append({**row, **about})
    return rows


def battery() -> list[str]:
    """The tasks of the published battery."""
    return [name for name in registry.tasks.names() if registry.tasks.get(name).published_split]


def _chances(task: "Task") -> dict[int, float]:
    """Length -> chance accuracy, the mean over the buckets of that length."""
    found: dict[int, list[float]] = {}
    with registry.asking(f"task {task.name}", type(task), "chance"):
        for bucket in (*task.buckets(task.train_lengths), *task.buckets(task.test_lengths)):
            found.setdefault(task.length_of(bucket), []).append(task.chance(bucket))
    return {length: sum(values) / len(values) for length, values in found.items()}


def encoding_rows() -> list[dict[str, Any]]:
    """Encodings, and published choices that are made of them."""
    from lengthwise.encodings.choice import kinds_of, read_encoding, words_of
    from lengthwise.presets import PRESETS

    rows = [
        {**row, "kind": entry.kind, "card": entry.card, "layers": None}
        for row, entry in zip(component_rows(registry.encodings), registry.encodings.entries.values(), strict=True)
    ]
    presets = [
        {
            "name": name,
            "summary": f"{preset.summary} = {words_of(read_encoding(name).layers)}",
            "settings": {},
            "file": "",
            "kind": "position",
            "card": {
                "kind": " and ".join(kinds_of(read_encoding(name).layers)),
                "equation": "",
                "source": preset.source,
                "arxiv": preset.arxiv,
            },
            "layers": list(read_encoding(name).layers),
        }
        for name, preset in PRESETS.items()
    ]
    return [*rows, *presets]


def component_rows(components: registry.Registry) -> list[dict[str, Any]]:
    from lengthwise.encodings.card import card_of

    for entry in components.entries.values():
        card_of(entry)  # which refuses a wrong one
    return [
        {"name": name, "summary": entry.summary, "settings": entry.settings, "file": str(entry.file)}
        for name, entry in components.entries.items()
    ]


def study_rows() -> list[dict[str, Any]]:
    from lengthwise import configuration
    from lengthwise.study import shipped_extension_studies, shipped_studies

    rows = []
    for command, studies in {"run": shipped_studies(), "extend study": shipped_extension_studies()}.items():
        for name, path in studies.items():
            table = configuration.load(path)
            axes = ("tasks", "encodings", "scales", "normalizers", "seeds", "models")
            runs = math.prod(len(table[axis]) for axis in axes if axis in table)
            about = {"summary": table["summary"], "file": str(path), "command": command}
            rows.append({"name": name, "runs": runs, **about})
    return rows
