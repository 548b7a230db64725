"""A decoder-only Transformer that never asks which encoding it has.

Shape letters: B batch, T tokens, S keys, D width, V vocabulary rows.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.encoding import Encoding
from lengthwise.errors import UserError
from lengthwise.model.attention import Attention, Places
from lengthwise.model.cache import Cache
from lengthwise.model.config import ModelConfig
from lengthwise.model.dropout import Dropout
from lengthwise.model.trace import Trace


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class ReluFeedForward(nn.Module):
    """Of the `t5` style."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, config.inner_width, bias=False)
        self.output = nn.Linear(config.inner_width, config.width, bias=False)

    def forward(self, x_BTD: Tensor, dropout: Dropout) -> Tensor:
        return self.output(dropout.drop(F.relu(self.inner(x_BTD))))


class SwigluFeedForward(nn.Module):
    """Of the `llama` style."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.inner_width, bias=False)
        self.inner = nn.Linear(config.width, config.inner_width, bias=False)
        self.output = nn.Linear(config.inner_width, config.width, bias=False)

    def forward(self, x_BTD: Tensor, dropout: Dropout) -> Tensor:
        return self.output(dropout.drop(F.silu(self.gate(x_BTD)) * self.inner(x_BTD)))


class Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config.width)
        self.feed_forward = (ReluFeedForward if config.style == "t5" else SwigluFeedForward)(config)

    def forward(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        places: Places,
        dropout: Dropout,
        layer: int,
        cache: Cache | None,
        trace: Trace | None,
        fused: bool,
    ) -> Tensor:
        normed = self.attention_norm(x_BTD)
        x_BTD = x_BTD + dropout.drop(self.attention(normed, encoding, places, dropout, layer, cache, trace, fused))
        return x_BTD + dropout.drop(self.feed_forward(self.feed_forward_norm(x_BTD), dropout))


class Decoder(nn.Module):
    """Tokens in, next-token logits out.

    `encodings` holds one encoding per layer; layers that share an encoding share the object.
    """

    def __init__(self, config: ModelConfig, vocabulary_rows: int, encodings: Sequence[Encoding]) -> None:
        super().__init__()
        if len(encodings) != config.layers:
            raise ValueError(f"{config.layers} layers need {config.layers} encodings, not {len(encodings)}")
        self.config = config
        distinct = list(dict.fromkeys(encodings))
        self.encodings = nn.ModuleList(distinct)
        self.encoding_of_layer = [distinct.index(encoding) for encoding in encodings]
        self.embedding = nn.Embedding(vocabulary_rows, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = RMSNorm(config.width)
        tied = config.style == "t5"
        self.unembedding = None if tied else nn.Linear(config.width, vocabulary_rows, bias=False)
        ends = [encoding.last_position for encoding in distinct if encoding.last_position is not None]
        self.last_position = min(ends, default=None)
        self.fused = True
        """Whether attention may take the fused kernel."""

    def forward(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
        cache: Cache | None = None,
        trace: Trace | None = None,
        dropout_seed: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, V).

        A token sees the earlier tokens of its own segment. Padding is a segment like any other, left or right.
        Positions default to the place within the segment. Without segments a row is one sequence; tokens padded on
        its right need no mention then, since no earlier token sees them.
        """
        places = self.places(tokens_BT, positions_BT, segments_BT, cache)
        self._check(places.query_BT)
        return self.unembed(self.hidden(tokens_BT, places, cache, trace, dropout_seed))

    def hidden(
        self,
        tokens_BT: Tensor,
        places: Places,
        cache: Cache | None = None,
        trace: Trace | None = None,
        dropout_seed: Tensor | None = None,
    ) -> Tensor:
        """The normalised residual stream (B, T, D), from which `unembed` makes logits."""
        dropout = Dropout(self.config.dropout, dropout_seed)
        x_BTD = self.embedding(tokens_BT)
        for encoding in self.distinct_encodings():
            x_BTD = encoding.embed(x_BTD, places.query_BT)
        x_BTD = dropout.drop(x_BTD)
        if trace is not None:
            trace.residual_BTD.append(x_BTD)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, self.encoding_at(layer), places, dropout, layer, cache, trace, self.fused)
            if trace is not None:
                trace.residual_BTD.append(x_BTD)
        if cache is not None:
            cache.advance(tokens_BT.shape[1])
        return dropout.drop(self.final_norm(x_BTD))

    def unembed(self, hidden: Tensor) -> Tensor:
        if self.unembedding is not None:
            return self.unembedding(hidden).float()
        return F.linear(hidden * self.config.width**-0.5, self.embedding.weight).float()

    def new_cache(self, batch: int, capacity: int) -> Cache:
        shape = (batch, self.config.groups, capacity, self.config.head_width)
        return Cache.empty(self.config.layers, shape, self.embedding.weight)

    def distinct_encodings(self) -> list[Encoding]:
        return cast(list[Encoding], list(self.encodings))

    def encoding_at(self, layer: int) -> Encoding:
        return cast(Encoding, self.encodings[self.encoding_of_layer[layer]])

    def encoding_names(self) -> list[str]:
        """The encoding of every layer, first layer first."""
        return [self.encoding_at(layer).name for layer in range(self.config.layers)]

    def places(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Places:
        """Where the tokens stand and what they see."""
        length = tokens_BT.shape[1]
        before = 0 if cache is None else cache.used
        hidden_BTS = None
        onto_cache = cache is not None and before > 0 and (length > 1 or cache.segmented)
        if segments_BT is not None or onto_cache:
            # Without segments too: several tokens onto a filled cache (no square triangle), or onto a padded one.
            queries = torch.ones_like(tokens_BT) if segments_BT is None else segments_BT
            keys = queries if cache is None else cache.append_segments(queries)
            if cache is not None and segments_BT is not None:
                cache.segmented = True
            index = torch.arange(before + length, device=tokens_BT.device)
            later_TS = index[None, :] > index[before:, None]
            hidden_BTS = later_TS | (queries[:, :, None] != keys[:, None, :])
            if positions_BT is None:
                positions_BT = (~hidden_BTS).sum(-1) - 1  # as many as the keys it sees, itself not counted
        elif cache is not None:
            cache.append_segments(torch.ones_like(tokens_BT))
        if positions_BT is None:
            positions_BT = torch.arange(before, before + length, device=tokens_BT.device)[None]
        key_positions = positions_BT if cache is None else cache.append_positions(positions_BT)
        return Places(positions_BT, key_positions, hidden_BTS, causal=length > 1)

    def _check(self, positions_BT: Tensor) -> None:
        if self.last_position is None or torch.compiler.is_compiling() or positions_BT.is_meta:
            return
        smallest, largest = int(positions_BT.min()), int(positions_BT.max())
        if smallest < 0:
            raise UserError(f"position {smallest} is before the first one that the encoding knows (0)")
        if largest > self.last_position:
            raise UserError(
                f"position {largest} is beyond the last one that the encoding knows ({self.last_position}); "
                "train with a longer table (encoding setting 'rows')"
            )
