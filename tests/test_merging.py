"""Extensions merged into weights and configs: plain Transformers computes what attention by hand says, or refuses."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from foreign_by_hand import (
    ARCHITECTURES,
    BY_HAND,
    LENGTH,
    SHAPE,
    SLIDING,
    TRAINED,
    attending_by_hand,
    make,
    settings_of,
)
from safetensors.torch import load_file, save_file
from test_any_model import assert_close, chosen, slow_but, tokens, with_scales
from test_any_model_reads import SCALINGS, small
from test_context_extension import call, folder, nope, rope  # noqa: F401
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

import lengthwise as lw
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.merging import merge, merge_folder
from lengthwise.context_extension.transformers_reader import TransformersReader
from lengthwise.context_extension.variant import variant
from lengthwise.errors import RunError, UserError
from lengthwise.extensions.naming import extension_table
from lengthwise.hub import merging
from lengthwise.hub.attention import attention_modules
from lengthwise.hub.rope_parameters import NEVER, RopeParameters
from lengthwise.language.settings import settings_from
from lengthwise.language.training import train_language_model

Call = Callable[..., str]
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("Phi3Config", {}),
    "olmo2": ("Olmo2Config", {}),
    "qwen2": ("Qwen2Config", {}),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 16, "sliding_window": 11, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16},
    ),
    "cohere": ("CohereConfig", {"use_qk_norm": True}),
}
"""Besides those with attention by hand."""
CARRIERS = {
    **dict.fromkeys(("llama", "mistral", "smollm3", "granite", "gpt-oss", "qwen2", "gemma2"), "q_proj"),
    **dict.fromkeys(("qwen3", "gemma3", "olmo2", "olmo3", "cohere"), "q_norm"),
    "gpt-neox": "query_key_value",
    "gpt2": "c_attn",
    "phi3": "qkv_proj",
}
"""Which weights have the scales."""
SHARED = {"qwen3", "gemma3"}
"""Whose heads share the norm that follows their queries."""
RESCALINGS = ["position-interpolation", "ntk", "dynamic-ntk", "yarn", "llama3", "longrope", "drope"]
FITS = [
    (architecture, extension)
    for architecture, known in ARCHITECTURES.items()
    for extension in ["head-scale", *RESCALINGS]
    if (known.rotated or extension == "head-scale") and not (architecture in SHARED and extension == "head-scale")
]
FEW = {("llama", "yarn"), ("gpt-neox", "yarn"), ("gemma3", "ntk"), ("gpt2", "head-scale"), ("olmo3", "head-scale")}


def model_of(architecture: str) -> Any:
    """With biases and weights of norms that are neither 0 nor 1."""
    if architecture in ARCHITECTURES:
        model = make(architecture)
    else:
        torch.manual_seed(0)
        config, settings = OTHERS[architecture]
        made = getattr(transformers, config)(**{**SHAPE, **settings})
        model = transformers.AutoModelForCausalLM.from_config(made).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(7)
    for name, value in model.named_parameters():
        if value.ndim == 1 and "sinks" not in name:
            value += 0.2 * torch.randn(value.shape, generator=generator)
    return model


def opened(place: Path) -> Any:
    """By plain Transformers."""
    return transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)


def bits(model: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_untouched(model: Any, before: dict[str, Tensor]) -> None:
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(value.requires_grad for value in model.parameters()) and not model.training


def left_behind(place: Path) -> list[Path]:
    return sorted(place.rglob("*")) if place.exists() else []


# Against attention by hand.


@torch.no_grad()
@pytest.mark.parametrize(("architecture", "extension"), slow_but(FEW, FITS))
def test_merged_models_are_those_of_attention_by_hand(architecture: str, extension: str, tmp_path: Path) -> None:
    model, tokens_BT = model_of(architecture), tokens()
    before, config, method = bits(model), model.config.to_dict(), chosen(extension, architecture)
    reader = TransformersReader.of(model, TRAINED)
    with_scales(reader.extended([method], LENGTH), method)
    with attending_by_hand(model, architecture, extension):
        expected = model(tokens_BT).logits
    merged = merge(model, [method], tmp_path / "merged", trained=TRAINED)
    assert merged.difference < 5e-6
    assert_untouched(model, before)
    assert model.config.to_dict() == config
    plain = opened(tmp_path / "merged")
    assert_close(plain(tokens_BT, use_cache=False).logits, expected)
    assert float((expected - model(tokens_BT).logits).abs().max()) > 4e-4 * float(expected.abs().max())
    assert type(plain) is type(model)
    files = ["config.json", "generation_config.json", "lengthwise.json", "model.safetensors"]
    assert sorted(each.name for each in (tmp_path / "merged").iterdir()) == files
    assert [each.name for each in tmp_path.iterdir()] == ["merged"]


@torch.no_grad()
@pytest.mark.parametrize(
    "architecture",
    [each if each in ("qwen3", "phi3") else pytest.param(each, marks=pytest.mark.slow) for each in CARRIERS],
)
@pytest.mark.parametrize("kind", ["uniform", "heads"])
def test_scales_are_in_the_weights_that_queries_grow_with(architecture: str, kind: str, tmp_path: Path) -> None:
    model, tokens_BT = model_of(architecture), tokens()
    reader, before = TransformersReader.of(model, TRAINED), bits(model)
    method = (
        lw.extension("uniform-scale", constant=1.3) if kind == "uniform" else lw.extension("head-scale", initial=1.5)
    )
    extended = reader.extended([method], LENGTH)
    if kind == "heads":
        scales_LH = method.scales_LH
        scales_LH.copy_(0.5 + torch.rand(scales_LH.shape, generator=torch.Generator().manual_seed(3)))
        scales_LH[2] = 1  # a layer that stays as it was
    if kind == "heads" and architecture in SHARED:
        told = r"head-scale cannot be merged: layer 1 of .* \(q_proj: queries do not grow with it; q_norm: heads with"
        with pytest.raises(UserError, match=told):
            merge(model, [method], tmp_path / "deep" / "merged", trained=TRAINED)
        assert_untouched(model, before)
        assert not left_behind(tmp_path)
        return
    expected = extended.logits(tokens_BT)
    merged = merge(model, [method], tmp_path / "deep" / "merged", trained=TRAINED)
    assert_untouched(model, before)
    plain = opened(tmp_path / "deep" / "merged")
    assert_close(plain(tokens_BT, use_cache=False).logits, expected)
    changed = {name for name, value in plain.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[-2] for name in changed} == {CARRIERS[architecture]}
    layers = {0, 1, 2, 3} if kind == "uniform" else {0, 1, 3}
    assert {int(next(part for part in name.split(".") if part.isdecimal())) for name in changed} == layers
    assert CARRIERS[architecture] in merged.told[0] and f"{len(layers)} layers" in merged.told[0]


@torch.no_grad()
@pytest.mark.parametrize("architecture", sorted(SHARED))
def test_norms_that_heads_share_take_scales_of_layers(architecture: str, tmp_path: Path) -> None:
    model, method = model_of(architecture), lw.extension("head-scale", initial=1.5, by="layer")
    extended = TransformersReader.of(model, TRAINED).extended([method], LENGTH)
    scales_L1: Any = method.parameters()[0]
    scales_L1.copy_(torch.tensor([[1.2], [1.9], [1.0], [1.4]]))
    expected = extended.logits(tokens())
    merged = merge(model, [method], tmp_path / "merged", trained=TRAINED)
    assert merged.told == ["scales of heads from 1.2 to 1.9 in the weights of q_norm of 3 layers"]
    assert_close(opened(tmp_path / "merged")(tokens()).logits, expected)


def test_a_scale_of_norms_that_keep_one_less_is_theirs(tmp_path: Path) -> None:
    """Gemma multiplies by 1 + w."""
    model = model_of("gemma3")
    merge(model, [lw.extension("uniform-scale", constant=1.5)], tmp_path / "merged", trained=TRAINED)
    name = "model.layers.1.self_attn.q_norm.weight"
    wanted = 1.5 * (1 + model.state_dict()[name]) - 1
    torch.testing.assert_close(load_file(tmp_path / "merged/model.safetensors")[name], wanted)


# Configs.


def described(place: Path) -> dict[str, Any]:
    return json.loads((place / "config.json").read_text())


WANTED: dict[str, tuple[dict[str, Any], int]] = {
    "position-interpolation": ({"rope_type": "linear", "factor": 3.0}, 3 * TRAINED),
    "ntk": ({"rope_type": "default", "rope_theta": 10000.0 * 3 ** (16 / 14)}, 3 * TRAINED),
    "dynamic-ntk": ({"rope_type": "dynamic", "factor": 2.0}, TRAINED),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED, "beta_fast": 2.0,
         "beta_slow": 0.1, "truncate": True, "attention_factor": pytest.approx(1.1386294)},
        4 * TRAINED,
    ),
    "llama3": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.01, "high_freq_factor": 2.0,
         "original_max_position_embeddings": TRAINED},
        8 * TRAINED,
    ),
    "drope": ({"rope_type": "linear", "factor": NEVER}, TRAINED),
}  # fmt: skip


@pytest.mark.parametrize("extension", WANTED)
def test_configs_say_what_transformers_wants(extension: str, tmp_path: Path) -> None:
    merge(model_of("llama"), [chosen(extension, "llama")], tmp_path / "merged", trained=TRAINED)
    found = described(tmp_path / "merged")
    wanted, longest = WANTED[extension]
    assert found["rope_parameters"] == {"rope_theta": 10000.0, **wanted}
    assert found["max_position_embeddings"] == longest and found["dtype"] == "float32"


@torch.no_grad()
def test_rotations_of_parts_of_heads_leave_the_factor_of_logits_to_the_weights(tmp_path: Path) -> None:
    """YaRN scales all logits; Transformers would scale those of rotated entries alone."""
    model = model_of("gpt-neox")
    merged = merge(model, [chosen("yarn", "gpt-neox")], tmp_path / "merged", trained=TRAINED)
    assert described(tmp_path / "merged")["rope_parameters"]["attention_factor"] == 1.0
    assert "a scale of 1.296 in the weights of query_key_value of 4 layers" in merged.told
    rotated = lw.extension("yarn", **{**settings_of("yarn", "gpt-neox"), "magnitude_on": "rotated"})
    merged = merge(model, [rotated], tmp_path / "rotated", trained=TRAINED)
    assert described(tmp_path / "rotated")["rope_parameters"]["attention_factor"] == pytest.approx(1.1386294)
    assert len(merged.told) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("own", "extension", "wanted"),
    [
        ("linear", lw.extension("position-interpolation", factor=3.0), {"rope_type": "linear", "factor": 6.0}),
        ("linear", lw.extension("ntk", factor=3.0), {"rope_type": "linear", "factor": 2.0}),
        ("yarn", lw.extension("drope"), {"rope_type": "linear", "factor": NEVER}),
        ("yarn", lw.extension("uniform-scale", constant=1.2), {"rope_type": "yarn", "factor": 4.0}),
        ("yarn", lw.extension("llama3", factor=2.0), None),
        ("llama3", lw.extension("position-interpolation", factor=2.0), None),
    ],
)
def test_scalings_that_a_config_has_are_kept_or_in_the_way(
    own: str, extension: Any, wanted: dict[str, Any] | None, tmp_path: Path
) -> None:
    model = small("LlamaConfig", rope_parameters=SCALINGS[own], max_position_embeddings=64)
    if wanted is None:
        told = rf"{extension.name} cannot be merged: the config of .* already \(rope_type {own}\), and has no name"
        with pytest.raises(UserError, match=told):
            merge(model, [extension], tmp_path / "merged", trained=TRAINED)
        return
    expected = TransformersReader.of(model, TRAINED).extended([extension], LENGTH).logits(tokens())
    merge(model, [extension], tmp_path / "merged", trained=TRAINED)
    found = described(tmp_path / "merged")
    assert wanted.items() <= found["rope_parameters"].items() and found["max_position_embeddings"] == 64
    assert_close(opened(tmp_path / "merged")(tokens()).logits, expected)


@torch.no_grad()
def test_a_config_that_leaves_the_width_of_heads_open_says_it(tmp_path: Path) -> None:
    """Scalings of Transformers multiply it, and would not open the folder."""
    model = small("MixtralConfig", num_local_experts=4)
    expected = TransformersReader.of(model, TRAINED).extended([chosen("yarn", "llama")], LENGTH).logits(tokens())
    assert model.config.head_dim is None
    merge(model, [chosen("yarn", "llama")], tmp_path / "merged", trained=TRAINED)
    assert described(tmp_path / "merged")["head_dim"] == 16 and model.config.head_dim is None
    assert_close(opened(tmp_path / "merged")(tokens()).logits, expected)


@torch.no_grad()
def test_a_config_of_text_within_another_is_found(tmp_path: Path) -> None:
    torch.manual_seed(0)
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 8, "patch_size": 4}  # fmt: skip
    text = {**SHAPE, "head_dim": 16, "sliding_window": 11, "layer_types": SLIDING}
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    merge(model, [lw.extension("position-interpolation", factor=3.0)], tmp_path / "merged", trained=TRAINED)
    found = described(tmp_path / "merged")["text_config"]
    assert found["rope_parameters"]["full_attention"]["factor"] == 3.0 and found["max_position_embeddings"] == 48


@torch.no_grad()
@pytest.mark.parametrize("extension", ["dynamic-ntk", "longrope", "yarn"])
def test_long_models_are_compared_beyond_their_length_without_reading_it(
    extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if 8 tokens were as many as can be read: what changes beyond the trained length must be seen all the same."""
    monkeypatch.setattr(merging, "READ", 4)
    monkeypatch.setattr(merging, "COMPARED", 4)
    put = RopeParameters.put

    def wrong(self: RopeParameters, found: dict[str, Any]) -> None:
        put(self, found)
        for name in {"long_factor", "factor"} & found["rope_parameters"].keys():
            value = found["rope_parameters"][name]
            found["rope_parameters"][name] = [2 * each for each in value] if isinstance(value, list) else 2 * value

    model = model_of("llama")
    assert merge(model, [chosen(extension, "llama")], tmp_path / "right", trained=TRAINED).difference < 2e-5
    monkeypatch.setattr(RopeParameters, "put", wrong)
    with pytest.raises(RunError, match="gives other logits than LlamaForCausalLM under its extensions, by up to"):
        merge(model, [chosen(extension, "llama")], tmp_path / "deep" / "wrong", trained=TRAINED)
    assert not (tmp_path / "deep").exists()


