"""The decoder against facts that do not come from its code: the published numbers, and a float64 pass in NumPy."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.none import NoEncoding
from lengthwise.errors import UserError
from lengthwise.kernels.dropout import place_keys
from lengthwise.kernels.linear import Linear
from lengthwise.kernels.ops import Ops
from lengthwise.model import decoder
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import SIZES, ModelConfig, with_size
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace
from lengthwise.seeding import derive
from lengthwise.training.fleet import Batch, Fleet

ROWS = 20
LENGTHS = Lengths(trained=16, met=32)
STYLES: dict[str, ModelConfig] = {
    "t5": ModelConfig(style="t5", layers=2, width=32, heads=4),
    "llama": ModelConfig(style="llama", layers=2, width=32, heads=4),
    "llama-grouped": ModelConfig(style="llama", layers=2, width=32, heads=4, key_value_heads=2),
}


def make_model(config: ModelConfig, *layers: Mapping[str, Any], seed: int = 0) -> Decoder:
    """Initial weights with noise on all of them, norms included, so that none is without effect."""
    model = build(config, ROWS, layers or [{"name": "none"}], LENGTHS)
    initialize(model, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.7 * parameter.shape[-1] ** -0.5 * torch.randn(parameter.shape, generator=generator)
    return model


def draw_tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, ROWS, shape, generator=torch.Generator().manual_seed(seed))


# The whole pass


def norm(x_TD: np.ndarray, weight_D: np.ndarray) -> np.ndarray:
    return x_TD / np.sqrt((x_TD**2).mean(-1, keepdims=True) + 1e-6) * weight_D


def softmax(logits: np.ndarray) -> np.ndarray:
    grown = np.exp(logits - logits.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def reference_logits(model: Decoder, tokens: list[int]) -> np.ndarray:
    """The pass of a decoder without position, from its weights, in float64. (T, V)."""
    config = model.config
    weights = {name: parameter.detach().double().numpy() for name, parameter in model.named_parameters()}
    t5 = config.style == "t5"
    x_TD = weights["embedding.weight"][tokens]
    hidden_TS = np.triu(np.ones((len(tokens), len(tokens)), dtype=bool), 1)
    for layer in range(config.layers):
        own = {name.removeprefix(f"blocks.{layer}."): value for name, value in weights.items()}
        normed = norm(x_TD, own["attention_norm.weight"])
        inner_width, shared_width = config.heads * config.head_width, config.groups * config.head_width
        joined = own["attention.projection.weight"]
        assert joined.shape == (config.width, inner_width + 2 * shared_width)
        weight_of = {
            "query": joined[:, :inner_width],
            "key": joined[:, inner_width : inner_width + shared_width],
            "value": joined[:, inner_width + shared_width :],
        }
        heads = []
        for head in range(config.heads):
            group = head * config.groups // config.heads
            query = slice(head * config.head_width, (head + 1) * config.head_width)
            shared = slice(group * config.head_width, (group + 1) * config.head_width)
            queries = normed @ weight_of["query"][:, query]
            keys = normed @ weight_of["key"][:, shared]
            values = normed @ weight_of["value"][:, shared]
            logits = queries @ keys.T / (1 if t5 else math.sqrt(config.head_width))
            heads.append(softmax(np.where(hidden_TS, -np.inf, logits)) @ values)
        x_TD = x_TD + np.concatenate(heads, axis=1) @ own["attention.output.weight"]
        normed = norm(x_TD, own["feed_forward_norm.weight"])
        inner = normed @ own["feed_forward.inner.weight"]
        if t5:
            inner = np.maximum(inner, 0)
        else:
            gate = normed @ own["feed_forward.gate.weight"]
            inner = gate / (1 + np.exp(-gate)) * inner
        x_TD = x_TD + inner @ own["feed_forward.output.weight"]
    final = norm(x_TD, weights["final_norm.weight"])
    if t5:
        return (final / math.sqrt(config.width)) @ weights["embedding.weight"].T
    return final @ weights["unembedding.weight"]


@pytest.mark.parametrize("style", STYLES)
@torch.no_grad()
def test_logits_equal_an_independent_pass(style: str) -> None:
    model = make_model(STYLES[style])
    tokens = draw_tokens(7)
    expected = reference_logits(model, tokens.tolist())
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(model(tokens[None])[0].numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("style", ["t5", "llama"])
def test_states_of_chosen_tokens_are_those_of_all(style: str) -> None:
    """With their gradients; a token that only fills up the list may come up again if it has none."""
    model = make_model(ModelConfig(style=style, layers=2, width=32, heads=2), {"name": "alibi"}).requires_grad_()
    tokens_BT = draw_tokens(3, 10)
    chosen_P = torch.tensor([3, 7, 28, 29, 12, 3])
    counted_P = torch.tensor([1.0, 2.0, -1.0, 0.5, 3.0, 0.0])
    layout = model.layout(tokens_BT)

    def found(states_PD: Tensor) -> list[Tensor]:
        loss = (states_PD.square().sum(dim=-1) * counted_P).sum()
        return [states_PD, *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)]

    some = found(model.hidden(tokens_BT, layout, chosen_P=chosen_P))
    whole = found(model.hidden(tokens_BT, layout).flatten(0, 1)[chosen_P])
    for one, other in zip(some, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("style", STYLES)
@torch.no_grad()
def test_norms_add_one_millionth_to_the_mean_square(style: str) -> None:
    model = make_model(STYLES[style])
    model.embedding.weight.mul_(1e-3)
    for block in model.blocks:
        for name, parameter in block.named_parameters():
            if name.endswith("output.weight"):
                parameter.mul_(1e-3)
    tokens = draw_tokens(7)
    expected = reference_logits(model, tokens.tolist())
    np.testing.assert_allclose(model(tokens[None])[0].numpy(), expected, atol=1e-4 * float(np.abs(expected).max()))


@pytest.mark.parametrize("style", STYLES)
@torch.no_grad()
def test_a_bf16_model_gives_fp32_logits_close_to_its_fp32_twin(style: str) -> None:
    model = make_model(STYLES[style], {"name": "rotary"})
    tokens = draw_tokens(2, 9)
    expected = model(tokens)
    logits = model.to(torch.bfloat16)(tokens)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=0, atol=0.15)


# The T5 style, as published


def deviations(model: Decoder) -> dict[str, float]:
    """Measured standard deviation around zero of every weight matrix."""
    return {name: float(p.square().mean().sqrt()) for name, p in weight_parts(model).items() if p.ndim > 1}


def weight_parts(model: Decoder) -> dict[str, Tensor]:
    """All weights by name; those that make queries, keys and values each by itself."""
    config = model.config
    sizes = [heads * config.head_width for heads in (config.heads, config.groups, config.groups)]
    parts: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if ".projection." in name:
            own = zip(("query", "key", "value"), parameter.detach().split(sizes, dim=1), strict=True)
            parts |= {name.replace("projection", part): weight for part, weight in own}
        else:
            parts[name] = parameter.detach()
    return parts


def test_initial_deviations_of_the_t5_style() -> None:
    width, heads, head_width, inner = 256, 4, 64, 1024
    config = ModelConfig(style="t5", layers=2, width=width, heads=heads)
    # So many buckets that the deviation of the table can be measured.
    model = build(config, 600, [{"name": "t5", "buckets": 1024, "max_distance": 4096}], LENGTHS)
    initialize(model, 0)
    expected = {"embedding.weight": 1.0, "encodings.0.table": width**-0.5}
    for layer in range(2):
        expected |= {
            f"blocks.{layer}.attention.query.weight": (width * head_width) ** -0.5,
            f"blocks.{layer}.attention.key.weight": width**-0.5,
            f"blocks.{layer}.attention.value.weight": width**-0.5,
            f"blocks.{layer}.attention.output.weight": (heads * head_width) ** -0.5,
            f"blocks.{layer}.feed_forward.inner.weight": width**-0.5,
            f"blocks.{layer}.feed_forward.output.weight": inner**-0.5,
        }
    assert deviations(model) == pytest.approx(expected, rel=0.05)
    assert_centred_and_norms_one(model)


def test_initial_deviations_of_the_llama_style() -> None:
    config = ModelConfig(style="llama", layers=3, width=128, heads=4, key_value_heads=2)
    model = build(config, 600, [{"name": "learned", "rows": 100}], LENGTHS)
    initialize(model, 0)
    # As TinyLlama: what is added to the residual stream starts smaller, by the root of twice the layers.
    added = 0.02 / math.sqrt(6)
    expected = {"embedding.weight": 0.02, "unembedding.weight": 0.02, "encodings.0.table": 0.02}
    for layer in range(3):
        expected |= {
            f"blocks.{layer}.attention.{part}.weight": added if part == "output" else 0.02
            for part in ("query", "key", "value", "output")
        }
        expected |= {
            f"blocks.{layer}.feed_forward.{part}.weight": added if part == "output" else 0.02
            for part in ("gate", "inner", "output")
        }
    assert deviations(model) == pytest.approx(expected, rel=0.05)
    assert_centred_and_norms_one(model)


def assert_centred_and_norms_one(model: Decoder) -> None:
    for name, parameter in weight_parts(model).items():
        if parameter.ndim == 1:
            assert name.endswith("norm.weight") and (parameter == 1).all()
        else:
            assert abs(parameter.mean().item()) < 5 * parameter.std().item() / math.sqrt(parameter.numel()), name


@pytest.mark.parametrize("style", STYLES)
def test_no_two_weights_start_alike(style: str) -> None:
    model = build(STYLES[style], 200, [{"name": "t5", "shared": False}], LENGTHS)
    initialize(model, 0)
    first = [p.flatten()[:128] for p in weight_parts(model).values() if p.ndim > 1]
    correlations = torch.corrcoef(torch.stack(first)).fill_diagonal_(0)
    assert correlations.abs().max() < 5 / math.sqrt(128)


@torch.no_grad()
def test_only_the_llama_style_divides_logits_by_the_root_of_the_head_width() -> None:
    assert ModelConfig(style="t5", width=256, heads=4).logit_scale == 1
    assert ModelConfig(style="llama", width=256, heads=4).logit_scale == 1 / 8
    tokens = draw_tokens(1, 5)
    for style, scale in (("t5", 1.0), ("llama", 8**-0.5)):
        model, trace = make_model(STYLES[style]), Trace()
        model(tokens, trace=trace)
        attention = model.blocks[0].attention
        normed = model.blocks[0].attention_norm(trace.residual_BTD[0])  # type: ignore[operator]
        projected = attention.projection(normed)  # type: ignore[operator,union-attr]
        queries, keys = (projected[..., first : first + 32].unflatten(-1, (4, 8)) for first in (0, 32))
        expected = scale * torch.einsum("bthk,bshk->bhts", queries, keys)
        torch.testing.assert_close(trace.layers[0].content_BHTS, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_t5_style_ties_input_and_output() -> None:
    model = make_model(STYLES["t5"])
    assert model.unembedding is None
    tokens = torch.tensor([[3, 4, 5]])
    before = model(tokens)
    model.embedding.weight[9] += 1
    output_changed = model(tokens)
    assert torch.equal(output_changed[..., :9], before[..., :9]) and torch.equal(
        output_changed[..., 10:], before[..., 10:]
    )
    assert ((output_changed - before)[..., 9].abs() > 1e-3).all()
    model.embedding.weight[4] += 1
    both_changed = model(tokens)
    torch.testing.assert_close(both_changed[:, :1, :4], before[:, :1, :4])
    assert (both_changed - before)[:, 1:].abs().amax(-1).min() > 1e-3


@torch.no_grad()
def test_the_t5_output_is_scaled_by_the_root_of_the_width() -> None:
    model = make_model(STYLES["t5"])
    states = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(0))
    expected = states @ model.embedding.weight.T / math.sqrt(32)
    torch.testing.assert_close(model.unembed(states), expected)


@torch.no_grad()
def test_the_llama_style_unties_them_and_does_not_scale() -> None:
    model = make_model(STYLES["llama"])
    assert model.unembedding is not None
    states = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.unembed(states), states @ model.unembedding.weight)
    before = model(torch.tensor([[3, 4, 5]]))
    model.embedding.weight[9] += 1
    assert torch.equal(model(torch.tensor([[3, 4, 5]])), before)


@pytest.mark.parametrize("style", STYLES)
def test_no_layer_has_a_bias(style: str) -> None:
    model = make_model(STYLES[style])
    assert not [name for name, _ in model.named_parameters() if "bias" in name]
    assert not any(isinstance(module, nn.Linear) and module.bias is not None for module in model.modules())
    linear = [module for module in model.modules() if isinstance(module, Linear)]
    assert linear and all([name for name, _ in module.named_parameters()] == ["weight"] for module in linear)
    vectors = [name for name, parameter in model.named_parameters() if parameter.ndim == 1]
    expected = [f"blocks.{layer}.{part}_norm.weight" for layer in range(2) for part in ("attention", "feed_forward")]
    assert vectors == [*expected, "final_norm.weight"]


# Sizes


def count(size: str, rows: int, **settings: Any) -> tuple[int, Decoder]:
    config = ModelConfig(**with_size({"size": size, **settings}))
    with torch.device("meta"):
        model = build(config, rows, [{"name": "none"}], LENGTHS)
    return sum(parameter.numel() for parameter in model.parameters()), model


def test_the_blocks_of_base_have_85_million_weights() -> None:
    _, model = count("base", 32_100)
    blocks = sum(parameter.numel() for parameter in model.blocks.parameters())
    assert blocks == 12 * (4 * 768 * 768 + 2 * 768 * 3072 + 2 * 768)
    assert round(blocks / 1e6) == 85
    assert model.embedding.weight.shape == (32_100, 768)
    assert (model.config.heads, model.config.head_width, model.config.inner_width) == (12, 64, 3072)
    assert model.config.style == "t5"


def test_1b_is_tinyllama() -> None:
    weights, model = count("1b", 32_000)
    assert weights == 1_100_048_384  # the published checkpoint
    config = model.config
    assert (config.style, config.layers, config.heads, config.groups, config.head_width) == ("llama", 22, 32, 4, 64)


def test_the_inner_width_of_llama_is_eight_thirds_rounded_up_to_32() -> None:
    widths = {256: 704, 768: 2048, 96: 256, 128: 352}
    assert {width: ModelConfig(style="llama", width=width).inner_width for width in widths} == widths
    assert ModelConfig(style="t5", width=256).inner_width == 1024
    assert ModelConfig(style="llama", width=256, feed_forward=100).inner_width == 100


def test_sizes_have_names_and_yield_to_what_is_said() -> None:
    assert {name: (size["layers"], size["width"]) for name, size in SIZES.items()} == {
        "tiny": (2, 64),
        "small": (4, 256),
        "base": (12, 768),
        "1b": (22, 2048),
    }
    assert with_size({"size": "tiny", "layers": 7}) == {"size": "tiny", "layers": 7, "width": 64, "heads": 4}
    with pytest.raises(UserError, match="did you mean 'small'"):
        with_size({"size": "smal"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 30, "heads": 4}, "cannot be divided among 4 heads"),
        ({"heads": 4, "key_value_heads": 3}, "cannot share 3 key-value heads"),
        ({"dropout": 1.0}, "below 1"),
        ({"dropout": -0.1}, "at least 0"),
        ({"layers": 0}, "layers must be 1 or more"),
    ],
)
def test_impossible_shapes_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**settings)


# Which layer has which encoding


def schedule_model(layers: int, *tables: Mapping[str, Any]) -> Decoder:
    return make_model(ModelConfig(style="t5", layers=layers, width=64, heads=4), *tables)


def biased_layers(model: Decoder) -> list[bool]:
    """Whether each layer's logits differ from its contents, as a trace of a real pass tells."""
    trace = Trace()
    with torch.no_grad():
        model(draw_tokens(1, 6), trace=trace)
    visible = torch.ones(6, 6, dtype=torch.bool).tril()
    return [bool((layer.logits_BHTS - layer.content_BHTS)[..., visible].abs().max() > 0) for layer in trace.layers]


