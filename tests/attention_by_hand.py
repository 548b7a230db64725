"""Attention one head, one query and one key at a time, from formulas, beside what an encoding declares for each.

Shape letters: B batch, H query heads, G key-value heads, T queries, S keys, K head width, D model width, V vocabulary
rows.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from lengthwise.encodings.contribution import (
    NOTHING,
    Contribution,
    Rotation,
    RowColumnBias,
    Scores,
    TokenRotation,
    combine,
)
from lengthwise.encodings.encoding import AttentionLayout, Encoding, Geometry
from lengthwise.kernels.ops import Ops
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Block, Decoder
from lengthwise.model.initial_values import initialize

ROWS = 24
HEADS = 4
CONFIGS = {
    "t5": ModelConfig(style="t5", layers=2, width=32, heads=HEADS, feed_forward=40),
    "llama-grouped": ModelConfig(style="llama", layers=2, width=32, heads=HEADS, key_value_heads=2, feed_forward=40),
}


class Declared(Encoding):
    """Contributes what it is given."""

    name = "declared"

    def __init__(self, hand: "ByHand", geometry: Geometry) -> None:
        super().__init__(hand, geometry)
        self.reads_layer = hand.reads_layer  # type: ignore[misc]
        self.contribute, self.token_numbers = hand.declare, hand.numbers  # type: ignore[method-assign]


def geometry_of(config: ModelConfig) -> Geometry:
    return replace(Geometry.of(config.width, config.heads, config.layers), logit_scale=config.logit_scale)


def decoder_with(encoding: Encoding, config: ModelConfig) -> Decoder:
    return with_noise(Decoder(config, ROWS, [encoding] * config.layers))


def with_noise(model: Decoder) -> Decoder:
    """Initial weights, then noise on all of them: attention that is far from uniform."""
    initialize(model, 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter.shape[-1] if parameter.ndim else 1
            parameter += 0.7 * fan_in**-0.5 * torch.randn(parameter.shape, generator=generator)
    return model.requires_grad_(False)


def draw_tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, ROWS, shape, generator=torch.Generator().manual_seed(seed))


class ByHand:
    """One way to act in attention: as an encoding declares it, and as its formula says it. This one does nothing.

    `t` and `s` are the indices of a query and a key of a lone sequence; they stand at `positions[t]`, `positions[s]`.
    """

    positions: list[int]
    head: int
    """That is looked at; what belongs to it: its keys as they are multiplied, the value of the query's own token, and
    what products are multiplied by."""
    keys: list[Tensor]
    own_value_K: Tensor
    factor: float
    reads_layer = False

    def declare(self, layout: AttentionLayout) -> Contribution:
        return NOTHING

    def numbers(self, layer_input_BTD: Tensor) -> Tensor | None:
        return None

    def begin_layer(self, layer: int, x_TD: Tensor) -> None:
        """Is shown what a layer reads."""
        self.layer, self.x_TD = layer, x_TD

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return q_K

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return k_K

    def scale(self, head: int, t: int) -> float:
        return 1.0

    def bias(self, head: int, t: int, s: int) -> float:
        return 0.0

    def sees(self, head: int, t: int, s: int) -> bool:
        return True

    def scores(self, logits: list[float], query_K: Tensor) -> list[float]:
        """Of the keys 0..t, whether a window hides them or not."""
        return logits

    def weights(self, logits: list[float], t: int) -> list[float]:
        """Of keys that are seen, to their weights."""
        total = sum(map(math.exp, logits))
        return [math.exp(logit) / total for logit in logits]

    def output(self, mixed_K: Tensor, head: int, t: int) -> Tensor:
        return mixed_K


class Several(ByHand):
    """Several ways at once, each after the ones before it, but rotations first; at most one has weights of its own."""

    def __init__(self, *parts: ByHand) -> None:
        self.parts = sorted(
            parts, key=lambda part: (not isinstance(part, Rotates), not isinstance(part, RotatesTokens))
        )
        self.reads_layer = any(part.reads_layer for part in parts)

    def declare(self, layout: AttentionLayout) -> Contribution:
        return combine([part.declare(layout) for part in self.parts])

    def numbers(self, layer_input_BTD: Tensor) -> Tensor | None:
        found = [part.numbers(layer_input_BTD) for part in self.parts]
        return next((numbers for numbers in found if numbers is not None), None)

    def begin_layer(self, layer: int, x_TD: Tensor) -> None:
        for part in self.parts:
            part.positions = self.positions
            part.begin_layer(layer, x_TD)

    def query(self, q_K: Tensor, t: int) -> Tensor:
        for part in self.parts:
            q_K = part.query(q_K, t)
        return q_K

    def key(self, k_K: Tensor, s: int) -> Tensor:
        for part in self.parts:
            k_K = part.key(k_K, s)
        return k_K

    def scale(self, head: int, t: int) -> float:
        return math.prod(part.scale(head, t) for part in self.parts)

    def bias(self, head: int, t: int, s: int) -> float:
        return sum(part.bias(head, t, s) for part in self.parts)

    def sees(self, head: int, t: int, s: int) -> bool:
        return all(part.sees(head, t, s) for part in self.parts)

    def scores(self, logits: list[float], query_K: Tensor) -> list[float]:
        for part in self.parts:
            logits = part.scores(logits, query_K)
        return logits

    def weights(self, logits: list[float], t: int) -> list[float]:
        own = [part for part in self.parts if type(part).weights is not ByHand.weights]
        return own[0].weights(logits, t) if own else super().weights(logits, t)

    def output(self, mixed_K: Tensor, head: int, t: int) -> Tensor:
        for part in self.parts:
            mixed_K = part.output(mixed_K, head, t)
        return mixed_K


class Attended:
    """Logits (-inf where a key is hidden) and weights of one layer, (H, T, T), and mixed values (H, T, K)."""

    def __init__(self, q_HTK: Tensor, k_GTK: Tensor, v_GTK: Tensor, logit_scale: float, hand: ByHand) -> None:
        heads, length, _ = q_HTK.shape
        shared = heads // len(k_GTK)
        self.logits_HTS = torch.full((heads, length, length), -math.inf)
        self.weights_HTS = torch.zeros(heads, length, length)
        self.mixed_HTK = torch.zeros(heads, length, v_GTK.shape[-1])
        for head in range(heads):
            k_TK, v_TK, hand.head = k_GTK[head // shared], v_GTK[head // shared], head
            keys = [hand.key(k_TK[s], s) for s in range(length)]
            for t in range(length):
                query, scale = hand.query(q_HTK[head, t], t), logit_scale * hand.scale(head, t)
                logits = [scale * float(query @ keys[s]) + hand.bias(head, t, s) for s in range(t + 1)]
                hand.keys, hand.own_value_K, hand.factor = keys, v_TK[t], scale
                logits = hand.scores(logits, query)
                seen = [s for s in range(t + 1) if hand.sees(head, t, s)]
                self.logits_HTS[head, t, seen] = torch.tensor([logits[s] for s in seen])
                self.weights_HTS[head, t, seen] = torch.tensor(hand.weights([logits[s] for s in seen], t))
                self.mixed_HTK[head, t] = hand.output(self.weights_HTS[head, t] @ v_TK, head, t)


def read_by_hand(
    model: Decoder, tokens_T: Tensor, positions: Sequence[int], hand: ByHand
) -> tuple[Tensor, list[Attended]]:
    """Next-token logits (T, V) of a lone sequence, and what attention did in each layer."""
    hand.positions = list(positions)
    x_TD, layers = model.embedding(tokens_T), []
    for layer, block in enumerate(cast(list[Block], list(model.blocks))):
        normed_TD = block.attention_norm(x_TD)
        hand.begin_layer(layer, normed_TD)
        joined_TC = normed_TD @ block.attention.projection.weight
        parts = joined_TC.split(list(block.attention.sizes.values()), dim=-1)
        q, k, v = (part.unflatten(-1, (-1, model.config.head_width)).transpose(0, 1) for part in parts)
        layers.append(Attended(q, k, v, model.config.logit_scale, hand))
        x_TD = x_TD + layers[-1].mixed_HTK.transpose(0, 1).flatten(-2) @ block.attention.output.weight
        x_TD = x_TD + block.feed_forward(block.feed_forward_norm(x_TD), Ops())
    return model.unembed(model.final_norm(x_TD)), layers


# What may be declared


def rotated(entries: list[float], angles: list[float], pairs: str) -> list[float]:
    """Each pair of entries rotated by its angle."""
    found, half = list(entries), len(angles)
    for i, angle in enumerate(angles):
        a, b = (2 * i, 2 * i + 1) if pairs == "interleaved" else (i, i + half)
        found[a] = entries[a] * math.cos(angle) - entries[b] * math.sin(angle)
        found[b] = entries[a] * math.sin(angle) + entries[b] * math.cos(angle)
    return found


class Rotates(ByHand):
    """Two of four pairs, queries and keys at frequencies of their own."""

    of_queries, of_keys = [0.9, 0.31], [0.5, 0.77]

    def __init__(self, pairs: str) -> None:
        self.pairs = pairs

    def declare(self, layout: AttentionLayout) -> Contribution:
        angles, key_angles = (
            lambda positions, each=each: positions[..., None].float() * torch.tensor(each)
            for each in (self.of_queries, self.of_keys)
        )
        return Contribution(rotation=Rotation(angles, key_angles, pairs=self.pairs))  # type: ignore[arg-type]

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return self._rotated(q_K, self.positions[t], self.of_queries)

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return self._rotated(k_K, self.positions[s], self.of_keys)

    def _rotated(self, x_K: Tensor, position: int, frequencies: list[float]) -> Tensor:
        return torch.tensor(rotated(x_K.tolist(), [position * each for each in frequencies], self.pairs))


class RotatesAndGrows(Rotates):
    """The same with magnitudes: rotated pairs of queries grow with their position, those of keys shrink."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        rotation = super().declare(layout).rotation
        assert rotation is not None
        larger = replace(
            rotation,
            query_magnitude=lambda positions: 1 + 0.1 * positions[..., None].float() * torch.tensor([1.0, 2.0]),
            key_magnitude=lambda positions: 1 / (1 + 0.2 * positions[..., None].float().expand(-1, -1, 2)),
        )
        return Contribution(rotation=larger)

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return super().query(q_K, t) * self._factors(q_K, *(1 + 0.1 * self.positions[t] * pair for pair in (1, 2)))

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return super().key(k_K, s) * self._factors(k_K, *[1 / (1 + 0.2 * self.positions[s])] * 2)

    def _factors(self, x_K: Tensor, first: float, second: float) -> Tensor:
        order = [first, first, second, second] if self.pairs == "interleaved" else [first, second, first, second]
        return torch.tensor(order + [1.0] * (len(x_K) - 4))


