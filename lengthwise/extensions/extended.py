"""A trained decoder with extended encodings, around the very weights of the trained one."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lengthwise import configuration, registry
from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension, contribution_of, extensions_of, sharing_weights, wrapped
from lengthwise.model.cache import Cache
from lengthwise.model.decoder import Decoder


class Extended(Decoder):
    """A decoder whose encodings are extended; `lw.extended` makes it."""

    def new_cache(self, batch: int, capacity: int) -> Cache:
        """An empty cache of keys and values.

        Raises a UserError where keys would have to be rotated anew with every token.
        """
        for encoding in self.distinct_encodings():
            trained = encoding.geometry.trained_context
            for extension in extensions_of(encoding):
                if extension.by_length and capacity > trained:
                    raise UserError(
                        f"{extension.name} rotates all keys anew as a sequence grows beyond the trained {trained} "
                        f"tokens, and a cache keeps them as they were: read whole sequences instead"
                    )
        return super().new_cache(batch, capacity)

    def resolved_layers(self) -> list[dict[str, Any]]:
        """What acts in every layer, first layer first: the encoding, its facts, the extensions that apply to it."""
        encodings = [self.encoding_at(layer) for layer in range(self.config.layers)]
        return [
            {
                "layer": layer,
                "encoding": encoding.name,
                "extensions": [
                    {"name": each.name, **configuration.table(each.config)} for each in extensions_of(encoding)
                ],
                **encoding.resolved(),
            }
            for layer, encoding in enumerate(encodings)
        ]


def make_extension(table: Mapping[str, Any]) -> Extension:
    """One extension from its name and settings."""
    settings = dict(table)
    name = settings.pop("name")
    cls = registry.extensions.get(name)
    return cls(configuration.read(cls.Config, settings, f"extension {name}"))


def extended(model: Decoder, extensions: Sequence[Extension], context: int | None = None) -> Extended:
    """The trained `model`, extended: the first extension acts next to the encoding, the last one outermost.

    All weights are shared with the trained model, and frozen but for what the extensions train; the trained model stays
    as it is. To train more, extend a deep copy of it and unfreeze that.
    `context`: the longest sequence to be met; by default what the extensions are made for, or what the model was.
    """
    trained = [model.encoding_at(layer) for layer in range(model.config.layers)]
    names = ", ".join(dict.fromkeys(model.encoding_names()))
    chosen = extended_encodings(trained, extensions, names, context, model.last_position)
    weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith("encodings.")}
    with torch.device("meta"):  # it is given weights, and needs none of its own
        mixers = [copy.deepcopy(mixer) for mixer in model.mixers()]
        extended_model = Extended(model.config, model.embedding.num_embeddings, chosen, mixers)
    extended_model.load_state_dict(weights, strict=False, assign=True)
    extended_model.to(model.embedding.weight.device)  # what the extensions train
    trainable = {id(parameter) for extension in extensions for parameter in extension.parameters()}
    for parameter in extended_model.parameters():
        parameter.requires_grad_(id(parameter) in trainable)
    extended_model.backend = model.backend
    return extended_model.train(model.training)


def extended_encodings(
    trained: Sequence[Encoding],
    extensions: Sequence[Extension],
    names: str,
    context: int | None = None,
    last_position: int | None = None,
) -> list[Encoding]:
    """The encodings of all layers, extended; they share their weights with the trained ones, which stay as they are.

    `names`: what the model's encodings are called, for an error. `last_position`: the largest that the model knows.
    """
    for extension in extensions:
        if not any(extension.applies(contribution_of(encoding)) for encoding in dict.fromkeys(trained)):
            raise UserError(
                f"{extension.name} applies to no layer of this model (encodings: {names}); it needs {extension.needs}"
            )
    context = _context(trained[0].geometry, extensions, context, last_position)
    bare: dict[Encoding, Encoding] = {}
    made: dict[tuple[Encoding, int], Encoding] = {}
    chosen = []
    for layer, encoding in enumerate(trained):
        # Layers that share an encoding go on sharing it, where nothing tells them apart.
        contribution = contribution_of(encoding)
        key = (encoding, layer if any(each.per_layer and each.applies(contribution) for each in extensions) else 0)
        if key not in made:
            first = encoding not in bare
            if first:
                bare[encoding] = sharing_weights(encoding, frozen=True)
                bare[encoding].geometry = dataclasses.replace(encoding.geometry, context=context)
            made[key] = wrapped(bare[encoding], tuple(extensions), embeds=first)
        chosen.append(made[key])
    return chosen


def _context(
    geometry: Geometry, extensions: Sequence[Extension], context: int | None, last_position: int | None
) -> int:
    if context is None:
        return max(geometry.context, *(extension.reach(geometry.trained_context) for extension in extensions), 0)
    if context < 1:
        raise UserError(f"context must be 1 or more, not {context}")
    if last_position is not None and context > last_position + 1:
        raise UserError(
            f"the encoding of this model ends at position {last_position}: no extension takes it to a context of "
            f"{context}"
        )
    return context