def test_a_schedule_is_cycled_over_the_layers() -> None:
    model = schedule_model(5, {"name": "alibi"}, {"name": "none"})
    assert model.encoding_names() == ["alibi", "none", "alibi", "none", "alibi"]
    assert biased_layers(model) == [True, False, True, False, True]
    assert len(model.encodings) == 2
    model = schedule_model(4, {"name": "none"}, {"name": "none"}, {"name": "none"}, {"name": "alibi"})
    assert model.encoding_names() == ["none", "none", "none", "alibi"]
    assert biased_layers(model) == [False, False, False, True]


def test_layers_with_other_settings_have_another_encoding() -> None:
    model = schedule_model(4, {"name": "rotary", "fraction": 0.5}, {"name": "rotary", "fraction": 1.0})
    assert [model.encoding_at(layer).config.fraction for layer in range(4)] == [0.5, 1.0, 0.5, 1.0]
    assert len(model.encodings) == 2


def test_a_shared_t5_table_serves_all_layers() -> None:
    model = schedule_model(3, {"name": "t5"})
    tables = [name for name, _ in model.named_parameters() if name.startswith("encodings.")]
    assert tables == ["encodings.0.table"]
    assert biased_layers(model) == [True, True, True]
    with torch.no_grad():
        model.get_parameter("encodings.0.table").zero_()
    assert biased_layers(model) == [False, False, False]


