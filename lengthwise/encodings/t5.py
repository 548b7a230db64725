"""T5's relative bias (Raffel et al. 2020): a learned number for each head and each log-spaced bucket of distance."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


def bucket_of_distance(buckets: int, max_distance: int) -> list[int]:
    """The bucket of every distance 0..max_distance: the first half exact, the second half log-spaced."""
    exact = buckets // 2

    def bucket(distance: int) -> int:
        if distance < exact:
            return distance
        octave = math.log(distance / exact) / math.log(max_distance / exact)
        # The small number keeps a distance that lies exactly on a boundary from falling below it by rounding.
        return min(exact + int(octave * (buckets - exact) + 1e-9), buckets - 1)

    return [bucket(distance) for distance in range(max_distance + 1)]


class T5(Encoding):
    """A learned bias for each head and each of 32 log-spaced buckets of distance, shared by all layers."""

    name = "t5"
    card = Card(
        kind="bias",
        equation="b_h(d) = B_h[bucket(d)]",
        source="Raffel et al. 2020",
        arxiv="1910.10683",
    )

    @dataclass(frozen=True)
    class Config:
        buckets: int = 32
        max_distance: int = 128
        shared: bool = True
        """One table for all layers, as published; or one for each layer."""
        rate: float = 1.0
        """Learning-rate multiplier of the table (`lr_multiplier` is read too); the table begins the same."""
        initial: float | None = None
        """Standard deviation of the table before training; None for width^-0.5, as published."""

        def __post_init__(self) -> None:
            if self.buckets < 2:
                raise ValueError(f"buckets must be 2 or more, not {self.buckets}")
            if self.max_distance <= self.buckets // 2:
                raise ValueError(f"max_distance must be above buckets / 2, not {self.max_distance}")
            if self.rate <= 0:
                raise ValueError(f"rate must be above 0, not {self.rate}")
            if self.initial is not None and self.initial < 0:
                raise ValueError(f"initial must be 0 or more, not {self.initial}")

    config: Config
    bucket_of_distance: Tensor

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.per_layer = not config.shared
        self.table = nn.Parameter(torch.zeros(config.buckets, geometry.heads))
        buckets = torch.tensor(bucket_of_distance(config.buckets, config.max_distance))
        self.register_buffer("bucket_of_distance", buckets, persistent=False)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.learned_bias)

    def learned_bias(self, distance: Tensor) -> Tensor:
        bucket = self.bucket_of_distance[distance.clamp(max=self.config.max_distance)]
        # Adam's steps have the size of the learning rate, so a multiple of what it learns is learned as much faster.
        return (self.config.rate * self.table.float())[bucket].movedim(-1, 0)

    def initial(self, name: str, generator: torch.Generator) -> float:
        return self.initial_deviation / self.config.rate

    @property
    def initial_deviation(self) -> float:
        """Standard deviation of the initial biases."""
        return self.geometry.width**-0.5 if self.config.initial is None else self.config.initial

    def resolved(self) -> dict[str, Any]:
        facts = {"buckets": self.config.buckets, "max_distance": self.config.max_distance, "shared": self.config.shared}
        return {**facts, "rate": self.config.rate, "initial": self.initial_deviation}
