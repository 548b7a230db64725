"""Exact match in one pass against generating answers, ours and Hugging Face's.

Shape letters: B batch, T tokens.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from lengthwise.bench.arithmetic import synchronize
from lengthwise.bench.hugging_face import gpt2
from lengthwise.bench.training import session
from lengthwise.bench.workload import Workload
from lengthwise.data.sequences import Sequences
from lengthwise.evaluation.generate import generate
from lengthwise.evaluation.test_set import test_set
from lengthwise.study import Run

REPEATS = 3
"""Passes that are timed after the first."""


@dataclass(frozen=True)
class EvaluationTimes:
    """One way to find the exact match of one model."""

    method: str
    task: str
    size: str
    encoding: str
    precision: str
    batch: int
    """Examples at a time; 0 where the method chooses."""
    examples: int
    """That the seconds are for."""
    measured: int
    """That were really evaluated; where they are fewer, the seconds are scaled up."""
    first_seconds: float
    """Of the first time, scaled in the same way: what is compiled or set up is in it."""
    seconds: float
    target_tokens: int
    """In the answers that were measured."""
    written_tokens: int
    """By a model that generates; 0 for the one pass, which writes nothing."""
    times_the_one_pass: float


Answer = Callable[[Sequences], int]
"""Continues the prompts of a batch to the length of its longest answer; returns how many tokens that took."""


def time_evaluation(
    workload: Workload, device: torch.device, examples: int, sample: int, batch: int, with_transformers: bool
) -> Iterator[EvaluationTimes]:
    """The one pass on `examples` test examples, then generation on `sample` of them, `batch` at a time.

    The models are untrained. They write as many tokens as the longest answer of the batch has, which is what trained
    ones would do; examples of like length stand together, which is the best case for generation.
    """
    with session(workload, device) as fleet:
        run, task = fleet.trainer.runs[0], fleet.trainer.tasks[0]
        tests = spread_over(test_set(task, run.data), examples)
        seconds = []
        for _ in range(1 + REPEATS):
            start = time.perf_counter()
            fleet.trainer.evaluator.outcomes(fleet.trainer.fleet.matrix_NW, [tests])
            seconds.append(time.perf_counter() - start)
        one_pass = statistics.median(seconds[1:])
        common = {"task": run.title, "size": run.model.size, "examples": examples}
        precision = run.training.precision_on(device.type)
        yield EvaluationTimes(
            method="one pass",
            encoding=run.encoding.label,
            precision=precision,
            batch=0,
            measured=examples,
            first_seconds=seconds[0],
            seconds=one_pass,
            target_tokens=target_tokens(tests),
            written_tokens=0,
            times_the_one_pass=1.0,
            **common,
        )
        few = spread_over(tests, sample)
        model = fleet.trainer.fleet.model
        model.load_state_dict(fleet.trainer.fleet.row(fleet.trainer.fleet.matrix_NW, 0))

        def ours(part: Sequences) -> int:
            return sum(map(len, generate(model, prompts(part), run.make_tokens(), longest_target(part))))

        methods: list[tuple[str, str, str, Answer]] = [("lengthwise generate", run.encoding.label, "fp32", ours)]
        if with_transformers:
            theirs = transformers_answer(run, device, precision)
            methods.append(("transformers generate", "gpt2", precision, theirs))
        for method, encoding, arithmetic, answer in methods:
            first, later, written = _time_answers(answer, few, batch, device)
            scale = examples / sample
            yield EvaluationTimes(
                method=method,
                encoding=encoding,
                precision=arithmetic,
                batch=batch,
                measured=sample,
                first_seconds=scale * first,
                seconds=scale * later,
                target_tokens=target_tokens(few),
                written_tokens=written,
                times_the_one_pass=scale * later / one_pass,
                **common,
            )


def _time_answers(answer: Answer, few: Sequences, batch: int, device: torch.device) -> tuple[float, float, int]:
    """Seconds of the first time and of the second, and the tokens written."""
    seconds, written = [], 0
    for _ in range(2):
        synchronize(device)
        start = time.perf_counter()
        parts = range(0, len(few), batch)
        written = sum(answer(few.select(slice(first, first + batch))) for first in parts)
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1], written


def transformers_answer(run: Run, device: torch.device, precision: str) -> Answer:
    """Greedy `model.generate` of a GPT-2 of the same size, prompts padded on the left."""
    model = gpt2(run).to(device).eval()
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    pad = run.make_tokens().pad

    def answer(part: Sequences) -> int:
        shown = prompts(part)
        width = max(map(len, shown))
        tokens, mask = (np.full((len(shown), width), value, dtype=np.int64) for value in (pad, 0))
        for row, prompt in enumerate(shown):
            tokens[row, width - len(prompt) :] = prompt
            mask[row, width - len(prompt) :] = 1
        written_BT = model.generate(
            torch.from_numpy(tokens).to(device),
            attention_mask=torch.from_numpy(mask).to(device),
            max_new_tokens=longest_target(part),
            do_sample=False,
        )
        return written_BT[:, width:].cpu().numel()

    return answer


def spread_over(sequences: Sequences, count: int) -> Sequences:
    """`count` of them, evenly spaced, so that every length keeps its share; some twice where there are fewer."""
    return sequences.select(np.linspace(0, len(sequences) - 1, count).round().astype(np.int64))


def prompts(sequences: Sequences) -> list[np.ndarray]:
    return [row[:size] for row, size in zip(sequences.tokens, sequences.prompt, strict=True)]


def longest_target(sequences: Sequences) -> int:
    return int((sequences.size - sequences.prompt).max())


def target_tokens(sequences: Sequences) -> int:
    return int((sequences.size - sequences.prompt).sum())