def test_t5_tables_of_their_own_serve_one_layer_each() -> None:
    model = schedule_model(3, {"name": "t5", "shared": False})
    tables = [name for name, _ in model.named_parameters() if name.startswith("encodings.")]
    assert tables == ["encodings.0.table", "encodings.1.table", "encodings.2.table"]
    assert model.encoding_names() == ["t5"] * 3
    values = [model.get_parameter(name) for name in tables]
    assert not torch.equal(values[0], values[1])
    with torch.no_grad():
        values[1].zero_()
    assert biased_layers(model) == [True, False, True]


def test_t5_tables_in_a_schedule() -> None:
    shared = schedule_model(4, {"name": "t5"}, {"name": "none"})
    assert shared.encoding_of_layer == [0, 1, 0, 1]
    own = schedule_model(4, {"name": "t5", "shared": False}, {"name": "none"})
    assert own.encoding_names() == ["t5", "none", "t5", "none"]
    assert own.encoding_of_layer == [0, 1, 2, 1]


@torch.no_grad()
def test_an_encoding_shared_by_layers_changes_the_embedding_once() -> None:
    tokens = draw_tokens(1, 4)
    for tables in ([{"name": "sinusoidal"}], [{"name": "none"}, {"name": "sinusoidal"}]):
        model, trace = schedule_model(4, *tables), Trace()
        model(tokens, trace=trace)
        added = trace.residual_BTD[0] - model.embedding(tokens)
        assert added[0, 0].tolist() == pytest.approx([0.0] * 32 + [1.0] * 32, abs=1e-6)


