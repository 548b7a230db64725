"""One way to look into any causal language model: attention and residual stream, layer by layer as they come.

Shape letters: B examples, H heads, T queries, S keys, D width, V vocabulary rows.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import UserError
from lengthwise.model.decoder import Decoder
from lengthwise.model.trace import LayerTrace, Trace
from lengthwise.placements.counting import WHOLE
from lengthwise.training.checkpoint import load_model


class Watch:
    """Is shown everything as it is computed; looks at nothing unless a method is overridden."""

    def attention(self, layer: int, weights_BHTS: Tensor) -> None:
        """Layers count from 0."""

    def residual(self, layer: int, x_BTD: Tensor) -> None:
        """0 is what the first layer reads, then what each layer wrote."""


class ModelAdapter(ABC):
    """A model to look into."""

    name: str
    layers: int
    heads: int
    width: int
    last_position: int | None
    """The largest position it knows; None where there is no end."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def forward(self, tokens_BT: Tensor, watch: Watch) -> Tensor:
        """Logits (B, T, V) of sequences of equal length, without padding; shows the watch what happens."""


class DecoderAdapter(ModelAdapter):
    """A model of this project."""

    def __init__(self, model: Decoder, name: str) -> None:
        self.model, self.name = model.eval(), name
        self.layers, self.heads, self.width = model.config.layers, model.config.heads, model.config.width
        self.last_position = model.last_position

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    @torch.no_grad()
    def forward(self, tokens_BT: Tensor, watch: Watch) -> Tensor:
        return self.model(tokens_BT.to(self.device), trace=_Shown(watch))


class _Shown(Trace):
    """A trace that shows each piece and keeps none, so that only one layer's maps exist at a time."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch, self.layers_shown, self.residuals_shown = watch, 0, 0

    def record_layer(self, layer: LayerTrace) -> None:
        self.watch.attention(self.layers_shown, layer.weights_BHTS)
        self.layers_shown += 1

    def record_residual(self, x_BTD: Tensor) -> None:
        self.watch.residual(self.residuals_shown, x_BTD)
        self.residuals_shown += 1


class HuggingFaceAdapter(ModelAdapter):
    """A causal language model of Hugging Face's library; its last residual stream is the one after the final norm."""

    def __init__(self, model: Any, name: str) -> None:
        model.set_attn_implementation("eager")  # the fused ones return no attention
        self.model, self.name = model.eval(), name
        config = model.config.get_text_config()
        self.layers, self.heads = config.num_hidden_layers, config.num_attention_heads
        self.width, self.vocabulary = config.hidden_size, config.vocab_size
        self.last_position = last_position_of(model)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @torch.no_grad()
    def forward(self, tokens_BT: Tensor, watch: Watch) -> Tensor:
        # All layers of one batch at once: the library has no way to give them one by one.
        found = self.model(
            tokens_BT.to(self.device), output_attentions=True, output_hidden_states=True, use_cache=False
        )
        if not found.attentions or found.attentions[0] is None:
            raise UserError(f"{self.name} returns no attention; a model whose code has `output_attentions` is needed")
        for layer, x_BTD in enumerate(found.hidden_states):
            watch.residual(layer, x_BTD)
            if layer < len(found.attentions):
                watch.attention(layer, found.attentions[layer])
        return found.logits


def last_position_of(model: Any) -> int | None:
    """Where a table of absolute positions ends; rotary and its like have no table, whatever their config names."""
    names = ("wpe", "position_embeddings", "embed_positions")
    tables = [
        module.num_embeddings - int(getattr(module, "offset", 0)) - 1
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding) and name.endswith(names)
    ]
    return min(tables, default=None)


def open_checkpoint(path: Path, name: str, device: torch.device) -> DecoderAdapter:
    """The model in a run's `last.safetensors` or `best.safetensors`."""
    try:
        model = load_model(path).to(device)
    except RuntimeError as error:  # of weights with other names or shapes
        raise UserError(f"{path} does not fit this version of the model; train that run again") from error
    for layer, mixer in enumerate(model.mixers()):
        if mixer is not None:
            raise UserError(
                f"{name} has no attention to look into: layer {layer + 1} has {mixer.name}; choose other runs with "
                "--only, e.g. encoding=none"
            )
    if model.config.loops > 1:
        raise UserError(
            f"{name} passes its layers {model.config.loops} times, and analyses look at layers that are passed once; "
            "choose runs of another study"
        )
    if model.encoding_at(0).geometry.counting != WHOLE:
        raise UserError(
            f"{name} was trained at positions that are not whole, and analyses look at positions 0, 1, 2 and so on; "
            "choose runs of another study"
        )
    return DecoderAdapter(model, name)


def is_hugging_face(path: Path) -> bool:
    return (path / "config.json").exists() and not (path / "study.json").exists()


def open_hugging_face(path: Path, device: torch.device) -> HuggingFaceAdapter:
    """A model saved by `save_pretrained`."""
    from lengthwise.hub.loading import open_causal_model

    return HuggingFaceAdapter(open_causal_model(path, "fp32", "eager").to(device), path.name)