# Refusals, by name.

ALWAYS: dict[str, tuple[dict[str, Any], str]] = {
    "logn": ({}, "logn cannot be merged: it multiplies logits by a number that depends on the position"),
    "ssmax": ({}, "ssmax cannot be merged: it multiplies logits by a number that depends on the position"),
    "uniform-scale": ({"slope": 0.3}, "uniform-scale cannot be merged: it multiplies logits by a number that depends"),
    "adaptive-temperature": ({}, "adaptive-temperature cannot be merged: it changes the softmax"),
    "drope": ({"layers": (1,)}, "layers 1 and 2 of .* share a rotary table and are to be rotated otherwise"),
    "yarn": ({"factor": 2.0, "ramp": "rotations"}, "yarn with ramp=rotations cannot be merged"),
    **{
        name: (method.settings, f"{name} cannot be merged: it changes the logits of single pairs of tokens")
        for name, method in BY_HAND.items()
        if method.relative is not None
    },
}


@pytest.mark.parametrize("extension", ALWAYS)
def test_what_fits_nowhere_is_refused_by_name(extension: str, tmp_path: Path) -> None:
    settings, told = ALWAYS[extension]
    model = model_of("llama")
    with pytest.raises(UserError, match=told):
        merge(model, [lw.extension(extension, **settings)], tmp_path / "deep" / "merged", trained=TRAINED)
    assert not left_behind(tmp_path)


