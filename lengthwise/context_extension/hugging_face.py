"""A Llama-shaped Hugging Face checkpoint as a decoder of ours: the same function, so that nothing needs a patch.

Read from a folder with `config.json` and weights (safetensors, or PyTorch's own), without Hugging Face's library.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lengthwise.errors import UserError
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder

Positions = Literal["auto", "rotary", "none"]
"""`auto`: what the config says. A Llama whose rotation was taken out (TinyLlama-NoPE) has the same config as one that
rotates: that it has none must be said."""

FAMILIES = ("llama", "smollm3")
OUR_EPSILON = 1e-6
"""In the norms of our decoder."""


def is_hugging_face(path: Path) -> bool:
    return (path / "config.json").exists()


def read_config(path: Path) -> dict[str, Any]:
    try:
        return json.loads((path / "config.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"{path / 'config.json'} cannot be read: {error}") from None


def load_decoder(path: Path, positions: Positions = "auto", trained: int = 0) -> Decoder:
    """The model in a folder, in fp32 on the CPU. `trained`: its training length; 0 for what the config says."""
    config = read_config(path)
    _refuse_others(config, path)
    trained = trained or int(config.get("max_position_embeddings") or 0)
    if trained < 1:
        raise UserError(f"{path} does not say how long its training sequences were; say it with --trained")
    try:
        shape = ModelConfig(
            size="",
            style="llama",
            layers=config["num_hidden_layers"],
            width=config["hidden_size"],
            heads=config["num_attention_heads"],
            key_value_heads=config.get("num_key_value_heads") or 0,
            feed_forward=config["intermediate_size"],
        )
    except ValueError as error:
        raise UserError(f"the config of {path} has a shape that the decoder here has not: {error}") from None
    layers = layer_encodings(config, positions)
    with torch.device("meta"):  # it is given weights, and needs none of its own
        model = build(shape, config["vocab_size"], layers, Lengths(trained, trained))
    weights = _our_weights(_read_weights(path), config, path)
    expected = {name: value.shape for name, value in model.state_dict().items()}
    for name, value in weights.items():
        if value.shape != expected[name]:
            raise UserError(f"{path}: {name} has the shape {tuple(value.shape)}, not {tuple(expected[name])}")
    model.load_state_dict(weights, assign=True)
    return model.requires_grad_(False)


def layer_encodings(config: Mapping[str, Any], positions: Positions) -> list[dict[str, Any]]:
    """The encoding of every layer, first layer first."""
    count = config["num_hidden_layers"]
    rotary = {"name": "rotary", "fraction": 1.0, "base": _base(config), "pairs": "halves"}
    rotated = [True] * count
    if config.get("no_rope_layers") or config["model_type"] == "smollm3":
        # Whatever the name says: 1 is for layers that are rotated, 0 for those that are not.
        interval = config.get("no_rope_layer_interval", 4)
        flags = config.get("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(count)]
        if len(flags) != count:
            raise UserError(f"no_rope_layers has {len(flags)} entries for {count} layers")
        rotated = [bool(flag) for flag in flags]
    if positions != "auto":
        rotated = [positions == "rotary"] * count
    return [rotary if each else {"name": "none"} for each in rotated]


def _base(config: Mapping[str, Any]) -> float:
    parameters = config.get("rope_parameters") or {}
    return float(parameters.get("rope_theta") or config.get("rope_theta") or 10000.0)


def _refuse_others(config: Mapping[str, Any], path: Path) -> None:
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UserError(f"{path} is a model of type {family!r}; those that can be read: {', '.join(FAMILIES)}")
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    for name in needed:
        if not isinstance(config.get(name), int):
            raise UserError(f"the config of {path} does not say {name}")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    head_width = config["hidden_size"] / config["num_attention_heads"]
    refused = {
        f"rope scaling of type {kind!r} (its context is extended already)": kind != "default",
        "rotary positions on a part of each head": float(scaling.get("partial_rotary_factor") or 1) != 1,
        "biases in attention (attention_bias)": config.get("attention_bias"),
        "biases in the feed-forward layers (mlp_bias)": config.get("mlp_bias"),
        "a sliding window": config.get("use_sliding_window"),
        f"the activation {config.get('hidden_act')!r}": config.get("hidden_act", "silu") != "silu",
        f"heads of {config.get('head_dim')} entries instead of width / heads = {head_width:g}": config.get("head_dim")
        not in (None, head_width),
        "quantised weights": config.get("quantization_config"),
    }
    for what, there in refused.items():
        if there:
            raise UserError(f"{path} has {what}, which the decoder here has not")


def _our_weights(theirs: dict[str, Tensor], config: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    def take(name: str) -> Tensor:
        if name not in theirs:
            raise UserError(f"{path} has no weights {name!r}")
        return theirs.pop(name).float()

    def product(name: str) -> Tensor:
        """Ours are stored inputs first."""
        return take(f"{name}.weight").t()

    # Norms divide by sqrt(mean square + epsilon). A residual stream that is smaller by `shrink` throughout, with
    # epsilon smaller by its square, is normalised to the very same values: so their epsilon becomes ours.
    shrink = math.sqrt(OUR_EPSILON / config.get("rms_norm_eps", OUR_EPSILON))
    embedding_VD = take("model.embed_tokens.weight")
    if config.get("tie_word_embeddings"):
        theirs.pop("lm_head.weight", None)
        unembedding_DV = embedding_VD.t()
    else:
        unembedding_DV = product("lm_head")
    ours = {
        "embedding.weight": embedding_VD * shrink,
        "final_norm.weight": take("model.norm.weight"),
        "unembedding.weight": unembedding_DV.contiguous(),
    }
    for layer in range(config["num_hidden_layers"]):
        source, target = f"model.layers.{layer}", f"blocks.{layer}"
        joined = [product(f"{source}.self_attn.{part}_proj") for part in "qkv"]
        ours |= {
            f"{target}.attention_norm.weight": take(f"{source}.input_layernorm.weight"),
            f"{target}.attention.projection.weight": torch.cat(joined, dim=1).contiguous(),
            f"{target}.attention.output.weight": (product(f"{source}.self_attn.o_proj") * shrink).contiguous(),
            f"{target}.feed_forward_norm.weight": take(f"{source}.post_attention_layernorm.weight"),
            f"{target}.feed_forward.gate.weight": product(f"{source}.mlp.gate_proj").contiguous(),
            f"{target}.feed_forward.inner.weight": product(f"{source}.mlp.up_proj").contiguous(),
            f"{target}.feed_forward.output.weight": (product(f"{source}.mlp.down_proj") * shrink).contiguous(),
        }
    left = [
        name for name in theirs if not name.endswith("rotary_emb.inv_freq")
    ]  # old ones save what follows from theta
    if left:
        raise UserError(f"{path} has weights that a Llama has not: {', '.join(left[:3])}")
    return ours


def _read_weights(path: Path) -> dict[str, Tensor]:
    return {name: value for file in _weight_files(path) for name, value in _tensors(file)}


def _weight_files(path: Path) -> list[Path]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = path / f"{name}.index.json"
        if index.exists():
            return [path / part for part in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        if (path / name).exists():
            return [path / name]
    raise UserError(f"{path} holds no weights: neither model.safetensors nor pytorch_model.bin, nor an index of parts")


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        if file.suffix == ".bin":
            yield from torch.load(file, map_location="cpu", weights_only=True).items()
            return
        with safe_open(file, framework="pt") as content:
            for name in content.keys():  # noqa: SIM118
                yield name, content.get_tensor(name)
    except (OSError, SafetensorError, RuntimeError, UnpicklingError, EOFError, ValueError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]  # PyTorch's advice has many lines
        raise UserError(f"{file} cannot be read: {first}") from None
