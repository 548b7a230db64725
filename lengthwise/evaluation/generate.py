"""Greedy decoding with a cache, for what one pass cannot answer: what a model writes when nobody corrects it.

Shape letters: B batch, T tokens.
"""

from collections.abc import Sequence

import numpy as np
import torch

from lengthwise.data.tokens import Tokens
from lengthwise.model.decoder import Decoder

MARGIN = 8
"""Tokens that a model may write beyond the gold target before it counts as not stopping."""


@torch.no_grad()
def generate(model: Decoder, prompts: Sequence[np.ndarray], tokens: Tokens, budget: int) -> list[np.ndarray]:
    """What follows each prompt, up to and including the end, or `budget` tokens without one.

    A model whose positions end ends there too, in the longest row.

    Prompts are padded on the left, so that all rows continue at the same place; padding is a segment of its own.
    """
    device = model.embedding.weight.device
    ids, segments = side_by_side(prompts, tokens.pad)
    width = ids.shape[1]
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
    return [until_end(row, tokens.end) for row in rows]


def side_by_side(prompts: Sequence[np.ndarray], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and segments of prompts that are padded on the left; padding is segment 0, all else 1."""
    width = max(len(prompt) for prompt in prompts)
    ids = np.full((len(prompts), width), pad, dtype=np.int64)
    segments = np.zeros((len(prompts), width), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = prompt
        segments[row, width - len(prompt) :] = 1
    return ids, segments


def until_end(row: np.ndarray, end: int) -> np.ndarray:
    """A text up to and including its end; all of it where it has none."""
    ends = np.flatnonzero(row == end)
    return row[: ends[0] + 1] if len(ends) else row
