"""Models of Transformers read through our attention: padding, packing, caches, long rows, configs, refusals."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from foreign_by_hand import LENGTH, SHAPE, TRAINED
from test_any_model import assert_close, reader_of, tokens
from test_context_extension import LargestTensor
from torch import Tensor

import lengthwise as lw
from lengthwise.context_extension import entropy
from lengthwise.context_extension.forward import losses_of_last
from lengthwise.context_extension.transformers_reader import TransformersReader
from lengthwise.encodings import layout
from lengthwise.errors import RunError, UserError
from lengthwise.hub import attention as our_attention
from lengthwise.model import attention

METHODS: dict[str, dict[str, Any]] = {
    "head-scale": {"initial": 1.4},
    "yarn": {"factor": 4.0},
    "self-extend": {"group": 4, "window": 6},
    "streaming": {"first": 3, "recent": 8},
    "logn": {},
}
FITS = [
    (architecture, method)
    for architecture in ("llama", "mistral", "gemma3", "gpt2", "gpt-oss")
    for method in METHODS
    if architecture != "gpt2" or method in ("head-scale", "logn")
]


def extended(architecture: str, method: str) -> TransformersReader:
    return reader_of(architecture).extended([lw.extension(method, **METHODS[method])], LENGTH)


def small(config: str, **settings: Any) -> Any:
    torch.manual_seed(1)
    given = {**SHAPE, "num_hidden_layers": 2, **settings}
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**given))
    return model.eval().requires_grad_(False)


# Padding, packing, caches.


@torch.no_grad()
@pytest.mark.parametrize(("architecture", "method"), FITS)
def test_padding_on_the_left_changes_nothing(architecture: str, method: str) -> None:
    reader, tokens_BT = extended(architecture, method), tokens(LENGTH - 5)
    padded_BT = torch.cat([torch.zeros(2, 5, dtype=torch.long), tokens_BT], dim=1)
    padded_BT[1] = tokens(LENGTH)[1]  # a row without padding beside one with it
    mask_BT = (padded_BT != 0).long()
    mask_BT[1] = 1
    positions_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
    with reader.attending() as model:
        found = model(padded_BT, attention_mask=mask_BT, position_ids=positions_BT).logits
        assert_close(found[0, 5:], model(tokens_BT[:1]).logits[0])
        assert_close(found[1], model(padded_BT[1:]).logits[0])


@torch.no_grad()
@pytest.mark.parametrize(("architecture", "method"), FITS)
def test_generation_of_padded_rows_is_that_of_each_alone(architecture: str, method: str) -> None:
    """With the library's own cache, which forgets what a sliding window hides."""
    reader = extended(architecture, method)
    prompts = [tokens(30)[0], tokens(21)[1]]
    padded_BT = torch.stack([prompts[0], torch.cat([torch.zeros(9, dtype=torch.long), prompts[1]])])
    mask_BT = torch.ones_like(padded_BT)
    mask_BT[1, :9] = 0
    wanted = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with reader.attending() as model:
        together = model.generate(padded_BT, attention_mask=mask_BT, **wanted)[:, 30:]
        for row, prompt in enumerate(prompts):
            alone = model.generate(prompt[None], attention_mask=torch.ones(1, len(prompt)).long(), **wanted)
            assert together[row].tolist() == alone[0, len(prompt) :].tolist()
            uncached = prompt
            for _ in range(8):
                logits = model(uncached[None], use_cache=False).logits[0, -1]
                logits[2] = -torch.inf  # the end, which min_new_tokens forbids
                uncached = torch.cat([uncached, logits.argmax()[None]])
            assert together[row].tolist() == uncached[len(prompt) :].tolist()


@torch.no_grad()
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_packed_rows_are_those_of_each_sequence_alone(architecture: str, method: str) -> None:
    """Positions that begin anew begin another sequence, as Transformers has it."""
    reader, tokens_BT = extended(architecture, method), tokens(LENGTH)[:1]
    positions_BT = torch.cat([torch.arange(17), torch.arange(LENGTH - 17)])[None]
    with reader.attending() as model:
        packed = model(tokens_BT, position_ids=positions_BT, use_cache=False).logits[0]
        assert_close(packed[:17], model(tokens_BT[:, :17]).logits[0])
        assert_close(packed[17:], model(tokens_BT[:, 17:]).logits[0])


