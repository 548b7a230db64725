"""What is timed: models of one shape, a task and a recipe, as a study would train them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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

    def runs(self) -> tuple[Run, ...]:
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


def default_size(device: str) -> str:
    """For a kind of device: what a person can wait for on it."""
    return "base" if device == "cuda" else QUICKSTART_SIZE
