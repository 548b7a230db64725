"""Tiny models of ten architectures of Transformers, and what extensions do to their attention, written apart from ours.

`by_hand` is an attention implementation of Transformers. It gets queries and keys as the model has rotated them, turns
them back by the model's own frequencies, and makes every logit from the distance of the two tokens.
Shape letters: B batch, H heads, T queries, S keys, K head width, P rotated pairs.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from test_extension import LONG, RELATIVE, SHORT, loop_dynamic, loop_interpolation, loop_llama3, loop_longrope, loop_ntk
from test_extension import loop_yarn_code as loop_yarn
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

TRAINED = 16
LENGTH = 40
NAME = "by-hand"
SHAPE: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": TRAINED, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
SLIDING = ["sliding_attention", "full_attention"] * 2


@dataclass(frozen=True)
class Architecture:
    config: str
    settings: dict[str, Any]
    pairs: str = "halves"
    rotated: int = 16
    """Entries of a head of 16."""
    base: tuple[float, ...] = (10000.0,)
    """Of each layer, cycled; 0 for no rotation."""


ARCHITECTURES = {
    "llama": Architecture("LlamaConfig", {}),
    "mistral": Architecture("MistralConfig", {"sliding_window": 24}),
    "qwen3": Architecture("Qwen3Config", {"head_dim": 16}),
    "smollm3": Architecture("SmolLM3Config", {}, base=(2000000.0, 2000000.0, 2000000.0, 0.0)),
    "gemma3": Architecture(
        "Gemma3TextConfig", {"head_dim": 16, "sliding_window": 11, "layer_types": SLIDING}, base=(10000.0, 1000000.0)
    ),
    "gpt-neox": Architecture("GPTNeoXConfig", {}, rotated=4),
    "gpt2": Architecture("GPT2Config", {"max_position_embeddings": LENGTH}, rotated=0, base=(0.0,)),
    "olmo3": Architecture("Olmo3Config", {"sliding_window": 11, "layer_types": SLIDING}, base=(500000.0,)),
    "granite": Architecture(
        "GraniteConfig",
        {"attention_multiplier": 0.4, "logits_scaling": 3.0, "residual_multiplier": 0.5, "embedding_multiplier": 2.0},
    ),
    "gpt-oss": Architecture(
        "GptOssConfig",
        {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 4, "sliding_window": 11, "layer_types": SLIDING,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    ),
}  # fmt: skip


def make(name: str) -> Any:
    """Random weights, large enough that attention is far from even."""
    torch.manual_seed(0)
    chosen = ARCHITECTURES[name]
    config = getattr(transformers, chosen.config)(**{**SHAPE, **chosen.settings})
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for key, value in model.named_parameters():
        if value.ndim > 1:
            value.mul_(4 if "embed" not in key and "wpe" not in key else 1)
        elif "sinks" in key:
            value.normal_()
    return model


Frequency = Callable[[int, int, float, int, int], float]
"""Pair, rotated entries, base, trained length, length at hand: radians a token."""


@dataclass(frozen=True)
class ByHand:
    """An extension, by its formulas."""

    settings: dict[str, Any]
    frequency: Frequency | None = None
    relative: Callable[[int, int], float | None] | None = None
    """Positions of a query and of a key to their distance; None where the key is hidden."""
    scale: Callable[[int, int, int, int], float] = lambda layer, head, position, seen: 1.0
    """Of logits: layer, head, position of the query from 0, how many keys it sees."""
    rotates: bool = True
    """Whether it is for layers that rotate alone."""
    sharpens: bool = False
    """Whether the logits of a query are multiplied by the published polynomial in the entropy of their softmax."""


def _heads(layer: int, head: int) -> float:
    return 1 + 0.1 * layer + 0.07 * head


def _self_extend(t: int, s: int) -> float:
    return t - s if t - s < 6 else t // 4 - s // 4 + 6 - 6 // 4


def _rescaled(frequency: Frequency, **settings: Any) -> ByHand:
    return ByHand(settings, frequency)


BY_HAND: dict[str, ByHand] = {
    "uniform-scale": ByHand(
        {"slope": 0.35},
        scale=lambda layer, head, t, n: 1 + 0.35 * math.log(max(1, (t + 1) / TRAINED)),
        rotates=False,
    ),
    "head-scale": ByHand({"initial": 1.5}, scale=lambda layer, head, t, n: _heads(layer, head), rotates=False),
    "logn": ByHand(
        {}, scale=lambda layer, head, t, n: max(1.0, math.log(n) / math.log(TRAINED)), rotates=False
    ),
    "ssmax": ByHand({"s": 0.4}, scale=lambda layer, head, t, n: 0.4 * math.log(n), rotates=False),
    "adaptive-temperature": ByHand({}, rotates=False, sharpens=True),
    "position-interpolation": _rescaled(lambda *a: loop_interpolation(*a, 3.0), factor=3.0),
    "ntk": _rescaled(lambda *a: loop_ntk(*a, 3.0), factor=3.0),
    "dynamic-ntk": _rescaled(lambda *a: loop_dynamic(*a, 2.0), factor=2.0),
    "yarn": ByHand(
        {"factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.1},
        lambda *a: loop_yarn(*a, 4.0, fast=2.0, slow=0.1),
        scale=lambda layer, head, t, n: (0.1 * math.log(4.0) + 1) ** 2,
    ),
    "llama3": _rescaled(lambda *a: loop_llama3(*a, 8.0, 0.01, 2.0), factor=8.0, low=0.01, high=2.0),
    "longrope": _rescaled(lambda *a: loop_longrope(*a, 4.0), factor=4.0, attention_factor=1.0),
    "drope": _rescaled(lambda *a: 0.0),
    "self-extend": ByHand({"group": 4, "window": 6}, relative=_self_extend),
    "rerope": ByHand({"window": 6}, relative=RELATIVE["rerope"]),
    "leaky-rerope": ByHand({"window": 6, "factor": 5.0}, relative=RELATIVE["leaky-rerope"]),
    "lm-infinite": ByHand({"global_tokens": 3, "window": 9}, relative=RELATIVE["lm-infinite"], rotates=False),
    "streaming": ByHand({"first": 3, "recent": 8}, relative=RELATIVE["streaming"], rotates=False),
    "dual-chunk": ByHand({"chunk": 13, "local": 4}, relative=RELATIVE["dual-chunk"]),
    "string": ByHand({"offset": 10, "window": 3}, relative=RELATIVE["string"]),
}  # fmt: skip


def settings_of(extension: str, architecture: str) -> dict[str, Any]:
    """With as many factors as there are pairs."""
    settings = dict(BY_HAND[extension].settings)
    if extension == "longrope":
        pairs = ARCHITECTURES[architecture].rotated // 2
        settings |= {"long": LONG[:pairs], "short": SHORT[:pairs]}
    return settings


def _pairs(x: Tensor, entries: int, pairs: str) -> tuple[Tensor, Tensor, Tensor]:
    """First and second entries of the pairs (..., P), and the entries that are not rotated."""
    rotated, rest = x[..., :entries], x[..., entries:]
    if pairs == "interleaved":
        return rotated[..., 0::2], rotated[..., 1::2], rest
    return rotated[..., : entries // 2], rotated[..., entries // 2 :], rest


def _turned_back(x_BHTK: Tensor, frequency_P: Tensor, pairs: str) -> Tensor:
    """As before the model rotated it: pairs side by side (a, then b), then the rest."""
    a, b, rest = _pairs(x_BHTK.double(), 2 * len(frequency_P), pairs)
    angle_TP = torch.arange(x_BHTK.shape[2], dtype=torch.float64)[:, None] * frequency_P
    cosine, sine = angle_TP.cos(), angle_TP.sin()
    return torch.cat([a * cosine + b * sine, b * cosine - a * sine, rest], dim=-1)


def by_hand(architecture: str, extension: str | None) -> Callable[..., Any]:
    """The attention implementation; without an extension it is the model's own."""
    known = ARCHITECTURES[architecture]
    method = ByHand({}, rotates=False) if extension is None else BY_HAND[extension]

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, scaling: float | None = None,
        s_aux: Tensor | None = None, **_: Any,
    ) -> Any:  # fmt: skip
        layer, heads, length = module.layer_idx, query.shape[1], query.shape[2]
        base = known.base[layer % len(known.base)]
        entries = known.rotated if base else 0
        trained_P = torch.tensor([base ** (-2 * i / entries) for i in range(entries // 2)], dtype=torch.float64)
        acts = bool(entries) or not method.rotates
        there_P = trained_P
        if acts and method.frequency is not None:
            found = [method.frequency(i, entries, base, TRAINED, length) for i in range(entries // 2)]
            there_P = torch.tensor(found, dtype=torch.float64)
        distance_TS = torch.zeros(length, length, dtype=torch.float64)
        hidden_TS = ~attention_mask[0, 0]
        scale_HT = torch.full((heads, length), 16**-0.5 if scaling is None else scaling, dtype=torch.float64)
        for t in range(length):
            for s in range(t + 1):
                distance = method.relative(t, s) if acts and method.relative else t - s
                distance_TS[t, s] = 0 if distance is None else distance
                hidden_TS[t, s] |= distance is None
            if acts:
                seen = int(attention_mask[0, 0, t].sum())
                for head in range(heads):
                    scale_HT[head, t] *= method.scale(layer, head, t, seen)
        groups, p = heads // key.shape[1], entries // 2
        q_BHTK = _turned_back(query, trained_P, known.pairs)
        k_BHSK = _turned_back(key, trained_P, known.pairs).repeat_interleave(groups, 1)
        qa, qb, ka, kb = q_BHTK[..., :p], q_BHTK[..., p : 2 * p], k_BHSK[..., :p], k_BHSK[..., p : 2 * p]
        angle_TSP = distance_TS[..., None] * there_P
        along = torch.einsum("bhtp,bhsp,tsp->bhts", qa, ka, angle_TSP.cos())
        along += torch.einsum("bhtp,bhsp,tsp->bhts", qb, kb, angle_TSP.cos())
        across = torch.einsum("bhtp,bhsp,tsp->bhts", qa, kb, angle_TSP.sin())
        across -= torch.einsum("bhtp,bhsp,tsp->bhts", qb, ka, angle_TSP.sin())
        rest = torch.einsum("bhtk,bhsk->bhts", q_BHTK[..., 2 * p :], k_BHSK[..., 2 * p :])
        logits_BHTS = ((along + across + rest) * scale_HT[..., None]).masked_fill(hidden_TS, -math.inf)
        if method.sharpens:
            logits_BHTS = logits_BHTS * _inverse_temperature(logits_BHTS.softmax(-1))
        if s_aux is not None:
            sink_BHT1 = s_aux.double()[None, :, None, None].expand(*logits_BHTS.shape[:3], 1)
            logits_BHTS = torch.cat([logits_BHTS, sink_BHT1], dim=-1)
        weights_BHTS = logits_BHTS.softmax(-1)[..., :length]
        v_BHSK = value.double().repeat_interleave(groups, 1)
        return (weights_BHTS @ v_BHSK).to(value.dtype).transpose(1, 2).contiguous(), None

    return attention


def _inverse_temperature(weights_BHTS: Tensor) -> Tensor:
    entropy_BHT1 = -(weights_BHTS * (weights_BHTS + 1e-9).log()).sum(-1, keepdim=True)
    powers = zip((-0.037, 0.481, -2.3, 4.917, -1.791), (4, 3, 2, 1, 0), strict=True)
    polynomial_BHT1 = sum(factor * entropy_BHT1**power for factor, power in powers)
    return torch.where(entropy_BHT1 > 0.5, polynomial_BHT1.clamp(min=1), 1.0)


@contextmanager
def attending_by_hand(model: Any, architecture: str, extension: str | None) -> Iterator[None]:
    before = model.config._attn_implementation
    AttentionInterface.register(NAME, by_hand(architecture, extension))
    AttentionMaskInterface.register(NAME, lambda *given, **named: sdpa_mask(*given, **{**named, **NEVER_NOTHING}))
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


NEVER_NOTHING = {"allow_is_causal_skip": False}
