"""Asking a mixer once, on a few tokens, before anything is trained: what is wrong is one line, not a traceback."""

import torch

from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.layer import LayerPass
from lengthwise.registry import asking, written_in


def check_mixer(mixer: Mixer) -> None:
    """Its result must have the right shape, and no token may know a later one or one of another sequence."""
    what, cls, width = f"mixer {mixer.name}", type(mixer), mixer.geometry.width
    segments_BT = torch.tensor([[1, 1, 1, 2, 2, 2]])
    positions_BT = torch.tensor([[0, 1, 2, 0, 1, 2]])
    later_TS = torch.ones(6, 6, dtype=torch.bool).triu(1) | (segments_BT != segments_BT.T)
    layout = AttentionLayout(positions_BT, positions_BT, hide=lambda: later_TS[None], segments_BT=segments_BT)
    here = LayerPass(Encoding(None, mixer.geometry), layout)
    x_BTD = _sample(width)
    given_BTD = x_BTD.clone()
    with asking(what, cls, "forward"), torch.no_grad():
        found, again = mixer(x_BTD, here), mixer(given_BTD, here)
    if not isinstance(found, torch.Tensor) or found.shape != x_BTD.shape:
        told = tuple(found.shape) if isinstance(found, torch.Tensor) else repr(found)
        raise UserError(
            f"{written_in(what, cls)}: forward must return (B, T, width) = {tuple(x_BTD.shape)}, not {told}"
        )
    if found.dtype != x_BTD.dtype or not bool(found.isfinite().all()):
        told = found.dtype if found.dtype != x_BTD.dtype else "NaN or infinity"
        raise UserError(f"{written_in(what, cls)}: forward must return finite numbers of {x_BTD.dtype}, not {told}")
    if not torch.equal(x_BTD, _sample(width)):
        raise UserError(f"{written_in(what, cls)}: forward must not change what it is given")
    if not torch.equal(found, again):
        raise UserError(f"{written_in(what, cls)}: forward must answer the same when it is asked twice")
    for changed, unaffected, words in (
        (slice(2, 3), slice(0, 2), "later tokens"),
        (slice(0, 3), slice(3, 6), "other sequences of its row"),
    ):
        other_BTD = x_BTD.clone()
        other_BTD[:, changed] += 1
        with asking(what, cls, "forward"), torch.no_grad():
            again = mixer(other_BTD, here)
        if not torch.allclose(again[:, unaffected], found[:, unaffected], atol=1e-5):
            raise UserError(f"{written_in(what, cls)}: a token must not know {words}; see layout.continues_BT")


def _sample(width: int) -> torch.Tensor:
    return torch.randn(1, 6, width, generator=torch.Generator().manual_seed(0))
