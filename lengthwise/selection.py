"""A part of a study: `task=addition,encoding=none` chooses the runs to be done now."""

from collections.abc import Mapping, Sequence

from lengthwise.records.choosing import choose, named_values
from lengthwise.records.points import written
from lengthwise.study import Run, Study


def select(runs: Sequence[Run], only: str) -> list[Run]:
    """The runs that `only` names; a key that comes several times means any of its values. Empty: all."""
    return choose(
        runs, only, lambda run: {"task": run.title, "encoding": run.encoding.label, "seed": run.seed, **run.grid}
    )


def refuse_unknown(only: str, values: Mapping[str, Sequence[str]]) -> None:
    """Refuses what names nothing, before there are runs to choose from. `values`: key -> what it may be."""
    if only.strip():
        named_values(only, [{key: value} for key, every in values.items() for value in every])


def values_of(study: Study) -> dict[str, list[str]]:
    """What each run of a study can be chosen by -> the values that it has."""
    seeds = [str(seed) for seed in study.seeds]
    axes = {axis: [written(value) for value in values] for axis, values in study.axes.items()}
    return {"task": list(study.titles), "encoding": list(study.labels), "seed": seeds, **axes}
