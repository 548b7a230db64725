"""Greedy decoding with a cache, for what one pass cannot answer: what a model writes when nobody corrects it.

Shape letters: B batch, T tokens.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from lengthwise.data.examples import offsets
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences
from lengthwise.data.tokens import Tokens
from lengthwise.evaluation.answers import Verdict, judge_text
from lengthwise.evaluation.exact import Outcomes
from lengthwise.model.decoder import Decoder
from lengthwise.tasks.task import Task

MARGIN = 8
"""Tokens that a model may write beyond the gold target before it counts as not stopping."""

TOGETHER = {"cpu": 512, "cuda": 4096}
"""Prompts that are continued at the same time."""


@torch.no_grad()
def generate(model: Decoder, prompts: Sequence[np.ndarray], tokens: Tokens, budget: int) -> list[np.ndarray]:
    """What follows each prompt, up to and including the end, or `budget` tokens without one.

    A model whose positions end ends there too, in the longest row.

    Prompts are padded on the left, so that all rows continue at the same place; padding is a segment of its own.
    """
    device = model.embedding.weight.device
    width = max(len(prompt) for prompt in prompts)
    ids = np.full((len(prompts), width), tokens.pad, dtype=np.int64)
    segments = np.zeros((len(prompts), width), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = prompt
        segments[row, width - len(prompt) :] = 1
    if model.last_position is not None:
        budget = min(budget, model.last_position + 2 - width)  # the last token written needs no position
    cache = model.new_cache(len(prompts), width + budget)
    next_BT, segments_BT = torch.from_numpy(ids).to(device), torch.from_numpy(segments).to(device)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    written = []
    for _ in range(budget):
        logits = model(next_BT, segments_BT=segments_BT, cache=cache)[:, -1]
        next_BT = logits.argmax(dim=-1, keepdim=True)
        segments_BT = torch.ones_like(next_BT)
        written.append(next_BT[:, 0])
        ended |= next_BT[:, 0] == tokens.end
        if bool(ended.all()):
            break
    rows = torch.stack(written, dim=1).cpu().numpy() if written else np.zeros((len(prompts), 0), dtype=np.int64)
    return [_until_end(row, tokens.end) for row in rows]


def verdicts_by_bucket(
    model: Decoder,
    task: Task,
    tokens: Tokens,
    scratchpad: Scratchpad,
    sequences: Sequences,
    predicted_P: np.ndarray,
    outcomes: Outcomes,
) -> dict[int, Counter[Verdict]]:
    """Bucket -> how often each verdict, with what the model writes itself; the budget follows the gold length.

    `predicted_P` and `outcomes` are those of one pass. It says what the model writes up to and including its first
    error, so only what comes after that has to be generated, and nothing where there is none.
    """
    starts_E = offsets(outcomes.tokens_E)
    last_E = np.minimum(outcomes.first_error_E + 1, outcomes.tokens_E)
    rows = zip(sequences.tokens, sequences.prompt, sequences.size, strict=True)
    golds = [ids[prompt:size] for ids, prompt, size in rows]
    known = [predicted_P[start : start + last] for start, last in zip(starts_E[:-1], last_E, strict=True)]
    left_E = np.array([len(gold) + MARGIN - len(text) for gold, text in zip(golds, known, strict=True)])
    unfinished = np.flatnonzero([text[-1] != tokens.end for text in known])
    unfinished = unfinished[np.argsort(left_E[unfinished], kind="stable")]  # those with alike lengths end together
    together = TOGETHER[model.embedding.weight.device.type]
    for first in range(0, len(unfinished), together):
        part = unfinished[first : first + together]
        prompts = [np.concatenate([sequences.tokens[e, : sequences.prompt[e]], known[e]]) for e in part]
        written = generate(model, prompts, tokens, int(left_E[part].max()))
        for example, text in zip(part, written, strict=True):
            known[example] = np.concatenate([known[example], text[: left_E[example]]])
    found: dict[int, Counter[Verdict]] = {}
    for bucket, text, gold in zip(sequences.buckets, known, golds, strict=True):
        found.setdefault(int(bucket), Counter())[judge_text(task, scratchpad, text, gold, tokens)] += 1
    return found


def _until_end(row: np.ndarray, end: int) -> np.ndarray:
    ends = np.flatnonzero(row == end)
    return row[: ends[0] + 1] if len(ends) else row