class RotatesTokens(ByHand):
    """Three of four pairs, by angles that a token's own entries say."""

    reads_layer = True

    def declare(self, layout: AttentionLayout) -> Contribution:
        assert layout.layer_input_BTD is not None
        angles_B1TP = 2 * layout.layer_input_BTD[:, None, :, :3].float()
        return Contribution(token_rotation=TokenRotation(angles_B1TP, "halves"))

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return torch.tensor(rotated(q_K.tolist(), (2 * self.x_TD[t, :3]).tolist(), "halves"))

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return self.query(k_K, s)


class Widens(ByHand):
    """Queries and keys of twice the width, whose product is the former one times the cosine of a difference."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        def twice(x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
            angle = 0.7 * positions_BT[:, None, :, None].float()
            return torch.cat([x_BHTK * angle.cos(), x_BHTK * angle.sin()], dim=-1)

        return Contribution(queries=twice, keys=twice)

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return torch.cat([q_K * math.cos(0.7 * self.positions[t]), q_K * math.sin(0.7 * self.positions[t])])

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return torch.cat([k_K * math.cos(0.7 * self.positions[s]), k_K * math.sin(0.7 * self.positions[s])])


class Narrows(ByHand):
    """Only some of the entries are multiplied, those of queries larger at every position."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(
            queries=lambda x, positions: x[..., :5] * (1 + 0.3 * positions[:, None, :, None].float()),
            keys=lambda x, positions: x[..., :5],
        )

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return q_K[:5] * (1 + 0.3 * self.positions[t])

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return k_K[:5]


