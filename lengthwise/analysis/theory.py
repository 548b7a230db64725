"""The two theorems about decoders without position encoding as weights, and how exactly they hold.

Kazemnejad et al. 2023 (arXiv 2305.19466), appendix C. The first layer writes absolute position; later layers make of
it logits that fall with distance. Positions count from 1, as in the paper.

Shape letters: B batch (here 1), T queries, S keys, D width, C content entries, K head width, I hidden units.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from lengthwise.encodings.contribution import NOTHING
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels.ops import Stream
from lengthwise.mixers.attention import Attention
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Block, Decoder
from lengthwise.model.feed_forward import ReluFeedForward
from lengthwise.model.norm import RMSNorm
from lengthwise.seeding import derive

ONE, FIRST, INVERSE, POSITION, LARGE = range(5)
"""Entries of the residual stream: 1; 1 at the first token alone; 1/t; t; a large number, only where norms are."""
WIDTH = 16
"""A power of four: dividing by its square root rounds nothing."""
CONTENT = slice(5, WIDTH)
"""What tokens are, at random: the theorems hold whatever is there."""

FIRST_TOKEN = 0
"""The id of the token that every sequence begins with, and that is nowhere else."""

LARGEST = 2.0**30
"""Beside its square, the squares of all other entries (up to 2^35) vanish in fp32: the norm is the same everywhere."""

RELATIVE_LAYERS = 2
"""Layers after the first one in which logits fall with distance; one would do."""

QUERIES_AT_ONCE = 512
"""Logits are compared in parts, so that memory grows with the length and not with its square."""

Norms = Literal["absent", "bypassed", "ignored"]
"""`absent`: taken out of the decoder. `bypassed`: there, and made harmless by the large number, as the proof says.
`ignored`: there, with the weights that were made for a decoder without them."""


class NoNorm(RMSNorm):
    """Lets everything through as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class TheoremCase:
    """A way to build and to ask."""

    name: str
    precision: Literal["fp64", "fp32"] = "fp32"
    norms: Norms = "absent"
    first_token: bool = True
    """Whether sequences begin with the token that can be told from the others."""


FP64 = TheoremCase("fp64", "fp64")
FP32 = TheoremCase("fp32")
BYPASSED = TheoremCase("norms bypassed", norms="bypassed")
IGNORED = TheoremCase("norms ignored", norms="ignored")
NO_FIRST_TOKEN = TheoremCase("no first token", first_token=False)
CASES = (FP64, FP32, BYPASSED, IGNORED, NO_FIRST_TOKEN)
"""The theorems hold in the first three, and break in the last two."""


@dataclass(frozen=True)
class AbsoluteResult:
    """Largest errors over all positions."""

    case: str
    length: int
    inverse_error: float
    """Of 1/t, which the attention head writes."""
    position_error: float
    """Of t, which the feed-forward layer writes."""


@dataclass(frozen=True)
class RelativeResult:
    case: str
    length: int
    logit_error: float
    """The largest difference from content - (t - i), over all queries, the keys they see, and all later layers."""


