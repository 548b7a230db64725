"""Attention of packed rows by our kernel: what a layer's encoding contributes, in the form that the kernel takes.

The kernel is written for stacked models: what is passed here is one. Shape letters: B batch, H heads, T tokens, X = 3
for queries, keys and values, K head width, P pairs.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.encodings.contribution import Contribution, Normalizer, Polar, ScoreChange, Scores
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels import attention as kernel
from lengthwise.kernels import head_network
from lengthwise.kernels.attention import Parts
from lengthwise.kernels.ops import Ops
from lengthwise.model.attention import scale_of
from lengthwise.model.backend import common_width, kernel_program, kernel_scores
from lengthwise.model.config import ModelConfig


class Asked(NamedTuple):
    """What a layer contributes, and to which pass."""

    contribution: Contribution
    layout: AttentionLayout
    config: ModelConfig
    ops: Ops

    def whole(self, dtype: torch.dtype) -> bool:
        """Whether the kernel makes the logits."""
        return kernel_scores(self.contribution, self.layout.query_positions_BT.shape[1], self.config, dtype)


def of_projection(joined_BTXHK: Tensor, asked: Asked) -> Tensor:
    """Mixed values (B, T, H, K), from what the projection wrote: nothing happens in between, not even a rotation."""
    return _attend(joined_BTXHK, asked, _rotations(asked) | _made(asked, joined_BTXHK.dtype))


def of_prepared(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, asked: Asked) -> Tensor | None:
    """The same, from queries and keys as they are multiplied, which may be of another width than values; None where the
    kernel has no width for them."""
    dtype, usual = q_BHTK.dtype, q_BHTK.shape[-1] == asked.config.head_width
    if asked.contribution.score is None or (usual and asked.whole(dtype)):
        width = common_width(q_BHTK.shape[-1], v_BHTK.shape[-1])
        if not width or not kernel.normalizes(kernel_program(asked.contribution), q_BHTK.shape[2], width, dtype):
            return None
        # Entries of zeros: the kernel knows one width for all three.
        parts = [F.pad(x, (0, width - x.shape[-1])).transpose(1, 2) for x in (q_BHTK, k_BHTK, v_BHTK)]
        mixed_BTHK = _attend(torch.stack(parts, dim=2), asked, _made(asked, dtype))
        return mixed_BTHK[..., : v_BHTK.shape[-1]]
    logits_BHTS = changed_logits(q_BHTK, k_BHTK, asked)
    return _attend(v_BHTK.transpose(1, 2)[:, :, None], asked, {"given_NRHTS": logits_BHTS})


def changed_logits(q_BHTK: Tensor, k_BHSK: Tensor, asked: Asked) -> Tensor:
    """All that there is to logits but the mask, (B, H, T, S) in fp32."""
    contribution, layout = asked.contribution, asked.layout
    scale, bias = scale_of(contribution, asked.config.logit_scale), contribution.bias(layout)
    content = torch.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHSK).float()
    if isinstance(scale, Tensor) or scale != 1:
        content = content * scale
    score = contribution.score
    assert score is not None
    if isinstance(score, ScoreChange) and score.program == "head-network" and head_network.supports(*score.arrays):
        return head_network.changed(content, bias, *score.arrays, exact=q_BHTK.dtype == torch.float32)
    within = layout.within(contribution.window, contribution.chunk)
    logits = content if bias is None else content + bias
    return score(Scores(logits, q_BHTK, k_BHSK, within, scale, bias)).expand(content.shape)


def _attend(joined_BTXHK: Tensor, asked: Asked, parts: dict[str, Tensor | None]) -> Tensor:
    contribution, layout, ops = asked.contribution, asked.layout, asked.ops
    segments_BT = layout.segments_BT
    assert segments_BT is not None
    if (chunk := contribution.chunk) is not None:
        # A chunk of a sequence is a sequence of its own: its tokens see each other and no others.
        number_BT = layout.query_positions_BT.div(chunk, rounding_mode="floor")
        segments_BT = segments_BT.long() * 2**32 + number_BT
    if contribution.window is not None:
        parts["window_NH"] = _windows(contribution.window, joined_BTXHK.shape[3], segments_BT.device)
    if isinstance(contribution.normalizer, Normalizer):
        parts["sink_NH"] = contribution.normalizer.logit_H
    parts["key_N"] = ops.next_key()
    scale = scale_of(contribution, asked.config.logit_scale)
    given = Parts(**{name: None if each is None else each[None] for name, each in parts.items()})
    mixed = kernel.fused_attention(
        *(joined_BTXHK[None], segments_BT[None], given, ops.rate),
        scale=asked.config.logit_scale if isinstance(scale, Tensor) else scale,
        program=kernel_program(contribution),
        halves=_halves(contribution) if "turns_NRTGPC" in parts else False,
    )
    return mixed.squeeze(0)


def _rotations(asked: Asked) -> dict[str, Tensor | None]:
    """Turns of pairs, where queries and keys are to be rotated in the kernel; of entries, where they have phases."""
    contribution, layout = asked.contribution, asked.layout
    rotation, own = contribution.rotation, contribution.token_rotation
    if isinstance(keys := contribution.keys, Polar):

        def turns_of_phases() -> Tensor:
            phases_BTK = keys.phases(layout.query_positions_BT)
            return torch.stack([phases_BTK.cos(), phases_BTK.sin()], dim=-1)[:, :, None]

        offset_HK = keys.offset_GK
        if offset_HK is None:
            offset_HK = torch.zeros(
                asked.config.heads, asked.config.head_width, device=layout.query_positions_BT.device
            )
        turns = layout.once(contribution, "phases", turns_of_phases)
        return {"turns_NRTGPC": turns, "offset_NHK": offset_HK}
    if own is not None:
        angles_BTHP = own.angles_BGTP.expand(-1, asked.config.heads, -1, -1).transpose(1, 2)
        fixed = angles_BTHP.detach()  # the kernel finds the gradient of the angles themselves
        turns = torch.stack([fixed.cos(), fixed.sin()], dim=-1)
        return {"turns_NRTGPC": turns, "angles_NRTHP": angles_BTHP}
    if rotation is None:
        return {}

    def turns_of_positions() -> Tensor:
        positions_BT = layout.query_positions_BT
        sides = [(rotation.angles, rotation.query_magnitude)]
        if rotation.key_angles or rotation.query_magnitude or rotation.key_magnitude:
            sides.append((rotation.key_angles or rotation.angles, rotation.key_magnitude))
        found = []
        for angles, magnitude in sides:
            angles_BTP = angles(positions_BT)
            factor = 1.0 if magnitude is None else magnitude(positions_BT)
            found += [angles_BTP.cos() * factor, angles_BTP.sin() * factor]
        return torch.stack(found, dim=-1)[:, :, None]

    return {"turns_NRTGPC": layout.once(contribution, "rotation", turns_of_positions)}


def _halves(contribution: Contribution) -> bool:
    rotation = contribution.token_rotation or contribution.rotation
    return rotation is not None and rotation.pairs == "halves"


def _made(asked: Asked, dtype: torch.dtype) -> dict[str, Tensor | None]:
    """What logits are made with, beside products of queries and keys."""
    contribution, layout = asked.contribution, asked.layout
    (batch, length), heads = layout.query_positions_BT.shape, asked.config.heads
    if layout.segments_BT is not None:
        batch = len(layout.segments_BT)
    shape, device = (batch, heads, length), layout.query_positions_BT.device
    parts: dict[str, Tensor | None] = {}
    if isinstance(contribution.scale, Tensor):
        parts["factor_NRHT"] = contribution.scale.float().expand(*shape, 1)[..., 0]
    if (by_distance := contribution.distance_bias) is not None:
        every = torch.arange(length, device=device)
        parts["table_NHT"] = layout.once(contribution, "bias", lambda: by_distance(every).contiguous())
    if (by_position := contribution.position_bias) is not None:
        every_1T = torch.arange(length, device=device)[None]
        parts["grid_NHTT"] = by_position(every_1T, every_1T).expand(1, heads, length, length)[0]
        parts["place_NRT"] = layout.query_positions_BT.expand(batch, length)
    score = contribution.score
    counts = isinstance(score, ScoreChange) and score.program == "counted-gates"
    if (both := contribution.row_column_bias) is not None:
        program, sinks = kernel_program(contribution), getattr(contribution.normalizer, "logit_H", None)
        own = both.column_BHS is None and kernel.notices_nothing(program, sinks is not None, counts)
        parts["row_NRHT"] = both.row_BHT.expand(shape)
        parts["column_NRHT"] = None if own else both.of_keys_BHS.expand(shape)
    if isinstance(score, ScoreChange):
        if counts:
            parts["rows_NEK"] = score.arrays[0].to(dtype)
        else:
            w_BHSK, strength_BHS = score.arrays
            parts["vectors_NRTHK"], parts["strength_NRHT"] = w_BHSK.transpose(1, 2), strength_BHS
    return parts


@lru_cache(maxsize=64)
def _windows(window: int | tuple[int, ...], heads: int, device: torch.device) -> Tensor:
    """(H,). Kept: while a step is captured nothing may be copied from the host."""
    return torch.tensor(window, dtype=torch.int32, device=device).expand(heads).contiguous()