class ScalesAll(ByHand):
    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(scale=1.7)

    def scale(self, head: int, t: int) -> float:
        return 1.7


class ScalesByHeadAndPosition(ByHand):
    def declare(self, layout: AttentionLayout) -> Contribution:
        head_H11 = torch.arange(1, HEADS + 1)[:, None, None]
        return Contribution(scale=1 + 0.2 * head_H11 * layout.query_positions_BT[:, None, :, None].float().log1p())

    def scale(self, head: int, t: int) -> float:
        return 1 + 0.2 * (head + 1) * math.log1p(self.positions[t])


class ScalesByVisibleKeys(ByHand):
    """The logarithm of how many keys a query sees, whatever their positions are."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(scale=0.5 + layout.visible_BT[:, None, :, None].float().log())

    def scale(self, head: int, t: int) -> float:
        return 0.5 + math.log(t + 1)


class BiasByDistance(ByHand):
    def declare(self, layout: AttentionLayout) -> Contribution:
        def penalty(distance: Tensor) -> Tensor:
            slope_H = -0.4 * torch.arange(1, HEADS + 1)
            return slope_H.view(-1, *[1] * distance.ndim) * distance.float().sqrt()

        return Contribution(distance_bias=penalty)

    def bias(self, head: int, t: int, s: int) -> float:
        return -0.4 * (head + 1) * math.sqrt(self.positions[t] - self.positions[s])


class BiasByPosition(ByHand):
    """The distance as a share of the query's position."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        def share(query_BT: Tensor, key_BS: Tensor) -> Tensor:
            share_BTS = (query_BT[:, :, None] - key_BS[:, None]) / (1.0 + query_BT[:, :, None])
            return share_BTS[:, None] * torch.arange(1, HEADS + 1)[:, None, None]

        return Contribution(position_bias=share)

    def bias(self, head: int, t: int, s: int) -> float:
        return (head + 1) * (self.positions[t] - self.positions[s]) / (1 + self.positions[t])


