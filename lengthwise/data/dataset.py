"""Writing a task's examples to files, in the published counts, with a manifest that says what is in them."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lengthwise.data import splits
from lengthwise.data.examples import Examples, concatenate
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.splits import Split
from lengthwise.errors import UserError
from lengthwise.leftovers import clear_leftovers
from lengthwise.records.directory import make_folder
from lengthwise.records.files import replace, write_json, write_rows
from lengthwise.tasks.task import Span, Task


def write_dataset(
    task: Task,
    out: Path,
    seed: int,
    scratchpad: Scratchpad,
    counts: dict[Split, int] | None = None,
    lengths: Sequence[int] = (),
    test_lengths: Sequence[int] = (),
) -> dict[str, int]:
    """Train, validation and test as JSON lines of prompt, target, length; returns how many were written.

    `counts`: by default the published ones. `lengths`: of training and validation, `test_lengths`: of the test; by
    default the published ones, by which the test has unseen lengths only.
    """
    wanted = {Split.TRAIN: lengths or task.train_lengths, Split.VALIDATION: lengths or task.train_lengths}
    wanted[Split.TEST] = test_lengths or task.test_lengths
    drawn = {}
    for split, count in (counts or dict(zip(Split, task.published_counts, strict=True))).items():
        at = sorted(wanted[split])
        apart = split is not Split.TEST or at[0] <= max(wanted[Split.TRAIN])
        span = Span(at[0], at[-1])
        buckets = [bucket for bucket in task.buckets(span) if task.length_of(bucket) in set(at)]
        if missing := set(at).difference(map(task.length_of, buckets)) if lengths or test_lengths else ():
            raise UserError(f"{task.title} has no examples of length {min(missing)} ({task.length_means})")
        own = buckets if lengths or test_lengths else None  # a mixture trains on more than it is tested on
        examples = splits.draw(task, split, span, count, seed, apart=apart, again=task.repeats, buckets=own)
        drawn[split.value] = task.formatted(examples, scratchpad)
    make_folder(out)
    clear_leftovers(out)
    files = {name: _write(task, examples, out / f"{name}.jsonl") for name, examples in drawn.items()}
    trained = sorted(wanted[Split.TRAIN])
    seen = [b for b in task.buckets(Span(trained[0], trained[-1])) if task.length_of(b) in set(trained)]
    shared = [task.length_of(bucket) for bucket in seen if splits.is_shared(task, bucket)]
    manifest = {
        "task": task.name,
        "settings": vars(task.config),
        "seed": seed,
        "scratchpad": scratchpad.name,
        "length_means": task.length_means,
        "lengths_whose_examples_are_shared_by_train_and_validation": shared,
        "files": files,
    }
    write_json(out / "manifest.json", manifest)
    return {name: file["examples"] for name, file in files.items()}


def counts_for(training: int) -> dict[Split, int]:
    """In the published proportions."""
    return {
        Split.TRAIN: training,
        Split.VALIDATION: max(1, training * 15 // 100),
        Split.TEST: max(1, training // 10),
    }


def write_all(task: Task, out: Path, scratchpad: Scratchpad) -> dict[str, int]:
    """Every example there is, each once, for a task that can list them."""
    span = Span(task.train_lengths.first, task.test_lengths.last)
    listed = [task.all_examples(bucket) for bucket in task.buckets(span)]
    found = [examples for examples in listed if examples is not None]
    if len(found) < len(listed):
        raise UserError(f"{task.name} has too many examples to list; leave out --all to draw some")
    everything = task.formatted(concatenate(found), scratchpad)
    make_folder(out)
    clear_leftovers(out)
    file = _write(task, everything, out / "all.jsonl")
    write_json(out / "manifest.json", {"task": task.name, "settings": vars(task.config), "files": {"all": file}})
    return {"all": file["examples"]}


def import_pcfg(folder: Path, out: Path) -> dict[str, int]:
    """Checks every pair of original PCFG SET files against the interpreter and writes them as JSON lines."""
    from lengthwise.tasks.pcfg_files import import_pairs
    from lengthwise.tasks.pcfg_language import FUNCTIONS

    sources = sorted(folder.glob("*.src"))
    if not sources:
        raise UserError(f"{folder} has no .src files; PCFG SET comes as pairs of .src and .tgt files")
    written = {}
    contents = {source.stem: import_pairs(source, source.with_suffix(".tgt")) for source in sources}
    make_folder(out)
    clear_leftovers(out)
    for name, pairs in contents.items():
        rows = [
            {"prompt": f"Solve: {expression}[SEP]", "target": result,
             "length": sum(word in FUNCTIONS for word in expression.split())}
            for expression, result in pairs
        ]  # fmt: skip
        write_rows(out / f"{name}.jsonl", rows)
        written[name] = len(rows)
    return written


def _write(task: Task, examples: Examples, path: Path) -> dict:
    content = "".join(_lines(task, examples)).encode()
    replace(path, lambda partial: partial.write_bytes(content))
    lengths = np.array([task.length_of(int(bucket)) for bucket in examples.buckets])
    values, counts = np.unique(lengths, return_counts=True)
    return {
        "examples": len(examples),
        "by_length": {int(value): int(count) for value, count in zip(values, counts, strict=True)},
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _lines(task: Task, examples: Examples) -> Iterator[str]:
    for i in range(len(examples)):
        prompt, target = task.text(examples, i)
        yield (
            json.dumps({"prompt": prompt, "target": target, "length": task.length_of(int(examples.buckets[i]))}) + "\n"
        )
