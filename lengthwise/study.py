"""A study says what to compare: tasks x encodings x seeds x grid, one model, one recipe. It expands into runs."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from lengthwise import configuration, registry
from lengthwise.data.tokens import Tokens
from lengthwise.door import refuse_odd, visible
from lengthwise.encodings.choice import EncodingChoice, is_mixer, read_encoding, read_method, tables_of
from lengthwise.errors import UserError, nearest
from lengthwise.grid import (
    GRID,
    SECTIONS,
    Axes,
    GridPoint,
    at_first_point,
    flat,
    nested,
    points,
    read_grid,
    without_axes,
)
from lengthwise.model.config import ModelConfig, with_size
from lengthwise.placements.choosing import CONSECUTIVE
from lengthwise.records.claims import CLAIM, Claim, read_claim
from lengthwise.records.names import refuse_unfit
from lengthwise.records.points import grid_words
from lengthwise.tasks.check import check
from lengthwise.tasks.choosing import make_task, task_table
from lengthwise.tasks.task import Span, Task
from lengthwise.training.limits import refuse_large_sets, refuse_long
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.words import spelled

SHIPPED = Path(__file__).parent / "studies"
SHIPPED_EXTENSIONS = Path(__file__).parent / "context_extension"
"""Folder of the studies of context extension; `lengthwise extend study` runs them."""

MOST_RUNS = 50_000
"""Of one study; tables of more would be of no use to anyone."""

NUMERICS = 9
"""Part of every fingerprint: raised when a change to this code changes the numbers of a run.

5: of equally good validations the latest is `best`, no more the earliest. 6: the last layer is finished only where
something is predicted, and dropout after it counts those states. 7: what dropout keeps; the last layer's product after
attention, too, is done for those states alone. 8: on a CPU, rows of 24 and 48 tokens and AdamW in one pass; without
our kernels, how the loss is rounded. 9: the text of scratchpads and separators.
"""


MIXTURE = "mixture"
"""The task that holds others."""

NOTHING, SOFTMAX = "none", "softmax"
"""What a study says where an encoding stays as it is."""

OWN = {
    "data": (
        *("train_lengths", "test_lengths", "test_at", "scratchpad"),
        *("tokens", "trimmed", "prefix_tokens", "separator_tokens", "placement"),
    ),
    "training": ("learning_rate", "steps"),
}
"""Settings that a task may have for itself in a study."""


@dataclass(frozen=True)
class TaskChoice:
    """A task with the data and training settings that it has in a study, and what tables call it."""

    title: str
    task: str | dict[str, Any]
    data: DataConfig
    training: TrainingConfig


@dataclass(frozen=True)
class Run:
    """One model on one task: everything that can change its numbers, and what people call it."""

    task: dict[str, Any]
    encoding: EncodingChoice
    seed: int
    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
    called: str = ""
    """What results call its task, where that is not the task's own title."""
    grid: Mapping[str, Any] = field(default_factory=dict)
    """Those of its settings that its study varies; all of them are also in the sections above."""

    def table(self) -> dict[str, Any]:
        """Its settings, as they are recorded with every result."""
        return {
            "task": self.task,
            "encoding": list(self.encoding.layers),
            "seed": self.seed,
            "model": configuration.table(self.model),
            "data": configuration.table(self.data),
            "training": configuration.table(self.training),
            "numerics": NUMERICS,
        }

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that can change its numbers."""
        data = dict(_table(self.data))
        if self.data.tokens_sha256:
            data["tokens"] = "file"
        if self.data.placement == CONSECUTIVE:
            del data["placement"]  # runs that are older than placements keep their names
        table = {
            "task": {key: value for key, value in self.task.items() if key != "path"},  # its content counts
            "encoding": list(self.encoding.layers),
            "seed": self.seed,
            "model": _table(self.model),
            "data": data,
            "training": _table(self.training),
            "numerics": NUMERICS,
        }
        text = json.dumps(table, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Task, encoding, point of the grid and seed, such as `copy.repeat/alibi/seed-1`; unique within a study."""
        return "/".join([self.title, self.encoding.label, *([self.point] if self.grid else []), f"seed-{self.seed}"])

    @property
    def point(self) -> str:
        """Its place in the grid, such as `layers=4,learning_rate=0.001`; empty without one."""
        return grid_words(self.grid)

    @cached_property
    def title(self) -> str:
        """What results call its task."""
        return self.called or self.make_task().title

    @cached_property
    def outside(self) -> dict[str, str]:
        """Files of its methods that do not come with the package, with their checksums. Imports them, and so torch."""
        tasks = [self.task, *(self.task["tasks"] if self.task["name"] == MIXTURE else ())]
        parts = [(registry.tasks, task["name"]) for task in tasks]
        parts.append((registry.placements, self.data.placement.partition("(")[0]))
        methods = [table for layer in self.encoding.layers for table in tables_of(layer)]
        parts += [(registry.mixers if is_mixer(table) else registry.encodings, table["name"]) for table in methods]
        return {file: checksum for known, name in parts for file, checksum in known.outside(name).items()}

    def make_task(self) -> Task:
        """The task that it is trained on."""
        return make_task(self.task)

    def make_tokens(self) -> Tokens:
        """How symbols of its task become tokens."""
        return self.data.make_tokens(self.make_task())


