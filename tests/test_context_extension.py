"""Context extension: what is measured is what a plain loop says, what is fitted is all that changes."""

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.context_extension import entropy as entropy_module
from lengthwise.context_extension import fitting
from lengthwise.context_extension import forward as reading
from lengthwise.context_extension import passkey as passkey_module
from lengthwise.context_extension import table as table_module
from lengthwise.context_extension.attention_spread import SHARES, attention_spread, spread_rows
from lengthwise.context_extension.entropy import bound, correlate, entropies, entropy_rows, spread_positions
from lengthwise.context_extension.extension_study import DocumentsOfModels, load_extension_study
from lengthwise.context_extension.fit_files import load_fit, save_fit
from lengthwise.context_extension.fitting import FitSettings, Fitted, fit
from lengthwise.context_extension.fitting_entropy import HALVINGS, fit_entropy, second_half, wanted_entropy
from lengthwise.context_extension.fitting_rows import TrainingWindows, choose_targets
from lengthwise.context_extension.foreign_tokenizer import ForeignTokenizer
from lengthwise.context_extension.hugging_face import layer_encodings, load_decoder
from lengthwise.context_extension.lines import Line, fit_settings, read_lines
from lengthwise.context_extension.loaded_model import LoadedModel, open_model
from lengthwise.context_extension.passkey import KeyDocuments, depths, passkey_rows
from lengthwise.context_extension.perplexity import loss_by_position, perplexities, perplexity_at
from lengthwise.context_extension.reader import DecoderReader, Reader
from lengthwise.context_extension.search import LARGEST, fit_growth, search_scale
from lengthwise.context_extension.table import LineTable, MeasureSettings
from lengthwise.context_extension.variant import Variant, extension_table, variant
from lengthwise.errors import UserError
from lengthwise.extensions.extended import extended, make_extension
from lengthwise.language.corpus import Corpus
from lengthwise.language.passkey_rows import DIGITS, Passkeys, draw_key
from lengthwise.language.settings import LanguageData, settings_from
from lengthwise.language.store import Documents, prepare_at
from lengthwise.language.training import train_language_model
from lengthwise.model import attention
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace
from lengthwise.records.files import read_json, read_rows
from lengthwise.records.published_ratios import ratios
from lengthwise.seeding import stream
from lengthwise.training.state import load_tensors

CPU = torch.device("cpu")
CONTEXT = 32
WORDS = ("the", "old", "captain", "saw", "a", "small", "lamp", "near", "river", "and", "went", "home", "in", "1843")


def story(number: int, words: int) -> str:
    """Words with habits: each has only three that may follow it."""
    generator = stream(number, "story")
    word, found = int(generator.integers(len(WORDS))), []
    for step in generator.integers(1, 4, size=words):
        word = (word + int(step)) % len(WORDS)
        found.append(WORDS[word])
    return " ".join(found) + ".\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and a matched pair trained on it: `none` and `rotary`."""
    place = tmp_path_factory.mktemp("context-extension")
    for split, sizes in {"train": (3000, 2000), "validation": (900, 60), "test": (900, 700)}.items():
        (place / "corpus" / split).mkdir(parents=True)
        for number, size in enumerate(sizes):
            (place / "corpus" / split / f"{number}.txt").write_text(story(len(split) * 100 + number, size))
    for name, encoding in {"none": "none", "rotary": {"name": "rotary", "fraction": 1.0}}.items():
        table = {
            "encoding": encoding,
            "seed": 1,
            "model": {"layers": 2, "width": 32, "heads": 4, "key_value_heads": 2},
            "data": {"context": CONTEXT, "vocabulary": 300, "validation_tokens": 256},
            "training": {"tokens": 150 * 256, "batch_tokens": 256, "learning_rate": 0.01, "validations": 1},
        }
        train_language_model(place / "corpus", settings_from(table), place / name, "cpu")
    return place


@pytest.fixture(scope="module")
def nope(folder: Path) -> LoadedModel:
    return open_model(folder / "none", CPU)


@pytest.fixture(scope="module")
def rope(folder: Path) -> LoadedModel:
    return open_model(folder / "rotary", CPU)


def bits(model: Reader) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.weights().items()}


def documents_of(*sizes: int, rows: int = 50) -> Documents:
    """Random tokens."""
    tokens = stream(0, "tokens", *sizes).integers(0, rows, size=sum(sizes))
    return Documents(tokens, np.cumsum([0, *sizes]))


def random_model(encoding: str = "none", **shape: Any) -> Decoder:
    given = {"style": "llama", "layers": 2, "width": 16, "heads": 2, "feed_forward": 32, **shape}
    model = build(ModelConfig(**given), 50, [{"name": encoding}], Lengths(8, 8))
    initialize(model, 3)
    for parameter in model.parameters():  # far from uniform predictions
        parameter.data.mul_(8 if parameter.ndim > 1 else 1)
    return model.requires_grad_(False)


def random_reader(encoding: str, tables: Sequence[dict[str, Any]], context: int, **shape: Any) -> DecoderReader:
    reader = DecoderReader(random_model(encoding, **shape))
    return reader.extended([make_extension(table) for table in tables], context)


# Perplexity.


@pytest.mark.slow
def test_perplexity_is_what_a_loop_over_tokens_says(nope: LoadedModel) -> None:
    documents = nope.documents("test")
    targets = choose_targets(documents, [24, 48], count=5, scored=8)
    for context in (24, 48):
        model = nope.extended([{"name": "uniform-scale", "constant": 1.2}], context)
        losses = []
        for end in targets.ends.tolist():
            for place in range(end - 8, end):
                # All that stands in the window before the target, and nothing else.
                read = documents.tokens[end - context - 1 : place].astype(np.int64)
                logits = model.logits(torch.from_numpy(read)[None])[0, -1]
                losses.append(float(-logits.log_softmax(-1)[int(documents.tokens[place])]))
        found = perplexity_at(model, targets, context)
        assert found.tokens == len(losses) == 40
        assert found.loss == pytest.approx(np.mean(losses), rel=1e-5)
        assert found.perplexity == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
        of_windows = np.array(losses).reshape(5, 8).mean(axis=1)
        assert found.standard_error == pytest.approx(of_windows.std(ddof=1) / math.sqrt(5), rel=1e-4)


def test_targets_are_the_same_at_every_context() -> None:
    documents = documents_of(100, 30, 75)
    targets = choose_targets(documents, [10, 20, 40], count=1000, scored=10)
    rows = {context: targets.rows(context) for context in (10, 20, 40)}
    assert [rows[context].shape for context in (10, 20, 40)] == [(10, 11), (10, 21), (10, 41)]
    assert (rows[40][:, -10:] == rows[10][:, -10:]).all() and (rows[20][:, -21:] == rows[40][:, -21:]).all()
    scored = (targets.ends[:, None] - 1 - np.arange(10)).ravel()
    assert len(set(scored.tolist())) == len(scored) == targets.tokens, "no token counts twice"
    assert targets.ends.tolist() == [41, 51, 61, 71, 81, 91, 171, 181, 191, 201], "windows stay inside a document"
    few = choose_targets(documents, [10, 40], count=3, scored=10)
    assert set(few.ends) < set(targets.ends) and few.ends[0] == 41 and few.ends[-1] == 201


