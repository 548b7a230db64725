"""A language model as context extension needs it: hidden states, logits, what its layers attend to, extended copies.

Shape letters: B rows, T tokens, D width, H heads, S keys, K head width, Q queries that are asked for, V vocabulary.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extended import extended
from lengthwise.extensions.extension import Extension, contribution_of, extensions_of
from lengthwise.mixers.attention import Attention
from lengthwise.model.attention import Attended, Look
from lengthwise.model.decoder import Block, Decoder


class Reader(ABC):
    """A causal language model, perhaps extended."""

    layers: int
    heads: int
    width: int
    inner_width: int
    """Of the widest tensor of a layer."""
    rows: int
    """Tokens of its vocabulary."""
    trained: int
    """Tokens of the longest sequences of training."""
    last_position: int | None
    """The largest position that it knows; None where there is no end."""
    encodings: Sequence[Encoding]
    """Of all layers, first layer first."""
    names: Sequence[str]
    """What tables call them; of a layer without attention its mixer."""
    attends: bool = True
    """Whether all layers have attention, so that `look` can be shown what they attend to."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...

    @abstractmethod
    def hidden(
        self,
        tokens_BT: Tensor,
        forget: bool = False,
        look: Look | None = None,
        segments_BT: Tensor | None = None,
    ) -> Tensor:
        """The normalised residual stream (B, T, D) of rows without padding.

        `forget`: what a layer computes is computed again in the backward pass (gradient checkpointing). `look` is shown
        what every layer is about to attend to. `segments_BT`: which document of its row a token belongs to; without it
        a row is one, and no matrix of length x length is made.
        """

    @abstractmethod
    def unembed(self, hidden_MD: Tensor) -> Tensor:
        """Logits (M, V) of states."""

    @abstractmethod
    def extended(self, extensions: Sequence[Extension], context: int | None = None) -> "Reader":
        """The same model under extensions, to read so many tokens; it shares the weights, which stay as they are."""

    @abstractmethod
    def copied(self) -> "Reader":
        """A model of its own with equal weights."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]: ...

    @abstractmethod
    def put(self, weights: dict[str, Tensor]) -> None:
        """Takes over weights of these names and shapes."""

    @abstractmethod
    def parameters(self) -> list[nn.Parameter]:
        """All of the model and of its extensions."""

    @abstractmethod
    def logits(self, tokens_BT: Tensor) -> Tensor:
        """(B, T, V) in fp32."""

    def require_gradients(self, wanted: bool) -> "Reader":
        for parameter in self.parameters():
            parameter.requires_grad_(wanted)
        return self

    @property
    def extensions(self) -> list[Extension]:
        """Of any layer, each once."""
        several = map(extensions_of, dict.fromkeys(self.encodings))
        return list(dict.fromkeys(chain.from_iterable(several)))

    @property
    def by_length(self) -> bool:
        """Whether what a token is rotated by depends on the length of the sequence that it is in."""
        return any(each.by_length for each in self.extensions)

    def arithmetic(self) -> AbstractContextManager[object]:
        """Products in bf16 on a GPU, with weights, norms, residual stream and loss in fp32; all in fp32 on a CPU."""
        low = self.device.type == "cuda" and self.dtype == torch.float32
        return torch.autocast("cuda", torch.bfloat16) if low else nullcontext()

    def refuse_length(self, length: int) -> None:
        if self.last_position is not None and length > self.last_position + 1:
            raise UserError(
                f"the encoding of this model ends at position {self.last_position}: it cannot read {length} tokens"
            )

    def refuse_no_softmax(self, name: str) -> None:
        """For what needs weights that are the softmax of products alone."""
        parts = {"distance_bias", "position_bias", "row_column_bias", "score", "normalizer"}
        for encoding in dict.fromkeys(self.encodings):
            if found := parts.intersection(contribution_of(encoding).names):
                raise UserError(
                    f"scales by entropy need the softmax of products alone; {encoding.name} has its own "
                    f"{sorted(found)[0].replace('_', ' ')}, under which entropy may rise with the scale"
                )


class DecoderReader(Reader):
    """A decoder of ours."""

    def __init__(self, model: Decoder) -> None:
        self.model = model
        config = model.config
        self.layers, self.heads, self.width, self.inner_width = (
            config.layers,
            config.heads,
            config.width,
            config.inner_width,
        )
        self.rows = model.embedding.num_embeddings
        self.trained = model.encoding_at(0).geometry.trained_context
        self.last_position = model.last_position
        self.encodings = [model.encoding_at(layer) for layer in range(config.layers)]
        self.names = model.encoding_names()
        self.attends = all(mixer is None for mixer in model.mixers())

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embedding.weight.dtype

    def hidden(
        self,
        tokens_BT: Tensor,
        forget: bool = False,
        look: Look | None = None,
        segments_BT: Tensor | None = None,
    ) -> Tensor:
        self.refuse_length(tokens_BT.shape[1])
        layout = self.model.layout(tokens_BT, segments_BT=segments_BT, unit=self.model.unit)
        assert segments_BT is not None or layout.hidden_BTS is None, "a mask would be a matrix of length x length"

        def before(layer: int, x_BTD: Tensor) -> Tensor:
            if look is not None and layer < self.layers:
                look(self._attended(layer, x_BTD, layout))
            return x_BTD

        with forgetting(self.model.blocks) if forget else nullcontext():
            return self.model.hidden(tokens_BT, layout, before=before)

    def _attended(self, layer: int, x_BTD: Tensor, layout: AttentionLayout) -> Attended:
        block, encoding = self.model.blocks[layer], self.model.encoding_at(layer)
        assert isinstance(block, Block)
        mixer = block.mixer
        if not isinstance(mixer, Attention):
            raise UserError(f"layer {layer + 1} has no attention, but {block.mixer_name}")
        normed_BTD = block.attention_norm(x_BTD)
        here = layout.at_layer(layer, normed_BTD, encoding.token_numbers(normed_BTD))
        q_BHTK, k_BHSK = mixer.queries_and_keys(normed_BTD, here.contribution(encoding), here)
        return Attended(layer, q_BHTK, k_BHSK, encoding, here, self.model.config.logit_scale)

    def unembed(self, hidden_MD: Tensor) -> Tensor:
        return self.model.unembed(hidden_MD)

    def extended(self, extensions: Sequence[Extension], context: int | None = None) -> "DecoderReader":
        return DecoderReader(extended(self.model, extensions, context))

    def copied(self) -> "DecoderReader":
        return DecoderReader(copy.deepcopy(self.model))

    def weights(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())

    def put(self, weights: dict[str, Tensor]) -> None:
        self.model.load_state_dict(weights)

    def parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def logits(self, tokens_BT: Tensor) -> Tensor:
        return self.model(tokens_BT)


def positions_in(segments_BT: Tensor) -> Tensor:
    """How many tokens of its own document precede each token, where documents lie side by side."""
    index_T = torch.arange(segments_BT.shape[1], device=segments_BT.device)
    begins_BT = F.pad(segments_BT.diff(dim=1) != 0, (1, 0), value=True)
    return index_T - torch.where(begins_BT, index_T, 0).cummax(dim=1).values


@contextmanager
def forgetting(modules: nn.ModuleList | Sequence[nn.Module]) -> Iterator[None]:
    """Passes within keep only what each of the modules reads."""
    before: list[tuple[nn.Module, Any]] = []
    for module in modules:
        before.append((module, module.__dict__.get("forward")))
        module.forward = partial(checkpoint, module.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for module, own in before:
            del module.forward  # the class's own is there again
            if own is not None:
                module.forward = own