@lru_cache(maxsize=256)
def _table(settings: ModelConfig | DataConfig | TrainingConfig) -> dict[str, Any]:
    """Thousands of runs have the same; not to be changed."""
    return configuration.table(settings)


@dataclass(frozen=True)
class Study:
    """The settings of a study file; `tasks` and `encodings` are names, or tables of a name and settings.

    A task's table may also hold settings of data and training for this task alone, such as `scratchpad`.
    """

    name: str
    summary: str
    tasks: tuple[Any, ...]
    encodings: tuple[Any, ...]
    seeds: tuple[int, ...]
    scales: tuple[Any, ...] = (NOTHING,)
    """Methods of the kind `scale`; every encoding meets every one. `none` adds nothing."""
    normalizers: tuple[Any, ...] = (SOFTMAX,)
    """Methods of the kind `normalizer`; every encoding meets every one. `softmax` changes nothing."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    grid: Any = field(default=None, metadata={configuration.YOUNGER: True})
    """Settings of `model`, `data` and `training` -> their values; those three are what the first values make them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, GRID, read_grid(self.grid) or None)
        for what in ("tasks", "encodings", "seeds", "scales", "normalizers"):
            chosen = getattr(self, what)
            if not chosen:
                raise ValueError(f"{what} must name at least one")
        several = (self.tasks, self.encodings, self.scales, self.normalizers, self.seeds, *self.axes.values())
        if (count := math.prod(map(len, several))) > MOST_RUNS:
            raise ValueError(f"a study has at most {MOST_RUNS:,} runs, not {count:,}; cut it into several")
        for what, shown in (("tasks", self.titles), ("encodings", self.labels), ("seeds", list(self.seeds))):
            if len(set(shown)) < len(shown):
                raise ValueError(f"{what} names something twice: {visible(', '.join(map(str, shown)))}")
        for title in self.titles:
            refuse_unfit(title, "a task's title")
        if (least := min(self.seeds)) < 0:
            raise ValueError(f"seeds must be 0 or more, not {least}")
        refuse_unfit(self.name, "name")
        for task in self.tasks:
            self._refuse_both(task)
            for data, training in dict.fromkeys((point.data, point.training) for point in self.points):
                choice = self.choice(task, data, training)
                made = make_task(choice.task)
                refuse_long(choice.title, choice.data, made)
                spans = choice.data.spans(made)
                refuse_large_sets(choice.title, choice.data, choice.training, made)
                _check_task(json.dumps(choice.task, sort_keys=True), *spans)

    def _refuse_both(self, task: Any) -> None:
        """Refuses a setting that the grid varies and that a task has for itself: one of them would be ignored."""
        own = configuration.in_full(task) if isinstance(task, Mapping) else {}
        for kind, keys in OWN.items():
            for key in keys:
                if key in own and f"{kind}.{key}" in self.axes:
                    named = f"task {visible(str(own.get('name', '')), 60)}"
                    raise ValueError(f"{named} has {key} for itself, and the grid varies {kind}.{key}; leave one out")

    @property
    def axes(self) -> Axes:
        """Of its grid; empty without one."""
        return self.grid or {}

    @cached_property
    def points(self) -> tuple[GridPoint, ...]:
        """Of its grid; one without values where there is none."""
        return points(self.axes, self.model, self.data, self.training)

    @property
    def titles(self) -> list[str]:
        """What tables call the tasks."""
        return [self.choice(task).title for task in self.tasks]

    def choice(
        self, task: str | Mapping[str, Any], data: DataConfig | None = None, training: TrainingConfig | None = None
    ) -> TaskChoice:
        """A task's table without its own settings, and the study's settings with them; or those of a grid point."""
        data, training = data or self.data, training or self.training
        if not isinstance(task, Mapping):
            return TaskChoice(make_task(task).title, task, data, training)
        task = configuration.in_full(task)
        own = {kind: {key: task[key] for key in keys if key in task} for kind, keys in OWN.items()}
        rest = {key: value for key, value in task.items() if not any(key in settings for settings in own.values())}
        where = f"task {task.get('name', '')}"
        data = configuration.read(DataConfig, {**configuration.table(data), **own["data"]}, where)
        training = configuration.read(TrainingConfig, {**configuration.table(training), **own["training"]}, where)
        told = [str(own["data"]["scratchpad"])] if "scratchpad" in own["data"] else []
        told += [f"{Path(data.tokens).stem} tokens"] if "tokens" in own["data"] else []
        if "prefix_tokens" in own["data"] or "separator_tokens" in own["data"]:
            told.append(f"{data.prefix_tokens or 1} + {data.separator_tokens or 1} tokens")
        if "placement" in own["data"]:
            said = own["data"]["placement"]
            told.append(said if isinstance(said, str) else data.placement)
        told += [f"rate {training.learning_rate:g}"] if "learning_rate" in own["training"] else []
        title = make_task(rest).title + (f" ({', '.join(told)})" if told else "")
        return TaskChoice(title, rest, data, training)

    @property
    def labels(self) -> list[str]:
        """What tables call the encodings."""
        return [choice.label for choice in self.methods()]

    def methods(self) -> list[EncodingChoice]:
        """Every encoding with every scale and normaliser."""
        scales = [() if scale == NOTHING else (read_method(scale, "scale"),) for scale in self.scales]
        normalizers = [() if each == SOFTMAX else (read_method(each, "normalizer"),) for each in self.normalizers]
        return [
            read_encoding(encoding).plus(*scale, *normalizer)
            for encoding in self.encodings
            for scale in scales
            for normalizer in normalizers
        ]

    def runs(self) -> list[Run]:
        """Every combination, with all settings resolved. Imports the encodings, and so torch."""
        encodings, titles = [method.resolved() for method in self.methods()], self.titles
        runs: list[Run] = []
        for point in self.points:
            choices = [self.choice(task, point.data, point.training) for task in self.tasks]
            tables = [task_table(choice.task) for choice in choices]
            runs += [
                Run(table, encoding, seed, point.model, choice.data, choice.training, title, point.values)
                for encoding in encodings
                for choice, table, title in zip(choices, tables, titles, strict=True)
                for seed in self.seeds
            ]
        named: dict[str, str] = {}
        for run in runs:
            if run.fingerprint in named:
                raise UserError(f"{named[run.fingerprint]} and {run.name} have the same settings; leave one out")
            named[run.fingerprint] = run.name
        return runs

    def table(self) -> dict[str, Any]:
        """The study as its file could hold it: `study_from` makes the same of it."""
        table = configuration.table(self)
        return table | {section: without_axes(section, table[section], self.axes) for section in SECTIONS}

    def description(self) -> dict[str, Any]:
        """What a study's folder says of it: the settings, and the order in which tables show things."""
        return {
            **self.table(),
            "task_order": self.titles,
            "encoding_order": self.labels,
        }