@pytest.mark.slow
def test_rows_read_together_or_alone_are_the_same(nope: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = choose_targets(nope.documents("test"), [48], count=6, scored=16)
    together = perplexity_at(nope.extended([], 48), targets, 48)
    monkeypatch.setitem(reading.LARGEST_INNER, "cpu", 1)
    monkeypatch.setitem(reading.LARGEST_LOGITS, "cpu", 3 * 300)
    alone = perplexity_at(nope.extended([], 48), targets, 48)
    assert alone.loss == pytest.approx(together.loss, abs=1e-6)


@pytest.mark.slow
def test_loss_by_position_has_the_same_mean(nope: LoadedModel) -> None:
    targets = choose_targets(nope.documents("test"), [40], count=4, scored=40)
    rows = loss_by_position(nope.extended([], 40), targets, 40, bins=5)
    assert [(row["first"], row["last"]) for row in rows] == [(0, 7), (8, 15), (16, 23), (24, 31), (32, 39)]
    assert all(row["tokens"] == 4 * 8 for row in rows)
    whole = perplexity_at(nope.extended([], 40), targets, 40).loss
    assert np.mean([row["loss"] for row in rows]) == pytest.approx(whole, rel=1e-9)
    assert rows[0]["loss"] > rows[-1]["loss"], "the first tokens have less to go by"


def test_a_context_beyond_all_documents_is_an_error(nope: LoadedModel) -> None:
    documents = documents_of(100, 30)
    choose_targets(documents, [99], count=1, scored=10)
    message = "longer than any document: the longest has 100, of which the first 99 can be read"
    with pytest.raises(UserError, match=message):
        choose_targets(documents, [10, 100], count=1, scored=10)
    with pytest.raises(UserError, match=message):
        TrainingWindows(documents, 100, seed=0)
    with pytest.raises(UserError, match="shorter than the 10 tokens scored"):
        choose_targets(documents, [5, 20], count=1, scored=10)


def test_a_model_whose_positions_end_says_so() -> None:
    model = DecoderReader(random_model("learned"))
    with pytest.raises(UserError, match="ends at position 7"):
        model.extended([], 9)
    with pytest.raises(UserError, match="cannot read 9 tokens"):
        model.hidden(torch.zeros(1, 9, dtype=torch.int64))


# Long rows.


class LargestTensor(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        sizes = [each.numel() for each in tree_leaves(made) if isinstance(each, Tensor)]
        self.elements = max([self.elements, *sizes])
        return made


LONG = 8192


@pytest.mark.slow
@pytest.mark.parametrize("table", [None, {"name": "uniform-scale", "slope": 0.3}, {"name": "head-scale"}])
def test_a_long_row_makes_no_square(table: dict[str, Any] | None) -> None:
    model = random_reader("none", [table] if table else [], LONG)
    with LargestTensor() as watch:
        reading.losses_of_last(model, np.arange(LONG + 1)[None] % 50, scored=256)
    assert LONG * 32 <= watch.elements <= LONG * 64 < LONG**2 / 100


BIASED = [
    ("alibi", []),
    ("t5", []),
    ("rotary", [{"name": "self-extend", "group": 2, "window": 4}]),
    ("rotary", [{"name": "streaming", "first": 2}]),
    ("rotary", [{"name": "dual-chunk", "chunk": 8, "local": 2}]),
    ("alibi", [{"name": "lm-infinite", "global_tokens": 3, "window": 5}]),
    ("alibi", [{"name": "uniform-scale", "slope": 0.3}, {"name": "head-scale", "initial": 1.4}]),
]


@pytest.mark.parametrize(("encoding", "tables"), BIASED)
def test_biased_logits_are_made_for_a_few_queries_at_a_time(
    encoding: str, tables: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_reader(encoding, tables, 200)
    rows = np.arange(201)[None] % 50
    whole = reading.losses_of_last(model, rows, scored=200)
    monkeypatch.setattr(attention, "LARGEST_LOGITS", 3000)
    with LargestTensor() as watch:
        found = reading.losses_of_last(model, rows, scored=200)
    torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-6)
    assert watch.elements < 200**2, "a matrix of length x length"


def test_fitting_at_a_long_row_makes_no_square() -> None:
    scales = make_extension({"name": "head-scale"})
    model = DecoderReader(random_model("rotary")).extended([scales], 2048)
    with LargestTensor() as watch:
        hidden = model.hidden(torch.arange(2048)[None] % 50, forget=True)
        reading.token_losses(model, hidden, torch.zeros(1, 2048, dtype=torch.int64)).mean().backward()
    assert scales.parameters()[0].grad is not None
    assert watch.elements < 2048**2 / 10


def test_the_watch_sees_a_square() -> None:
    model = random_model()
    with LargestTensor() as watch:
        model(torch.zeros(1, 512, dtype=torch.int64), segments_BT=torch.ones(1, 512, dtype=torch.int64))
    assert watch.elements >= 512**2


def test_forgotten_blocks_give_the_same_gradients(rope: LoadedModel) -> None:
    tokens = torch.from_numpy(rope.documents("train").tokens[:65].astype(np.int64))[None]
    found, passes = [], []
    for forget in (False, True):
        scales = make_extension({"name": "head-scale", "initial": 1.3})
        model = rope.model.extended([scales], 64)
        assert isinstance(model, DecoderReader)
        count: list[int] = []
        model.model.blocks[0].attention.register_forward_hook(lambda *given, count=count: count.append(1))
        hidden = model.hidden(tokens[:, :-1], forget)
        reading.token_losses(model, hidden, tokens[:, 1:]).mean().backward()
        found.append(scales.parameters()[0].grad)
        passes.append(len(count))
    assert passes == [1, 2], "what was forgotten is computed again"
    torch.testing.assert_close(*found)
    assert float(found[0].abs().min()) > 0


# Entropy.


@pytest.mark.parametrize(
    ("encoding", "tables"),
    [
        ("none", []),
        ("alibi", []),
        ("rotary", [{"name": "yarn", "factor": 4.0}, {"name": "head-scale", "initial": 1.7}]),
        ("none", [{"name": "uniform-scale", "slope": 0.4}]),
    ],
)
def test_entropy_in_blocks_is_that_of_whole_maps(
    encoding: str, tables: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(entropy_module.LARGEST_BLOCK, "cpu", 3 * 4 * 20 * 3)  # three queries at a time
    model = random_reader(encoding, tables, 20, width=64, heads=4, key_value_heads=2)
    rows = stream(0, "rows").integers(0, 50, size=(3, 20))
    trace = Trace()
    model.model(torch.from_numpy(rows), trace=trace)
    expected = torch.zeros(2, 4, 20, dtype=torch.float64)
    for layer, seen in enumerate(trace.layers):
        for row in range(3):
            for head in range(4):
                for query in range(20):
                    weights = seen.weights_BHTS[row, head, query, : query + 1].double()
                    expected[layer, head, query] -= (weights * weights.clamp(min=1e-30).log2()).sum() / 3
    torch.testing.assert_close(entropies(model, rows), expected, atol=1e-5, rtol=1e-5)
    some = np.array([0, 7, 19])
    torch.testing.assert_close(entropies(model, rows, some), expected[..., some], atol=1e-5, rtol=1e-5)


def test_entropy_of_a_long_row_makes_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(entropy_module.LARGEST_BLOCK, "cpu", 2**18)
    positions = spread_positions(LONG, 5)
    with LargestTensor() as watch:
        found = entropies(DecoderReader(random_model()), np.arange(LONG)[None] % 50, positions)
    assert positions.tolist() == [0, 2048, 4096, 6143, 8191]
    assert watch.elements <= LONG * 64
    rows = entropy_rows(found, positions, samples=1)
    assert all(row["bits"] <= row["bound"] + 1e-4 for row in rows) and rows[0]["bits"] == 0


def test_equal_attention_reaches_the_bound() -> None:
    model = random_model()
    for name, parameter in model.named_parameters():
        if "projection" in name:
            parameter.data.zero_()
    found = entropies(DecoderReader(model), np.arange(12)[None])
    assert found[1, 0].tolist() == pytest.approx([bound(position) for position in range(12)], abs=1e-5)


def test_correlation_of_scales_with_entropy() -> None:
    entropy = torch.tensor([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]], dtype=torch.float64)
    found = correlate(3 - 0.5 * entropy, entropy)
    assert found.overall == pytest.approx(-1)
    assert found.by_layer == [pytest.approx(-1), None] and found.within_layers == pytest.approx(-1)
    assert correlate(entropy, entropy).overall == pytest.approx(1)


# Search.


@pytest.mark.parametrize("best", [0.62, 1.0, 1.07, 1.83, 3.9])
def test_the_search_finds_the_minimum(best: float) -> None:
    tried: list[float] = []

    def loss_of(scale: float) -> float:
        tried.append(scale)
        return (math.log(scale) - math.log(best)) ** 2

    assert search_scale(loss_of).best == pytest.approx(best, abs=1e-9)
    assert len(tried) == len(set(tried)), "nothing is computed twice"


def test_the_search_steps_over_a_bump_and_survives_overflow() -> None:
    found = search_scale(lambda scale: math.nan if scale > 1.75 else abs(scale - 1.6) + 0.3 * (scale == 1.3))
    assert found.best == 1.6
    with pytest.raises(UserError, match="must be above 0 and hold 1"):
        search_scale(lambda scale: scale, smallest=1.2)


def test_the_growth_of_the_scale_is_fitted_beyond_the_trained_length() -> None:
    scales = {512: 5.0, 1024: 1 + 0.35 * math.log(2), 4096: 1 + 0.35 * math.log(8)}
    found = fit_growth(scales, 512)
    assert found.slope == pytest.approx(0.35) and found.determination == pytest.approx(1)
    assert fit_growth({1024: 1.2, 2048: 1.2}, 512).determination is None
    with pytest.raises(UserError, match="no length is"):
        fit_growth({512: 1.0}, 512)


# Fitting.


def fitted_scales(nope: LoadedModel, told: Callable[..., None] = lambda *given: None, **changes: Any) -> Any:
    given = {"length": 96, "initial": 1.3, "steps": 30, "batch": 4, "learning_rate": 0.1, **changes}
    windows = TrainingWindows(nope.documents("train"), given["length"], seed=0)
    return fit(nope, windows, FitSettings(**given), told=told)


def test_head_scales_lower_the_loss_and_change_nothing_else(nope: LoadedModel, tmp_path: Path) -> None:
    before = bits(nope.model)
    floors: list[float] = []
    found = fitted_scales(nope, lambda step, scales: floors.append(float(scales.scales_LH.detach().min())))
    assert bits(nope.model) == before
    assert len(floors) == len(found.losses) == 30 and min(floors) >= 1
    assert list(found.learned) == ["scales_LH"] and found.learned["scales_LH"].shape == (2, 4)
    assert found.learned["scales_LH"].std() > 0.01
    targets = choose_targets(nope.documents("test"), [96], count=20, scored=32)
    start = nope.extended([{"name": "uniform-scale", "constant": 1.3}], 96)
    learned = perplexity_at(found.model, targets, 96)
    assert learned.loss < perplexity_at(start, targets, 96).loss

    save_fit(tmp_path / "fit", nope, found)
    description = read_json(tmp_path / "fit/fit.json")
    assert description["trained_numbers"] == 8 and description["settings"]["floor"] == 1
    again = load_fit(tmp_path / "fit", nope).extended(nope, 96)
    assert perplexity_at(again, targets, 96) == learned
    assert not list((tmp_path / "fit").glob(".*")), "nothing half-written"


def test_without_the_floor_scales_fall_below_one(nope: LoadedModel) -> None:
    """At the trained length there is nothing to sharpen, so some heads want less."""
    free = fitted_scales(nope, length=CONTEXT, initial=1.0, floor=0.0)
    assert 0 <= float(free.learned["scales_LH"].min()) < 1
    held = fitted_scales(nope, length=CONTEXT, initial=1.0)
    assert float(held.learned["scales_LH"].min()) >= 1


def test_the_first_step_is_that_of_adamw_at_the_warm_up(nope: LoadedModel) -> None:
    """Adam's first step has the size of the learning rate, which is a third of the highest in a warm-up of three."""
    seen: list[Tensor] = []
    fitted_scales(nope, lambda step, scales: seen.append(scales.scales_LH.detach().clone()), floor=0.0)
    torch.testing.assert_close((seen[0] - 1.3).abs(), torch.full((2, 4), 0.1 / 3), atol=1e-4, rtol=0)
    last = (seen[-1] - seen[-2]).abs().max()
    assert float(last) < 0.1 * 0.2, "at the end the rate is a tenth"


def test_a_gradient_that_is_not_finite_is_named_by_its_step(nope: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms are looked at now and then, and the first bad one is named, not the last."""
    real, calls = fitting._gradients, []

    def breaking(model: Decoder, parts: Any, scored: int) -> Tensor:
        calls.append(parts)
        loss = real(model, parts, scored)
        if len(calls) >= 3:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.fill_(math.nan)
        return loss

    monkeypatch.setattr(fitting, "_gradients", breaking)
    windows = TrainingWindows(nope.documents("train"), 64, 0)
    with pytest.raises(UserError, match="the gradient of step 3 is not finite"):
        fit(nope, windows, FitSettings(64, steps=5, batch=1))


def test_fine_tuning_trains_a_copy(rope: LoadedModel, tmp_path: Path) -> None:
    before = bits(rope.model)
    settings = FitSettings(
        96,
        head_scale=False,
        extensions=({"name": "position-interpolation", "factor": 3.0},),
        learning_rate=3e-3,
        steps=20,
        batch=4,
    )
    found = fit(rope, TrainingWindows(rope.documents("train"), 96, seed=0), settings)
    assert bits(rope.model) == before
    changed = {name for name, value in found.learned.items() if value.numpy().tobytes() != before[name]}
    assert changed == set(before), "everything was trained"
    targets = choose_targets(rope.documents("test"), [96], count=20, scored=32)
    raw = perplexity_at(rope.extended(settings.extensions, 96), targets, 96)
    tuned = perplexity_at(found.model, targets, 96)
    assert tuned.loss < raw.loss
    save_fit(tmp_path / "fit", rope, found)
    again = variant(rope, fit=tmp_path / "fit")
    assert perplexity_at(again(96), targets, 96).loss == pytest.approx(tuned.loss, abs=1e-6)
    assert again.label == "position-interpolation:factor=3.0, fitted at 96"


def test_a_fit_of_another_model_is_refused(nope: LoadedModel, rope: LoadedModel, tmp_path: Path) -> None:
    save_fit(tmp_path, nope, fitted_scales(nope, steps=1))
    with pytest.raises(UserError, match="fitted to none with other weights than rotary"):
        load_fit(tmp_path, rope)
    with pytest.raises(UserError, match="no finished fit"):
        load_fit(tmp_path / "nowhere", nope)


def test_extensions_come_after_those_of_a_fit(rope: LoadedModel, tmp_path: Path) -> None:
    """As DroPE does it: rotations are dropped, all weights are trained at the trained length, logits are scaled."""
    settings = FitSettings(CONTEXT, head_scale=False, extensions=({"name": "drope"},), steps=2, batch=2)
    found = fit(rope, TrainingWindows(rope.documents("train"), CONTEXT, seed=0), settings)
    save_fit(tmp_path, rope, found)
    both = variant(rope, ["uniform-scale:constant=1.3"], tmp_path)
    assert both.label == f"drope, fitted at {CONTEXT} + uniform-scale:constant=1.3"
    expected = found.model.extended([make_extension({"name": "uniform-scale", "constant": 1.3})], 96)
    tokens_BT = torch.arange(96)[None] % 50
    logits_BTV = both(96).logits(tokens_BT)
    torch.testing.assert_close(logits_BTV, expected.logits(tokens_BT))
    assert not torch.allclose(logits_BTV, variant(rope, fit=tmp_path)(96).logits(tokens_BT), atol=1e-3)
    with pytest.raises(UserError, match="yarn applies to no layer"):
        variant(rope, ["yarn:factor=2"], tmp_path)(96)


@pytest.fixture
def sharp(nope: LoadedModel) -> LoadedModel:
    """Attention that is far from uniform, so that a scale has something to sharpen."""
    model = nope.model.copied()
    assert isinstance(model, DecoderReader)
    for block in model.model.blocks:
        block.get_submodule("attention.projection").weight.mul_(2.5)
    return dataclasses.replace(nope, model=model)


def scales_by_entropy(loaded: LoadedModel, length: int = 4 * CONTEXT, **changes: Any) -> Fitted:
    settings = FitSettings(length, method="entropy", steps=HALVINGS, batch=3, **changes)
    return fit_entropy(loaded, TrainingWindows(loaded.documents("train"), length, 0), settings)


@pytest.mark.parametrize("target", ["same", "growth"])
def test_scales_by_entropy_give_heads_the_entropy_they_had(
    target: Any, sharp: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the whole extended model, as `extend entropy` measures it, whatever the layers before have become."""
    before = bits(sharp.model)
    found = scales_by_entropy(sharp, floor=0.25, initial=1.0, target=target)
    rows_RT = TrainingWindows(sharp.documents("train"), 4 * CONTEXT, 0).rows(0, 3)[:, :-1]
    wanted_LH = wanted_entropy(sharp.model, rows_RT[:, :CONTEXT], second_half(4 * CONTEXT), target)
    there_LH = entropies(found.model, rows_RT, second_half(4 * CONTEXT)).mean(dim=-1)
    scales_LH = found.learned["scales_LH"]
    between_LH = (scales_LH > 0.25) & (scales_LH < LARGEST)
    assert int(between_LH.sum()) >= 4
    torch.testing.assert_close(there_LH[between_LH], wanted_LH[between_LH], atol=1e-4, rtol=0)
    assert bool((there_LH <= wanted_LH + 1e-4)[scales_LH == 0.25].all())
    assert bool((there_LH >= wanted_LH - 1e-4)[scales_LH == LARGEST].all())
    assert bits(sharp.model) == before and not any(each.requires_grad for each in found.model.parameters())
    held = scales_by_entropy(sharp, target=target)
    assert float(held.learned["scales_LH"].min()) >= 1
    again = scales_by_entropy(sharp, target=target)
    assert torch.equal(again.learned["scales_LH"], held.learned["scales_LH"])
    monkeypatch.setitem(reading.LARGEST_INNER, "cpu", 1)  # one row at a time
    parts = scales_by_entropy(sharp, target=target)
    torch.testing.assert_close(parts.learned["scales_LH"], held.learned["scales_LH"], atol=1e-3, rtol=0)


def test_the_growth_of_entropy_is_a_line_in_the_logarithm_of_the_position(nope: LoadedModel) -> None:
    rows_RT = TrainingWindows(nope.documents("train"), CONTEXT, 0).rows(0, 3)[:, :-1]
    asked = second_half(4 * CONTEXT)
    found_LH = wanted_entropy(nope.model, rows_RT, asked, "growth")
    positions = np.arange(CONTEXT // 8, CONTEXT)
    for layer in range(2):
        for head in range(4):
            there = entropies(nope.model, rows_RT, positions)[layer, head].numpy()
            slope, constant = np.polyfit(np.log2(positions + 1), there, 1)
            expected = np.mean([constant + slope * np.log2(position + 1) for position in asked])
            assert float(found_LH[layer, head]) == pytest.approx(expected, abs=1e-9)


def test_scales_by_entropy_are_a_fit_like_any_other(nope: LoadedModel, rope: LoadedModel, tmp_path: Path) -> None:
    found = scales_by_entropy(nope)
    save_fit(tmp_path, nope, found)
    again = variant(nope, fit=tmp_path)
    assert again.label == f"head-scale, fitted at {4 * CONTEXT} by entropy"
    tokens_BT = torch.arange(4 * CONTEXT)[None] % 50
    assert torch.equal(again(4 * CONTEXT).logits(tokens_BT), found.model.logits(tokens_BT))
    rows_RT = TrainingWindows(nope.documents("train"), 4 * CONTEXT, 0).rows(0, 3)
    expected = [float(reading.losses_of_last(each, rows_RT, 4 * CONTEXT).mean()) for each in (nope.model, found.model)]
    assert found.losses == expected
    with pytest.raises(UserError, match=f"above the trained {CONTEXT} tokens"):
        scales_by_entropy(rope, CONTEXT)
    biased = dataclasses.replace(nope, model=DecoderReader(random_model("alibi")))
    with pytest.raises(UserError, match="alibi has its own distance bias"):
        scales_by_entropy(biased)
    for wrong, message in (
        ({"head_scale": False, "extensions": ({"name": "drope"},), "method": "entropy"}, "only head scales"),
        ({"target": "same"}, "target is what"),
    ):
        with pytest.raises(ValueError, match=message):
            FitSettings(64, **wrong)


def test_steps_in_parts_are_the_same_step(nope: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted_scales(nope, steps=2)
    monkeypatch.setitem(reading.LARGEST_INNER, "cpu", 1)  # one row at a time
    monkeypatch.setitem(fitting.REMEMBERED, "cpu", 0)  # blocks forget
    parts = fitted_scales(nope, steps=2)
    torch.testing.assert_close(parts.learned["scales_LH"], whole.learned["scales_LH"], atol=1e-4, rtol=0)
    assert parts.losses == pytest.approx(whole.losses, abs=1e-5)


def test_training_windows_are_whole_and_each_comes_once_in_an_epoch() -> None:
    documents = documents_of(41, 9, 32)
    windows = TrainingWindows(documents, 10, seed=1)
    assert windows.starts.tolist() == [0, 10, 20, 30, 50, 60, 70]
    two_epochs = windows.rows(0, 14)
    assert two_epochs.shape == (14, 11)
    every = {tuple(documents.tokens[start : start + 11]) for start in windows.starts}
    assert {tuple(row) for row in two_epochs[:7]} == {tuple(row) for row in two_epochs[7:]} == every
    assert (two_epochs[:7] != two_epochs[7:]).any(), "another order"
    assert (windows.rows(5, 4) == two_epochs[5:9]).all()


# Passkeys.


def test_key_documents_are_those_of_the_training_mix(nope: LoadedModel) -> None:
    tokenizer: Any = nope.tokenizer
    ours, theirs = KeyDocuments(tokenizer, nope.begins), Passkeys(tokenizer)
    for size, depth, key, first in ((200, 0.0, "00123", 0), (173, 0.4, "98765", 3), (300, 1.0, "55555", 1)):
        made, wanted = ours.document(size - 1, depth, key, first), theirs.document(size, depth, key, first)
        assert (made.prompt == wanted.prompt).all() and (made.answer == wanted.answer).all()
    assert ours.digits() == "a key of 5 digits has 5 tokens, 12345 is 1 | 2 | 3 | 4 | 5"
    with pytest.raises(UserError, match="or more, not 20"):
        ours.document(20, 0.5, "12345")


class Oracle:
    """Knows the key that stands in the row, but only while it lies within `reach` tokens of the question."""

    def __init__(self, reach: int) -> None:
        self.reach = reach

    def choose(self, model: Any, rows_RT: np.ndarray, count: int) -> np.ndarray:
        answers = rows_RT[:, -count:].copy()
        for row, answer in zip(rows_RT, answers, strict=True):
            key = answer.copy()
            body = row[:-count]
            places = [k for k in range(len(body) - count + 1) if (body[k : k + count] == key).all()]
            assert len(places) == 1, "the key is stated once"
            if len(body) - places[0] > self.reach:
                answer[-1] += 1  # one wrong digit is a wrong answer
        return answers


def test_passkeys_are_scored_by_whole_answers(nope: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkey_module, "choices", Oracle(reach=150).choose)
    documents = KeyDocuments(nope.tokenizer, nope.begins)
    asked: list[int] = []
    rows = passkey_rows(lambda context: asked.append(context), documents, [120, 400], [0.0, 0.5, 1.0], trials=3)  # type: ignore
    assert asked == [120, 400]
    found = {(row["length"], row["depth"]): (row["correct"], row["n"]) for row in rows}
    assert found == {
        **{(120, depth): (3, 3) for depth in (0.0, 0.5, 1.0)},
        **{(400, 0.0): (0, 3), (400, 0.5): (0, 3), (400, 1.0): (3, 3)},
    }
    assert depths(3) == [0.0, 0.5, 1.0] and depths(1) == [0.5]


def test_keys_are_held_out_and_the_same_at_all_lengths(nope: LoadedModel) -> None:
    documents = KeyDocuments(nope.tokenizer, nope.begins)
    made = [passkey_module.draw(documents, length, 0.5, 0, trial) for length in (150, 300) for trial in range(3)]
    assert all((a.answer == b.answer).all() for a, b in zip(made[:3], made[3:], strict=True))
    trained_keys = {draw_key(stream(0, "a", n), held_out=False) for n in range(500)}
    assert not {nope.tokenizer.decode(each.answer) for each in made} & trained_keys
    assert all(len(each.answer) == DIGITS for each in made)


@pytest.mark.parametrize("table", [None, {"name": "yarn", "factor": 3.0}, {"name": "dynamic-ntk", "factor": 2.0}])
def test_one_pass_agrees_with_greedy_decoding(rope: LoadedModel, table: dict[str, Any] | None) -> None:
    """Whatever the model writes greedily, all of it is the likeliest in one pass, and no other text is."""
    model = rope.extended([table] if table else [], 80)
    for number in range(3):
        prompt = rope.documents("test").tokens[40 * number : 40 * number + 70].astype(np.int64)
        written = reading.continued(model, prompt, 6)
        row = np.concatenate([prompt, written])[None]
        assert (reading.choices(model, row, 6)[0] == written).all()
        other = written.copy()
        other[3] = (other[3] + 1) % 300
        changed = np.concatenate([prompt, other])[None]
        assert not (reading.choices(model, changed, 6)[0] == other).all()
        if table is None:
            assert isinstance(model, DecoderReader)
            cache = model.model.new_cache(1, 80)
            logits = model.model(torch.from_numpy(prompt)[None], cache=cache)
            cached = []
            for _ in range(6):
                cached.append(int(logits[0, -1].argmax()))
                logits = model.model(torch.tensor([[cached[-1]]]), cache=cache)
            assert cached == written.tolist()


# Hugging Face.


def checkpoint(path: Path, family: str = "llama", bare: bool = False, **changes: Any) -> Any:
    """A small random checkpoint as the library saves it; `bare`: without its rotation."""
    transformers = pytest.importorskip("transformers")
    given = {
        "vocab_size": 60,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "initializer_range": 0.3,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        **changes,
    }
    config = {"llama": transformers.LlamaConfig, "smollm3": transformers.SmolLM3Config}[family](**given)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.data.uniform_(0.5, 1.5)
        # A residual stream so small that the epsilon of the norms matters.
        model.get_input_embeddings().weight.data.mul_(0.01)
    model.save_pretrained(path)
    if bare:
        _no_rotation(model)
    return model


def _no_rotation(model: Any) -> None:
    inner = model.model.rotary_emb
    inner.forward = lambda x, position_ids: (
        torch.ones(*position_ids.shape, 8),
        torch.zeros(*position_ids.shape, 8),
    )


CHECKPOINTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "all heads alike": {"num_key_value_heads": 4},
    "tied": {"tie_word_embeddings": True},
    "slow": {"rope_theta": 500.0, "rms_norm_eps": 1e-6},
    "sharded": {},
    "smollm3": {"family": "smollm3", "no_rope_layers": [1, 0, 0, 1]},
    "smollm3 by interval": {"family": "smollm3", "no_rope_layer_interval": 2},
    "nope": {"bare": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_has_the_same_logits_here(name: str, tmp_path: Path) -> None:
    theirs = checkpoint(tmp_path, **CHECKPOINTS[name])
    if name == "sharded":
        shutil.rmtree(tmp_path)
        theirs.save_pretrained(tmp_path, max_shard_size="20KB")
        assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ours = load_decoder(tmp_path, "none" if name == "nope" else "auto")
    tokens = torch.from_numpy(stream(0, "tokens").integers(0, 60, size=(2, 40)))
    with torch.no_grad():
        expected = theirs(tokens).logits
        found = ours(tokens)
    size = float(expected.std())
    torch.testing.assert_close(found / size, expected / size, atol=1e-4, rtol=1e-4)
    names = {"smollm3": ["rotary", "none", "none", "rotary"], "smollm3 by interval": ["rotary", "none"] * 2}
    assert ours.encoding_names() == names.get(name, ["none" if name == "nope" else "rotary"] * 4)
    if name not in ("slow", "all heads alike"):
        other = load_decoder(tmp_path, "rotary" if "none" in ours.encoding_names() else "none")
        assert float((other(tokens) - expected).std()) > 0.1 * size, "positions matter in this checkpoint"


@pytest.mark.slow
def test_their_yarn_is_ours(tmp_path: Path) -> None:
    """The extension of a converted model is what the library computes from the same settings."""
    transformers = pytest.importorskip("transformers")
    plain = checkpoint(tmp_path)
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
    config = transformers.LlamaConfig(**{**plain.config.to_dict(), "rope_parameters": scaling})
    theirs = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    theirs.load_state_dict(plain.state_dict())
    ours = extended(load_decoder(tmp_path), [make_extension({"name": "yarn", "factor": 4.0})], 256)
    tokens = torch.from_numpy(stream(1, "tokens").integers(0, 60, size=(1, 200)))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, atol=5e-4, rtol=5e-4)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bias": ({"attention_bias": True}, "biases in attention"),
    "inner bias": ({"mlp_bias": True}, "biases in the feed-forward"),
    "scaled": (
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
        "'linear' .its context is extended",
    ),
    "old scaled": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic' .its context is extended already"),
    "activation": ({"hidden_act": "gelu"}, "the activation 'gelu'"),
    "heads": ({"head_dim": 16}, "heads of 16 entries instead of width / heads = 8"),
    "type": ({"model_type": "gpt2"}, "a model of type 'gpt2'; those that can be read: llama, smollm3"),
    "schedule": ({"no_rope_layers": [1, 0]}, "2 entries for 4 layers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_decoder_has_not_is_refused(name: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    changes, message = REFUSED[name]
    config = read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(UserError, match=message):
        load_decoder(tmp_path)


def test_missing_and_strange_weights_are_errors(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    save_file({**weights, "model.layers.0.self_attn.scale": torch.ones(4)}, file)
    with pytest.raises(UserError, match=r"weights that a Llama has not: model\.layers\.0\.self_attn\.scale"):
        load_decoder(tmp_path)
    save_file({name: value for name, value in weights.items() if name != "model.norm.weight"}, file)
    with pytest.raises(UserError, match=r"no weights 'model\.norm\.weight'"):
        load_decoder(tmp_path)
    file.write_bytes(b"not weights")
    with pytest.raises(UserError, match="cannot be read"):
        load_decoder(tmp_path)
    file.unlink()
    with pytest.raises(UserError, match="holds no weights"):
        load_decoder(tmp_path)


def test_flags_of_layers_are_not_read_inverted() -> None:
    config = {"model_type": "smollm3", "num_hidden_layers": 4}
    assert [table["name"] for table in layer_encodings(config, "auto")] == ["rotary", "rotary", "rotary", "none"]


def foreign_tokenizer(folder: Path, adds_space: bool) -> None:
    """Of words; like SentencePiece's, or byte-level."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    pre = tokenizers.pre_tokenizers
    if adds_space:
        made.pre_tokenizer = pre.Sequence([pre.Metaspace(prepend_scheme="always"), pre.Digits(individual_digits=True)])
        made.decoder = tokenizers.decoders.Metaspace(prepend_scheme="always")
        alphabet = sorted({*"\u2581?.", *map(chr, range(48, 58)), *map(chr, range(65, 123))})
    else:
        # Numbers in groups of three, as in Llama 3.
        digits = pre.Split(tokenizers.Regex(r"\d{1,3}"), "isolated")
        made.pre_tokenizer = pre.Sequence([digits, pre.ByteLevel(add_prefix_space=False, use_regex=True)])
        made.decoder = tokenizers.decoders.ByteLevel()
        alphabet = sorted(pre.ByteLevel.alphabet())
    numbers = [f"{n} {n % 100:02d}" for n in range(100, 1000)] * 3
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2500, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([story(n, 50) for n in range(5)] + numbers, trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(("adds_space", "tokens"), [(True, 5), (False, 2)])
def test_key_documents_of_other_tokenizers(adds_space: bool, tokens: int, tmp_path: Path) -> None:
    foreign_tokenizer(tmp_path, adds_space)
    tokenizer = ForeignTokenizer.load(tmp_path)
    assert tokenizer.adds_space == adds_space and tokenizer.begins.tolist() == [0]
    documents = KeyDocuments(tokenizer, tokenizer.begins)
    made = documents.document(260, 0.5, "31415")
    assert len(made.prompt) + len(made.answer) == 260 and len(made.answer) == tokens
    text = tokenizer.decode(np.concatenate([made.prompt, made.answer]))
    assert text.endswith(" What is the pass key? The pass key is 31415")
    assert text.count("31415") == 2 and ". The pass key is 31415. Remember it. " in text
    assert f"has {tokens} tokens" in documents.digits()


def test_a_foreign_model_is_a_subject_like_any_other(folder: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path, vocab_size=2600)
    foreign_tokenizer(tmp_path, adds_space=True)
    loaded = open_model(tmp_path, CPU, trained=32)
    assert loaded.trained == 32 and loaded.begins.tolist() == [0]
    assert loaded.described() == f"{tmp_path.name}: trained at 32 tokens; layers: 4 x rotary"
    with pytest.raises(UserError, match="say with --corpus"):
        loaded.documents("test")
    documents = loaded.documents("test", folder / "corpus")
    assert len(documents) == 2 and documents[0][0] == 0
    assert loaded.tokenizer.decode(documents[0]).startswith(story(400, 900)[:40])
    assert len(loaded.documents("train", folder / "corpus", tokens=10)) == 1
    targets = choose_targets(documents, [32, 64], count=4, scored=16)
    found = perplexities(Variant(loaded, [extension_table("yarn:factor=auto")]), targets, [32, 64])
    raw = perplexities(Variant(loaded), targets, [32, 64])
    assert found[0].loss == pytest.approx(raw[0].loss, abs=1e-6) and found[1].loss != raw[1].loss
    windows = TrainingWindows(documents, 64, seed=0)
    before = bits(loaded.model)
    fitted = fit(loaded, windows, FitSettings(64, initial=1.2, steps=2, batch=2))
    assert fitted.learned["scales_LH"].shape == (4, 4) and bits(loaded.model) == before
    save_fit(tmp_path / "fit", loaded, fitted)
    assert load_fit(tmp_path / "fit", open_model(tmp_path, CPU, trained=32)).settings.initial == 1.2


# The table.


def test_published_ratios_are_relative_to_the_model_as_trained() -> None:
    found = ratios()
    assert found["none", 1].ratio == found["rotary", 1].ratio == 1
    assert found["none", 2].ratio == pytest.approx(326.9 / 14.6) and found["none", 4].at_least
    assert found["head-scale for 4x", 4].ratio == pytest.approx(21.1 / 14.6)
    assert found["head-scale for 8x, without start", 8].ratio == pytest.approx(31.4 / 14.6)
    assert found["yarn", 8].ratio == pytest.approx(17.1 / 14.5)


def test_every_published_line_has_a_line_here() -> None:
    (study,) = load_extension_study("headscale-small")
    lines = {line.name: line for line in study.all_lines}
    assert {line for line, _ in ratios()} <= set(lines)

    def fitted(name: str) -> FitSettings:
        return fit_settings(lines[name], 512, 3, {1024: 1.2, 2048: 1.4, 4096: 0.9}.__getitem__, key_rows=0.08)

    settings = {name: fitted(f"head-scale for 4x{name}") for name in ("", ", without start", ", without floor")}
    assert {name: (each.initial, each.floor) for name, each in settings.items()} == {
        "": (1.4, 1.0),
        ", without start": (1.0, 1.0),
        ", without floor": (1.4, 0.0),
    }
    assert fitted("head-scale for 8x").initial == 1.0 and fitted("head-scale for 8x, without floor").initial == 0.9
    scaled = [fitted(name) for name, line in lines.items() if line.fit is not None and line.model == "none"]
    # Uniform scales are searched on validation documents: scales of heads are chosen there, too.
    assert {each.split for each in scaled} == {"validation"} and {each.seed for each in scaled} == {3}
    assert {each.passkey_share for each in scaled if each.method == "gradient"} == {0.08, 0.0}
    by_entropy = fitted("head-scale for 2x, by entropy")
    assert by_entropy.method == "entropy" and by_entropy.steps == HALVINGS and by_entropy.length == 1024
    assert fitted("layer-scale for 2x").scales == "layer" and fitted("layer-scale for 2x").passkey_share == 0.08
    assert fitted("yarn for 4x, trained").extensions == ({"name": "yarn", "factor": 4.0},)
    assert fitted("yarn for 4x, trained").learning_rate == 1e-4 and not fitted("yarn for 4x, trained").head_scale


FEW = MeasureSettings(times=(1, 2, 4), windows=4, search_windows=2, scored=16, depths=2, trials=0, heads=0)
(STUDY,) = load_extension_study("headscale-small", ["fit={steps=2, batch=2, split='train'}", "only_times=[2]"])
LINES = [
    line
    for line in read_lines(STUDY.lines, STUDY.models, STUDY.fit)
    if line.times in (None, 2) and not any(word in line.name for word in ("keys", "scored", "layer", "entropy"))
]
"""With what every fit reads turned to documents that are long enough."""


def make_table(
    nope: LoadedModel, rope: LoadedModel, out: Path, settings: MeasureSettings = FEW, lines: Sequence[Line] = LINES
) -> LineTable:
    for line in lines:
        if line.fit is not None:
            line.fit.update(split="train", passkey_share=0.0)
    return LineTable({"none": nope, "rotary": rope}, lines, settings, out, DocumentsOfModels(None))


@pytest.mark.slow
def test_the_table_goes_on_where_it_was_stopped(
    nope: LoadedModel, rope: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(Exception):
        """Raised between two lines of the table."""

    real, calls = table_module.perplexities, []

    def stopping(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 4:
            raise Stopped
        return real(*given)

    monkeypatch.setattr(table_module, "perplexities", stopping)
    with pytest.raises(Stopped):
        make_table(nope, rope, tmp_path).run()
    assert len(read_rows(tmp_path / "perplexity.jsonl")) == 3 * 3
    fits = {file: file.stat().st_mtime_ns for file in tmp_path.glob("fits/*/fit.json")}
    make_table(nope, rope, tmp_path).run()
    rows = read_rows(tmp_path / "perplexity.jsonl")
    assert [row["line"] for row in rows] == [line.name for line in LINES for _ in range(3)], "each line once"
    assert all(file.stat().st_mtime_ns == when for file, when in fits.items()) and len(fits) == 1
    assert {row["tokens"] for row in rows} == {4 * 16} and len({row["targets"] for row in rows}) == 1
    found = {(row["line"], row["times"]): row["perplexity"] for row in rows}
    for name in ("dynamic-ntk", "yarn", "position-interpolation"):
        assert found[name, 1] == pytest.approx(found["rotary", 1], rel=1e-5), "nothing to extend at 1x"
        assert found[name, 4] != found["rotary", 4]
    before = len(calls)
    make_table(nope, rope, tmp_path).run()
    assert len(calls) == before, "nothing left to do"
    more = read_lines(
        [{"name": "dual", "model": "rotary", "extensions": [{"name": "dual-chunk", "chunk": 24, "local": 8}]}],
        ["rotary"],
    )
    make_table(nope, rope, tmp_path, lines=more).run()
    assert len(calls) == before + 1, "a line is added"
    assert {"dual", "yarn"} <= set(read_json(tmp_path / "table.json")["lines"])
    other = [dataclasses.replace(more[0], extensions=({"name": "dual-chunk", "chunk": 16, "local": 8},))]
    with pytest.raises(UserError, match="the line 'dual' was another one"):
        make_table(nope, rope, tmp_path, lines=other).run()
    with pytest.raises(UserError, match="windows was 4, is 5"):
        make_table(nope, rope, tmp_path, dataclasses.replace(FEW, windows=5)).run()
    with pytest.raises(UserError, match="longer than any document"):
        make_table(nope, rope, tmp_path, dataclasses.replace(FEW, times=(1, 2, 4096)))
    with pytest.raises(UserError, match="line 'dual': dual-chunk applies to no layer of this model"):
        make_table(nope, nope, tmp_path, lines=more)


@pytest.mark.slow
def test_the_search_goes_on_with_the_contexts_that_are_left(
    nope: LoadedModel, rope: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, searched = table_module.search_uniform, []

    def stopping(loaded: LoadedModel, targets: Any, contexts: list[int]) -> Any:
        searched.append(contexts)
        if len(searched) == 2:
            raise KeyboardInterrupt
        return real(loaded, targets, contexts)

    monkeypatch.setattr(table_module, "search_uniform", stopping)
    with pytest.raises(KeyboardInterrupt):
        make_table(nope, rope, tmp_path).run()
    make_table(nope, rope, tmp_path).run()
    assert searched == [[2 * CONTEXT], [4 * CONTEXT], [4 * CONTEXT]]
    found = read_json(tmp_path / "uniform/none.json")
    best = {int(context): scale for context, scale in found["best"].items()}
    assert list(best) == [2 * CONTEXT, 4 * CONTEXT] and found["slope"] == fit_growth(best, CONTEXT).slope


def test_heads_that_are_watched_look_where_a_loop_says(rope: LoadedModel) -> None:
    rows, positions = rope.documents("test").tokens[:96].astype(np.int64)[None], np.array([40, 70, 95])
    found = attention_spread(rope.model, rows, positions)
    assert isinstance(rope.model, DecoderReader)
    trace = Trace()
    rope.model.model(torch.from_numpy(rows), trace=trace)
    expected = torch.zeros(2, 4, 6, dtype=torch.float64)
    for layer, seen in enumerate(trace.layers):
        for head in range(4):
            for t in positions.tolist():
                for s in range(t + 1):
                    weight = float(seen.weights_BHTS[0, head, t, s])
                    kind = 0 if s == 0 else 1 if t - s < CONTEXT / 8 else 2 if t - s < CONTEXT else 3
                    expected[layer, head, 0] -= weight * math.log2(max(weight, 1e-30)) / 3
                    expected[layer, head, 1] += weight * (t - s) / 3
                    expected[layer, head, 2 + kind] += weight / 3
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert all(abs(sum(row[name] for name in SHARES) - 1) < 1e-5 for row in spread_rows(found, 3))


# Commands.


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    def called(*words: Any) -> str:
        found = CliRunner().invoke(app, ["extend", *map(str, words)], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    yield called


@pytest.mark.slow
def test_commands(folder: Path, tmp_path: Path, call: Callable[..., str]) -> None:
    run, device = folder / "none", ("--device", "cpu")
    few = ("--windows", 3, "--scored", 16, *device)
    said = call("fit", run, "head-scale", "--length", 64, "--out", tmp_path / "fit", "--steps", 2, "--batch", 2,
                "--scored", 16, *device)  # fmt: skip
    assert "Fitted 8 numbers at 64 tokens, from 1." in said
    assert "uniform_search" in read_json(tmp_path / "fit/fit.json")
    assert load_tensors(tmp_path / "fit/learned.safetensors")[0]["scales_LH"].dtype == torch.float32
    by_entropy = ("fit", run, "head-scale", "--method", "entropy", "--length", 64, "--out", tmp_path / "free", *device)
    assert "Fitted 8 numbers at 64 tokens, by entropy in" in call(*by_entropy, "--target", "same", "--batch", 2)
    settings = read_json(tmp_path / "free/fit.json")["settings"]
    assert settings["steps"] == HALVINGS and settings["target"] == "same"
    both = call("perplexity", run, "--fit", tmp_path / "free", "--extension", "streaming", "--context", "64", *few)
    assert "head-scale, fitted at 64 by entropy + streaming" in both
    file = tmp_path / "rows.jsonl"
    rows = json.loads(call("perplexity", run, "--context", "32,64", "--by-position", *few, "--out", file, "--json"))
    assert [row["context"] for row in rows if row["kind"] == "perplexity"] == [32, 64]
    assert read_rows(file) == rows
    fitted = call("perplexity", run, "--fit", tmp_path / "fit", "--context", "64", *few)
    assert "head-scale, fitted at 64" in fitted
    rows = json.loads(
        call("perplexity", folder / "rotary", "--extension", "yarn:factor=2", "--context", "64", *few, "--json")
    )
    assert rows[0]["variant"] == "yarn:factor=2"
    shown = call("passkey", run, "--length", "150,200", "--depths", 2, "--trials", 1, *device)
    assert "a key of 5 digits has 5 tokens" in shown and "100%" in shown
    rows = json.loads(
        call(
            "entropy",
            run,
            "--fit",
            tmp_path / "fit",
            "--context",
            "64",
            "--samples",
            2,
            "--at",
            4,
            "--scored",
            16,
            *device,
            "--json",
        )
    )
    assert len(rows) == 2 * 2 * 4 * 4 + 1 and rows[-1]["kind"] == "correlation"
    assert {row["variant"] for row in rows[:-1]} == {"as trained", "head-scale, fitted at 64"}
    assert "best scale" in call("uniform", run, "--context", "64,128", *few)
    methods = ("--extension", "yarn:factor=auto", "--extension", "uniform-scale:constant=1.2+rerope:window=8")
    compared = ("compare", folder / "rotary", "--context", "64", "--trials", 0, "--out", tmp_path / "table", *few)
    assert "yarn:factor=auto" in call(*compared, *methods)
    more = call(*compared, "--extension", "streaming")
    assert (
        "streaming" in more
        and "uniform-scale:constant=1.2 + rerope:window=8" in (tmp_path / "table/table.md").read_text()
    )
    found = read_rows(tmp_path / "table/perplexity.jsonl")
    assert [row["line"] for row in found[::2]] == [
        "as trained", "yarn:factor=auto", "uniform-scale:constant=1.2 + rerope:window=8", "streaming",
    ]  # fmt: skip
    assert [row["context"] for row in found[:2]] == [32, 64] and len({row["targets"] for row in found}) == 1
    fitted = ("compare", run, "--context", "64", "--trials", 0, "--fit", tmp_path / "fit", "--fit", tmp_path / "free")
    assert "head-scale, fitted at 64 by entropy" in call(*fitted, "--out", tmp_path / "fits", *few)


ERRORS: dict[str, tuple[list[str], str]] = {
    "nothing there": (["perplexity", "nowhere"], "no language model at nowhere"),
    "length": (["perplexity", "RUN", "--context", "5x"], "'5x' is no length in tokens"),
    "too long": (["perplexity", "RUN", "--context", "100k"], "a context of 102,400 tokens is longer than any document"),
    "extension": (["perplexity", "RUN", "--scored", "8", "--extension", "yearn:factor=2"], "did you mean 'yarn'"),
    "setting": (["perplexity", "RUN", "--scored", "8", "--extension", "yarn:factr=2"], "unknown setting"),
    "form": (["perplexity", "RUN", "--scored", "8", "--extension", "yarn:4"], "must look like yarn:factor=4"),
    "no angles": (
        ["perplexity", "RUN", "--scored", "8", "--extension", "yarn:factor=2"],
        "yarn applies to no layer of this model",
    ),
    "positions": (["perplexity", "RUN", "--positions", "none"], "which knows its positions"),
    "store": (["perplexity", "RUN", "--store", "elsewhere"], "are not in elsewhere"),
    "fit": (["fit", "RUN", "yarn", "--length", "64", "--out", "f", "--scored", "16"], "yarn needs factor"),
    "fit among others": (
        ["fit", "RUN", "head-scale", "--length", "64", "--out", "RUN"],
        "holds something else",
    ),
    "no folder": (["perplexity", "RUN", "--out", "nowhere/rows.jsonl"], "the folder of --out nowhere/rows.jsonl"),
    "nothing to compare": (["compare", "RUN"], "say with --extension or --fit what to compare"),
    "twice": (
        ["compare", "RUN", "--extension", "streaming", "--extension", "streaming"],
        "streaming is to be compared with itself",
    ),
    "shorter": (["compare", "RUN", "--extension", "streaming", "--context", "16"], "must be 32 tokens or more"),
    "no keys": (
        ["compare", "RUN", "--extension", "streaming", "--context", "64", "--scored", "16"],
        "a passkey document has 74 tokens or more, not 32, the trained context; set trials to 0",
    ),
    "does not apply": (
        ["compare", "RUN", "--extension", "yarn:factor=2", "--trials", "0", "--scored", "8"],
        "line 'yarn:factor=2': yarn applies to no layer",
    ),
    "a folder": (["entropy", "RUN", "--out", "."], "is a folder; name a file"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, message = ERRORS[name]
    monkeypatch.chdir(tmp_path)
    called = [str(folder / "none") if word == "RUN" else word for word in words]
    found = CliRunner().invoke(app, ["extend", *called, "--device", "cpu"])
    assert isinstance(found.exception, UserError), found.output
    assert message in str(found.exception)


# The study: from a corpus to the table.


SMALL_STUDY = [
    "seeds=[1]", "model={layers=1, width=16, heads=2, key_value_heads=1}", "data.vocabulary=300",
    "training.validations=1", "measure.times=[1,2]", "measure.windows=2", "measure.search_windows=2",
    "measure.scored=8", "measure.heads=1", "only_times=[2]", "fit={steps=1, batch=1}",
]  # fmt: skip


def settings_of(*changes: str) -> list[str]:
    return [word for change in (*SMALL_STUDY, *changes) for word in ("--set", change)]


@pytest.mark.slow
def test_a_study_trains_models_and_makes_the_table(folder: Path, tmp_path: Path, call: Callable[..., str]) -> None:
    words = settings_of(
        f"data.context={CONTEXT}", "data.validation_tokens=64", "data.passkey_share=0", "training.tokens=512",
        "training.batch_tokens=128", "measure.trials=0",
    )  # fmt: skip
    command = ("study", "headscale-small", "--corpus", folder / "corpus", "--out", tmp_path / "s", "--device", "cpu")
    said = call(*command, *words)
    assert "head-scale" in said.lower() or "headscale" in said.lower()
    rows = read_rows(tmp_path / "s/seed-1/table/perplexity.jsonl")
    assert {row["context"] for row in rows} == {CONTEXT, 2 * CONTEXT}
    pair = [read_json(tmp_path / "s/seed-1" / each / "run.json") for each in ("none", "rotary")]
    assert pair[0]["encoding_of_each_layer"] == ["none"] and pair[1]["encoding_of_each_layer"] == ["rotary"]
    assert pair[1]["encoding_resolved"]["rotary"]["rotated_entries"] == 8, "all of a head, as in Llama"
    heads = read_rows(tmp_path / "s/seed-1/table/heads.jsonl")
    assert len(heads) == len({row["line"] for row in rows}) * 2 * 1 * 2
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*") if path.is_file()}
    assert call(*command, *words) == said
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed <= {"table.md", "lock", "table.json"}, "what is done is not done again"
    # The models are given to another study, which trains none.
    given = [word for name in ("none", "rotary") for word in ("--model", f"{name}={tmp_path}/s/seed-1/{name}")]
    again = call("study", "headscale-small", *given, "--out", tmp_path / "given", "--device", "cpu", *words)
    assert again.replace("given", "s") == said
    assert not (tmp_path / "given/tokens").exists() and not (tmp_path / "given/seed-1/none").exists()
    other = read_rows(tmp_path / "given/seed-1/table/perplexity.jsonl")
    assert [row["loss"] for row in other] == [row["loss"] for row in rows]


@pytest.mark.slow
def test_a_study_of_seeds_and_a_grid(folder: Path, tmp_path: Path, call: Callable[..., str]) -> None:
    text = f"""
summary = "What a seed and a wider model change."
seeds = [1, 2]
[models.rotary]
encoding = "rotary"
[grid]
"model.width" = [32, 48]
[data]
context = {CONTEXT}
vocabulary = 300
validation_tokens = 64
[training]
tokens = 512
batch_tokens = 128
validations = 1
[measure]
times = [1, 1.5, 2]
windows = 2
scored = 8
trials = 0
heads = 0
[[lines]]
name = "rotary"
model = "rotary"
[[lines]]
name = "yarn for {{times}}x"
model = "rotary"
times = [2]
extensions = [{{ name = "yarn", factor = "times" }}]
"""
    (tmp_path / "mine.toml").write_text(text)
    given = ("--set", "model.layers=1", "--set", "model.heads=2", "--set", "model.key_value_heads=1", "--device", "cpu")
    command = ("study", tmp_path / "mine.toml", "--corpus", folder / "corpus", "--out", tmp_path / "out", *given)
    rows = json.loads(call(*command, "--json"))
    assert {(row["study"], row["seed"]) for row in rows} == {
        (f"mine, width={width}", seed) for width in (32, 48) for seed in (1, 2)
    }
    assert {row["context"] for row in rows} == {32, 48, 64} and {row["line"] for row in rows} == {
        "rotary",
        "yarn for 2x",
    }
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tokens", "table.md", "width=32", "width=48"}
    (tmp_path / "page").mkdir()
    call("report", tmp_path / "out", "--out", tmp_path / "page/p.html")
    page = (tmp_path / "page/p.html").read_text()
    assert "mine, width=32" in page and "mine, width=48" in page and "Means of 2 seeds" in page


@pytest.mark.slow
def test_a_study_from_a_prepared_folder(folder: Path, tmp_path: Path, call: Callable[..., str]) -> None:
    """No texts are needed any more: neither for training with passkey rows, nor for any line of the table."""
    prepared = tmp_path / "prepared"
    prepare_at(Corpus(folder / "corpus"), LanguageData(vocabulary=300), prepared, lambda text: None)
    words = settings_of(
        "data.context=128", "data.validation_tokens=128", "data.passkey_share=0.25", "training.tokens=1024",
        "training.batch_tokens=512", "measure.depths=2", "measure.trials=1",
    )  # fmt: skip
    command = ("study", "headscale-small", "--corpus", prepared, "--out", tmp_path / "s", "--device", "cpu")
    assert "Passkey accuracy" in call(*command, *words)
    assert not (tmp_path / "s/tokens").exists()
    assert "| head-scale for 2x |" in (tmp_path / "s/table.md").read_text()
    assert {row["length"] for row in read_rows(tmp_path / "s/seed-1/table/passkey.jsonl")} == {128, 256}
    fits = {path.parent.name.partition("~")[0]: read_json(path)["settings"] for path in tmp_path.rglob("fit.json")}
    assert fits["head-scale_for_2x"]["passkey_share"] == 0.25, "as in training"
    few = ("--context", "128", "--windows", 2, "--scored", 8, "--device", "cpu", "--json")
    ways = [(), ("--corpus", prepared), ("--store", prepared)]
    found = [json.loads(call("perplexity", tmp_path / "s/seed-1/none", *way, *few)) for way in ways]
    assert found[0] == found[1] == found[2]
    prepare_at(Corpus(folder / "corpus"), LanguageData(vocabulary=290), tmp_path / "other", lambda text: None)
    with pytest.raises(UserError, match="tokens of another tokenizer"):
        call("perplexity", tmp_path / "s/seed-1/none", "--corpus", tmp_path / "other", *few)


def test_a_study_that_cannot_be_is_an_error_before_anything_is_trained(folder: Path, tmp_path: Path) -> None:
    for words, said in [
        (("headscale-smal",), "did you mean 'headscale-small'"),
        (("headscale-small", "--set", "training.batch_tokens=100"), "multiple of the context"),
        (("headscale-small", "--set", "models={a={}}"), "models.a: needs an encoding"),
        (("headscale-small", "--set", "measure.times=[2]"), "times must hold 1"),
        (("headscale-small", "--set", "lines=[]"), "lines must be one table or more"),
        (
            ("headscale-small", "--set", "lines=[{name='a', model='b'}]"),
            "no model is called 'b'; there are none, rotary",
        ),
        (("headscale-small", "--set", "grid.seed=[1]"), "grid.seed must be a setting of one of model"),
        (("headscale-small", "--set", "seeds=[1,1]"), "seeds must be different numbers"),
        (("headscale-small", "--model", "third=x"), "the study has no model 'third'"),
        (("headscale-small", "--model", "none"), "must look like rotary=runs/rope"),
    ]:
        out = tmp_path / "x"
        with pytest.raises(UserError, match=re.escape(said)):
            CliRunner().invoke(
                app,
                ["extend", "study", *words, "--corpus", str(folder / "corpus"), "--out", str(out)],
                catch_exceptions=False,
            )
        assert not out.exists()


LINE_ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "two lengths": ({"times": [2, 4]}, "lines[1].name must have {times} in it"),
    "no length": ({"fit": {}}, "lines[1] (a) must say with times for which lengths"),
    "best of nothing": ({"extensions": [{"name": "uniform-scale", "constant": "best"}]}, "must say with times"),
    "a factor of nothing": ({"extensions": [{"name": "yarn", "factor": "times"}]}, "must say with times for which"),
    "below": ({"times": [-2]}, "times must be above 0"),
    "no extension": ({"extensions": [{"name": "yearn", "factor": 2}]}, "did you mean 'yarn'"),
    "no table": ({"extensions": ["yarn"]}, "extensions must be tables like"),
    "no such setting": ({"extensions": [{"name": "yarn", "factr": 2}]}, "unknown setting"),
    "a length in a fit": ({"times": [2], "fit": {"length": 3}}, "fit.length is 'times' of the line"),
    "a wrong fit": ({"times": [2], "fit": {"stpes": 3}}, "unknown setting 'lines[1].fit.stpes'"),
    "fit of both": (
        {"times": [2], "fit": {"method": "entropy", "scales": "layer"}},
        "by entropy every head has a scale",
    ),
    "a name": ({"name": "a/b"}, "lines[1].name must be a plain word"),
}


@pytest.mark.parametrize("name", LINE_ERRORS)
def test_a_wrong_line_is_refused_by_its_number(name: str) -> None:
    table, said = LINE_ERRORS[name]
    with pytest.raises(UserError, match=re.escape(said)):
        read_lines([{"name": "a", "model": "m", **table}], ["m"])
