"""Where runs depart from the published protocol, in words.

Every entry of the protocol is asked of every run: lengths, model, tokens, data, recipe, checkpoint, scoring, and the
settings of tasks and encodings. Results of earlier versions do not say what those versions could not do otherwise.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.records import published
from lengthwise.records.earlier import unsaid_of_training
from lengthwise.records.row_table import has_field
from lengthwise.records.run_result import RunResult
from lengthwise.records.task_names import scratchpad_name, task_name

SECTIONS = ("lengths", "task", "encoding", "model", "tokens", "data", "training", "scoring")
"""In the order in which they are named."""

ANSWERED = ("addition", "summation", "parity", "sort.symbols", "sort.numbers", "polynomial", "lego")
"""Tasks whose published score reads an answer from a sentence."""


@dataclass(frozen=True)
class Departure:
    """One entry of the protocol that a run does not keep."""

    section: str
    what: str
    where: str = ""
    """What it is about where that is not the run's task."""


def departures(runs: Sequence[RunResult], checkpoint: str) -> list[str]:
    """One line for each section and group of tasks; none where a run does not say how it was made."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for each in _of_run(run, checkpoint):
            found[each.section, each.what].add(each.where or task_name(run))
    every = {task_name(run) for run in runs}
    lines: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)
    for (section, what), places in found.items():
        # The same for all tasks is the rule, and needs no list of them.
        lines[section, frozenset() if places == every and len(every) > 1 else frozenset(places)].append(what)
    general_first = sorted(lines, key=lambda line: (SECTIONS.index(line[0]), len(line[1]) > 0))
    told = [f"{line[0]}: {', '.join(lines[line])}{_places(line[1])}" for line in general_first]
    return [*told, *_of_study(runs, checkpoint)]


def has_published_lengths(run: RunResult) -> bool:
    """Whether it was trained and tested at the published lengths; also where it does not say."""
    given = _lengths(run)
    return not given or given == published.LENGTHS.get(task_name(run))


def other_lengths(runs: Sequence[RunResult]) -> list[str]:
    """Lengths that are not the published ones, with their tasks."""
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        if not has_published_lengths(run):
            found[_other_lengths(run)].add(task_name(run))
    return [what + _places(tasks) for what, tasks in found.items()]


def _of_run(run: RunResult, checkpoint: str) -> Iterator[Departure]:
    if not has_published_lengths(run):
        yield Departure("lengths", _other_lengths(run))
    settings = run.description.get("settings", {})
    if not settings:
        return
    name = task_name(run)
    yield from _changed("task", settings.get("task", {}), published.TASK_SETTINGS.get(name, {}))
    label = run.description["encoding"]
    for layer in settings.get("encoding", []):
        yield from _encoding(label, layer)
    yield from _model(settings.get("model", {}))
    yield from _data(run, settings.get("data", {}), settings.get("numerics", 0))
    yield from _training(run, settings.get("training", {}), settings.get("numerics", 0), checkpoint)
    yield from _scoring(run, checkpoint)


def _of_study(runs: Sequence[RunResult], checkpoint: str) -> Iterator[str]:
    """What is no property of a single run."""
    if checkpoint != published.CHECKPOINT:
        yield (
            f"checkpoint: {checkpoint} (published: {published.CHECKPOINT} in distribution; --checkpoint "
            f"{published.CHECKPOINT} shows that)"
        )
    # By title: the same task may stand in several cells, which do not share their seeds.
    seeds: dict[tuple[str, str], set[int]] = defaultdict(set)
    for run in runs:
        seeds[run.description["task"], run.description["encoding"]].add(run.description["seed"])
    few = [cell for cell, each in seeds.items() if len(each) < published.SEEDS]
    if few and any(run.description.get("settings") for run in runs):
        cells = "1 cell has" if len(few) == 1 else f"{len(few)} cells have"
        yield f"seeds: {cells} fewer than {published.SEEDS}"


def _encoding(label: str, layer: Mapping[str, Any]) -> Iterator[Departure]:
    """`layer`: what one layer has under the name `label`, which a study may give to anything."""
    if methods := layer.get("methods"):
        together = " + ".join(method["name"] for method in methods)
        yield Departure("encoding", f"{together} in one layer (published {label} alone)", label)
        return
    yield from _changed("encoding", layer, {"name": label, **published.ENCODING_SETTINGS.get(label, {})}, label)


def _model(given: Mapping[str, Any]) -> Iterator[Departure]:
    yield from _changed("model", given, published.PROTOCOL["model"])
    # Both are 0 where they are what the other numbers make them.
    if given.get("key_value_heads", 0) not in (0, given.get("heads")):
        yield Departure("model", f"key_value_heads {given['key_value_heads']} (published: as many as heads)")
    if given.get("feed_forward", 0) not in (0, 4 * given.get("width", 0)):
        yield Departure("model", f"feed_forward {given['feed_forward']:,} (published: 4 times the width)")
    if given.get("loops", 1) != 1:
        yield Departure("model", f"loops {given['loops']:,} (published: layers are passed once)")


def _data(run: RunResult, given: Mapping[str, Any], numerics: int) -> Iterator[Departure]:
    name = task_name(run)
    plain = {"anchor": True, "prefix_tokens": 0, "separator_tokens": 0, "placement": "consecutive"}
    yield from _changed("data", given, plain)
    if (tokens := given.get("tokens", "symbols")) != "published":
        yield Departure("tokens", f"{tokens} (published: the pieces of T5's tokenizer)")
    elif given.get("trimmed"):
        yield Departure("tokens", f"embedding rows only for pieces in use (published {published.ROWS:,})")
    train, validation, test = published.COUNTS.get(name, (None, None, None))
    if train is None or validation is None or test is None:
        return
    yield from _changed("data", given, {"examples": train}, default=None)
    if given.get("validation") not in (None, validation):
        yield Departure("data", f"validation {given['validation']:,} (published: half of what training leaves)")
    if given.get("test_at"):
        yield Departure("data", f"tests at {len(given['test_at'])} of the unseen lengths (published: all of them)")
    elif (count := _test_count(run, given.get("test_per_length"), test)) != test:
        told = f"{test:,}" if name in published.WHOLE_TESTS else "10,000"  # or 9,984, where they cannot be spread
        yield Departure("data", f"test examples {count:,} (published {told})")
    if given.get("held_out", "by_length") != "overall":
        yield Departure("data", "the same share of each length is held out (published: a share of all prompts)")
    if given.get("seed") is None:
        yield Departure("data", "training examples are drawn for each seed (published: the same for all)")
    if name == "pcfg":
        yield Departure("data", "training expressions in the likeness of PCFG SET (published: PCFG SET's own)")
    if scratchpad_name(run) != "none" and numerics < 9:
        yield Departure("data", "steps are written in our own way (published: in, comp, out, re)")


def _test_count(run: RunResult, per_length: int | None, published_count: int) -> int:
    if per_length is None:
        return published_count
    first, last = run.description.get("test_lengths", published.LENGTHS[task_name(run)][1])
    wanted = per_length * (last - first + 1)
    return min(wanted, published_count) if task_name(run) in published.WHOLE_TESTS else wanted


def _training(run: RunResult, given: Mapping[str, Any], numerics: int, checkpoint: str) -> Iterator[Departure]:
    said: dict[str, Any] = {**unsaid_of_training(numerics), **given}
    if said.get("precision") == "auto":
        device = run.description.get("hardware", {}).get("device", "CPU")
        said["precision"] = "fp32" if device == "CPU" else "bf16"
    wanted = dict(published.PROTOCOL["training"])
    if checkpoint != published.CHECKPOINT:
        del wanted["best"]
    steps, (low, high) = wanted.pop("steps"), published.PCFG_STEPS
    taken = said.get("steps", steps)
    if not (low <= taken <= high if task_name(run) == "pcfg" else taken == steps):
        yield Departure("training", f"steps {taken:,} (published {steps:,}, pcfg {low:,} to {high:,})")
    yield from _changed("training", said, wanted)


def _scoring(run: RunResult, checkpoint: str) -> Iterator[Departure]:
    if task_name(run) == "pcfg":
        limit = published.LONGEST_GENERATED
        yield Departure("scoring", f"answers of any length (published: cut off at {limit} tokens, prompt included)")
    judged_whole = task_name(run) in ANSWERED and scratchpad_name(run) == "none" and has_field(run.rows, "ran_on")
    if judged_whole and run.total("ran_on", checkpoint, seen=False):
        yield Departure("scoring", "an answer must end (published: what follows a right sentence is not read)")


def _changed(
    section: str, given: Mapping[str, Any], expected: Mapping[str, Any], where: str = "", default: object = ...
) -> Iterator[Departure]:
    """Entries that have another value; `default` stands for the published one."""
    for key, value in expected.items():
        if key in given and given[key] != value and given[key] is not default:
            what = f"{key} {_plain(key, given[key])} (published {_plain(key, value)})"
            yield Departure(section, what, where)


def _lengths(run: RunResult) -> tuple[tuple[int, ...], ...]:
    """First and last length of training and of the test, as far as the run says."""
    return tuple(tuple(run.description[key]) for key in ("train_lengths", "test_lengths") if key in run.description)


def _other_lengths(run: RunResult) -> str:
    both = _lengths(run), published.LENGTHS.get(task_name(run), ())
    ours, theirs = (f"trained on {', tested on '.join(map(_span, lengths))}" if lengths else "none" for lengths in both)
    return f"{ours} (published: {theirs})"


def _places(places: Iterable[str]) -> str:
    return f": {', '.join(sorted(places))}" if places else ""


def _plain(key: str, value: Any) -> str:
    if key == "examples" and value == 0:
        return "endless"
    return f"{value:,}" if type(value) is int else str(value)


def _span(lengths: Sequence[int]) -> str:
    return f"{lengths[0]}-{lengths[1]}"