def shipped_studies() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


def shipped_extension_studies() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED_EXTENSIONS.glob("*.toml"))}


def load_study(name: str, assignments: Iterable[str] = ()) -> Study:
    """A shipped study by its name, or any study by its file; `assignments` as in `--set training.steps=2000`."""
    shipped = shipped_studies()
    name = spelled(name, {**shipped, **shipped_extension_studies()}) or name
    if name in shipped:
        path = shipped[name]
    elif Path(name).suffix == ".toml":
        path = Path(name)
    elif name in shipped_extension_studies():
        raise UserError(f"{name} is run by another command: lengthwise extend study {name} --corpus TEXTS --out OUT")
    else:
        raise UserError(
            f"unknown study {visible(name)!r}; {nearest(name, shipped, summary_of)} (a file must end in .toml)"
        )
    table = {"name": path.stem, **configuration.load(path)}
    if isinstance(table.get("tasks"), list):
        table["tasks"] = [_beside(path, task) for task in table["tasks"]]
    claim = read_claim(table.pop(CLAIM)) if CLAIM in table else None
    assignments = list(assignments)
    if GRID in table:
        table[GRID] = nested(table[GRID])
    table = configuration.with_changes_told(configuration.override(table, assignments), assignments)
    _refuse_varied(assignments, flat(table.get(GRID)))
    study = study_from(table)
    if claim and not assignments:  # which may leave out what it speaks of
        claim.refuse_unknown(study.titles, study.labels)
    return study