def test_the_shortest_table_of_a_schedule_ends_the_positions() -> None:
    model = schedule_model(2, {"name": "learned", "rows": 9}, {"name": "learned", "rows": 5})
    assert model.last_position == 4
    model(draw_tokens(1, 5))
    with pytest.raises(UserError, match=r"position 5 .* \(4\)"):
        model(draw_tokens(1, 6))


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_decoder_wants_one_encoding_per_layer(number: int) -> None:
    config = STYLES["t5"]
    encoding = NoEncoding(NoEncoding.Config(), Geometry.of(width=32, heads=4))
    with pytest.raises(ValueError, match=f"2 layers need 2 encodings, not {number}"):
        Decoder(config, ROWS, [encoding] * number)


# Cache


@pytest.mark.parametrize("with_segments", [False, True])
@pytest.mark.parametrize("style", STYLES)
@torch.no_grad()
def test_a_full_cache_says_so(style: str, with_segments: bool) -> None:
    model = make_model(STYLES[style])
    tokens = draw_tokens(2, 6)
    segments = torch.ones_like(tokens) if with_segments else None
    cache = model.new_cache(2, 5)
    model(tokens[:, :4], segments_BT=None if segments is None else segments[:, :4], cache=cache)
    with pytest.raises(ValueError, match="room for 5 tokens, not for 6"):
        model(tokens[:, 4:], segments_BT=None if segments is None else segments[:, 4:], cache=cache)
    with pytest.raises(ValueError, match="room for 5 tokens, not for 6"):
        model(tokens, segments_BT=segments, cache=model.new_cache(2, 5))
    last = model(tokens[:, 4:5], segments_BT=None if segments is None else segments[:, 4:5], cache=cache)
    torch.testing.assert_close(last[:, 0], model(tokens[:, :5])[:, -1], rtol=1e-5, atol=1e-5)
    assert cache.used == 5


