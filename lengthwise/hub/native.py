"""A decoder of ours that is a Llama or a SmolLM3 as one of these, so that it loads without this package.

The inverse of `context_extension.hugging_face`, which reads them. Shape letters: D width, H heads, K head width.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, SmolLM3Config, SmolLM3ForCausalLM

from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.none import NoEncoding
from lengthwise.encodings.rotary import Rotary
from lengthwise.model.decoder import Decoder

EPSILON = 1e-6
"""In the norms of our decoder."""


def refusal(decoder: Decoder) -> str:
    """Why a decoder is neither a Llama nor a SmolLM3; empty where it is one."""
    config = decoder.config
    if config.style != "llama":
        return f"its style is {config.style}"
    if config.loops > 1:
        return "it passes its layers several times"
    for layer, mixer in enumerate(decoder.mixers()):
        if mixer is not None:
            return f"layer {layer} has no attention, but {mixer.name}"
        encoding = decoder.encoding_at(layer)
        if type(encoding) not in (NoEncoding, Rotary):
            return f"layer {layer} has the encoding {encoding.name}"
        if isinstance(encoding, Rotary) and encoding.rotated != config.head_width:
            return f"layer {layer} rotates {encoding.rotated} of {config.head_width} entries of each head"
    bases = {encoding.config.base for encoding in decoder.distinct_encodings() if isinstance(encoding, Rotary)}
    if len(bases) > 1:
        return f"its layers rotate with different bases: {', '.join(f'{base:g}' for base in sorted(bases))}"
    return ""


def native_model(decoder: Decoder, **tokens: int | None) -> PreTrainedModel:
    """A Llama where every layer is rotated, else a SmolLM3, which knows layers that are not.

    `tokens`: `pad_token_id` and the like.
    """
    config = decoder.config
    rotated = [isinstance(decoder.encoding_at(layer), Rotary) for layer in range(config.layers)]
    bases = [encoding.config.base for encoding in decoder.distinct_encodings() if isinstance(encoding, Rotary)]
    shape: dict[str, Any] = {
        "vocab_size": decoder.embedding.num_embeddings,
        "hidden_size": config.width,
        "intermediate_size": config.inner_width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.groups,
        "max_position_embeddings": decoder.encoding_at(0).geometry.trained_context,
        "rms_norm_eps": EPSILON,
        "rope_parameters": {"rope_type": "default", "rope_theta": bases[0] if bases else 10000.0},
        "tie_word_embeddings": False,
        **{name: tokens.get(name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")},
    }
    if all(rotated):
        made: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**shape))
    else:
        # Whatever the name says: 1 is for layers that are rotated, 0 for those that are not.
        made = SmolLM3ForCausalLM(SmolLM3Config(**shape, no_rope_layers=[int(each) for each in rotated]))
    made.load_state_dict(_their_weights(decoder))
    return made.eval()


def _their_weights(decoder: Decoder) -> dict[str, Tensor]:
    ours = {name: value.detach() for name, value in decoder.state_dict().items()}
    theirs = {
        "model.embed_tokens.weight": ours["embedding.weight"],
        "model.norm.weight": ours["final_norm.weight"],
        "lm_head.weight": ours["unembedding.weight"].t(),
    }
    config = decoder.config
    sizes = [heads * config.head_width for heads in (config.heads, config.groups, config.groups)]
    for layer in range(config.layers):
        source, target = f"blocks.{layer}", f"model.layers.{layer}"
        query_DK, key_DK, value_DK = ours[f"{source}.attention.projection.weight"].split(sizes, dim=1)
        encoding = decoder.encoding_at(layer)
        theirs |= {
            f"{target}.input_layernorm.weight": ours[f"{source}.attention_norm.weight"],
            f"{target}.self_attn.q_proj.weight": in_halves(query_DK, encoding, config.head_width).t(),
            f"{target}.self_attn.k_proj.weight": in_halves(key_DK, encoding, config.head_width).t(),
            f"{target}.self_attn.v_proj.weight": value_DK.t(),
            f"{target}.self_attn.o_proj.weight": ours[f"{source}.attention.output.weight"].t(),
            f"{target}.post_attention_layernorm.weight": ours[f"{source}.feed_forward_norm.weight"],
            f"{target}.mlp.gate_proj.weight": ours[f"{source}.feed_forward.gate.weight"].t(),
            f"{target}.mlp.up_proj.weight": ours[f"{source}.feed_forward.inner.weight"].t(),
            f"{target}.mlp.down_proj.weight": ours[f"{source}.feed_forward.output.weight"].t(),
        }
    return {name: value.contiguous() for name, value in theirs.items()}


def in_halves(weight_DK: Tensor, encoding: Encoding, head_width: int) -> Tensor:
    """A projection to queries or keys (D, heads x K) with the entries of each head in the order of theirs.

    Ours rotates entry 2i with entry 2i + 1, theirs entry i with entry i + K / 2. Products of queries and keys do not
    depend on the order of entries, so theirs are ours in another order.
    """
    if not isinstance(encoding, Rotary) or encoding.config.pairs == "halves":
        return weight_DK
    order_K = torch.arange(head_width).view(-1, 2).t().flatten()
    return weight_DK.unflatten(1, (-1, head_width))[:, :, order_K].flatten(1)
