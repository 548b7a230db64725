"""Rows of tokens through a model, however long: no matrix of length x length, logits of a few tokens at a time.

PyTorch's fused attention never has all logits in memory where nothing but the causal order hides a key, so rows come
without segments and without padding.
Shape letters: B rows, T tokens, D width, M tokens of all rows, V vocabulary rows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lengthwise.context_extension.reader import Reader

LARGEST_LOGITS = {"cpu": 2**24, "cuda": 2**28}
"""Elements of the largest logits tensor (V for each token)."""
LARGEST_INNER = {"cpu": 2**24, "cuda": 2**29}
"""Elements of the widest tensor of a feed-forward layer, of which there are a few at a time; a lone row may have
more."""


@contextmanager
def watching_memory(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Yields a function that says how many bytes of a GPU's memory were taken at most; None on a CPU."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    yield lambda: torch.cuda.max_memory_reserved(device) if on_gpu else None


def rows_together(model: Reader, length: int) -> int:
    """How many rows of so many tokens are read at a time."""
    return max(1, LARGEST_INNER[model.device.type] // (length * model.inner_width))


def batches(model: Reader, rows_RT: np.ndarray) -> Iterator[Tensor]:
    """The rows in parts that fit, on the model's device."""
    together = rows_together(model, rows_RT.shape[1])
    for first in range(0, len(rows_RT), together):
        part = rows_RT[first : first + together].astype(np.int64)
        yield torch.from_numpy(part).to(model.device)


def token_losses(model: Reader, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """Cross-entropy of each target in nats (B, T), in fp32."""

    def losses(hidden_MD: Tensor, targets_M: Tensor) -> Tensor:
        return F.cross_entropy(model.unembed(hidden_MD).float(), targets_M, reduction="none")

    step = max(1, LARGEST_LOGITS[hidden_BTD.device.type] // model.rows)
    pieces = zip(hidden_BTD.flatten(0, 1).split(step), targets_BT.flatten().split(step), strict=True)
    if torch.is_grad_enabled():
        found = [checkpoint(losses, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces]
    else:
        found = [losses(*piece) for piece in pieces]
    return torch.cat(found).view(targets_BT.shape)


@torch.no_grad()
def losses_of_last(model: Reader, rows_RT: np.ndarray, scored: int) -> Tensor:
    """Losses of the last `scored` tokens of each row (R, scored), on the CPU in fp64.

    A row has one token more than is read: the last one is only predicted.
    """
    found = []
    with model.arithmetic():
        for tokens_BT in batches(model, rows_RT):
            hidden_BTD = model.hidden(tokens_BT[:, :-1])[:, -scored:]
            found.append(token_losses(model, hidden_BTD, tokens_BT[:, -scored:]).double().cpu())
    return torch.cat(found)


@torch.no_grad()
def choices(model: Reader, rows_RT: np.ndarray, count: int) -> np.ndarray:
    """The likeliest token in the place of each of the last `count` tokens of the rows, given those before it."""
    if model.by_length:
        # Reading the row whole would show the first of them a longer sequence than there is when it is written.
        width = rows_RT.shape[1]
        return np.concatenate([_choices(model, rows_RT[:, : width - count + k + 1], 1) for k in range(count)], axis=1)
    return _choices(model, rows_RT, count)


def _choices(model: Reader, rows_RT: np.ndarray, count: int) -> np.ndarray:
    found = []
    with model.arithmetic():
        for tokens_BT in batches(model, rows_RT):
            hidden_BTD = model.hidden(tokens_BT[:, :-1])[:, -count:]
            found.append(model.unembed(hidden_BTD).float().argmax(dim=-1).cpu().numpy())
    return np.concatenate(found)


def continued(model: Reader, prompt: np.ndarray, count: int) -> np.ndarray:
    """The `count` tokens that the model writes after a prompt, each the likeliest; reads all anew for each."""
    tokens = prompt
    for _ in range(count):
        (found,) = choices(model, np.append(tokens, 0)[None], 1)  # what stands in the place asked for is not read
        tokens = np.append(tokens, found)
    return tokens[len(prompt) :]
