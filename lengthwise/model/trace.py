"""What attention did, layer by layer, for those who ask: recorded only when a trace is passed to the decoder."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class LayerTrace:
    """One layer. B batch, H heads, T queries, S keys, D width."""

    content_BHTS: Tensor
    """Scaled logits before any bias."""
    logits_BHTS: Tensor
    """Logits after the bias, -inf where a key may not be seen."""
    weights_BHTS: Tensor
    """Attention weights, before dropout."""


@dataclass
class Trace:
    """Keeps everything. A subclass may look at each piece as it comes and keep none, for maps too large together."""

    layers: list[LayerTrace] = field(default_factory=list)
    residual_BTD: list[Tensor] = field(default_factory=list)
    """The residual stream: after the embedding, then after each layer."""

    def record_layer(self, layer: LayerTrace) -> None:
        self.layers.append(layer)

    def record_residual(self, x_BTD: Tensor) -> None:
        self.residual_BTD.append(x_BTD)
