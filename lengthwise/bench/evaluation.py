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
from lengthwise.evaluation.decoding import Decoding
from lengthwise.evaluation.generate import generate
from lengthwise.evaluation.test_set import test_set
from lengthwise.study import Run

REPEATS = 3
"""Passes that are timed after the first."""
AFFORDABLE_SECONDS = 60
"""Where all examples are generated in less, they are: nothing is scaled up then."""


@dataclass(frozen=True)
class EvaluationTimes:
    """One way to find the exact match of one model."""

    method: str
    task: str
    size: str
    encoding: str
    precision: str
    batch: int
    """Examples at a time: the most, where the method chooses; 0 for the one pass."""
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
    same_texts: float | None = None
    """Share of texts that are those of our eager generation in the same precision, token by token."""
    note: str = ""


Answer = Callable[[Sequences], list[np.ndarray]]
"""Continues the prompts of a batch; returns what was written."""


def time_evaluation(
    workload: Workload, device: torch.device, examples: int, sample: int, batch: int, with_transformers: bool
) -> Iterator[EvaluationTimes]:
    """The one pass on `examples` test examples, then generation.

    Of those on `sample`, and on all of them if that takes no more than a minute. `batch` at a time, except by our own
    captured steps, which choose. The models are untrained. They write as many tokens as trained ones would: as the
    longest answer of the batch has, or each its own where rows are dropped as they end. Examples of like length stand
    together, which is the best case for generation.
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
        model = fleet.trainer.fleet.model
        model.load_state_dict(fleet.trainer.fleet.row(fleet.trainer.fleet.matrix_NW, 0))
        notes: list[str] = []
        decoding, tokens = Decoding(model, precision, notes.append), run.make_tokens()

        def eager(part: Sequences) -> list[np.ndarray]:
            return generate(decoding.model, prompts(part), tokens, longest_target(part))

        def fast(part: Sequences) -> list[np.ndarray]:
            return decoding.generate(prompts(part), tokens, (part.size - part.prompt).tolist())

        methods: list[tuple[str, str, int, Answer]] = [
            ("lengthwise generate, eager", run.encoding.label, batch, eager),
            ("", run.encoding.label, 0, fast),
        ]
        if with_transformers:
            methods.append(("transformers generate", "gpt2", batch, transformers_answer(run, device, precision)))
        few, few_texts = spread_over(tests, sample), []
        for method, encoding, together, answer in methods:
            measured = few
            first, later, texts = _time_answers(answer, few, together or len(few), device)
            same = None
            if answer is eager:
                few_texts = texts
            elif answer is fast:
                sizes = few.size - few.prompt
                pairs = zip(texts, few_texts, sizes, strict=True)
                same = float(np.mean([np.array_equal(mine, other[:size]) for mine, other, size in pairs]))
                method = f"lengthwise generate, {decoding.way}"
            if sample < examples and later * examples / sample <= AFFORDABLE_SECONDS:
                measured = tests
                first, later, texts = _time_answers(answer, tests, together or len(tests), device)
            scale = examples / len(measured)
            yield EvaluationTimes(
                method=method,
                encoding=encoding,
                precision=precision,
                batch=together or max(decoding.parts),
                measured=len(measured),
                first_seconds=scale * first,
                seconds=scale * later,
                target_tokens=target_tokens(measured),
                written_tokens=sum(map(len, texts)),
                times_the_one_pass=scale * later / one_pass,
                same_texts=same,
                note="; ".join(notes) if answer is fast else "",
                **common,
            )


def _time_answers(
    answer: Answer, few: Sequences, batch: int, device: torch.device
) -> tuple[float, float, list[np.ndarray]]:
    """Seconds of the first time and of the second, and what was written."""
    seconds, texts = [], []
    for _ in range(2):
        synchronize(device)
        start = time.perf_counter()
        parts = range(0, len(few), batch)
        texts = [text for first in parts for text in answer(few.select(slice(first, first + batch)))]
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1], texts


def transformers_answer(run: Run, device: torch.device, precision: str) -> Answer:
    """Greedy `model.generate` of a GPT-2 of the same size, prompts padded on the left."""
    model = gpt2(run).to(device).eval()
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    pad = run.make_tokens().pad

    def answer(part: Sequences) -> list[np.ndarray]:
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
        return list(written_BT[:, width:].cpu().numpy())

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
