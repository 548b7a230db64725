"""Any causal language model of Transformers that takes its attention interface, as context extension reads it.

Shape letters: B rows, T tokens, D width, M tokens of all rows, V vocabulary.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.analysis.model_adapter import last_position_of
from lengthwise.context_extension.reader import Reader, forgetting, positions_in
from lengthwise.encodings.encoding import Encoding
from lengthwise.errors import UserError
from lengthwise.extensions.extended import extended_encodings
from lengthwise.extensions.extension import ExtendedEncoding, Extension
from lengthwise.hub.attention import attention_modules, body_of
from lengthwise.hub.foreign import Examined, check, encodings_of, examine, follows_length
from lengthwise.hub.loading import first_line
from lengthwise.model.attention import Look


class TransformersReader(Reader):
    """The model itself, whose attention is ours while it reads; nothing of it is changed."""

    def __init__(self, examined: Examined, encodings: Sequence[Encoding], trained: int, name: str) -> None:
        self.examined, self.model, self.trained, self.name = examined, examined.model, trained, name
        config = self.model.config.get_text_config()
        self.layers, self.heads = len(examined.layers), examined.layers[0].heads
        self.width = int(config.hidden_size)
        self.inner_width = max(int(getattr(config, "intermediate_size", None) or 4 * self.width), self.width)
        self.rows = int(config.vocab_size)
        self.last_position = last_position_of(self.model)
        self.encodings = list(encodings)
        self.names = [encoding.name for encoding in encodings]

    @classmethod
    def of(cls, model: PreTrainedModel, trained: int = 0, name: str = "") -> "TransformersReader":
        """`trained`: tokens of the longest sequences of training; 0 for what the config says."""
        name = name or type(model).__name__
        length = trained or trained_context_of(model)
        if not length:
            raise UserError(f"the config of {name} does not say how long its training sequences were; say it (trained)")
        try:
            examined, last = examine(model, name), last_position_of(model)
            encodings = encodings_of(examined, length, last)
            check(examined, encodings, name, last)
        except UserError:
            raise
        except Exception as error:  # models raise whatever attention that is not theirs leads to
            raise UserError(f"{name}, a {type(model).__name__}, cannot be extended: {first_line(error)}") from error
        return cls(examined, encodings, length, name)

    def without_rotation(self) -> "TransformersReader":
        """Of a model whose rotation was taken out, which its config does not say."""
        layers = [dataclasses.replace(layer, table=None, rotation=None) for layer in self.examined.layers]
        examined = dataclasses.replace(self.examined, layers=layers)
        encodings = encodings_of(examined, self.trained, self.last_position)
        return TransformersReader(examined, encodings, self.trained, self.name)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def by_length(self) -> bool:
        return super().by_length or any(follows_length(encoding) for encoding in self.encodings)

    def hidden(
        self,
        tokens_BT: Tensor,
        forget: bool = False,
        look: Look | None = None,
        segments_BT: Tensor | None = None,
    ) -> Tensor:
        self.refuse_length(tokens_BT.shape[1])
        packed = {} if segments_BT is None else {"position_ids": positions_in(segments_BT)}
        blocks = _blocks(self.model) if forget else []
        with forgetting(blocks) if forget else nullcontext(), self.attending(look):
            return body_of(self.model)(tokens_BT, use_cache=False, **packed).last_hidden_state

    @contextmanager
    def attending(self, look: Look | None = None) -> Iterator[PreTrainedModel]:
        """The model itself, extended within: it can read, cache and generate. Afterwards it is as it was."""
        with self.examined.running(self.encodings, look):
            yield self.model

    def unembed(self, hidden_MD: Tensor) -> Tensor:
        """By the model's own head, with what it does to logits (scales, soft caps): only its layers are left out."""
        base = body_of(self.model)
        state_1MD: Any = hidden_MD[None] if hidden_MD.ndim == 2 else hidden_MD
        base.forward = lambda *_, **__: self.examined.output(last_hidden_state=state_1MD)
        try:
            logits = self.model(torch.zeros(state_1MD.shape[:2], dtype=torch.long, device=self.device)).logits
        finally:
            del base.forward
        return logits[0] if hidden_MD.ndim == 2 else logits

    def logits(self, tokens_BT: Tensor) -> Tensor:
        return self.unembed(self.hidden(tokens_BT)).float()

    def extended(self, extensions: Sequence[Extension], context: int | None = None) -> "TransformersReader":
        for extension in extensions:
            if extension.rotates and any(follows_length(encoding) for encoding in self.encodings):
                raise UserError(
                    f"the config of {self.name} changes rotations by the length of a sequence (rope_parameters), and "
                    f"{extension.name} would change them once more; take that out of the config, or choose another one"
                )
        names = ", ".join(dict.fromkeys(self.names))
        chosen = extended_encodings(self.encodings, extensions, names, context, self.last_position)
        for encoding in dict.fromkeys(chosen):
            encoding.to(self.device)  # what the extensions train
        trainable = {id(parameter) for extension in extensions for parameter in extension.parameters()}
        for encoding in dict.fromkeys(chosen):
            for parameter in encoding.parameters():
                parameter.requires_grad_(id(parameter) in trainable)
        return TransformersReader(self.examined, chosen, self.trained, self.name)

    def copied(self) -> "TransformersReader":
        if any(isinstance(encoding, ExtendedEncoding) for encoding in self.encodings):
            raise UserError("an extended model is not copied; copy the trained one, and extend that")
        made = TransformersReader.of(copy.deepcopy(self.model), self.trained, self.name)
        unrotated = all(layer.rotation is None for layer in self.examined.layers)
        return made.without_rotation() if unrotated else made  # what was said of it holds for its copy

    def weights(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())

    def put(self, weights: dict[str, Tensor]) -> None:
        self.model.load_state_dict(weights)

    def parameters(self) -> list[nn.Parameter]:
        others = [parameter for encoding in dict.fromkeys(self.encodings) for parameter in encoding.parameters()]
        return list(dict.fromkeys([*self.model.parameters(), *others]))


def trained_context_of(model: PreTrainedModel) -> int:
    """As its config says; 0 where it does not."""
    config = model.config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"):
        if isinstance(found := getattr(config, name, None), int) and found > 0:
            return found
    return 0


def _blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The layers that attention modules are in."""
    names = {id(module): name for name, module in model.named_modules()}
    return [model.get_submodule(names[id(each)].rpartition(".")[0]) for each in attention_modules(model)]
