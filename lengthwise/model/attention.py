"""Attention with every hook of an encoding: written out, or in one kernel where nothing asks for the logits.

Shape letters: B batch, H query heads, G key-value heads, T queries, S keys, K head width, D model width.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.encoding import Encoding
from lengthwise.model import kernel
from lengthwise.model.cache import Cache
from lengthwise.model.config import ModelConfig
from lengthwise.model.dropout import Dropout
from lengthwise.model.linear import Linear
from lengthwise.model.picking import pick_tokens
from lengthwise.model.trace import LayerTrace, Trace


@dataclass(frozen=True)
class Places:
    """Where queries and keys stand, and which keys each query may see."""

    query_BT: Tensor
    key_BS: Tensor
    hide: Callable[[], Tensor] | None
    """Makes `hidden_BTS`, once; None where the causal order says it all."""
    causal: bool
    """With `hide` None: whether later keys are hidden, or (one cached step) there are none."""
    segments_BT: Tensor | None = None
    """Given where positions count up by one within each segment, so that distances are differences of index."""
    _said: dict[tuple[int, str], Tensor | None] = field(default_factory=dict)
    """What encodings have said of these places; layers that share an encoding ask it once."""

    @property
    def hidden_BTS(self) -> Tensor | None:
        """True where a key may not be seen. Made when it is first asked for: our kernel never does."""
        return None if self.hide is None else self.hide()

    def turns(self, encoding: Encoding) -> Tensor | None:
        """Cosine and sine of the angles by which queries and keys are turned: (B, T, pairs, 2)."""

        def ask() -> Tensor | None:
            angles_BTP = encoding.angles(self.query_BT)
            return None if angles_BTP is None else torch.stack([angles_BTP.cos(), angles_BTP.sin()], dim=-1)

        return self._once(encoding, "turns", ask)

    def by_distance(self, encoding: Encoding) -> Tensor | None:
        """The bias of each distance in a row: (H, T)."""
        length, device = self.query_BT.shape[1], self.query_BT.device
        return self._once(encoding, "bias", lambda: encoding.by_distance(torch.arange(length, device=device)))

    def _once(self, encoding: Encoding, what: str, ask: Callable[[], Tensor | None]) -> Tensor | None:
        key = (id(encoding), what)
        if key not in self._said:
            self._said[key] = ask()
        return self._said[key]


LARGEST_LOGITS = 2**28
"""Logits in memory at a time, where they are written out and no gradient asks for them again."""

Backend = Literal["written", "fused", "kernel"]
"""`fused`: PyTorch's own kernel, for a lone model. `kernel`: ours, for packed rows on a GPU, stacked or not."""


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.heads * config.head_width, config.groups * config.head_width
        self.sizes = {"query": inner, "key": shared, "value": shared}
        # One product instead of three: small models spend their time on starting kernels.
        self.projection = Linear(config.width, sum(self.sizes.values()))
        self.output = Linear(inner, config.width)

    def project(self, x_BTD: Tensor) -> list[Tensor]:
        """Queries, keys and values: (B, H, T, K), (B, G, T, K), (B, G, T, K)."""
        return self._split(self.projection(x_BTD))

    def _split(self, joined_BTC: Tensor) -> list[Tensor]:
        parts = joined_BTC.split(list(self.sizes.values()), dim=-1)
        return [part.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2) for part in parts]

    def forward(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        places: Places,
        dropout: Dropout,
        layer: int = 0,
        cache: Cache | None = None,
        trace: Trace | None = None,
        backend: Backend = "fused",
        chosen_P: Tensor | None = None,
    ) -> Tensor:
        """What is added to the stream (B, T, D), or (P, D) of it: the chosen tokens, by their number in the batch."""
        mixed_BTD = self._mix(x_BTD, encoding, places, dropout, layer, cache, trace, backend)
        return self.output(mixed_BTD if chosen_P is None else pick_tokens(mixed_BTD, chosen_P))

    def _mix(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        places: Places,
        dropout: Dropout,
        layer: int,
        cache: Cache | None,
        trace: Trace | None,
        backend: Backend,
    ) -> Tensor:
        """The mixed values of all heads, side by side."""
        joined_BTC = self.projection(x_BTD)
        in_kernel = backend == "kernel" and trace is None and _kernel_can(self.config, encoding, places)
        if in_kernel and self.config.groups == self.config.heads and not _changes_queries(encoding):
            # Nothing happens between projection and kernel: it reads what the product wrote, and turns it itself.
            joined_BTXHK = joined_BTC.unflatten(-1, (3, -1, self.config.head_width))
            scale = encoding.geometry.logit_scale
            return _kernel(joined_BTXHK, scale, encoding, places, dropout, places.turns(encoding))
        q_BHTK, k_BGSK, v_BGSK = self._split(joined_BTC)
        q_BHTK = encoding.rotate(q_BHTK, places.query_BT)
        k_BGSK = encoding.rotate(k_BGSK, places.query_BT)
        if cache is not None:
            k_BGSK, v_BGSK = cache.extend(layer, k_BGSK, v_BGSK)
        shared = self.config.heads // self.config.groups
        if shared > 1:
            k_BGSK, v_BGSK = k_BGSK.repeat_interleave(shared, dim=1), v_BGSK.repeat_interleave(shared, dim=1)
        if in_kernel:
            scale = encoding.scale(places.query_BT)
            if isinstance(scale, Tensor):
                q_BHTK, scale = (q_BHTK.float() * scale).to(q_BHTK.dtype), 1.0
            joined_BTXHK = torch.stack([x.transpose(1, 2) for x in (q_BHTK, k_BGSK, v_BGSK)], dim=2)
            return _kernel(joined_BTXHK, scale, encoding, places, dropout)
        mixed_BHTK = attend(q_BHTK, k_BGSK, v_BGSK, encoding, places, dropout, trace, backend)
        return mixed_BHTK.transpose(1, 2).flatten(-2)


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    encoding: Encoding,
    places: Places,
    dropout: Dropout,
    trace: Trace | None = None,
    backend: Backend = "fused",
) -> Tensor:
    """Asks the encoding for scale and bias, then takes PyTorch's kernel where it computes the same thing.

    It does not where the logits are asked for, where the normalisation is another one, where dropout must follow our
    keys, and where a bias would be rounded to bf16.
    """
    plain = trace is None and not dropout.active
    fused = plain and backend == "fused" and type(encoding).normalize is Encoding.normalize
    in_blocks = plain and _too_many(q_BHTK, k_BHSK, places)
    if in_blocks and not (fused and _unbiased(q_BHTK, k_BHSK, encoding, places)):
        return _in_blocks(q_BHTK, k_BHSK, v_BHSK, encoding, places, dropout, backend)
    scale = encoding.scale(places.query_BT)
    bias = _bias(q_BHTK, k_BHSK, encoding, places)
    exact_bias = bias is None or bias.dtype == q_BHTK.dtype
    if fused and exact_bias:
        return _fused(q_BHTK, k_BHSK, v_BHSK, scale, bias, places)
    content = torch.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHSK).float()
    if isinstance(scale, Tensor) or scale != 1:
        content = content * scale
    logits = content if bias is None else content + bias
    hidden = _hidden(places, logits)
    if hidden is not None:
        # Added, not filled in: adding is free in the backward pass, and one head's mask serves all.
        logits = logits + torch.zeros(hidden.shape, device=hidden.device).masked_fill(hidden, float("-inf"))
    weights = encoding.normalize(logits)
    if trace is not None:
        trace.record_layer(LayerTrace(content, logits, weights))
    return torch.einsum("bhts,bhsk->bhtk", dropout.drop(weights).to(v_BHSK.dtype), v_BHSK)


