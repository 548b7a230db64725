"""Pictures of what a layer's encoding does, sampled from what it contributes in a fresh model.

What depends on the tokens is not drawn: it would show the random numbers that it was given. Whether it does is found
out by giving it others, with random parameters, since many begin with zeros.
Shape letters: B batch, H heads, T queries, S keys, K head width, D model width, P pairs.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.encodings.contribution import Contribution, Rotation, Scores
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.report.figures.method_pictures import lines_picture, mask_picture
from lengthwise.report.model.method_card import CardPicture

TOKENS = 64
"""Of the sequence that an encoding is asked about; its last query looks back on all of them."""
MASK = 32
"""Queries and keys of a mask, and keys of a picture of weights."""
LOGITS = (2.0, -2.0)
"""Of the nearest and of the farthest key, where weights are drawn."""
MOST_PAIRS = 6
TOKENS_SAY = "depends on the tokens: there is nothing to draw."


@dataclass(frozen=True)
class AskedEncoding:
    """What an encoding contributes, asked with some tokens."""

    encoding: Encoding
    layout: AttentionLayout
    contribution: Contribution
    q_BHTK: Tensor
    k_BHSK: Tensor
    logits_BHTS: Tensor

    @classmethod
    def of(cls, encoding: Encoding, seed: int) -> "AskedEncoding":
        geometry, generator = encoding.geometry, torch.Generator().manual_seed(seed)
        last = encoding.last_position
        tokens = TOKENS if last is None else min(TOKENS, last + 1)
        positions_BT = torch.arange(tokens)[None]
        ones_BT = torch.ones_like(positions_BT)
        whole = AttentionLayout(
            positions_BT, positions_BT, segments_BT=ones_BT, key_segments_BS=ones_BT, consecutive=True
        )
        x_BTD = torch.randn(1, tokens, geometry.width, generator=generator)
        layout = whole.at_layer(0, x_BTD, encoding.token_numbers(x_BTD))
        q_BHTK, k_BHSK = torch.randn(2, 1, geometry.heads, tokens, geometry.head_width, generator=generator)
        logits_BHTS = torch.randn(1, geometry.heads, tokens, tokens, generator=generator)
        return cls(encoding, layout, layout.contribution(encoding), q_BHTK, k_BHSK, logits_BHTS)

    # Each of these is (lines, places): what a picture has. The first place is distance 0.

    def vectors(self) -> Tensor:
        """Cosines between what is added to the embedding of the last token and to those before it."""
        vectors_TD = self.added_TD()
        return F.cosine_similarity(vectors_TD[-1:], vectors_TD, dim=-1).flip(0)[None]

    def added_TD(self) -> Tensor:
        """What is added to embeddings at each position."""
        positions_BT = self.layout.query_positions_BT
        nothing_BTD = torch.zeros(1, positions_BT.shape[1], self.encoding.geometry.width)
        return self.encoding.embed(nothing_BTD, positions_BT)[0]

    def distance_bias(self) -> Tensor:
        assert self.contribution.distance_bias is not None
        return self.contribution.distance_bias(torch.arange(TOKENS))

    def position_bias(self) -> Tensor:
        """Of the last query."""
        assert self.contribution.position_bias is not None
        bias_BHTS = self.contribution.position_bias(self.layout.query_positions_BT, self.layout.key_positions_BS)
        return bias_BHTS[0, :, -1].flip(-1)

    def row_column_bias(self) -> Tensor:
        both = self.contribution.row_column_bias
        assert both is not None
        bias_BHTS = both.row_BHT[..., None] + both.of_keys_BHS[..., None, :]
        return bias_BHTS[0, :, -1].flip(-1)

    def scored(self) -> Tensor:
        """What a change of scores adds for the last query."""
        return self.scored_BHTS()[0, :, -1].flip(-1)

    def scored_BHTS(self) -> Tensor:
        """Minus infinity where it hides a key."""
        assert self.contribution.score is not None
        bias = self.contribution.bias(self.layout)
        scores = Scores(self.logits_BHTS, self.q_BHTK, self.k_BHSK, self.layout, 1.0, bias)
        return self.contribution.score(scores) - self.logits_BHTS

    def product(self) -> Tensor:
        """Of the last query and the keys, all entries of which were 1 before they were changed; the mean over heads."""
        queries, keys, positions_BT = self.contribution.queries, self.contribution.keys, self.layout.query_positions_BT
        q, k = torch.ones_like(self.q_BHTK), torch.ones_like(self.k_BHSK)
        if (own := self.contribution.token_rotation) is not None:
            q, k = own.rotated(q), own.rotated(k)
        q = queries(q, positions_BT) if queries else q
        k = keys(k, positions_BT) if keys else k
        product_S = (q.float() @ k.float().mT).mean((0, 1))[-1].flip(0)
        return (product_S / product_S[0])[None]

    def between_SP(self) -> Tensor:
        """Angles between pairs of the last query and of the keys."""
        rotation, positions_BT = self.rotation, self.layout.query_positions_BT
        queries_TP = rotation.angles(positions_BT)[0]
        keys_TP = (rotation.key_angles or rotation.angles)(positions_BT)[0]
        return (queries_TP[-1] - keys_TP).flip(0)

    @property
    def rotation(self) -> Rotation:
        assert self.contribution.rotation is not None
        return self.contribution.rotation

    def pairs(self) -> Tensor:
        """Products of some pairs of entries, relative to those without a rotation."""
        rotation, positions_BT = self.rotation, self.layout.query_positions_BT
        products_SP = self.between_SP().cos()
        if rotation.query_magnitude is not None:
            products_SP = products_SP * rotation.query_magnitude(positions_BT)[0, -1]
        if rotation.key_magnitude is not None:
            products_SP = products_SP * rotation.key_magnitude(positions_BT)[0].flip(0)
        number = products_SP.shape[1]
        chosen = torch.linspace(0, number - 1, min(number, MOST_PAIRS)).round().long()
        return products_SP.T[chosen]

    def scale(self) -> Tensor:
        """By the number of keys that are seen."""
        scale, tokens = self.contribution.scale, self.layout.query_positions_BT.shape[1]
        if not isinstance(scale, Tensor):
            return torch.full((1, tokens), 1.0 if scale is None else float(scale))
        return scale.expand(1, -1, tokens, 1)[0, :, :, 0].float()

    def weights(self) -> Tensor:
        """Of keys whose logits fall evenly with the distance."""
        assert self.contribution.normalizer is not None
        heads = self.logits_BHTS.shape[1]
        logits_BHTS = falling_logits().flip(0).expand(1, heads, 1, MASK)
        return self.contribution.normalizer(logits_BHTS, self.layout.block(MASK - 1, MASK))[0, :, 0].flip(-1)


def falling_logits() -> Tensor:
    return torch.linspace(*LOGITS, MASK)


@dataclass
class Pictures:
    """Of one layer's encoding."""

    drawn: list[CardPicture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is not drawn, and why."""


@torch.no_grad()
def pictures_of(encoding: Encoding, name: str, in_layers: str = "") -> Pictures:
    """`name`: of the files; `in_layers`: words that stand before captions where layers differ."""
    drawing = _Drawing(encoding, name, in_layers)
    drawing.all()
    return drawing.found


class _Drawing:
    def __init__(self, encoding: Encoding, name: str, in_layers: str) -> None:
        self.name, self.in_layers, self.found = name, in_layers, Pictures()
        self.asked = AskedEncoding.of(encoding, 0)
        other = deepcopy(encoding)
        for index, parameter in enumerate(other.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(100 + index)))
        self.others = AskedEncoding.of(other, 1), AskedEncoding.of(other, 2)
        """The same with other parameters, which both have, and other tokens, which each has."""

    def all(self) -> None:
        asked, contribution = self.asked, self.asked.contribution
        embeds = bool(asked.added_TD().any())
        if embeds:
            self.lines("vectors", "Cosine between the vectors of two positions", AskedEncoding.vectors)
        if contribution.distance_bias is not None:
            self.lines("bias", "Bias of each head", AskedEncoding.distance_bias)
        if contribution.position_bias is not None:
            self.bias("The bias", AskedEncoding.position_bias, f" for the query at position {TOKENS - 1}")
        if contribution.row_column_bias is not None:
            self.bias("The bias", AskedEncoding.row_column_bias, "")
        if contribution.score is not None and not bool(asked.scored().isneginf().any()):
            self.bias("How logits change", AskedEncoding.scored, f" for the query at position {TOKENS - 1}")
        self.mask()
        if contribution.rotation is not None:
            self.rotation()
        if {"token_rotation", "queries", "keys"}.intersection(contribution.names):
            if self.depends(AskedEncoding.product):
                self.note(f"How queries and keys change {TOKENS_SAY}")
            else:
                self.lines(
                    "product", "Product of a query and a key of ones, relative to distance 0", AskedEncoding.product
                )
        if contribution.scale is not None:
            if self.depends(AskedEncoding.scale):
                self.note(f"The scale {TOKENS_SAY}")
            else:
                self.lines("scale", "Factor of the logits", AskedEncoding.scale, "keys that are seen", 1)
        if contribution.normalizer is not None:
            title = f"Weights of keys whose logits fall from {LOGITS[0]:g} to {LOGITS[1]:g}; dashes: the softmax"
            self.lines("weights", title, AskedEncoding.weights, dashed=falling_logits().softmax(-1))
        if contribution.output is not None:
            self.note(f"What it makes of what heads found {TOKENS_SAY}")
        if not contribution.names and not embeds:
            self.note("It adds nothing: there is nothing to draw.")

    def bias(self, what: str, read: Callable[[AskedEncoding], Tensor], where: str) -> None:
        if self.depends(read):
            self.note(f"{what} {TOKENS_SAY}")
        elif bool(read(self.asked).any()):
            self.lines("bias", f"Bias of each head{where}", read)
        else:
            self.note(f"{what} is 0 at consecutive positions.")

    def mask(self) -> None:
        asked = self.asked
        hidden = asked.contribution.hidden_by_window(asked.layout)
        if (elsewhere := asked.contribution.hidden_by_chunk(asked.layout)) is not None:
            hidden = elsewhere if hidden is None else hidden | elsewhere
        if asked.contribution.score is not None and not self.depends(lambda each: each.scored_BHTS().isneginf()):
            by_score = asked.scored_BHTS().isneginf()
            if bool(by_score.any()):
                hidden = by_score if hidden is None else hidden | by_score
        if hidden is None:
            return
        seen_TS = (asked.layout.mask_BTS() & ~hidden[0]).float().mean(0)[:MASK, :MASK]
        picture = mask_picture(f"{self.name}-mask", f"{self.name}: keys that are seen", seen_TS.tolist())
        heads = "" if set(seen_TS.unique().tolist()) <= {0.0, 1.0} else "; the more ink, the more heads"
        self.found.drawn.append(CardPicture(picture, f"{self.in_layers}Keys that each of {MASK} queries sees{heads}."))

    def rotation(self) -> None:
        step_P = self.asked.between_SP().diff(dim=0)[0].abs()
        if not bool(step_P.any()):
            self.note("At consecutive positions nothing is rotated.")
            return
        pairs, width = len(step_P), self.asked.encoding.geometry.head_width
        fast, slow = (_count(2 * math.pi / float(step)) for step in (step_P.max(), step_P[step_P > 0].min()))
        some = f"{MOST_PAIRS} of {pairs}" if pairs > MOST_PAIRS else f"all {pairs}"
        title = (
            f"Products of pairs of entries, {some} pairs; a full rotation takes {fast} to {slow} tokens; "
            f"{2 * pairs} of {width} entries rotate"
        )
        self.lines("rotation", title, AskedEncoding.pairs)

    def depends(self, read: Callable[[AskedEncoding], Tensor]) -> bool:
        """Whether other tokens change it."""
        return not _alike(*map(read, self.others))

    def lines(
        self,
        kind: str,
        title: str,
        read: Callable[[AskedEncoding], Tensor],
        across: str = "distance",
        first: int = 0,
        dashed: Tensor | None = None,
    ) -> None:
        values = read(self.asked)
        begins = "" if _alike(values, read(self.others[0])) else ", before training"
        rows = [[float(f"{value:.4g}") for value in row] for row in torch.unique_consecutive(values, dim=0).tolist()]
        against = () if dashed is None else dashed.tolist()
        short = title.split(";")[0].split(",")[0].lower()
        picture = lines_picture(f"{self.name}-{kind}", f"{self.name}: {short}", across, first, rows, against)
        self.found.drawn.append(CardPicture(picture, f"{self.in_layers}{title}{begins}."))

    def note(self, words: str) -> None:
        self.found.notes.append(f"{self.in_layers}{words}")


def _alike(one: Tensor, two: Tensor) -> bool:
    first, second = (torch.nan_to_num(each.float(), neginf=-1e4) for each in (one, two))
    return torch.allclose(first, second, atol=1e-4)


def _count(tokens: float) -> str:
    return f"{tokens:.1f}" if tokens < 100 else f"{tokens:,.0f}"
