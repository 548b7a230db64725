"""Models and prompts whose texts end at very different places, and what two greedy texts may differ in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lengthwise.data.tokens import Tokens
from lengthwise.evaluation.generate import generate
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.placements.counting import WHOLE, Counting

ROWS, PAD = 24, 0
MET = 96
CONFIGS = {
    "t5": ModelConfig(style="t5", layers=2, width=64, heads=4, feed_forward=80),
    "llama-grouped": ModelConfig(style="llama", layers=2, width=64, heads=4, key_value_heads=2, feed_forward=80),
    "looped": ModelConfig(style="t5", layers=2, width=64, heads=4, feed_forward=80, loops=2, inject=True),
}


class Ends(Tokens):
    """Tokens as decoding asks for them."""

    def __init__(self, end: int = -1) -> None:
        """-1: an end that no model writes."""
        self.pad, self.end = PAD, end


def model_of(
    encodings: Sequence[Mapping[str, Any]],
    config: ModelConfig = CONFIGS["t5"],
    seed: int = 0,
    counting: Counting = WHOLE,
    device: torch.device | None = None,
) -> Decoder:
    """With weights that are far from equal: what it writes depends on everything it has read."""
    model = build(config, ROWS, encodings, Lengths(MET // 2, MET), counting)
    initialize(model, seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fan_in = parameter.shape[-1] if parameter.ndim else 1
            size = 0.2 if "embedding" in name else 0.7  # states must not say again and again what was read last
            parameter += size * fan_in**-0.5 * torch.randn(parameter.shape, generator=generator)
    return model.to(device or "cpu")


def prompts_of(count: int, longest: int = 12, seed: int = 1) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(2, ROWS, size=int(generator.integers(1, longest + 1))) for _ in range(count)]


def ends_apart(model: Decoder, prompts: Sequence[np.ndarray], budget: int) -> Ends:
    """An end with which texts end at the most different places: a token that is written now and then."""
    texts = generate(model, prompts, Ends(), budget)
    firsts = [[np.flatnonzero(text == token)[:1] for text in texts] for token in range(1, ROWS)]
    places = [len({int(first[0]) for first in each if len(first)}) for each in firsts]
    return Ends(1 + int(np.argmax(places)))


@torch.no_grad()
def gaps(model: Decoder, prompts: Sequence[np.ndarray], one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> list:
    """Of texts that differ: how far apart, in spreads of all logits, those of the first two tokens that differ are."""
    found = []
    for prompt, mine, theirs in zip(prompts, one, other, strict=True):
        if np.array_equal(mine, theirs):
            continue
        shared = min(len(mine), len(theirs))
        apart = np.flatnonzero(mine[:shared] != theirs[:shared])
        assert len(apart), "one text ends where the other does not, with the same tokens"
        first = int(apart[0])
        read = torch.from_numpy(np.concatenate([prompt, mine[:first]]))[None].to(model.embedding.weight.device)
        logits_V = model(read)[0, -1]
        found.append(float((logits_V[mine[first]] - logits_V[theirs[first]]).abs() / logits_V.std()))
    return found
