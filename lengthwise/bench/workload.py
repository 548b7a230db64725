"""What is timed: models of one shape, a task and a recipe, as a study would train them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lengthwise.errors import UserError, nearest
from lengthwise.study import Run, load_study, study_from

QUICKSTART_SIZE = "tiny"
"""The size whose workload is the quickstart: a model for a CPU, on data that it can learn."""
PUBLISHED_DROPOUT = 0.1


@dataclass(frozen=True)
class Workload:
    """A fleet of `fleet` models that differ in their seed alone; `model`, `data`, `training` as in a study file."""

    task: str | Mapping[str, Any]
    encoding: str = "none"
    fleet: int = 1
    model: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[Run, ...] = ()
    """Runs of a study, in place of all this."""

    def runs(self) -> tuple[Run, ...]:
        if self.given:
            return self.given
        study = study_from(
            {
                "name": "bench",
                "summary": "timing",
                "tasks": [self.task],
                "encodings": [self.encoding],
                "seeds": list(range(1, self.fleet + 1)),
                "model": dict(self.model),
                "data": dict(self.data),
                "training": dict(self.training),
            }
        )
        return tuple(study.runs())


def workload(
    size: str,
    encoding: str = "none",
    fleet: int = 1,
    task: str = "copy.repeat",
    dropout: float | None = None,
    tokens: str = "symbols",
) -> Workload:
    """As published (64 examples a step, dropout 0.1) or, for the tiny size, as in the quickstart.

    A task that the quickstart does not have is taken as published with the tiny size too.
    """
    from lengthwise import configuration

    if size == QUICKSTART_SIZE:
        study = load_study("quickstart")
        own = [each for each in study.tasks if each["name"] == task]
        if own:
            model = {"size": size, "dropout": study.model.dropout if dropout is None else dropout}
            data, training = {**configuration.table(study.data), "tokens": tokens}, configuration.table(study.training)
            return Workload(own[0], encoding, fleet, model, data, training)
    model = {"size": size, "dropout": PUBLISHED_DROPOUT if dropout is None else dropout}
    return Workload(task, encoding, fleet, model, {"tokens": tokens})


def workloads_of(study: str, fleets: Sequence[int], task: str = "", encodings: Sequence[str] = ()) -> list[Workload]:
    """The methods of a study, in its own model and recipe, on one of its tasks: its first one unless `task` says which.

    `encodings`: labels of some of its methods; none for all.
    """
    found: list[Workload] = []
    for fleet in fleets:
        asked = load_study(study, [f"seeds={list(range(1, fleet + 1))}"])
        if asked.axes:
            raise UserError(f"study {study} varies {', '.join(asked.axes)}: a benchmark times one model and one recipe")
        chosen = [] if "all" in encodings else list(encodings)
        for what, wanted, known in (
            ("task", [task] if task else [], asked.titles),
            ("encoding", chosen, asked.labels),
        ):
            for name in wanted:
                if name not in known:
                    raise UserError(f"study {study} has no {what} {name!r}; {nearest(name, known)}")
        title = task or asked.titles[0]
        by_method: dict[str, list[Run]] = {}
        for run in asked.runs():
            if run.title == title and (not chosen or run.encoding.label in chosen):
                by_method.setdefault(run.encoding.label, []).append(run)
        found += [Workload(runs[0].title, label, fleet, given=tuple(runs)) for label, runs in by_method.items()]
    return found


def default_size(device: str) -> str:
    """For a kind of device: what a person can wait for on it."""
    return "base" if device == "cuda" else QUICKSTART_SIZE
