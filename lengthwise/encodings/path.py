"""PaTH (Yang et al. 2025): between a key and a query lie reflections that the tokens between them say.

Shape letters: B batch, H heads, T queries, S keys, K head width, C = H K + H numbers of a token.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import ScoreChange, Scores
from lengthwise.encodings.convolution import convolved, first_taps
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.encodings.linear import linear


class Path(Encoding):
    """A key is multiplied by I - beta w w^T of every token after it, up to the query; tokens say their w and beta."""

    name = "path"
    card = Card(
        kind="rotation",
        equation="z = k_j^⊤ ∏_(l=j+1)^i (I - β_l w_l w_l^⊤) q_i",
        source="Yang et al. 2025",
        arxiv="2505.16381",
    )
    per_layer = True
    reads_layer = True

    @dataclass(frozen=True)
    class Config:
        rank: int = 32
        """Of the map from what the layer reads to w."""
        taps: int = 3
        """Of the causal convolution over w."""

        def __post_init__(self) -> None:
            for name in ("rank", "taps"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        inner = geometry.heads * geometry.head_width
        self.down = nn.Linear(geometry.width, config.rank, bias=False)
        self.up = nn.Linear(config.rank, inner, bias=False)
        self.taps = nn.Parameter(torch.zeros(inner, config.taps))
        self.strength = nn.Linear(geometry.width, geometry.heads)

    def initial(self, name: str, generator: torch.Generator) -> Tensor | None:
        return first_taps(self.taps, generator) if name == "taps" else None

    def token_numbers(self, layer_input_BTD: Tensor) -> Tensor:
        """Before the convolution, so that what is cached is of one token alone."""
        vectors = linear(linear(layer_input_BTD, self.down.weight), self.up.weight)
        return torch.cat([vectors, linear(layer_input_BTD, self.strength.weight, self.strength.bias)], dim=-1)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        w_BHSK, strength_BHS = self.reflections(layout)

        def score(scores: Scores) -> Tensor:
            """With all reflections of a row in one triangular system (the UT transform of the paper)."""
            q_BHTK, k_BHSK = scores.q_BHTK.float(), scores.k_BHSK.float()
            later_B1SS = scores.layout.later_in_sequence_BSS()[:, None]
            between = strength_BHS[..., None] * (w_BHSK @ w_BHSK.mT) * later_B1SS
            onto = strength_BHS[..., None] * (w_BHSK @ k_BHSK.mT) * later_B1SS
            identity = torch.eye(between.shape[-1], device=between.device)
            solved = torch.linalg.solve_triangular(identity + between, onto, upper=False, unitriangular=True)
            # From the mask of the row alone: what a window hides besides is hidden afterwards.
            reached = (q_BHTK @ w_BHSK.mT) * scores.layout.mask_BTS()[:, None]
            return scores.logits_BHTS - scores.scale * (reached @ solved)

        return Contribution(score=ScoreChange(score, "reflections", (w_BHSK, strength_BHS)))

    def reflections(self, layout: AttentionLayout) -> tuple[Tensor, Tensor]:
        """w of length one (B, H, S, K) and beta from 0 to 2 (B, H, S) of all keys."""
        assert layout.token_numbers_BSC is not None
        heads = self.geometry.heads
        vectors, strength = layout.token_numbers_BSC.split([len(self.taps), heads], dim=-1)
        convolved_BSC = F.silu(convolved(vectors, self.taps.float(), layout))
        w_BHSK = F.normalize(convolved_BSC.unflatten(-1, (heads, -1)), dim=-1).transpose(1, 2)
        return w_BHSK, 2 * strength.sigmoid().transpose(1, 2)