@torch.no_grad()
def test_beams_go_through_our_attention_and_static_caches_are_refused() -> None:
    reader = extended("llama", "yarn")
    prompt_BT = tokens(30)[:1]
    wanted = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with reader.attending() as model:
        plain = model.generate(prompt_BT, **wanted)
        with pytest.raises(UserError, match="leave cache_implementation out"):
            model.generate(prompt_BT, cache_implementation="static", **wanted)
        assert torch.equal(model.generate(prompt_BT, use_cache=False, **wanted), plain)
        beams = model.generate(prompt_BT, num_beams=3, **wanted)
        assert torch.equal(model.generate(prompt_BT, num_beams=3, use_cache=False, **wanted), beams)
    assert not torch.equal(reader.model.generate(prompt_BT, **wanted), plain)


# The model is as it was.


def test_an_error_within_leaves_the_model_as_it_was() -> None:
    reader, tokens_BT = extended("gemma3", "yarn"), tokens()
    with torch.no_grad():
        before = reader.model(tokens_BT).logits
    attributes = {name: set(vars(module)) for name, module in reader.model.named_modules()}
    with pytest.raises(ZeroDivisionError), reader.attending() as model:
        with pytest.raises(UserError, match="extended already"), reader.attending():
            raise AssertionError("not reached")
        model(tokens_BT)
        raise ZeroDivisionError
    assert {name: set(vars(module)) for name, module in reader.model.named_modules()} == attributes
    assert reader.model.config._attn_implementation == "sdpa"
    with torch.no_grad():
        assert torch.equal(reader.model(tokens_BT).logits, before)


def test_a_patch_that_does_not_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if Transformers called another function after an upgrade."""
    reader = extended("llama", "yarn")
    layer = our_attention.attention_modules(reader.model)[1]
    monkeypatch.setattr(layer, "forward", lambda hidden_states, **_: (hidden_states, None))
    with pytest.raises(RunError, match="only 3 of 4 layers have attended"), reader.attending() as model:
        model(tokens())


# Scalings that a config has.

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 16},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "rope_theta": 10000.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    "longrope": {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 16, "factor": 4.0,
                 "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
                 "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]},
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("kind", SCALINGS)
def test_scalings_of_a_config_are_respected(kind: str) -> None:
    """Read through our attention without an extension, at lengths within and beyond, the model is its own."""
    longest = 16 if kind == "dynamic" else 64
    model = small("LlamaConfig", rope_parameters=SCALINGS[kind], max_position_embeddings=longest)
    reader = TransformersReader.of(model, TRAINED)
    for length in (12, 16, 17, 40, 12):  # their table of dynamic scaling grows with what it has met, and ours does not
        fresh = small("LlamaConfig", rope_parameters=SCALINGS[kind], max_position_embeddings=longest)
        assert_close(reader.logits(tokens(length)), fresh(tokens(length), use_cache=False).logits)
    scaled = reader.extended([lw.extension("uniform-scale", constant=1.3)], LENGTH)
    assert not torch.allclose(scaled.logits(tokens()), reader.logits(tokens()), atol=1e-3)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_scaling_by_length_is_not_scaled_once_more(kind: str) -> None:
    model = small("LlamaConfig", rope_parameters=SCALINGS[kind], max_position_embeddings=64)
    with pytest.raises(UserError, match=r"changes rotations by the length of a sequence \(rope_parameters\), and yarn"):
        TransformersReader.of(model, TRAINED).extended([lw.extension("yarn", factor=4.0)], LENGTH)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_cache_across_the_border_of_a_scaling_is_refused(kind: str) -> None:
    longest = 16 if kind == "dynamic" else 64
    model = small("LlamaConfig", rope_parameters=SCALINGS[kind], max_position_embeddings=longest)
    reader, cache = TransformersReader.of(model, TRAINED), transformers.DynamicCache()
    with reader.attending() as model:
        model(tokens(15), past_key_values=cache)
        model(tokens(1), past_key_values=cache)
        with pytest.raises(UserError, match="a cache of 16 tokens was made for shorter ones than 17"):
            model(tokens(1), past_key_values=cache)


# Long rows.

LONG = 4096


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Elements that tensors of logits may have."""
    size = 2**19
    monkeypatch.setattr(attention, "LARGEST_LOGITS", size)
    monkeypatch.setattr(layout, "LARGEST_MASK", size)
    monkeypatch.setitem(entropy.LARGEST_BLOCK, "cpu", size)
    return size


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma3", "gpt-neox", "gpt-oss"])
@pytest.mark.parametrize("method", [None, *METHODS])
def test_a_long_row_makes_no_square(architecture: str, method: str | None, small_blocks: int) -> None:
    reader = reader_of(architecture) if method is None else extended(architecture, method)
    with LargestTensor() as watch:
        losses_of_last(reader, np.arange(LONG + 1)[None] % 50, scored=64)
    # What grows with the length are queries and keys (4 heads of 16) and, in gpt-oss, what 4 experts have within.
    assert watch.elements <= max(2 * small_blocks, LONG * (640 if architecture == "gpt-oss" else 128)) < LONG**2 / 6


