"""Whether a model's steps of fixed shape compute what `generate` does: tried on a few prompts before they are trusted.

Encodings and mixers may be anybody's: one that counts its keys, say, would take free slots of the cache for tokens.
Shape letters: B rows, V vocabulary rows.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import first_line
from lengthwise.evaluation.decoding_buffers import DecodingBuffers
from lengthwise.evaluation.generate import side_by_side
from lengthwise.model.decoder import Decoder

MAY_DIFFER = 1e-3
"""Distance of logits that rounding may cause: sums over more keys are added up in another order."""
MAY_DIFFER_ROUNDED = 5e-2
"""The same where weights have 8 or 11 bits."""


@torch.no_grad()
def difference(model: Decoder, prompts: Sequence[np.ndarray], steps: int, slots: int, pad: int) -> str:
    """What steps with so many slots do otherwise than those with a growing cache, in words; nothing if nothing."""
    weight = model.embedding.weight
    ids_BT, segments_BT = (torch.from_numpy(each).to(weight.device) for each in side_by_side(prompts, pad))
    cache = model.new_cache(len(prompts), ids_BT.shape[1] + steps)
    token_B1 = _likeliest(model(ids_BT, segments_BT=segments_BT, cache=cache)[:, -1])
    tokens, expected = [token_B1], []
    for _ in range(steps):
        expected.append(model(tokens[-1], segments_BT=torch.ones_like(token_B1), cache=cache)[:, -1])
        tokens.append(_likeliest(expected[-1]))
    limit = MAY_DIFFER if weight.dtype == torch.float32 else MAY_DIFFER_ROUNDED
    try:
        buffers = DecodingBuffers(model, cache, len(prompts), slots)
        buffers.read(prompts, [steps + 1] * len(prompts), pad, end=pad)
        for step, wanted_BV in enumerate(expected):
            buffers.token_B1.copy_(tokens[step])  # both read the same, also where two tokens are as likely
            apart = distance(buffers.logits(len(prompts), slots)[:, 0].float(), wanted_BV)
            if apart > limit:
                return f"with free slots in the cache its logits are {apart:.2g} of their spread apart"
            buffers.note(tokens[step + 1])
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        return f"a step with free slots in the cache fails ({first_line(error)})"
    return ""


def distance(logits_BV: Tensor, expected_BV: Tensor) -> float:
    """In shares of the spread of what is expected; 0 where there are no numbers to tell by."""
    spread = (expected_BV - expected_BV.mean(dim=-1, keepdim=True)).norm() + 1e-3 * expected_BV.norm()
    apart = float((logits_BV - expected_BV).norm() / spread)
    return 0.0 if np.isnan(apart) else apart


def _likeliest(logits_BV: Tensor) -> Tensor:
    return logits_BV.argmax(dim=-1, keepdim=True)