def test_what_an_architecture_does_not_know_is_its_own_word(tmp_path: Path) -> None:
    told = r"Transformers does not open .* as it would be merged: .* must be one of \['longrope'\], got linear"
    with pytest.raises(UserError, match=told):
        merge(model_of("phi3"), [chosen("position-interpolation", "llama")], tmp_path / "merged", trained=TRAINED)
    assert not left_behind(tmp_path)


def test_weights_that_others_need_as_they_are_are_left_alone(tmp_path: Path) -> None:
    model = model_of("granite")
    modules: Any = attention_modules(model)
    method = lw.extension("head-scale", initial=1.4)
    before = bits(model)
    own = modules[1].q_proj
    modules[1].q_proj = modules[0].q_proj
    with pytest.raises(UserError, match=r"layer 2 of .* \(q_proj: another layer has the same weights\)"):
        merge(model, [method], tmp_path / "merged", trained=TRAINED)
    modules[1].q_proj = own
    assert_untouched(model, before)
    one = transformers.LlamaConfig(**{**SHAPE, "num_key_value_heads": 4})
    model = transformers.AutoModelForCausalLM.from_config(one).eval().requires_grad_(False)
    modules = attention_modules(model)
    modules[0].k_proj = modules[0].q_proj
    with pytest.raises(UserError, match=r"layer 1 of .* \(q_proj: keys or values depend on it too\)"):
        merge(model, [lw.extension("head-scale", initial=1.4)], tmp_path / "merged", trained=TRAINED)
    assert not left_behind(tmp_path)