class BiasByRowAndColumn(ByHand):
    def declare(self, layout: AttentionLayout) -> Contribution:
        head_H1 = torch.arange(1, HEADS + 1)[:, None]
        row_BHT = (0.9 * layout.query_positions_BT.float())[:, None].sin() * head_H1
        column_BHS = (layout.key_positions_BS.float()[:, None] + head_H1).cos()
        return Contribution(row_column_bias=RowColumnBias(row_BHT, column_BHS))

    def bias(self, head: int, t: int, s: int) -> float:
        return math.sin(0.9 * self.positions[t]) * (head + 1) + math.cos(self.positions[s] + head + 1)


class Window(ByHand):
    def __init__(self, window: int | tuple[int, ...]) -> None:
        self.window = window

    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(window=self.window)

    def sees(self, head: int, t: int, s: int) -> bool:
        window = self.window if isinstance(self.window, int) else self.window[head]
        return self.positions[t] - self.positions[s] < window


class Chunks(ByHand):
    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(chunk=4)

    def sees(self, head: int, t: int, s: int) -> bool:
        return self.positions[t] // 4 == self.positions[s] // 4


class ScoresAboveMean(ByHand):
    """Logits less their mean over the keys that a query sees, bent."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        def above_mean(scores: Scores) -> Tensor:
            visible_B1TS = scores.visible_BTS[:, None]
            total = scores.logits_BHTS.masked_fill(~visible_B1TS, 0.0).sum(-1, keepdim=True)
            return 2 * torch.tanh(scores.logits_BHTS - total / visible_B1TS.sum(-1, keepdim=True))

        return Contribution(score=above_mean)

    def scores(self, logits: list[float], query_K: Tensor) -> list[float]:
        mean = sum(logits) / len(logits)
        return [2 * math.tanh(logit - mean) for logit in logits]


class ScoresSquared(ByHand):
    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(score=lambda scores: 0.3 * scores.logits_BHTS**2)

    def scores(self, logits: list[float], query_K: Tensor) -> list[float]:
        return [0.3 * logit**2 for logit in logits]


class SoftmaxPlusOne(ByHand):
    """A query may attend to nothing: one more key with the logit 0 and the value 0."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(normalizer=lambda logits, layout: logits.exp() / (1 + logits.exp().sum(-1, keepdim=True)))

    def weights(self, logits: list[float], t: int) -> list[float]:
        total = 1 + sum(map(math.exp, logits))
        return [math.exp(logit) / total for logit in logits]