def _refuse_varied(assignments: Iterable[str], varied: Mapping[str, Any]) -> None:
    """Refuses to set what the grid varies: the grid would win, and nobody would know."""
    for assignment in assignments:
        path = assignment.partition("=")[0].strip()
        if (named := next(iter(flat({path: []})))) in varied:
            raise UserError(f"--set {path}: the study's grid varies it; use --set grid.{named}=[...]")


def summary_of(name: str) -> str:
    """What a shipped study says of itself, without its full stop."""
    table = configuration.load({**shipped_studies(), **shipped_extension_studies()}[name])
    return str(table["summary"]).removesuffix(".")


def claim_of(path: Path) -> Claim | None:
    """The published claim that a study's file holds, if it does."""
    table = configuration.load(path)
    return read_claim(table[CLAIM]) if CLAIM in table else None


def _beside(study: Path, task: Any) -> Any:
    """A task's file that is named without its folder is looked for beside the study."""
    if isinstance(task, Mapping) and isinstance(task.get("name"), str):
        return {**task, "name": _beside(study, task["name"])}
    if isinstance(task, str) and task.endswith(".jsonl") and (study.parent / task).exists():
        return str(study.parent / task)
    return task


def study_from(table: Mapping[str, Any]) -> Study:
    """A study from a plain table, as a study file holds it."""
    refuse_odd(table, "the study")
    table = at_first_point(table, read_grid(table.get(GRID)))
    if isinstance(table.get("model", {}), Mapping):
        table["model"] = with_size(dict(table.get("model", {})))
    return configuration.read(Study, table, "")


@lru_cache(maxsize=1024)
def _check_task(choice: str, train: Span, test: Span) -> None:
    """`choice`: as JSON. A study may name a task often, with other scratchpads and learning rates: it is asked once."""
    check(make_task(json.loads(choice)), train, test)
