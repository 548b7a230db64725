"""Asking a mixer once, on a few tokens, before anything is trained: what is wrong is one line, not a traceback."""

import torch

from lengthwise.encodings.encoding import Encoding
from lengthwise.errors import UserError
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.foresight import refuse_foresight, two_sequences
from lengthwise.model.layer import LayerPass
from lengthwise.registry import asking, written_in


def check_mixer(mixer: Mixer) -> None:
    """Its result must have the right shape, and no token may know a later one or one of another sequence."""
    what, cls, width = f"mixer {mixer.name}", type(mixer), mixer.geometry.width
    here = LayerPass(Encoding(None, mixer.geometry), two_sequences())
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
    with asking(what, cls, "forward"), torch.no_grad():
        refuse_foresight(lambda x_BTD: mixer(x_BTD, here), x_BTD, written_in(what, cls), "see layout.continues_BT")


def _sample(width: int) -> torch.Tensor:
    return torch.randn(1, 6, width, generator=torch.Generator().manual_seed(0))