class SigmoidOverVisible(ByHand):
    """Divided by the number of keys that a query sees; those that a window hides besides are counted."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        def normalizer(logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
            return logits_BHTS.sigmoid() / layout.visible_BT[:, None, :, None]

        return Contribution(normalizer=normalizer)

    def weights(self, logits: list[float], t: int) -> list[float]:
        return [1 / (1 + math.exp(-logit)) / (t + 1) for logit in logits]


class OutputByHead(ByHand):
    """Mixed values of each head times a number that depends on the position."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        def output(mixed_BHTK: Tensor, layout: AttentionLayout) -> Tensor:
            head_H11 = torch.arange(HEADS)[:, None, None]
            return mixed_BHTK * (1 + 0.2 * head_H11 + 0.1 * layout.query_positions_BT[:, None, :, None])

        return Contribution(output=output)

    def output(self, mixed_K: Tensor, head: int, t: int) -> Tensor:
        return mixed_K * (1 + 0.2 * head + 0.1 * self.positions[t])


class OutputPlusShare(ByHand):
    """To the mixed values is added one divided by the number of visible keys."""

    def declare(self, layout: AttentionLayout) -> Contribution:
        return Contribution(output=lambda mixed, layout: mixed + 1 / layout.visible_BT[:, None, :, None])

    def output(self, mixed_K: Tensor, head: int, t: int) -> Tensor:
        return mixed_K + 1 / (t + 1)


class BiasByTokenNumbers(ByHand):
    """Each head has an entry of what the layer reads, of the query less that of the key."""

    reads_layer = True

    def declare(self, layout: AttentionLayout) -> Contribution:
        assert layout.token_numbers_BSC is not None
        column_BHS = layout.token_numbers_BSC.transpose(1, 2)
        return Contribution(row_column_bias=RowColumnBias(layout.of_queries(column_BHS), -column_BHS))

    def numbers(self, layer_input_BTD: Tensor) -> Tensor:
        return 0.6 * layer_input_BTD[..., :HEADS].float()

    def bias(self, head: int, t: int, s: int) -> float:
        return 0.6 * float(self.x_TD[t, head] - self.x_TD[s, head])


class OutputByLayerInput(ByHand):
    """Mixed values times a gate that each layer makes of what it reads, in its own way."""

    reads_layer = True

    def declare(self, layout: AttentionLayout) -> Contribution:
        def output(mixed_BHTK: Tensor, layout: AttentionLayout) -> Tensor:
            assert layout.layer is not None and layout.layer_input_BTD is not None
            gate_BTH = (layout.layer_input_BTD[..., :HEADS] + layout.layer).sigmoid()
            return mixed_BHTK * gate_BTH.transpose(1, 2)[..., None]

        return Contribution(output=output)

    def output(self, mixed_K: Tensor, head: int, t: int) -> Tensor:
        return mixed_K / (1 + math.exp(-float(self.x_TD[t, head]) - self.layer))


PARTS: dict[str, ByHand] = {
    "nothing": ByHand(),
    "rotation, interleaved": Rotates("interleaved"),
    "rotation, halves": Rotates("halves"),
    "magnitudes, interleaved": RotatesAndGrows("interleaved"),
    "magnitudes, halves": RotatesAndGrows("halves"),
    "rotation of tokens": RotatesTokens(),
    "wider": Widens(),
    "narrower": Narrows(),
    "scale": ScalesAll(),
    "scale by head and position": ScalesByHeadAndPosition(),
    "scale by visible keys": ScalesByVisibleKeys(),
    "bias by distance": BiasByDistance(),
    "bias by position": BiasByPosition(),
    "bias by row and column": BiasByRowAndColumn(),
    "window": Window(3),
    "windows by head": Window((1, 4, 2, 7)),
    "chunks": Chunks(),
    "scores above mean": ScoresAboveMean(),
    "scores squared": ScoresSquared(),
    "softmax plus one": SoftmaxPlusOne(),
    "sigmoid over visible": SigmoidOverVisible(),
    "output by head": OutputByHead(),
    "output plus share": OutputPlusShare(),
    "bias by token numbers": BiasByTokenNumbers(),
    "output by layer input": OutputByLayerInput(),
}