# Dropout

RATES = [0.1, 0.5]
MANY = (300, 400)


def seed_of(number: int) -> Tensor:
    return torch.tensor(derive(0, "dropout", number))


def kept(rate: float, seed: Tensor, place: int = 1, shape: tuple[int, ...] = MANY) -> Tensor:
    """Which entries of a tensor of ones survive the `place`-th call of a pass."""
    dropout = Ops(rate, place_keys(seed, 6))
    for _ in range(place - 1):
        dropout.drop(torch.ones(1))
    return dropout.drop(torch.ones(shape)) > 0


@pytest.mark.parametrize("rate", RATES)
def test_dropout_keeps_the_expectation(rate: float) -> None:
    dropped = Ops(rate, place_keys(seed_of(0), 1)).drop(torch.ones(MANY))
    assert sorted(dropped.unique().tolist()) == pytest.approx([0.0, 1 / (1 - rate)])
    share = float((dropped == 0).double().mean())
    assert abs(share - rate) < 3 * math.sqrt(rate * (1 - rate) / dropped.numel())
    assert float(dropped.double().mean()) == pytest.approx((1 - share) / (1 - rate), rel=1e-6)


@pytest.mark.parametrize("rate", RATES)
def test_dropout_depends_on_the_seed_alone(rate: float) -> None:
    state = torch.get_rng_state()
    first = kept(rate, seed_of(1))
    torch.rand(5)
    assert torch.equal(kept(rate, seed_of(1)), first)
    torch.set_rng_state(state)
    kept(rate, seed_of(2))
    assert torch.equal(torch.get_rng_state(), state), "nobody draws from the global generator"


