"""Whether exported runs write what ours do: `python tests/exported_generation.py runs/quickstart --prompts 1000`.

Every finished run of a study is exported and loaded as anybody would load it. Prompts of all lengths of its task are
read by the exported tokenizer, padded on the left and continued greedily with a cache by Transformers, and by
`lengthwise.evaluation.generate`. Prints how many continuations are the same, token by token.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import lengthwise.hub  # noqa: F401
from lengthwise.evaluation.generate import MARGIN, generate
from lengthwise.hub.export import export
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.files import read_json
from lengthwise.study import Run
from lengthwise.tasks.task import Task
from lengthwise.training.checkpoint import load_model, run_from

TOGETHER = 100
"""Prompts of a batch."""


def prompts_of(run: Run, task: Task, count: int) -> list[tuple[str, str]]:
    """Prompts and targets, spread over the lengths of training and of tests."""
    lengths = [length for span in run.data.spans(task) for length in span]
    each = -(-count // len(lengths))
    return [pair for length in lengths for pair in task.sample(length, each, seed=7)][:count]


def same(run: Path, count: int) -> tuple[int, int, int]:
    """Prompts, those that are continued alike, and those that are continued as the task asks."""
    chosen = run_from(read_json(run / "run.json")["settings"])
    task, tokens, decoder = chosen.make_task(), chosen.make_tokens(), load_model(run / "last.safetensors").eval()
    pairs, alike, right = prompts_of(chosen, task, count), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        export(run, Path(folder) / "model")
        model = AutoModelForCausalLM.from_pretrained(Path(folder) / "model").eval()
        tokenizer = AutoTokenizer.from_pretrained(Path(folder) / "model")
    for first in range(0, len(pairs), TOGETHER):
        some = pairs[first : first + TOGETHER]
        budget = max(len(task.vocabulary.encode(target)) for _, target in some) + MARGIN
        read = tokenizer([prompt for prompt, _ in some], padding=True, return_tensors="pt")
        if decoder.last_position is not None:
            budget = min(budget, decoder.last_position + 2 - read["input_ids"].shape[1])
        written = model.generate(**read, max_new_tokens=budget, do_sample=False)[:, read["input_ids"].shape[1] :]
        ours = generate(decoder, [task.vocabulary.encode(prompt) for prompt, _ in some], tokens, budget)
        for row, expected, (_, target) in zip(written.numpy(), ours, some, strict=True):
            alike += np.array_equal(row[: len(expected)], expected)
            right += task.vocabulary.decode(expected[expected > tokens.end]) == target
    return len(pairs), alike, right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--prompts", type=int, default=1000)
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    for directory in StudyDirectory(given.study).runs():
        if directory.is_finished:
            prompts, alike, right = same(directory.path, given.prompts)
            name = read_json(directory.description)["name"]
            print(f"{name}: {alike} of {prompts} alike, {right} of them right answers", flush=True)
