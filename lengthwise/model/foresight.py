"""No token may know a later one, or one of another sequence of its row: asked of one layer before anything is trained.

A model that sees what it should predict learns at once, and its results mean nothing.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.mixers.attention import Attention
from lengthwise.model.config import ModelConfig
from lengthwise.model.layer import LayerPass
from lengthwise.registry import asking, written_in

TOLERANCE = 1e-4
"""Of results of about 1: sums in another order differ by less."""


def two_sequences(size: int = 3) -> AttentionLayout:
    """One row of two sequences of `size` tokens each."""
    positions_BT = torch.arange(size).repeat(2)[None]
    segments_BT = torch.tensor([1, 2]).repeat_interleave(size)[None]
    hidden_TS = torch.ones(2 * size, 2 * size, dtype=torch.bool).triu(1) | (segments_BT != segments_BT.T)
    return AttentionLayout(
        positions_BT,
        positions_BT,
        hide=lambda: hidden_TS[None],
        segments_BT=segments_BT,
        key_segments_BS=segments_BT,
    )


def refuse_foresight(forward: Callable[[Tensor], Tensor], x_BTD: Tensor, where: str, hint: str) -> None:
    """`forward`: from what the tokens of `two_sequences` are to what a layer makes of them."""
    size = x_BTD.shape[1] // 2
    found = forward(x_BTD)
    for changed, unaffected, words in (
        (slice(size - 1, size), slice(0, size - 1), "later tokens"),
        (slice(0, size), slice(size, 2 * size), "other sequences of its row"),
    ):
        other_BTD = x_BTD.clone()
        other_BTD[:, changed] += 1 + other_BTD[:, changed].flip(-1)
        difference = (forward(other_BTD)[:, unaffected] - found[:, unaffected]).abs()
        if bool((difference > TOLERANCE * found.abs().amax().clamp(min=1)).any()):
            raise UserError(f"{where}: a token must not know {words}; {hint}")


@torch.no_grad()
def check_foresight(encoding: Encoding) -> None:
    """Attention with this encoding. Noise is added to its parameters: a table of zeros would hide what it is read for.

    Where it cannot be told, for example since noise makes it NaN, nothing is said.
    """
    geometry, cls = encoding.geometry, type(encoding)
    last = encoding.last_position
    layout = two_sequences(3 if last is None else min(3, last + 1))
    attention = _attention(geometry)
    generator = torch.Generator().manual_seed(0)
    for parameter in encoding.parameters():
        fan_in = parameter.shape[-1] if parameter.ndim else 1
        parameter += 0.7 * fan_in**-0.5 * torch.randn(parameter.shape, generator=generator)

    def forward(x_BTD: Tensor) -> Tensor:
        # A layout keeps what it was told in a pass.
        here = LayerPass(encoding, two_sequences(x_BTD.shape[1] // 2), backend="eager")
        return attention(encoding.embed(x_BTD, here.layout.query_positions_BT), here)

    x_BTD = torch.randn(1, layout.query_positions_BT.shape[1], geometry.width, generator=generator)
    what = f"encoding {encoding.name}"
    with asking(what, cls, "contribute"):
        refuse_foresight(forward, x_BTD, written_in(what, cls), "see layout.mask_BTS() and layout.of_queries()")


def _attention(geometry: Geometry) -> Attention:
    config = ModelConfig(
        style="t5" if geometry.logit_scale == 1 else "llama",
        layers=1,
        width=geometry.width,
        heads=geometry.heads,
        key_value_heads=geometry.groups,
    )
    made = Attention(config)
    generator = torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    return made