@pytest.mark.parametrize("rate", RATES)
def test_dropout_is_independent_between_steps_places_and_neighbours(rate: float) -> None:
    first = kept(rate, seed_of(1)).double()
    others = {
        "next step": kept(rate, seed_of(2)).double(),
        "next place": kept(rate, seed_of(1), place=2).double(),
        "place after that": kept(rate, seed_of(1), place=3).double(),
        "seed one higher": kept(rate, seed_of(1) + 1).double(),
        "neighbour in the row": first.roll(1, dims=1),
        "neighbour in the column": first.roll(1, dims=0),
    }
    for what, other in others.items():
        correlation = float(torch.corrcoef(torch.stack([first.flatten(), other.flatten()]))[0, 1])
        assert abs(correlation) < 4 / math.sqrt(first.numel()), what


@pytest.mark.parametrize("rate", RATES)
def test_no_two_rows_or_columns_are_dropped_alike(rate: float) -> None:
    """Correlations between any two, and the products over corners of rectangles, are those of chance."""
    drawn = torch.rand(MANY, generator=torch.Generator().manual_seed(0)) >= rate
    largest, corners = [], []
    for mask in (kept(rate, seed_of(1)), drawn):
        z = (mask.double() - (1 - rate)) / math.sqrt(rate * (1 - rate))
        for each in (z, z.t()):
            correlations = (each @ each.t() / math.sqrt(each.shape[1])).fill_diagonal_(0)
            largest.append(float(correlations.abs().max()))
        product = z[::2, ::2] * z[1::2, ::2] * z[::2, 1::2] * z[1::2, 1::2]
        corners.append(float(product.mean()) * math.sqrt(product.numel()))
    assert max(largest[:2]) < 1.25 * max(largest[2:])
    assert abs(corners[0]) < 4
    square = kept(rate, seed_of(1), shape=(300, 300)).double()
    mirrored = torch.corrcoef(torch.stack([square.flatten(), square.t().flatten()]))[0, 1]
    assert abs(float(mirrored)) < 4 / math.sqrt(square.numel() / 2)


