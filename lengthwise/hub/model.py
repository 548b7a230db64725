"""A decoder of ours as a causal language model of Transformers: the same modules, the same logits, bit for bit.

Shape letters: B batch, T tokens, S keys, D width, V vocabulary rows.
"""

from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from transformers import Cache as HubCache
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import CausalLMOutputWithPast

from lengthwise.encodings.composition import Composition
from lengthwise.encodings.encoding import Encoding
from lengthwise.hub.cache import LengthwiseCache
from lengthwise.hub.configuration import LengthwiseConfig
from lengthwise.kernels.dropout import place_keys
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.build import build
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace


class LengthwiseForCausalLM(PreTrainedModel, GenerationMixin):
    """`decoder` is a `lengthwise.model.decoder.Decoder` like any other."""

    config_class = LengthwiseConfig
    config: LengthwiseConfig
    base_model_prefix = "decoder"
    main_input_name = "input_ids"
    _no_split_modules = ["Block"]  # noqa: RUF012
    _supports_sdpa = True
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012

    def __init__(self, config: LengthwiseConfig) -> None:
        super().__init__(config)
        self.decoder = build(config.model, config.vocab_size, config.encodings or [], config.lengths)
        if not self.decoder.embedding.weight.is_meta:  # `from_pretrained` builds on meta and puts in what it has read
            initialize(self.decoder, seed=0)
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """No: a `DynamicCache` has no room for numbers of tokens, states and loops."""
        return False

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *others: Any, **named: Any
    ) -> None:
        asked: Any = super()
        asked._prepare_cache_for_generation(generation_config, model_kwargs, *others, **named)
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = LengthwiseCache()

    def _init_weights(self, module: Any) -> None:
        """Puts in what no file holds: loading leaves buffers that are not saved empty."""
        names = module._non_persistent_buffers_set.intersection(dict(module.named_buffers(recurse=False)))
        if names:
            fresh = self._fresh(module)
            for name in names:
                init.copy_(module.get_buffer(name), fresh.get_buffer(name))

    def _fresh(self, module: nn.Module) -> nn.Module:
        """A part of an encoding or of a mixer, made anew on the CPU."""
        for component in (*self.decoder.distinct_encodings(), *filter(None, self.decoder.mixers())):
            for name, part in component.named_modules():
                if part is module:
                    with torch.device("cpu"):
                        return _remade(component).get_submodule(name)
        raise ValueError(f"{type(module).__name__} has a buffer that is not saved, and is part of no encoding or mixer")

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embedding

    def set_input_embeddings(self, value: nn.Module) -> NoReturn:
        raise ValueError("a lengthwise model has the embedding of its vocabulary; build another model for another one")

    def get_output_embeddings(self) -> None:
        """None: ours are stored inputs first, and in the t5 style they are the input embeddings."""

    def resize_token_embeddings(self, *sizes: Any, **others: Any) -> NoReturn:
        raise ValueError(
            f"a lengthwise model keeps its {self.config.vocab_size} embedding rows: its vocabulary is closed, so "
            "resize_token_embeddings is refused; train a model with the vocabulary that you need"
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: HubCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        **loss_arguments: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits (B, T, V), in fp32.

        `attention_mask`: (B, S), 0 for padding, on either side. `position_ids`: 0, 1, 2 of each sequence, which is what
        they are without; where they start anew in a row another sequence begins, which does not see the one before.
        `hidden_states` are the residual stream after the embedding and after each layer, `attentions` those of the
        layers that have attention.
        """
        unknown = [name for name, value in loss_arguments.items() if value is not None and labels is None]
        if unknown:
            raise TypeError(f"a lengthwise model takes no {', '.join(unknown)}")
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if past_key_values is None and use_cache and not torch.is_grad_enabled():
            past_key_values = LengthwiseCache()
        if past_key_values is not None and not isinstance(past_key_values, LengthwiseCache):
            raise ValueError(
                f"a lengthwise model keeps more than a {type(past_key_values).__name__} holds; pass "
                "past_key_values=None or a lengthwise.hub.LengthwiseCache()"
            )
        decoder = self.decoder
        cache = None if past_key_values is None else past_key_values.with_room(decoder, input_ids)
        seen = 0 if cache is None else cache.used
        segments_BT = sequences_of(input_ids, attention_mask, position_ids, seen)
        layout = decoder.layout(input_ids, None, segments_BT, cache, unit=decoder.unit)
        decoder.refuse_positions(layout.query_positions_BT)
        trace = Trace() if output_attentions or output_hidden_states else None
        hidden_BTD = decoder.hidden(input_ids, layout, cache, trace, self._dropout_keys())
        wanted = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = decoder.unembed(hidden_BTD[:, wanted]).float()
        loss = None
        if labels is not None:
            rows = self.config.vocab_size
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=rows, **loss_arguments)
        parts: dict[str, Any] = {"loss": loss, "logits": logits, "past_key_values": past_key_values}
        if trace is not None and output_hidden_states:
            parts["hidden_states"] = tuple(trace.residual_BTD)
        if trace is not None and output_attentions:
            parts["attentions"] = tuple(layer.weights_BHTS for layer in trace.layers)
        found = CausalLMOutputWithPast(**parts)
        return found if return_dict is not False else found.to_tuple()

    def _dropout_keys(self) -> Tensor | None:
        """In training, of PyTorch's own generator, so that `set_seed` of Transformers seeds it."""
        if not self.training or not self.decoder.config.dropout:
            return None
        seed = torch.randint(2**31, (), device=self.decoder.embedding.weight.device)
        return place_keys(seed, sum(self.decoder.dropout_places()))


def sequences_of(tokens_BT: Tensor, mask: Tensor | None, position_ids: Tensor | None, seen: int) -> Tensor | None:
    """The segments of new tokens, from what Transformers passes; None for one sequence a row.

    `seen`: tokens before them, in the cache.
    """
    batch, length = tokens_BT.shape
    if mask is not None and tuple(mask.shape) != (batch, seen + length):
        raise ValueError(
            f"attention_mask is {tuple(mask.shape)}, and should be {(batch, seen + length)}: 1 for each token, those "
            "in the cache too, and 0 for padding"
        )
    real_BS = tokens_BT.new_ones(batch, seen + length) if mask is None else mask.bool().long()
    segments_BT = real_BS[:, seen:]
    if position_ids is not None:
        position_ids = position_ids.expand(batch, -1)
        counted_BT = (real_BS.cumsum(1) - 1)[:, seen:]
        if seen == 0 and bool(real_BS.all()):  # several sequences may be packed into a row
            begins_BT = position_ids == 0
            segments_BT = begins_BT.long().cumsum(1)
            index_T = torch.arange(length, device=tokens_BT.device)
            counted_BT = index_T - torch.where(begins_BT, index_T, 0).cummax(1).values
        if bool(((position_ids != counted_BT) & (real_BS[:, seen:] > 0)).any()):
            raise ValueError(
                "position_ids of a lengthwise model are 0, 1, 2 ... of each sequence, padding not counted; its decoder "
                "takes any others"
            )
    alone = bool(real_BS.all()) and bool((segments_BT == 1).all())
    return None if alone else segments_BT


def _remade(component: Encoding | Mixer) -> Encoding | Mixer:
    if isinstance(component, Composition):
        return Composition([_remade(method) for method in component.methods])  # pyrefly: ignore
    return type(component)(component.config, component.geometry)