@pytest.mark.slow
def test_entropy_of_a_long_row_makes_no_square(small_blocks: int) -> None:
    with LargestTensor() as watch:
        entropy.entropies(reader_of("gemma3"), np.arange(LONG)[None] % 50, np.array([0, 100, LONG - 1]))
    assert watch.elements <= max(small_blocks, LONG * 128)


# Refusals, by name.

REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "no rotation": ("gpt2", "ntk", {"factor": 2.0}, "ntk applies to no layer of this model .*learned.*rotated"),
    "positions in embeddings": ("gpt2", "streaming", {}, "streaming changes distances, and learned adds positions"),
    "another normaliser": ("gpt-oss", "adaptive-temperature", {}, "another normaliser"),
    "no such end": ("gpt2", "uniform-scale", {"constant": 1.2}, "ends at position 39: no extension takes it to .* 50"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused(name: str) -> None:
    architecture, method, settings, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        reader_of(architecture).extended([lw.extension(method, **settings)], 50 if "end" in name else LENGTH)


def test_soft_caps_refuse_remappings_alone() -> None:
    model = small("Gemma2Config", head_dim=16, sliding_window=11, attn_logit_softcapping=2.0, query_pre_attn_scalar=16)
    reader = TransformersReader.of(model, TRAINED)
    reader.extended([lw.extension("yarn", factor=4.0)], LENGTH)
    with pytest.raises(UserError, match="self-extend would show queries and keys that are not rotated yet"):
        reader.extended([lw.extension("self-extend", group=4, window=6)], LENGTH)


def test_models_without_the_interface_are_refused_by_name() -> None:
    model = small("BloomConfig", n_layer=2, n_head=4)
    with pytest.raises(UserError, match="a BloomForCausalLM, whose attention does not go through the attention inter"):
        TransformersReader.of(model, TRAINED, "mine")


def test_a_model_that_reads_both_ways_is_refused() -> None:
    with pytest.raises(UserError, match="is no causal model: later tokens change what it says of earlier ones"):
        TransformersReader.of(small("BertConfig"), TRAINED)


def test_positions_that_are_added_unseen_are_refused() -> None:
    model = small("CTRLConfig", n_layer=2, n_head=4, n_embd=64, dff=80, max_position_embeddings=64)
    with pytest.raises(UserError, match="changes with positions, by what is neither a rotation nor a table"):
        TransformersReader.of(model, TRAINED)


@torch.no_grad()
def test_a_model_whose_body_is_not_where_others_have_it() -> None:
    model = small("Llama4TextConfig", head_dim=16, num_local_experts=2, intermediate_size_mlp=80)
    assert_close(TransformersReader.of(model, TRAINED).logits(tokens()), model(tokens(), use_cache=False).logits)


def test_a_config_without_a_length_asks_for_one() -> None:
    with pytest.raises(UserError, match="does not say how long its training sequences were"):
        TransformersReader.of(small("LlamaConfig", max_position_embeddings=0))


def test_attention_that_is_not_what_it_says_is_refused() -> None:
    """A layer that does something else to its logits than the interface is told."""
    model = small("LlamaConfig")
    layer = model.model.layers[1].self_attn
    own = type(layer).forward

    def louder(hidden_states: Tensor, **named: Any) -> Any:
        mixed, weights = own(layer, hidden_states, **named)
        return mixed * 1.5 if model.config._attn_implementation == "sdpa" else mixed, weights

    layer.forward = louder
    with pytest.raises(UserError, match="something in its attention is not known"):
        TransformersReader.of(model, TRAINED, "odd")