# Precision.


def low(place: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    model_of("llama").to(dtype).save_pretrained(place)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(61)}, unk_token="w0"))  # pyrefly: ignore
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyrefly: ignore
    tokenizer.save(str(place / "tokenizer.json"))
    return place


def dtypes(place: Path) -> set[torch.dtype]:
    return {value.dtype for value in load_file(place / "model.safetensors").values()}


@torch.no_grad()
def test_weights_stay_in_the_precision_that_they_have_where_nothing_shows(tmp_path: Path) -> None:
    source = low(tmp_path / "low")
    merge_folder(source, tmp_path / "yarn", ["yarn:factor=4"], trained=TRAINED, device="cpu")
    before, after = (load_file(each / "model.safetensors") for each in (source, tmp_path / "yarn"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert described(tmp_path / "yarn")["dtype"] == "bfloat16"
    assert (tmp_path / "yarn/tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    double = merge_folder(source, tmp_path / "double", ["uniform-scale:constant=2"], trained=TRAINED, device="cpu")
    assert dtypes(tmp_path / "double") == {torch.bfloat16} and len(double.told) == 1  # a power of two rounds nothing


@torch.no_grad()
def test_weights_are_in_full_precision_where_rounding_shows_or_as_it_is_asked(tmp_path: Path) -> None:
    source, wanted = low(tmp_path / "low"), ["uniform-scale:constant=1.3"]
    done = merge_folder(source, tmp_path / "full", wanted, trained=TRAINED, device="cpu")
    assert dtypes(tmp_path / "full") == {torch.float32} and described(tmp_path / "full")["dtype"] == "float32"
    assert "weights in fp32: rounded as they were, logits would differ by" in done.told[1] and done.difference < 2e-5
    done = merge_folder(source, tmp_path / "asked", wanted, trained=TRAINED, device="cpu", dtype="bf16")
    assert dtypes(tmp_path / "asked") == {torch.bfloat16}
    assert done.told[1] == "weights in bf16: logits differ by their rounding" and 1e-4 < done.difference < 0.05
    mixed = load_file(source / "model.safetensors")
    mixed["model.norm.weight"] = mixed["model.norm.weight"].float() + 1e-4
    save_file(mixed, source / "model.safetensors", {"format": "pt"})
    merge_folder(source, tmp_path / "mixed", ["ntk:factor=2"], trained=TRAINED, device="cpu")
    found = load_file(tmp_path / "mixed/model.safetensors")
    assert {name for name, value in found.items() if value.dtype == torch.float32} == {"model.norm.weight"}
    assert torch.equal(found["model.norm.weight"], mixed["model.norm.weight"])


def test_a_fit_of_a_model_in_half_precision_is_merged(tmp_path: Path, call: Call) -> None:  # noqa: F811
    """As it is made on a GPU: the fit knows its model by its weights as it read them."""
    source, corpus = low(tmp_path / "low"), tmp_path / "corpus"
    for split in ("train", "validation", "test"):
        (corpus / split).mkdir(parents=True)
        (corpus / split / "a.txt").write_text(" ".join(f"w{3 + (7 * i) % 50}" for i in range(300)))
    few = ("--trained", TRAINED, "--device", "cpu", "--dtype", "bf16", "--scored", 8, "--steps", 1, "--batch", 1)
    fit = tmp_path / "fit"
    call("fit", source, "head-scale", "--length", 32, "--initial", "1.4", "--corpus", corpus, "--out", fit, *few)
    assert json.loads((fit / "fit.json").read_text())["model"]["precision"] == "bfloat16"
    done = merge_folder(source, tmp_path / "merged", fit=fit, trained=TRAINED, device="cpu")
    assert done.difference < 2e-5 and described(tmp_path / "merged")["max_position_embeddings"] == 32


@torch.no_grad()
def test_a_model_in_memory_keeps_its_precision(tmp_path: Path) -> None:
    model = model_of("llama").to(torch.bfloat16)
    place = lw.merge(model, [lw.extension("ntk", factor=2.0)], tmp_path / "merged", trained=TRAINED)
    assert place == tmp_path / "merged" and dtypes(place) == {torch.bfloat16} and model.dtype == torch.bfloat16
    with pytest.raises(UserError, match="merged is there already; choose another folder"):
        lw.merge(model, [lw.extension("ntk", factor=2.0)], tmp_path / "merged", trained=TRAINED)


# Folders and runs.


def test_models_whose_rotation_was_removed_say_so_in_their_config(tmp_path: Path) -> None:
    """The scale is that of a model without rotation: plain Transformers must not rotate either."""
    source = low(tmp_path / "low", torch.float32)
    done = merge_folder(
        source, tmp_path / "merged", ["uniform-scale:constant=1.2"], positions="none", trained=TRAINED, device="cpu"
    )
    assert described(tmp_path / "merged")["rope_parameters"]["factor"] == NEVER and len(done.told) == 2
    again = TransformersReader.of(opened(tmp_path / "merged"), TRAINED)
    assert set(again.names) == {"none"}


@torch.no_grad()
def test_an_extended_copy_of_a_model_without_rotation_has_none_either(tmp_path: Path) -> None:
    reader = TransformersReader.of(model_of("llama"), TRAINED).without_rotation()
    assert torch.equal(reader.copied().logits(tokens()), reader.logits(tokens()))


def test_tokenizers_come_along_and_weights_of_other_programs_do_not(tmp_path: Path) -> None:
    source = low(tmp_path / "low", torch.float32)
    for name in ("chat_template.jinja", "merges.txt", "LICENSE", "README.md", "code.py", "model.onnx", ".hidden"):
        (source / name).write_text(name)
    (source / "generation_config.json").write_text('{"max_new_tokens": 3}')
    (source / "tokenizer_config.json").symlink_to(source / "merges.txt")
    merge_folder(source, tmp_path / "merged", ["ntk:factor=2"], trained=TRAINED, device="cpu")
    names = {each.name for each in (tmp_path / "merged").iterdir()}
    ours = {"config.json", "model.safetensors", "lengthwise.json"}
    assert names - ours == {
        "chat_template.jinja", "merges.txt", "LICENSE", "tokenizer.json", "tokenizer_config.json",
        "generation_config.json",
    }  # fmt: skip
    assert not (tmp_path / "merged/tokenizer_config.json").is_symlink()
    assert json.loads((tmp_path / "merged/generation_config.json").read_text()) == {"max_new_tokens": 3}


@torch.no_grad()
@pytest.mark.parametrize("words", [("yarn:factor=4",), ("uniform-scale:constant=1.3", "ntk:factor=2")])
def test_a_run_becomes_a_model_of_transformers(rope: LoadedModel, words: tuple[str, ...], tmp_path: Path) -> None:  # noqa: F811
    """Its logits are those of the run itself, under the same extensions."""
    run = Path(rope.facts["folder"])
    done = merge_folder(run, tmp_path / "merged", words, device="cpu")
    assert done.architecture == "LlamaForCausalLM"
    ours = rope.extended([extension_table(word) for word in words], 4 * rope.trained)
    tokens_BT = torch.randint(300, (2, 100), generator=torch.Generator().manual_seed(0))
    assert_close(opened(tmp_path / "merged")(tokens_BT).logits, ours.logits(tokens_BT))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "merged")
    assert tokenizer("the old captain").input_ids[1:] == rope.tokenizer.encode("the old captain").tolist()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["head-scale", "yarn:factor=2"])
def test_fits_of_runs_are_merged(what: str, rope: LoadedModel, tmp_path: Path, call: Call) -> None:  # noqa: F811
    run = Path(rope.facts["folder"])
    few = ("--length", 64, "--steps", 2, "--batch", 2, "--scored", 8, "--device", "cpu")
    call("fit", run, what, *few, "--out", tmp_path / "fit", *(("--initial", "1.3") if what == "head-scale" else ()))
    told = call("merge", run, "--fit", tmp_path / "fit", "--out", tmp_path / "merged", "--device", "cpu")
    assert "LlamaForCausalLM, logits within" in told
    tokens_BT = torch.randint(300, (2, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = variant(rope, fit=tmp_path / "fit")(64).logits(tokens_BT)
        found = opened(tmp_path / "merged")(tokens_BT).logits
    assert float((ours - rope.model.logits(tokens_BT)).abs().max()) > 1e-2
    assert_close(found, ours)
    assert described(tmp_path / "merged")["max_position_embeddings"] == 64


REFUSED: list[tuple[tuple[str, ...], str]] = [
    ((), "nothing to merge: give --fit, or --extension once or more"),
    (("--extension", "yarn:factor=auto"), "a merged model has one factor at every length: say yarn:factor=4"),
    (("--extension", "logn"), "logn cannot be merged"),
    (("--fit", "nowhere"), "no finished fit at nowhere"),
    (("--extension", "head-scale", "--positions", "none"), "is a run of ours, which knows its positions"),
]


@pytest.mark.parametrize(("words", "told"), REFUSED)
def test_the_command_refuses_in_a_line_and_writes_nothing(
    words: tuple[str, ...],
    told: str,
    nope: LoadedModel,  # noqa: F811
    tmp_path: Path,
    call: Call,  # noqa: F811
) -> None:
    with pytest.raises(UserError) as error:
        call("merge", nope.facts["folder"], *words, "--out", tmp_path / "deep" / "merged")
    assert told in str(error.value) and "\n" not in str(error.value)
    assert not left_behind(tmp_path)


def test_an_out_that_is_there_is_left_alone(nope: LoadedModel, tmp_path: Path, call: Call) -> None:  # noqa: F811
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("empty", "file", "link"):
        with pytest.raises(UserError, match="is there already; choose another folder with --out, or delete it"):
            call("merge", nope.facts["folder"], "--extension", "head-scale", "--out", tmp_path / name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty", "file", "link"]


def test_what_is_neither_a_llama_nor_a_smollm3_is_refused(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        (tmp_path / "corpus" / split).mkdir(parents=True)
        (tmp_path / "corpus" / split / "a.txt").write_text("the cat sat on the mat\n" * 40)
    table = {
        "encoding": "alibi",
        "model": {"layers": 1, "width": 16, "heads": 2},
        "data": {"context": 16, "vocabulary": 270, "validation_tokens": 32},
        "training": {"tokens": 64, "batch_tokens": 32, "validations": 1},
    }
    train_language_model(tmp_path / "corpus", settings_from(table), tmp_path / "run", "cpu")
    with pytest.raises(UserError, match="it is no Llama and no SmolLM3, as layer 0 has the encoding alibi"):
        merge_folder(tmp_path / "run", tmp_path / "merged", ["uniform-scale:constant=1.2"], device="cpu")


def test_what_a_killed_process_was_writing_is_removed(nope: LoadedModel, tmp_path: Path) -> None:  # noqa: F811
    for process in (2**22 + 1, os.getppid()):
        (tmp_path / f".merged.{process}.partial").mkdir()
    merge_folder(Path(nope.facts["folder"]), tmp_path / "merged", ["uniform-scale:constant=1.2"], device="cpu")
    assert {each.name for each in tmp_path.iterdir()} == {"merged", f".merged.{os.getppid()}.partial"}
