"""Attention with every hook of an encoding: written out, or fused where nothing asks for the logits.

Shape letters: B batch, H query heads, G key-value heads, T queries, S keys, K head width, D model width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.encoding import Encoding
from lengthwise.model.cache import Cache
from lengthwise.model.config import ModelConfig
from lengthwise.model.dropout import Dropout
from lengthwise.model.trace import LayerTrace, Trace


@dataclass(frozen=True)
class Places:
    """Where queries and keys stand, and which keys each query may see."""

    query_BT: Tensor
    key_BS: Tensor
    hidden_BTS: Tensor | None
    """True where a key may not be seen; None where the causal order says it all."""
    causal: bool
    """With `hidden_BTS` None: whether later keys are hidden, or (one cached step) there are none."""


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.heads * config.head_width, config.groups * config.head_width
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key = nn.Linear(config.width, shared, bias=False)
        self.value = nn.Linear(config.width, shared, bias=False)
        self.output = nn.Linear(inner, config.width, bias=False)

    def forward(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        places: Places,
        dropout: Dropout,
        layer: int = 0,
        cache: Cache | None = None,
        trace: Trace | None = None,
        fused: bool = True,
    ) -> Tensor:
        def heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2)

        q_BHTK = encoding.rotate(heads(self.query(x_BTD)), places.query_BT)
        k_BGSK = encoding.rotate(heads(self.key(x_BTD)), places.query_BT)
        v_BGSK = heads(self.value(x_BTD))
        if cache is not None:
            k_BGSK, v_BGSK = cache.extend(layer, k_BGSK, v_BGSK)
        shared = self.config.heads // self.config.groups
        if shared > 1:
            k_BGSK, v_BGSK = k_BGSK.repeat_interleave(shared, dim=1), v_BGSK.repeat_interleave(shared, dim=1)
        mixed_BHTK = attend(q_BHTK, k_BGSK, v_BGSK, encoding, places, dropout, trace, fused)
        return self.output(mixed_BHTK.transpose(1, 2).flatten(-2))


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    encoding: Encoding,
    places: Places,
    dropout: Dropout,
    trace: Trace | None = None,
    fused: bool = True,
) -> Tensor:
    """Asks the encoding for scale and bias, then takes the fused kernel where it computes the same thing.

    It does not where the logits are asked for, where the normalisation is another one, where dropout must follow our
    seed, and where a bias would be rounded to bf16.
    """
    scale = encoding.scale(places.query_BT)
    bias = encoding.bias(q_BHTK, k_BHSK, places.query_BT, places.key_BS)
    same_normalisation = type(encoding).normalize is Encoding.normalize
    exact_bias = bias is None or bias.dtype == q_BHTK.dtype
    if fused and trace is None and same_normalisation and exact_bias and not dropout.active:
        return _fused(q_BHTK, k_BHSK, v_BHSK, scale, bias, places)
    content = (q_BHTK @ k_BHSK.transpose(-1, -2)).float() * scale
    logits = content if bias is None else content + bias
    hidden = _hidden(places, logits)
    if hidden is not None:
        logits = logits.masked_fill(hidden, float("-inf"))
    weights = encoding.normalize(logits)
    if trace is not None:
        trace.layers.append(LayerTrace(content, logits, weights))
    return dropout.drop(weights).to(v_BHSK.dtype) @ v_BHSK


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
