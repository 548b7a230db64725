"""A decoder-only Transformer that never asks which encoding it has.

Shape letters: B batch, T tokens, S keys, D width, V vocabulary rows, P tokens of the batch by their number.
"""

from collections.abc import Callable, Sequence
from functools import cache as once
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.kernels import embedding as embedding_kernel
from lengthwise.kernels.dropout import place_keys
from lengthwise.kernels.linear import Linear, multiply
from lengthwise.kernels.ops import FusedOps, Ops, Stream
from lengthwise.kernels.picking import pick_tokens
from lengthwise.mixers.attention import Attention
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.backend import Backend
from lengthwise.model.cache import Cache
from lengthwise.model.config import ModelConfig
from lengthwise.model.feed_forward import make_feed_forward
from lengthwise.model.layer import LayerPass
from lengthwise.model.norm import RMSNorm
from lengthwise.model.trace import Trace


class Embedding(nn.Embedding):
    grad_out: Tensor | None
    """Where a kernel adds the gradient of the weight; None where PyTorch finds it."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(rows, width)
        self.register_buffer("grad_out", None, persistent=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:  # pyrefly: ignore
        if self.grad_out is None:
            return super().forward(tokens_BT)
        found_NMD = embedding_kernel.look_up(tokens_BT.flatten()[None], self.weight[None], self.grad_out[None])
        return found_NMD.view(*tokens_BT.shape, -1)


class Block(nn.Module):
    """Norm, mixer, add; norm, feed-forward, add."""

    def __init__(self, config: ModelConfig, mixer: Mixer | None = None) -> None:
        """`mixer`: None for attention."""
        super().__init__()
        self.attention_norm = RMSNorm(config.width)
        self.mixer_name = Attention.name if mixer is None else mixer.name
        # Under its own name: weights of attention are called so.
        self.add_module(self.mixer_name, Attention(config) if mixer is None else mixer)
        self.feed_forward_norm = RMSNorm(config.width)
        self.feed_forward = make_feed_forward(config)

    @property
    def mixer(self) -> nn.Module:
        return self.get_submodule(self.mixer_name)

    @property
    def dropout_places(self) -> int:
        """Where dropout acts: in the mixer, on both branches, inside the feed-forward."""
        return cast(int, self.mixer.dropout_places) + 3

    def forward(self, stream: Stream, here: LayerPass) -> Stream:
        """What follows the mixer knows no other token: with `here.chosen_P` it is done for those tokens alone."""
        ops = here.ops
        stream, normed_BTD = ops.norm(stream, self.attention_norm)
        mixed_BTD = self.mixer(normed_BTD, here)
        if here.chosen_P is not None:
            stream = Stream(pick_tokens(stream.x_BTD, here.chosen_P))
            if mixed_BTD.ndim > 2:  # attention has picked them before its last product
                mixed_BTD = pick_tokens(mixed_BTD, here.chosen_P)
        stream = ops.add(stream, mixed_BTD)
        stream, normed_BTD = ops.norm(stream, self.feed_forward_norm)
        return ops.add(stream, self.feed_forward(normed_BTD, ops))


class Decoder(nn.Module):
    """Tokens in, next-token logits out.

    `encodings` holds one encoding per layer; layers that share an encoding share the object.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_rows: int,
        encodings: Sequence[Encoding],
        mixers: Sequence[Mixer | None] = (),
    ) -> None:
        """`mixers`: what each layer has in place of attention, None for attention; by default all have attention."""
        super().__init__()
        if len(encodings) != config.layers:
            raise ValueError(f"{config.layers} layers need {config.layers} encodings, not {len(encodings)}")
        self.config = config
        distinct = list(dict.fromkeys(encodings))
        self.encodings = nn.ModuleList(distinct)
        self.encoding_of_layer = [distinct.index(encoding) for encoding in encodings]
        self.embedding = Embedding(vocabulary_rows, config.width)
        self.blocks = nn.ModuleList(Block(config, mixer) for mixer in mixers or [None] * config.layers)
        self.final_norm = RMSNorm(config.width)
        tied = config.style == "t5"
        self.unembedding = None if tied else Linear(config.width, vocabulary_rows)
        if config.loops > 1:
            _leave_gradients_to_pytorch(self.blocks)
        ends = [encoding.last_position for encoding in distinct if encoding.last_position is not None]
        self.last_position = min(ends, default=None)
        counting = encodings[0].geometry.counting
        self.unit = counting.unit if counting.kind == "fractions" else 1
        """What positions that are not given are multiples of."""
        self.backend: Backend = "fused"
        """The attention kernel to take where it can."""

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
        layout = self.layout(tokens_BT, positions_BT, segments_BT, cache, unit=self.unit)
        self.refuse_positions(layout.query_positions_BT)
        drops = dropout_seed is not None and self.config.dropout > 0
        keys = place_keys(dropout_seed, sum(self.dropout_places())) if drops else None
        return self.unembed(self.hidden(tokens_BT, layout, cache, trace, keys)).float()

    def hidden(
        self,
        tokens_BT: Tensor,
        layout: AttentionLayout,
        cache: Cache | None = None,
        trace: Trace | None = None,
        dropout_keys: Tensor | None = None,
        before: Callable[[int, Tensor], Tensor] = lambda layer, x_BTD: x_BTD,
        chosen_P: Tensor | None = None,
    ) -> Tensor:
        """The normalised residual stream (B, T, D), from which `unembed` makes logits.

        `dropout_keys`: one for each place that drops (see `dropout_places`). `before` is given what each layer reads,
        the first time that it is passed, and last (with the number of layers) what the final norm does, and hands it
        on. `chosen_P`: the tokens whose states are asked for, by their number in the flattened batch; then the result
        is (P, D), and from the last layer's attention on dropout counts them as they come.
        """
        sizes = self.dropout_places()
        keys = [None for _ in sizes] if dropout_keys is None else dropout_keys.split(sizes)
        stream = Stream(self.begin(tokens_BT, layout.query_positions_BT, keys[0]))
        if trace is not None:
            trace.record_residual(stream.x_BTD)
        embedding_BTD = stream.x_BTD
        for time in range(self.config.passes):
            loop, layer = divmod(time, len(self.blocks))
            if loop == 0:
                stream = stream._replace(x_BTD=before(layer, stream.x_BTD))
            elif layer == 0 and self.config.inject:
                stream = Stream(self._ops(None).whole(stream) + embedding_BTD)
            ops = self._ops(keys[time + 1])
            chosen = chosen_P if time == self.config.passes - 1 else None
            kept = cache.later_loops[loop - 1] if cache is not None and loop else cache
            here = LayerPass(self.encoding_at(layer), layout, ops, layer, kept, trace, self.backend, chosen)
            stream = self.blocks[layer](stream, here)
            if trace is not None:
                stream = Stream(ops.whole(stream))
                trace.record_residual(stream.x_BTD)
        if cache is not None:
            cache.advance(tokens_BT.shape[1])
        stream = stream._replace(x_BTD=before(len(self.blocks), stream.x_BTD))
        ops = self._ops(keys[-1])
        return ops.drop(ops.norm(stream, self.final_norm)[1])

    def begin(self, tokens_BT: Tensor, positions_BT: Tensor, keys: Tensor | None) -> Tensor:
        """What the first layer reads."""
        x_BTD = self.embedding(tokens_BT)
        for encoding in self.distinct_encodings():
            x_BTD = encoding.embed(x_BTD, positions_BT)
        return self._ops(keys).drop(x_BTD)

    def _ops(self, keys: Tensor | None) -> Ops:
        """`keys`: of the places that drop in one part of the pass."""
        return (FusedOps if self.backend == "kernel" else Ops)(self.config.dropout, keys)

    def dropout_places(self) -> list[int]:
        """How many places drop before the first layer, in each layer as often as it is passed, after the last."""
        return [1, *[cast(Block, block).dropout_places for block in self.blocks] * self.config.loops, 1]

    def unembed(self, hidden: Tensor) -> Tensor:
        """Logits, as precise as the hidden states are."""
        if self.unembedding is not None:
            return self.unembedding(hidden)
        out = None if self.embedding.grad_out is None else self.embedding.grad_out.t()
        return multiply(hidden * self.config.width**-0.5, self.embedding.weight.t(), out)

    def new_cache(self, batch: int, capacity: int) -> Cache:
        """An empty cache of keys and values, for `batch` sequences of up to `capacity` tokens."""
        shape = (batch, self.config.groups, capacity, self.config.head_width)
        first, *others = (
            Cache.empty(self.config.layers, shape, self.embedding.weight) for _ in range(self.config.loops)
        )
        first.later_loops = others
        return first

    def distinct_encodings(self) -> list[Encoding]:
        """The encodings that layers have, each once."""
        return cast(list[Encoding], list(self.encodings))

    def encoding_at(self, layer: int) -> Encoding:
        """The encoding of a layer; the first layer is 0."""
        return cast(Encoding, self.encodings[self.encoding_of_layer[layer]])

    def encoding_names(self) -> list[str]:
        """The encoding of every layer, first layer first; of a layer without attention its mixer."""
        return [mixer.name if mixer else self.encoding_at(layer).name for layer, mixer in enumerate(self.mixers())]

    def mixers(self) -> list[Mixer | None]:
        """What each layer has in place of attention; None for attention."""
        found = [cast(Block, block).mixer for block in self.blocks]
        return [None if isinstance(mixer, Attention) else cast(Mixer, mixer) for mixer in found]

    @staticmethod
    def layout(
        tokens_BT: Tensor,
        positions_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
        cache: Cache | None = None,
        consecutive: bool = False,
        unit: int = 1,
        from_zero: bool = False,
    ) -> AttentionLayout:
        """Where the tokens stand and what they see.

        `consecutive`: whether the positions given count up by one within each segment, where whoever gives them has
        found that out: distances are then taken from the index; `from_zero`: whether they also begin at 0. Positions
        that are not given do both. `unit`: what those are multiples of.
        """
        length = tokens_BT.shape[1]
        before = 0 if cache is None else cache.used
        counted = positions_BT is None and unit == 1
        hide: Callable[[], Tensor] | None = None
        key_segments_BS = None
        onto_cache = cache is not None and before > 0 and (length > 1 or cache.segmented)
        if segments_BT is not None or onto_cache:
            # Without segments too: several tokens onto a filled cache (no square triangle), or onto a padded one.
            queries = torch.ones_like(tokens_BT) if segments_BT is None else segments_BT
            key_segments_BS = queries if cache is None else cache.append_segments(queries)
            if cache is not None and segments_BT is not None:
                cache.segmented = True
            hide = once(partial(_hidden, queries, key_segments_BS))
            if positions_BT is None:
                positions_BT = unit * ((~hide()).sum(-1) - 1)  # as many as the keys it sees, itself not counted
        elif cache is not None:
            cache.append_segments(torch.ones_like(tokens_BT))
        if positions_BT is None:
            positions_BT = unit * torch.arange(before, before + length, device=tokens_BT.device)[None]
        key_positions = positions_BT if cache is None else cache.append_positions(positions_BT)
        return AttentionLayout(
            positions_BT,
            key_positions,
            hide,
            causal=length > 1,
            segments_BT=segments_BT if cache is None else None,
            key_segments_BS=key_segments_BS,
            consecutive=(consecutive or counted) and cache is None,
            from_zero=(from_zero or counted) and cache is None,
        )

    def refuse_positions(self, positions_BT: Tensor) -> None:
        """Raises a UserError where a position is one that the encoding does not know."""
        if self.last_position is None or positions_BT.is_meta:
            return
        smallest, largest = int(positions_BT.min()), int(positions_BT.max())
        if smallest < 0:
            raise UserError(f"position {smallest} is before the first one that the encoding knows (0)")
        if largest > self.last_position:
            raise UserError(
                f"position {largest} is beyond the last one that the encoding knows ({self.last_position}); "
                "train with a longer table (encoding setting 'rows')"
            )


def _leave_gradients_to_pytorch(blocks: nn.Module) -> None:
    """Modules that write the gradient of their weight write over what is there. Where a module is called more than once
    in a pass its gradients must be added up, as PyTorch does with those that it is left to find."""
    for module in blocks.modules():
        if "grad_out" in module._buffers:
            del module._buffers["grad_out"]
            object.__setattr__(module, "grad_out", None)


def _hidden(queries_BT: Tensor, keys_BS: Tensor) -> Tensor:
    """True where a key is later or in another segment; the queries are the last of the keys."""
    index = torch.arange(keys_BS.shape[1], device=keys_BS.device)
    later_TS = index[None, :] > index[keys_BS.shape[1] - queries_BT.shape[1] :, None]
    return later_TS | (queries_BT[:, :, None] != keys_BS[:, None, :])