def _too_many(q_BHTK: Tensor, k_BHSK: Tensor, places: Places) -> bool:
    """Logits to be in memory together; a lone causal sequence can be read a few queries at a time."""
    logits = q_BHTK.shape[:3].numel() * k_BHSK.shape[2]
    return logits > LARGEST_LOGITS and places.hide is None and places.causal and not torch.is_grad_enabled()


def _unbiased(q_BHTK: Tensor, k_BHSK: Tensor, encoding: Encoding, places: Places) -> bool:
    """Whether the encoding adds nothing to logits; it is asked of a single pair."""
    pair = q_BHTK[:, :, :1], k_BHSK[:, :, :1], places.query_BT[:, :1], places.key_BS[:, :1]
    return encoding.bias(*pair) is None


def _in_blocks(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    encoding: Encoding,
    places: Places,
    dropout: Dropout,
    backend: Backend,
) -> Tensor:
    """A few queries at a time, each block with the keys that it may see."""
    batch, heads, length, _ = q_BHTK.shape
    size = max(1, LARGEST_LOGITS // (batch * heads * length))
    index = torch.arange(length, device=q_BHTK.device)
    mixed = []
    for first in range(0, length, size):
        end = min(first + size, length)
        later_QS = index[:end] > index[first:end, None]
        here = Places(places.query_BT[:, first:end], places.key_BS[:, :end], partial(later_QS.__getitem__, None), False)
        seen = k_BHSK[:, :, :end], v_BHSK[:, :, :end]
        mixed.append(attend(q_BHTK[:, :, first:end], *seen, encoding, here, dropout, None, backend))
    return torch.cat(mixed, dim=2)


def _bias(q_BHTK: Tensor, k_BHSK: Tensor, encoding: Encoding, places: Places) -> Tensor | None:
    if places.segments_BT is not None and type(encoding).bias is Encoding.bias:
        # Distances are differences of index, in all rows the same: one row says it for all.
        index = torch.arange(k_BHSK.shape[2], device=k_BHSK.device)[None]
        return encoding.bias(q_BHTK, k_BHSK, index, index)
    return encoding.bias(q_BHTK, k_BHSK, places.query_BT, places.key_BS)


def _kernel_can(config: ModelConfig, encoding: Encoding, places: Places) -> bool:
    """Whether our kernel computes what the encoding asks for: a bias by distance, the usual normalisation."""
    cls = type(encoding)
    usual = cls.normalize is Encoding.normalize and cls.bias is Encoding.bias
    return usual and places.segments_BT is not None and kernel.supports(places.key_BS.shape[1], config.head_width)


def _changes_queries(encoding: Encoding) -> bool:
    """In a way that our kernel does not know: it turns neighbours by their angles."""
    cls = type(encoding)
    neighbours = cls.angles is Encoding.angles or encoding.pairs == "interleaved"
    return cls.rotate is not Encoding.rotate or cls.scale is not Encoding.scale or not neighbours


def _kernel(
    joined_BTXHK: Tensor,
    scale: float,
    encoding: Encoding,
    places: Places,
    dropout: Dropout,
    turns_BTPC: Tensor | None = None,
) -> Tensor:
    """Mixed values (B, T, D). The kernel is written for stacked models: this is one."""
    assert places.segments_BT is not None
    table_HT = places.by_distance(encoding)
    key = dropout.next_key()
    mixed_NBTHK = kernel.fused_attention(
        joined_BTXHK[None],
        places.segments_BT[None],
        None if table_HT is None else table_HT[None],
        None if turns_BTPC is None else turns_BTPC[None],
        None if key is None else key[None],
        dropout.rate,
        scale,
    )
    return mixed_NBTHK.squeeze(0).flatten(-2)


def _fused(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, scale: float | Tensor, bias: Tensor | None, places: Places
) -> Tensor:
    if isinstance(scale, Tensor):
        q_BHTK, scale = (q_BHTK.float() * scale).to(q_BHTK.dtype), 1.0
    if bias is None and places.hidden_BTS is None:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=places.causal, scale=scale)
    hidden = _hidden(places, k_BHSK)
    if bias is None:
        assert hidden is not None
        mask = ~hidden
    else:
        mask = bias if hidden is None else bias.masked_fill(hidden, float("-inf"))
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask, scale=scale)


def _hidden(places: Places, like: Tensor) -> Tensor | None:
    """True where a key may not be seen; broadcasts to (B, H, T, S)."""
    if places.hidden_BTS is not None:
        return places.hidden_BTS[:, None]
    if not places.causal:
        return None
    size = places.key_BS.shape[1]
    return torch.ones(size, size, dtype=torch.bool, device=like.device).triu(1)
