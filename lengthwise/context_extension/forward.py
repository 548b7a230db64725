"""Rows of tokens through a decoder, however long: no matrix of length x length, logits of a few tokens at a time.

PyTorch's fused attention never has all logits in memory where nothing but the causal order hides a key, so rows come
without segments and without padding.
Shape letters: B rows, T tokens, D width, M tokens of all rows, V vocabulary rows.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lengthwise.errors import UserError
from lengthwise.extensions.extension import extensions_of
from lengthwise.model.decoder import Decoder

LARGEST_LOGITS = {"cpu": 2**24, "cuda": 2**28}
"""Elements of the largest logits tensor (V for each token)."""
LARGEST_INNER = {"cpu": 2**24, "cuda": 2**29}
"""Elements of the widest tensor of a feed-forward layer, of which there are a few at a time; a lone row may have
more."""


def arithmetic(device: torch.device) -> AbstractContextManager[object]:
    """Products in bf16 on a GPU, with weights, norms, residual stream and loss in fp32; all in fp32 on a CPU."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


@contextmanager
def watching_memory(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Yields a function that says how many bytes of a GPU's memory were taken at most; None on a CPU."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    yield lambda: torch.cuda.max_memory_reserved(device) if on_gpu else None


def device_of(model: Decoder) -> torch.device:
    return model.embedding.weight.device


def rows_together(model: Decoder, length: int) -> int:
    """How many rows of so many tokens are read at a time."""
    return max(1, LARGEST_INNER[device_of(model).type] // (length * model.config.inner_width))


def batches(model: Decoder, rows_RT: np.ndarray) -> Iterator[Tensor]:
    """The rows in parts that fit, on the model's device."""
    together = rows_together(model, rows_RT.shape[1])
    for first in range(0, len(rows_RT), together):
        part = rows_RT[first : first + together].astype(np.int64)
        yield torch.from_numpy(part).to(device_of(model))


def hidden_states(model: Decoder, tokens_BT: Tensor, forget: bool = False) -> Tensor:
    """The normalised residual stream (B, T, D).

    `forget`: what a block computes is computed again in the backward pass (gradient checkpointing).
    """
    length = tokens_BT.shape[1]
    if model.last_position is not None and length > model.last_position + 1:
        raise UserError(
            f"the encoding of this model ends at position {model.last_position}: it cannot read {length} tokens"
        )
    layout = model.layout(tokens_BT)
    assert layout.hidden_BTS is None, "a mask would be a matrix of length x length"
    with forgetting(model) if forget else nullcontext():
        return model.hidden(tokens_BT, layout)


@contextmanager
def forgetting(model: Decoder) -> Iterator[None]:
    """Passes within keep only what each block reads."""
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for block in model.blocks:
            del block.forward  # the class's own is there again


def token_losses(model: Decoder, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """Cross-entropy of each target in nats (B, T), in fp32."""

    def losses(hidden_MD: Tensor, targets_M: Tensor) -> Tensor:
        return F.cross_entropy(model.unembed(hidden_MD).float(), targets_M, reduction="none")

    step = max(1, LARGEST_LOGITS[hidden_BTD.device.type] // model.embedding.num_embeddings)
    pieces = zip(hidden_BTD.flatten(0, 1).split(step), targets_BT.flatten().split(step), strict=True)
    if torch.is_grad_enabled():
        found = [checkpoint(losses, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces]
    else:
        found = [losses(*piece) for piece in pieces]
    return torch.cat(found).view(targets_BT.shape)


@torch.no_grad()
def losses_of_last(model: Decoder, rows_RT: np.ndarray, scored: int) -> Tensor:
    """Losses of the last `scored` tokens of each row (R, scored), on the CPU in fp64.

    A row has one token more than is read: the last one is only predicted.
    """
    found = []
    with arithmetic(device_of(model)):
        for tokens_BT in batches(model, rows_RT):
            hidden_BTD = hidden_states(model, tokens_BT[:, :-1])[:, -scored:]
            found.append(token_losses(model, hidden_BTD, tokens_BT[:, -scored:]).double().cpu())
    return torch.cat(found)


@torch.no_grad()
def choices(model: Decoder, rows_RT: np.ndarray, count: int) -> np.ndarray:
    """The likeliest token in the place of each of the last `count` tokens of the rows, given those before it."""
    if any(each.by_length for encoding in model.distinct_encodings() for each in extensions_of(encoding)):
        # Reading the row whole would show the first of them a longer sequence than there is when it is written.
        width = rows_RT.shape[1]
        return np.concatenate([_choices(model, rows_RT[:, : width - count + k + 1], 1) for k in range(count)], axis=1)
    return _choices(model, rows_RT, count)


def _choices(model: Decoder, rows_RT: np.ndarray, count: int) -> np.ndarray:
    found = []
    with arithmetic(device_of(model)):
        for tokens_BT in batches(model, rows_RT):
            hidden_BTD = hidden_states(model, tokens_BT[:, :-1])[:, -count:]
            found.append(model.unembed(hidden_BTD).float().argmax(dim=-1).cpu().numpy())
    return np.concatenate(found)


def continued(model: Decoder, prompt: np.ndarray, count: int) -> np.ndarray:
    """The `count` tokens that the model writes after a prompt, each the likeliest; reads all anew for each."""
    tokens = prompt
    for _ in range(count):
        (found,) = choices(model, np.append(tokens, 0)[None], 1)  # what stands in the place asked for is not read
        tokens = np.append(tokens, found)
    return tokens[len(prompt) :]