def test_every_entry_is_dropped_as_often_as_any_other() -> None:
    rate, seeds = 0.1, 600
    times = sum(kept(rate, seed_of(number), shape=(200,)).double() for number in range(seeds))
    assert isinstance(times, Tensor)
    deviation = (times - seeds * (1 - rate)) / math.sqrt(seeds * rate * (1 - rate))
    assert deviation.abs().max() < 5
    assert 0.8 < float(deviation.std()) < 1.2


@pytest.mark.parametrize("rate", RATES)
def test_the_gradient_is_dropped_where_the_value_was(rate: float) -> None:
    x = torch.randn(50, 60, generator=torch.Generator().manual_seed(0)).requires_grad_()
    dropped = Ops(rate, place_keys(seed_of(3), 1)).drop(x)
    dropped.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, kept(rate, seed_of(3), shape=(50, 60)).float() / (1 - rate))
    torch.testing.assert_close(dropped.detach(), x.detach() * x.grad)


@pytest.mark.parametrize("rate", [0.0, *RATES])
def test_relu_and_dropout_in_one_are_both(rate: float) -> None:
    x = torch.randn(50, 60, generator=torch.Generator().manual_seed(0)).requires_grad_()
    joined, apart = (Ops(rate, place_keys(seed_of(3), 2)) for _ in range(2))
    found, expected = joined.drop_relu(x), apart.drop(x.relu())
    assert torch.equal(found, expected)
    assert torch.equal(joined.drop(x), apart.drop(x)), "the places after it are the same"
    upstream = torch.randn(50, 60, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad((each * upstream).sum(), x)[0] for each in (found, expected)]
    assert torch.equal(*gradients) and gradients[0].any()


def test_dropout_without_a_seed_or_a_rate_does_nothing() -> None:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    for off in (Ops(0.5, None), Ops(0.0, place_keys(seed_of(0), 1))):
        assert not off.drops
        assert off.next_key() is None
        assert torch.equal(off.drop(x), x)
    assert Ops(0.5, place_keys(seed_of(0), 1)).drops


def dropping_model(style: str, rate: float, seed: int = 0) -> Decoder:
    base = STYLES[style]
    config = ModelConfig(
        style=base.style, layers=2, width=32, heads=4, key_value_heads=base.key_value_heads, dropout=rate
    )
    return make_model(config, {"name": "t5"}, seed=seed)


