"""Where runs depart from the published protocol, in words: lengths, model, data, recipe, task and encoding settings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lengthwise.records import published
from lengthwise.records.naming import task_name
from lengthwise.records.rows import RunResult


def departures(runs: Sequence[RunResult], checkpoint: str) -> list[str]:
    """One line for each kind, of runs on published tasks; none where a run does not say how it was made."""
    lines = [*(f"lengths: {line}" for line in other_lengths(runs)), *_tasks(runs), *_encodings(runs)]
    for section, expected in published.PROTOCOL.items():
        lines += _settings(runs, section, expected)
    if checkpoint != published.CHECKPOINT:
        lines.append(
            f"checkpoint: {checkpoint} (published: {published.CHECKPOINT} in distribution; --checkpoint "
            f"{published.CHECKPOINT} shows that)"
        )
    return lines


def has_published_lengths(run: RunResult) -> bool:
    """Whether it was trained and tested at the published lengths; also where it does not say."""
    given = _lengths(run)
    return not given or given == published.LENGTHS.get(task_name(run))


def other_lengths(runs: Sequence[RunResult]) -> list[str]:
    """Lengths that are not the published ones, with their tasks."""
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        if not has_published_lengths(run):
            both = _lengths(run), published.LENGTHS[task_name(run)]
            ours, theirs = (f"trained on {', tested on '.join(map(_span, lengths))}" for lengths in both)
            found[f"{ours} (published: {theirs})"].add(task_name(run))
    return list(_with_places(found))


def _lengths(run: RunResult) -> tuple[tuple[int, ...], ...]:
    """First and last length of training and of the test, as far as the run says."""
    return tuple(tuple(run.description[key]) for key in ("train_lengths", "test_lengths") if key in run.description)


def _tasks(runs: Sequence[RunResult]) -> Iterator[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        given = run.description.get("settings", {}).get("task", {})
        if changed := _changed(given, published.TASK_SETTINGS.get(task_name(run), {})):
            found[f"task: {changed}"].add(task_name(run))
    yield from _with_places(found)


def _encodings(runs: Sequence[RunResult]) -> Iterator[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        label = run.description["encoding"]
        for layer in run.description.get("settings", {}).get("encoding", []):
            expected = {"name": label, **published.ENCODING_SETTINGS.get(label, {})}
            if changed := _changed(layer, expected):
                found[f"encoding: {changed}"].add(label)
    yield from _with_places(found)


def _settings(runs: Sequence[RunResult], section: str, expected: Mapping[str, Any]) -> Iterator[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        given = dict(run.description.get("settings", {}).get(section, {}))
        wanted = dict(expected)
        if section == "training":
            if given.get("precision") == "auto":
                device = run.description.get("hardware", {}).get("device", "CPU")
                given["precision"] = "fp32" if device == "CPU" else "bf16"
            low, high = published.PCFG_STEPS
            if task_name(run) == "pcfg":
                wanted["steps"] = given["steps"] if low <= given.get("steps", 0) <= high else f"{low:,} to {high:,}"
        if changed := _changed(given, wanted):
            found[f"{section}: {changed}"].add(task_name(run))
    every = {task_name(run) for run in runs}
    # The same for all tasks is the rule, and needs no list of them.
    yield from _with_places({what: set() if tasks == every else tasks for what, tasks in found.items()})


def _changed(given: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {_plain(key, given[key])} (published {_plain(key, value)})"
        for key, value in expected.items()
        if key in given and given[key] != value
    )


def _with_places(found: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for what, places in found.items():
        yield what + (f": {', '.join(sorted(places))}" if places else "")


def _plain(key: str, value: Any) -> str:
    if key == "examples" and value == 0:
        return "endless"
    return f"{value:,}" if type(value) is int else str(value)


def _span(lengths: Sequence[int]) -> str:
    return f"{lengths[0]}-{lengths[1]}"
