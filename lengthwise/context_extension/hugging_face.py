"""A Llama-shaped Hugging Face checkpoint as a decoder of ours: the same function, so that nothing needs a patch.

Read from a folder with `config.json` and weights (safetensors, or PyTorch's own), without Hugging Face's library.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from torch import Tensor

from lengthwise import door
from lengthwise.errors import UserError
from lengthwise.machine import require_memory
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.weight_files import weight_files

Positions = Literal["auto", "rotary", "none"]
"""`auto`: what the config says. A Llama whose rotation was taken out (TinyLlama-NoPE) has the same config as one that
rotates: that it has none must be said."""

FAMILIES = ("llama", "smollm3")
OUR_EPSILON = 1e-6
"""In the norms of our decoder."""
CONVERT = (
    "only plain tensors are read from a .bin file, as code may hide in it; convert it with a program that you trust: "
    "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER, safe_serialization=True)"
)


def _count(most: int, least: int = 1, nullable: bool = False) -> door.Number:
    return door.Number(least, most, whole=True, nullable=nullable)


_TURNING = {"rope_theta": door.Number(1e-6, 1e30, nullable=True), "partial_rotary_factor": door.Number(nullable=True)}
_KIND = {"rope_type": door.Text(nullable=True), "type": door.Text(nullable=True)}
_ROTATION = door.Object({}, {**_TURNING, **_KIND}, nullable=True)
CONFIG = door.Object(
    {
        "num_hidden_layers": _count(1000),
        "hidden_size": _count(2**17),
        "num_attention_heads": _count(2**12),
        "intermediate_size": _count(2**20),
        "vocab_size": _count(2**24),
    },
    {
        "num_key_value_heads": _count(2**12, nullable=True),
        "head_dim": door.Number(nullable=True),
        "max_position_embeddings": _count(2**30, nullable=True),
        "rms_norm_eps": door.Number(1e-30, 1),
        "rope_theta": door.Number(1e-6, 1e30, nullable=True),
        "rope_scaling": _ROTATION,
        "rope_parameters": _ROTATION,
        "no_rope_layers": door.List(_count(1, 0), nullable=True),
        "no_rope_layer_interval": _count(1000),
        "tie_word_embeddings": door.Truth(),
        "attention_bias": door.Truth(),
        "mlp_bias": door.Truth(),
    },
)


def is_hugging_face(path: Path) -> bool:
    return (path / "config.json").exists()


def read_config(path: Path) -> dict[str, Any]:
    return door.read_json(path / "config.json", most=door.SMALL)


def load_decoder(path: Path, positions: Positions = "auto", trained: int = 0) -> Decoder:
    """The model in a folder, in fp32 on the CPU. `trained`: its training length; 0 for what the config says."""
    config = read_config(path)
    _refuse_others(config, path)
    trained = trained or config.get("max_position_embeddings") or 0
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
    files = weight_files(path)
    try:
        with torch.device("meta"):  # it is given weights, and needs none of its own
            model = build(shape, config["vocab_size"], layers, Lengths(trained, trained))
    except ValueError as error:
        raise UserError(f"the config of {path} has a shape that the decoder here has not: {error}") from None
    require_memory(sum(file.stat().st_size for file in files), f"the model in {path}", "choose a smaller one")
    weights = _our_weights({name: value for file in files for name, value in _tensors(file)}, config, path)
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
    if not isinstance(family, str) or family not in FAMILIES:
        raise UserError(f"{path} is a model of type {_shown(family)}; those that can be read: {', '.join(FAMILIES)}")
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    for name in needed:
        if name not in config:
            raise UserError(f"the config of {path} does not say {name}")
    CONFIG.checked(config, f"{path / 'config.json'}")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    head_width = config["hidden_size"] / config["num_attention_heads"]
    refused = {
        f"rope scaling of type {_shown(kind)} (its context is extended already)": kind != "default",
        "rotary positions on a part of each head": float(scaling.get("partial_rotary_factor") or 1) != 1,
        "biases in attention (attention_bias)": config.get("attention_bias"),
        "biases in the feed-forward layers (mlp_bias)": config.get("mlp_bias"),
        "a sliding window": config.get("use_sliding_window"),
        f"the activation {_shown(config.get('hidden_act'))}": config.get("hidden_act", "silu") != "silu",
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
        found = take(f"{name}.weight")
        if found.ndim != 2:
            raise UserError(f"{path}: {name}.weight has the shape {tuple(found.shape)}, and should be a matrix")
        return found.t()

    # Norms divide by sqrt(mean square + epsilon). A residual stream that is smaller by `shrink` throughout, with
    # epsilon smaller by its square, is normalised to the very same values: so their epsilon becomes ours.
    shrink = math.sqrt(OUR_EPSILON / config.get("rms_norm_eps", OUR_EPSILON))
    embedding_VD = take("model.embed_tokens.weight")
    if embedding_VD.ndim != 2:
        raise UserError(f"{path}: model.embed_tokens.weight has the shape {tuple(embedding_VD.shape)}")
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
        if any(len(part_DK) != config["hidden_size"] for part_DK in joined):
            raise UserError(f"{path}: {source}.self_attn has projections of another width than {config['hidden_size']}")
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


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        if file.suffix == ".bin":
            found = dict(torch.load(file, map_location="cpu", weights_only=True))
        else:
            with safe_open(file, framework="pt") as content:
                found = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except Exception as error:  # PyTorch raises many kinds, and its advice has many lines
        first = door.visible((str(error).strip() or type(error).__name__).splitlines()[0], 200)
        convert = f"; {CONVERT}" if file.suffix == ".bin" else ""
        raise UserError(f"{file} cannot be read: {first}{convert}") from None
    for name, value in found.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise UserError(f"{file}: {door.visible(str(name), 80)!r} holds no weights")
        if not bool(value.isfinite().all()):
            raise UserError(f"{file}: {door.visible(str(name), 80)!r} holds numbers that are not finite")
        yield str(name), value


def _shown(value: Any) -> str:
    return door.visible(repr(value), 60)