@pytest.mark.parametrize("style", STYLES)
@torch.no_grad()
def test_a_decoder_drops_only_with_a_seed_and_the_same_with_the_same(style: str) -> None:
    tokens = draw_tokens(2, 8)
    model, without = dropping_model(style, 0.2), dropping_model(style, 0.0)
    assert torch.equal(model(tokens), without(tokens))
    assert torch.equal(without(tokens, dropout_seed=seed_of(0)), without(tokens))
    first = model(tokens, dropout_seed=seed_of(0))
    assert torch.equal(model(tokens, dropout_seed=seed_of(0)), first)
    assert (model(tokens, dropout_seed=seed_of(1)) - first).abs().max() > 1e-2
    assert (first - model(tokens)).abs().max() > 1e-2


@pytest.mark.parametrize("style", STYLES)
@torch.no_grad()
def test_a_decoder_drops_at_the_published_places(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings; in each layer attention weights, both residual branches, inside the feed-forward; the final norm."""
    model = dropping_model(style, 0.2)
    drop, shapes = Ops.drop, []

    def recorded(self: Ops, x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return drop(self, x)

    monkeypatch.setattr(Ops, "drop", recorded)
    model(draw_tokens(2, 8), dropout_seed=seed_of(0))
    state, weights, inner = (2, 8, 32), (2, 4, 8, 8), (2, 8, model.config.inner_width)
    assert shapes == [state, *([weights, state, inner, state] * 2), state]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", [1, 3])
def test_a_model_in_a_fleet_drops_what_it_would_drop_alone(style: str, size: int) -> None:
    models = [dropping_model(style, 0.2, seed=seed) for seed in range(size)]
    tokens_NRT = draw_tokens(size, 2, 8)
    targets_NP = draw_tokens(size, 16, seed=1)
    seeds_N = torch.stack([seed_of(number) for number in range(size)])
    fleet = Fleet(dropping_model(style, 0.2), size, torch.device("cpu"))
    for row, model in enumerate(models):
        fleet.put(row, dict(model.named_parameters()))
    batch = Batch(
        tokens_NRT=tokens_NRT,
        segments_NRT=torch.ones_like(tokens_NRT),
        positions_NRT=torch.arange(8).expand(size, 2, -1),
        predicting_NP=torch.arange(16).expand(size, -1),
        targets_NP=targets_NP,
    )
    losses_N, found = fleet.gradients(batch, fleet.keys(seeds_N))
    for row, model in enumerate(models):
        logits = model(tokens_NRT[row], dropout_seed=seeds_N[row])
        loss = F.cross_entropy(logits.flatten(0, 1), targets_NP[row])
        expected = torch.autograd.grad(loss, list(model.parameters()))
        torch.testing.assert_close(losses_N[row], loss.detach(), rtol=1e-5, atol=1e-5)
        for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
            torch.testing.assert_close(found[name][row], gradient, rtol=1e-4, atol=1e-5)


def test_a_mask_is_made_when_it_is_asked_for_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernel never asks: it reads the segments."""
    made = []
    real = decoder._hidden
    monkeypatch.setattr(decoder, "_hidden", lambda *given: made.append(real(*given)) or made[-1])
    tokens, segments = torch.zeros(1, 4, dtype=torch.int64), torch.tensor([[1, 1, 2, 0]])
    layout = Decoder.layout(tokens, torch.tensor([[0, 1, 0, 0]]), segments, consecutive=True)
    assert not made
    expected = [[0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]
    assert all(layout.hidden_BTS.int().tolist() == [expected] for _ in range(2)) and len(made) == 1
    assert Decoder.layout(tokens, None, segments).query_positions_BT.tolist() == [[0, 1, 0, 0]] and len(made) == 2
