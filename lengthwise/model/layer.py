"""What a layer is given beside the stream that it reads.

Shape letters: P tokens of the batch by their number.
"""

from dataclasses import dataclass, field

from torch import Tensor

from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels.ops import Ops
from lengthwise.model.backend import Backend
from lengthwise.model.cache import Cache
from lengthwise.model.trace import Trace


@dataclass(frozen=True)
class LayerPass:
    """One layer of one pass."""

    encoding: Encoding
    layout: AttentionLayout
    ops: Ops = field(default_factory=Ops)
    number: int = 0
    """Of the layer, from 0."""
    cache: Cache | None = None
    trace: Trace | None = None
    backend: Backend = "fused"
    chosen_P: Tensor | None = None
    """The tokens whose states are asked for, by their number in the batch; None for all."""