def absolute_decoder(length: int, vocabulary_rows: int, case: TheoremCase, layers: int = 1, seed: int = 0) -> Decoder:
    """Theorem 1: a decoder whose first layer writes t at position t, for positions 1 to `length`.

    Weights of further layers are 0.
    """
    if length < 2 or vocabulary_rows < 2:
        raise ValueError(f"needs 2 or more positions and tokens, not {length} and {vocabulary_rows}")
    config = ModelConfig(style="t5", layers=layers, width=WIDTH, heads=1, feed_forward=length)
    model = build(config, vocabulary_rows, [{"name": "none"}], Lengths(length, length)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        embedding_VD = model.embedding.weight
        embedding_VD[:, CONTENT] = _normal(seed, "embedding", vocabulary_rows, CONTENT.stop - CONTENT.start)
        embedding_VD[:, ONE] = 1
        embedding_VD[FIRST_TOKEN, FIRST] = 1
        # Queries and keys are 0, so all tokens seen get the same weight, 1/t; only the first one has a value.
        _, _, value_DK = _projections(_attention(model, 0))
        value_DK[FIRST, 0] = 1
        _attention(model, 0).output.weight[0, INVERSE] = 1
        _write_position(cast(ReluFeedForward, _block(model, 0).feed_forward), length)
        _set_norms(model, case.norms)
    return model.eval() if case.precision == "fp64" else model.float().eval()


def relative_decoder(length: int, vocabulary_rows: int, case: TheoremCase, seed: int = 0) -> Decoder:
    """Theorem 2: the same decoder with more layers, in which logits are content - (t - i).

    What those layers write is random, and into the content entries alone: nobody may overwrite position.
    """
    model = absolute_decoder(length, vocabulary_rows, case, 1 + RELATIVE_LAYERS, seed)
    size = CONTENT.stop - CONTENT.start
    with torch.no_grad():
        for layer in range(1, 1 + RELATIVE_LAYERS):
            block = _block(model, layer)
            query_DK, key_DK, value_DK = _projections(_attention(model, layer))
            query_DK[ONE, 0], key_DK[POSITION, 0] = 1, 1  # 1 x i
            query_DK[POSITION, 1], key_DK[ONE, 1] = -1, 1  # -t x 1
            for name, weight_DK in (("query", query_DK), ("key", key_DK), ("value", value_DK)):
                weight_DK[CONTENT, CONTENT] = _mixing(seed, f"{name} {layer}", size, size)
            _attention(model, layer).output.weight[CONTENT, CONTENT] = _mixing(seed, f"output {layer}", size, size)
            feed_forward = cast(ReluFeedForward, block.feed_forward)
            feed_forward.inner.weight[CONTENT] = _mixing(seed, f"inner {layer}", size, length)
            feed_forward.output.weight[:, CONTENT] = _mixing(seed, f"feed-forward {layer}", length, size)
    return model


def tokens(length: int, vocabulary_rows: int, first_token: bool, seed: int = 0) -> Tensor:
    """A row of random tokens (1, T); the first is FIRST_TOKEN or, like the others, any but that."""
    generator = torch.Generator().manual_seed(derive(seed, "theory", "tokens"))
    tokens_BT = torch.randint(1, vocabulary_rows, (1, length), generator=generator)
    if first_token:
        tokens_BT[:, 0] = FIRST_TOKEN
    return tokens_BT


def residual_stream(model: Decoder, tokens_BT: Tensor) -> list[Tensor]:
    """The residual stream (T, D) of one row: after the embedding, then after each layer.

    Heard from outside: where a trace is asked for, the decoder takes its attention weights in fp32 even if it is fp64.
    """
    stream: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | Stream) -> None:
        stream.append((output.x_BTD if isinstance(output, Stream) else output)[0])

    hooks = [module.register_forward_hook(keep) for module in (model.embedding, *model.blocks)]
    try:
        with torch.no_grad():
            model(tokens_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return stream


def absolute_readings(length: int, vocabulary_rows: int, case: TheoremCase, seed: int = 0) -> tuple[Tensor, Tensor]:
    """What stands for 1/t and for t after the first layer (T,), in fp64."""
    model = absolute_decoder(length, vocabulary_rows, case, seed=seed)
    after_TD = residual_stream(model, tokens(length, vocabulary_rows, case.first_token, seed))[1].double()
    return after_TD[:, INVERSE], after_TD[:, POSITION]


def verify_absolute(length: int, vocabulary_rows: int, case: TheoremCase, seed: int = 0) -> AbsoluteResult:
    inverse_T, position_T = absolute_readings(length, vocabulary_rows, case, seed)
    t_T = torch.arange(1, length + 1, dtype=torch.float64)
    errors = (inverse_T - 1 / t_T).abs().max().item(), (position_T - t_T).abs().max().item()
    return AbsoluteResult(case.name, length, *errors)


def verify_relative(length: int, vocabulary_rows: int, case: TheoremCase, seed: int = 0) -> RelativeResult:
    model = relative_decoder(length, vocabulary_rows, case, seed)
    stream = residual_stream(model, tokens(length, vocabulary_rows, case.first_token, seed))
    t_T = torch.arange(1, length + 1, dtype=torch.float64)
    error = 0.0
    for layer in range(1, 1 + RELATIVE_LAYERS):
        for queries, logits_TS, content_TS in logit_parts(model, layer, stream[layer]):
            expected_TS = content_TS - (t_T[queries, None] - t_T[None])
            seen_TS = (logits_TS - expected_TS).tril(queries.start)  # no query sees later keys
            error = max(error, seen_TS.abs().max().item())
    return RelativeResult(case.name, length, error)


def logit_parts(model: Decoder, layer: int, x_TD: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some queries at a time: which, their logits in this layer, and what content alone would make of them (T, S).

    The logits are products of the decoder's own queries and keys, in its precision; the content is taken in fp64.
    """
    block = _block(model, layer)
    with torch.no_grad():
        positions_BT = torch.arange(len(x_TD))[None]
        layout = AttentionLayout(positions_BT, positions_BT)
        found = _attention(model, layer).queries_and_keys(block.attention_norm(x_TD[None]), NOTHING, layout)
        q_TK, k_SK = (part[0, 0] for part in found)
        query_DK, key_DK = (part.double()[CONTENT, CONTENT] for part in _projections(_attention(model, layer))[:2])
        x_TC = x_TD[:, CONTENT].double()
        for start in range(0, len(x_TD), QUERIES_AT_ONCE):
            queries = slice(start, start + QUERIES_AT_ONCE)
            content_TS = (x_TC[queries] @ query_DK) @ (x_TC @ key_DK).T
            yield queries, (q_TK[queries] @ k_SK.T).double(), content_TS


def lengths_up_to(length: int) -> list[int]:
    """The powers of two from 2 on, and the length itself."""
    return sorted({length, *(2**power for power in range(1, length.bit_length()) if 2**power <= length)})


def _write_position(feed_forward: ReluFeedForward, length: int) -> None:
    """t = 1 + sum over j = 1 ... T-1 of relu(2 - 2j/t), in T hidden units.

    It is the function of 1/t that is linear between 1, 1/2, ..., 1/T: the slope left of 1/j is -j(j+1), and 2j more
    than right of it. Added up from 1 downwards, no term is below 0 or above 2 and nothing cancels, so that t is about
    as exact as 1/t is, although the slopes grow to T^2.
    """
    j_I = torch.arange(1, length, dtype=torch.float64)
    feed_forward.inner.weight[ONE, 0] = 1
    feed_forward.inner.weight[ONE, 1:] = 2
    feed_forward.inner.weight[INVERSE, 1:] = -2 * j_I
    feed_forward.output.weight[:, POSITION] = 1


def _set_norms(model: Decoder, norms: Norms) -> None:
    """Norms that change nothing, or that change what they do by themselves.

    Bypassed: with a large number in every token's vector the root mean square is LARGEST / sqrt(D) everywhere, and the
    norm's weights take it back (Akyurek et al. 2023, whom the proof cites; as no mean is subtracted here, one number
    does). The last norm hides the number, so that next-token logits stay small.
    """
    for parent in (*model.blocks, model):
        for name, module in list(parent.named_children()):
            if isinstance(module, RMSNorm) and norms == "absent":
                setattr(parent, name, NoNorm(WIDTH))
            elif isinstance(module, RMSNorm):
                module.weight.fill_(LARGEST / WIDTH**0.5 if norms == "bypassed" else 1.0)
    if norms == "bypassed":
        model.embedding.weight[:, LARGE] = LARGEST
        model.final_norm.weight[LARGE] = 0


def _attention(model: Decoder, layer: int) -> Attention:
    return cast(Attention, _block(model, layer).mixer)


def _block(model: Decoder, layer: int) -> Block:
    return cast(Block, model.blocks[layer])


def _projections(attention: Attention) -> list[Tensor]:
    """The parts (D, K) of the joined weight that make queries, keys and values; writing to them sets the weight."""
    return list(attention.projection.weight.split(list(attention.sizes.values()), dim=1))


def _mixing(seed: int, name: str, rows: int, columns: int) -> Tensor:
    """A random matrix that keeps the size of what it multiplies."""
    return _normal(seed, name, rows, columns) / rows**0.5


def _normal(seed: int, name: str, rows: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive(seed, "theory", name))
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)
