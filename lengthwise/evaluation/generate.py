"""Greedy decoding with a cache, for what one pass cannot answer: what a model writes when nobody corrects it.

Shape letters: B batch, T tokens.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from lengthwise.evaluation.answers import Verdict, judge_text
from lengthwise.model.decoder import Decoder
from lengthwise.scratchpad import Scratchpad
from lengthwise.sequences import Sequences
from lengthwise.tasks.task import Task
from lengthwise.vocabulary import Vocabulary

MARGIN = 8
"""Tokens that a model may write beyond the gold target before it counts as not stopping."""

TOGETHER = 512
"""Prompts that are continued at the same time."""


@torch.no_grad()
def generate(model: Decoder, prompts: Sequence[np.ndarray], vocabulary: Vocabulary, budget: int) -> list[np.ndarray]:
    """What follows each prompt, up to and including the end, or `budget` tokens without one.

    A model whose positions end ends there too, in the longest row.

    Prompts are padded on the left, so that all rows continue at the same place; padding is a segment of its own.
    """
    device = model.embedding.weight.device
    width = max(len(prompt) for prompt in prompts)
    tokens = np.full((len(prompts), width), vocabulary.pad, dtype=np.int64)
    segments = np.zeros((len(prompts), width), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
        segments[row, width - len(prompt) :] = 1
    if model.last_position is not None:
        budget = min(budget, model.last_position + 2 - width)  # the last token written needs no position
    cache = model.new_cache(len(prompts), width + budget)
    next_BT, segments_BT = torch.from_numpy(tokens).to(device), torch.from_numpy(segments).to(device)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    written = []
    for _ in range(budget):
        logits = model(next_BT, segments_BT=segments_BT, cache=cache)[:, -1]
        next_BT = logits.argmax(dim=-1, keepdim=True)
        segments_BT = torch.ones_like(next_BT)
        written.append(next_BT[:, 0])
        ended |= next_BT[:, 0] == vocabulary.end
        if bool(ended.all()):
            break
    rows = torch.stack(written, dim=1).cpu().numpy() if written else np.zeros((len(prompts), 0), dtype=np.int64)
    return [_until_end(row, vocabulary.end) for row in rows]


def verdicts_by_bucket(
    model: Decoder, task: Task, scratchpad: Scratchpad, sequences: Sequences
) -> dict[int, Counter[Verdict]]:
    """Bucket -> how often each verdict, with what the model writes itself; the budget follows the gold length."""
    found: dict[int, Counter[Verdict]] = {}
    order = np.argsort(sequences.size - sequences.prompt, kind="stable")  # alike lengths end together
    for first in range(0, len(order), TOGETHER):
        part = sequences.select(order[first : first + TOGETHER])
        rows = list(zip(part.tokens, part.prompt, part.size, strict=True))
        golds = [tokens[prompt:size] for tokens, prompt, size in rows]
        budget = max(map(len, golds)) + MARGIN
        written = generate(model, [tokens[:prompt] for tokens, prompt, _ in rows], task.vocabulary, budget)
        for bucket, text, gold in zip(part.buckets, written, golds, strict=True):
            verdict = judge_text(task, scratchpad, text[: len(gold) + MARGIN], gold)
            found.setdefault(int(bucket), Counter())[verdict] += 1
    return found


def _until_end(row: np.ndarray, end: int) -> np.ndarray:
    ends = np.flatnonzero(row == end)
    return row[: ends[0] + 1] if len(ends) else row
