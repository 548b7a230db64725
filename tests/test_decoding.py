"""Fast decoding writes what the plain one writes, token by token; and it asks, drops, falls back where it should.

"As on a GPU" is with rounded shapes and steps that are recorded and replayed: see `recorded_graphs`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import slow
from decoding_cases import CONFIGS, MET, ROWS, Ends, ends_apart, gaps, model_of, prompts_of
from recorded_graphs import RecordedGraph, as_on_a_gpu, record
from test_encoding_contract import TABLES, label
from test_extension import BY_LENGTH, SETTINGS, TRAINED, extension_called, make_model

import lengthwise as lw
from lengthwise import registry
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import render
from lengthwise.data.tokens import Tokens
from lengthwise.encodings.choice import read_encoding
from lengthwise.encodings.contribution import Contribution, Scores
from lengthwise.encodings.encoding import AttentionLayout, Encoding
from lengthwise.errors import UserError
from lengthwise.evaluation import decoding as fast
from lengthwise.evaluation import decoding_buffers
from lengthwise.evaluation.decoding import Decoding
from lengthwise.evaluation.decoding_buffers import DecodingBuffers
from lengthwise.evaluation.generate import generate
from lengthwise.model.build import Lengths, build
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.placements.choosing import make_placement
from lengthwise.presets import PRESETS
from lengthwise.study import study_from
from lengthwise.tasks.choosing import make_task
from lengthwise.training.evaluator import Evaluator
from lengthwise.training.fleet import Fleet

LLAMA = CONFIGS["llama-grouped"]
BUDGET = 30


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch)
    monkeypatch.setattr(fast, "SLOTS", 8)  # so that short texts, too, meet several shapes


def lists(texts: Sequence[np.ndarray]) -> list[list[int]]:
    return [text.tolist() for text in texts]


def assert_both_ways(
    model: Decoder, tokens: Tokens | None = None, prompts: Any = None, budget: int = BUDGET, captured: bool = True
) -> None:
    """On a CPU, and as on a GPU: twice, since the second time graphs are there already."""
    prompts = prompts_of(40) if prompts is None else prompts
    tokens = tokens or ends_apart(model, prompts, budget)
    expected = lists(generate(model, prompts, tokens, budget))
    budgets = [budget] * len(prompts)
    assert lists(Decoding(model).generate(prompts, tokens, budgets)) == expected
    decoding = as_on_a_gpu(model, None, pytest.fail if captured else lambda text: None)
    for _ in range(2):
        assert lists(decoding.generate(prompts, tokens, budgets)) == expected
    assert decoding.way == ("captured" if captured else "launched")
    assert decoding.graphs is not None and (decoding.graphs.replayed > 8) == captured


# The same texts


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("table", TABLES, ids=label)
def test_every_encoding_writes_the_same(table: dict[str, Any]) -> None:
    assert_both_ways(model_of([table], LLAMA))


SCHEDULES: dict[str, Any] = {
    **{name: preset.layers for name, preset in PRESETS.items()},
    "mixers between": ["gated-recurrence", "rotary", "mamba2"],
    "several methods": [["t5", "window", "ssmax", "gated-output"], ["fox", "selective-rotary", "entmax", "exclusive"]],
    "several kinds": ["learned", ["alibi", "sink"], ["path", "cope"]],
}


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    "name", [slow(name) if name in ("path-fox", "several methods", "several kinds") else name for name in SCHEDULES]
)
def test_every_schedule_writes_the_same(name: str) -> None:
    layers = read_encoding(SCHEDULES[name]).resolved().layers
    assert_both_ways(model_of(layers, replace(LLAMA, layers=4)))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    "name", [slow(name) if name in ("mamba2", "rwkv7") else name for name in registry.mixers.names()]
)
def test_every_mixer_writes_the_same(name: str) -> None:
    """Alone, with nothing but its state."""
    assert_both_ways(model_of([{"name": name}], LLAMA))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", ["rotary", slow("fox"), slow("rwkv7")])
def test_loops_write_the_same(name: str) -> None:
    assert_both_ways(model_of([{"name": name}], CONFIGS["looped"]))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", registry.placements.names())
def test_positions_that_count_something_else_write_the_same(name: str) -> None:
    """Generated tokens stand where consecutive ones would, in what the positions of the placement count."""
    counting = make_placement(name).counting
    encodings = {"whole": "learned", "fractions": "alibi", "levels": "bilevel"}
    assert_both_ways(model_of([{"name": encodings[counting.kind]}], LLAMA, counting=counting))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", SETTINGS)
def test_extended_models_write_the_same_or_are_refused_alike(name: str) -> None:
    """Up to the trained length and beyond; what `generate` refuses is refused with the same words."""
    trained = make_model({"name": "rotary", "fraction": 0.5}, style="llama-grouped")
    model = lw.extended(trained, [extension_called(name)], context=64)
    short, long = prompts_of(12, longest=6), prompts_of(20, longest=24)
    # The factors of LongRoPE come from the host in every step: its steps are launched.
    assert_both_ways(model, prompts=short, budget=TRAINED - 6, captured=name != "longrope")
    if name not in BY_LENGTH:
        assert_both_ways(model, prompts=long)
        return
    with pytest.raises(UserError, match="a cache keeps them as they were") as refused:
        generate(model, long, Ends(), BUDGET)
    for decoding in (Decoding(model), as_on_a_gpu(model)):
        with pytest.raises(UserError, match=re.escape(str(refused.value))):
            decoding.generate(long, Ends(), [BUDGET] * len(long))


@pytest.mark.usefixtures("recorded")
def test_published_tokens_with_padding_on_the_left_write_the_same() -> None:
    task = make_task("copy.words")
    study = study_from(
        {
            "name": "pieces",
            "summary": "",
            "tasks": ["copy.words"],
            "encodings": ["t5"],
            "seeds": [1],
            "model": {"layers": 2, "width": 32, "heads": 4, "style": "llama"},
            "data": {"tokens": "published"},
        }
    )
    run = study.runs()[0]
    tokens = run.make_tokens()
    model = build(run.model, tokens.rows, [{"name": "t5"}], Lengths(60, 120))
    initialize(model, 3)
    shown = []
    for length in (2, 5, 9, 14):
        examples = task.examples(length, 5, np.random.default_rng(length))
        sequences = render(task, examples, Scratchpad(), tokens=tokens)
        shown += [row[:size] for row, size in zip(sequences.tokens, sequences.prompt, strict=True)]
    assert len({len(prompt) for prompt in shown}) == 4
    assert_both_ways(model, tokens, shown, budget=20)


@pytest.mark.parametrize("name", ["none", "rotary", "gated-output", "window", "mamba2"])
def test_in_bf16_texts_differ_where_two_tokens_are_as_likely(name: str) -> None:
    """Rounded to 8 bits, logits are often equal; which of two is larger then depends on the order of sums."""
    model, prompts = model_of([{"name": name}], LLAMA), prompts_of(40)
    tokens = ends_apart(model, prompts, BUDGET)
    decoding = Decoding(model, "bf16")
    decoding.few_shapes = True
    assert decoding.model.embedding.weight.dtype == torch.bfloat16 and model.embedding.weight.dtype == torch.float32
    expected = generate(decoding.model, prompts, tokens, BUDGET)
    found = decoding.generate(prompts, tokens, [BUDGET] * len(prompts))
    apart = gaps(decoding.model, prompts, found, expected)
    assert len(apart) < 20 and max(apart, default=0) < 0.05


# Where texts end


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("captured", [False, True])
def test_rows_are_dropped_as_they_end(monkeypatch: pytest.MonkeyPatch, captured: bool) -> None:
    """One that never ends goes on alone, in a batch that shrank around it; and the host looks every few tokens only."""
    model, prompts = model_of([{"name": "learned"}], LLAMA), prompts_of(100)
    budget = MET - 12
    tokens = ends_apart(model, prompts, budget)
    expected = generate(model, prompts, tokens, budget)
    lengths = [len(text) for text in expected]
    assert len(set(lengths)) > 20 and budget in lengths and np.median(lengths) < budget / 2
    shapes, looks = [], []
    step, ended = DecodingBuffers.step, DecodingBuffers.ended

    def stepped(self: DecodingBuffers, rows: int, slots: int) -> None:
        shapes.append((rows, slots))
        step(self, rows, slots)

    def looked(self: DecodingBuffers, rows: int) -> np.ndarray:
        looks.append(rows)
        return ended(self, rows)

    monkeypatch.setattr(DecodingBuffers, "step", stepped)
    monkeypatch.setattr(DecodingBuffers, "ended", looked)
    decoding = as_on_a_gpu(model, None, pytest.fail) if captured else Decoding(model)
    found = decoding.generate(prompts, tokens, [budget] * len(prompts))
    assert lists(found) == lists(expected)
    assert len(looks) == -(-(budget - 1) // fast.LOOK_EVERY)
    assert looks == sorted(looks, reverse=True) and looks[0] >= 100 and looks[-1] < 12
    assert len(set(looks)) >= 4
    rows, slots = zip(*shapes, strict=True)
    if captured:  # a launched step and a captured one of each shape; all others are replayed without our Python
        assert all(shapes.count(shape) <= 2 for shape in shapes) and len(shapes) < budget - 1
        assert decoding.graphs is not None
        assert {*rows} <= {128, 96, 64, 48, 32, 24, 16, 12, 8} and looks[-1] == fast.FEWEST_ROWS
        assert all(each % fast.SLOTS == 0 for each in slots)
        assert set(decoding.graphs.graphs) == set(shapes)
    else:
        assert len(shapes) == budget - 1 and list(slots) == list(range(13, 12 + budget))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("captured", [False, True])
def test_each_row_has_its_own_budget(captured: bool) -> None:
    model, prompts = model_of([{"name": "rotary"}], LLAMA), prompts_of(50)
    tokens = ends_apart(model, prompts, BUDGET)
    budgets = np.random.default_rng(3).integers(-1, BUDGET + 1, size=len(prompts)).tolist()
    budgets[:3] = [0, 1, BUDGET]
    whole = generate(model, prompts, tokens, BUDGET)
    decoding = as_on_a_gpu(model) if captured else Decoding(model)
    found = decoding.generate(prompts, tokens, budgets)
    assert lists(found) == [text[: max(0, most)].tolist() for text, most in zip(whole, budgets, strict=True)]
    assert lists(decoding.generate(prompts[:2], tokens, [0, 0])) == [[], []]
    assert decoding.generate([], tokens, []) == []
    assert lists(decoding.generate(prompts[2:3], tokens, [BUDGET])) == [whole[2].tolist()]


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("captured", [False, True])
def test_a_table_of_positions_ends_each_row_where_it_ends(captured: bool) -> None:
    """As `generate` of that row alone: up to one token more than there are positions left, or none."""
    model = model_of([{"name": "learned", "rows": 20}], LLAMA)
    prompts = [*prompts_of(20, longest=19), *(np.full(size, 5) for size in (18, 19, 20, 21, 22))]
    decoding = as_on_a_gpu(model, None, pytest.fail) if captured else Decoding(model)
    found = lists(decoding.generate(prompts, Ends(), [BUDGET] * len(prompts)))
    assert found == [generate(model, [prompt], Ends(), BUDGET)[0].tolist() for prompt in prompts]
    assert [len(text) for text in found[-5:]] == [3, 2, 1, 0, 0]
    alike = [prompt for prompt in prompts if len(prompt) == len(prompts[0])]
    assert lists(generate(model, alike, Ends(), BUDGET)) == lists(
        decoding.generate(alike, Ends(), [BUDGET] * len(alike))
    )


@pytest.mark.usefixtures("recorded")
def test_nothing_of_earlier_texts_is_left() -> None:
    """Weights that are no numbers leave NaN in the cache; other weights come, in the same memory and graphs."""
    model, prompts = model_of([{"name": "t5"}], LLAMA), prompts_of(30)
    tokens = ends_apart(model, prompts, BUDGET)
    budgets = [BUDGET] * len(prompts)
    for precision in (None, "bf16"):
        decoding = as_on_a_gpu(model, precision, pytest.fail)
        good = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(torch.nan)
        decoding.refresh()
        decoding.generate(prompts, tokens, budgets)
        buffers, graphs = decoding.buffers, dict(decoding.graphs.graphs) if decoding.graphs else {}
        assert buffers is not None and bool(buffers.cache.values[0].isnan().any())
        model.load_state_dict(good)
        decoding.refresh()
        found = decoding.generate(prompts, tokens, budgets)
        assert lists(found) == lists(as_on_a_gpu(model, precision).generate(prompts, tokens, budgets))
        assert decoding.buffers is buffers and decoding.graphs is not None
        assert all(decoding.graphs.graphs[shape] is graph for shape, graph in graphs.items() if graph is not None)
    assert lists(Decoding(model).generate(prompts, tokens, budgets)) == lists(generate(model, prompts, tokens, BUDGET))


def test_a_fleet_writes_in_its_own_precision() -> None:
    model = build(LLAMA, ROWS, [{"name": "t5"}], Lengths(32, 32))
    fleet = Fleet(model, 2, torch.device("cpu"), "bf16")
    fleet.initialize([1, 2])
    evaluator = Evaluator(fleet, [], [])
    for row in (1, 0):
        model.load_state_dict(fleet.row(fleet.matrix_NW, row))
        evaluator.decoding.refresh()
        weights = dict(evaluator.decoding.model.named_parameters())
        for name, wanted in fleet.named(fleet.read_NW).items():
            assert weights[name].dtype == torch.bfloat16 and torch.equal(weights[name], wanted[row])
    assert model.embedding.weight.dtype == torch.float32


# Memory


@pytest.mark.usefixtures("recorded")
def test_prompts_are_continued_in_parts_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = model_of([{"name": "fox"}], LLAMA), prompts_of(60, longest=30)
    expected = lists(generate(model, prompts, Ends(), BUDGET))
    decoding = as_on_a_gpu(model)
    budgets = [BUDGET] * len(prompts)
    decoding.generate(prompts, Ends(), budgets)
    assert decoding.parts == [60]
    # Of a row: keys and values of 2 heads of 16 in 2 layers, 4 gates in each, a position and a segment.
    row = 64 * (2 * 2 * (2 * 16 + 2) + 2 * 4) * 4
    between = 4 * (3 * ROWS + 8 * 4 * 64 + 16 * 64 + 4 * 80 + 2 * 64 * 64)
    monkeypatch.setattr(fast, "CPU_MEMORY", 25 * (row + between))
    for captured in (decoding, Decoding(model)):
        captured._forget()
        assert lists(captured.generate(prompts, Ends(), budgets)) == expected
        assert sum(captured.parts) == 60
        assert captured.parts[0] == (24 if captured is decoding else captured.parts[0]) and len(captured.parts) >= 3
    monkeypatch.setattr(fast, "CPU_MEMORY", 1)
    assert lists(decoding.generate(prompts[:5], Ends(), budgets[:5])) == expected[:5]
    assert decoding.parts == [1] * 5, "one row at least"


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("captured", [False, True])
def test_what_does_not_fit_is_tried_with_half(monkeypatch: pytest.MonkeyPatch, captured: bool) -> None:
    model, prompts = model_of([{"name": "none"}], LLAMA), prompts_of(60)
    expected = lists(generate(model, prompts, Ends(), BUDGET))
    step, most = DecodingBuffers.logits, 16

    def full(self: DecodingBuffers, rows: int, slots: int) -> torch.Tensor:
        if rows > most:
            raise torch.cuda.OutOfMemoryError("full")
        return step(self, rows, slots)

    monkeypatch.setattr(DecodingBuffers, "logits", full)
    decoding = as_on_a_gpu(model, None, pytest.fail) if captured else Decoding(model)
    assert lists(decoding.generate(prompts, Ends(), [BUDGET] * len(prompts))) == expected
    assert decoding.parts == [15] * 4
    most = 0
    with pytest.raises(torch.cuda.OutOfMemoryError):
        decoding.generate(prompts, Ends(), [BUDGET] * len(prompts))


@pytest.mark.parametrize("few_shapes", [False, True])
def test_long_prompts_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch, few_shapes: bool) -> None:
    layers = ["mamba2", "selective-rotary"]
    model = model_of([{"name": name} for name in layers], CONFIGS["looped"])
    prompts = prompts_of(20, longest=30)
    monkeypatch.setitem(decoding_buffers.LARGEST_PASS, "cpu", 3 * 30 * 4 * 64)
    decoding = Decoding(model)
    decoding.few_shapes = few_shapes
    assert lists(decoding.generate(prompts, Ends(), [9] * 20)) == lists(generate(model, prompts, Ends(), 9))


# What is left to the plain path


class CountsKeys(Encoding):
    """Takes the number of keys for the length of the sequence, which free slots of a cache make wrong."""

    name = "counts-keys"

    def contribute(self, layout: AttentionLayout) -> Contribution:
        keys = layout.key_positions_BS.shape[1]
        return Contribution(scale=1 / keys, distance_bias=lambda d: -0.3 * d.float().expand(4, *d.shape))


class NeedsLast(Encoding):
    """Fails where the last key is not the query's own."""

    name = "needs-last"

    def contribute(self, layout: AttentionLayout) -> Contribution:
        def score(scores: Scores) -> torch.Tensor:
            if not bool(scores.visible_BTS[..., -1].any()):
                raise ValueError("the last key is of no use\nand so on")
            return scores.logits_BHTS

        return Contribution(score=score)


class AsksHost(Encoding):
    """Right, but asks the host in every step."""

    name = "asks-host"

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(scale=1.0 + 0.1 * int(layout.query_positions_BT.max()))


def outside(encoding: type[Encoding], layers: int = 2) -> Decoder:
    """A model with an encoding that somebody brought."""
    like = model_of([{"name": "none"}], LLAMA)
    model = Decoder(LLAMA, ROWS, [encoding(None, like.encoding_at(0).geometry)] * layers)
    model.load_state_dict(like.state_dict())
    return model


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("encoding", "why"),
    [
        (CountsKeys, r"with free slots in the cache its logits are [\d.]+ of their spread apart"),
        (NeedsLast, r"a step with free slots in the cache fails \(ValueError: the last key is of no use\)"),
    ],
)
def test_what_free_slots_would_change_is_left_to_the_growing_cache(encoding: type[Encoding], why: str) -> None:
    model, prompts, notes = outside(encoding), prompts_of(40), []
    tokens = ends_apart(model, prompts, BUDGET)
    expected = lists(generate(model, prompts, tokens, BUDGET))
    decoding = as_on_a_gpu(model, None, notes.append)
    for _ in range(2):
        assert lists(decoding.generate(prompts, tokens, [BUDGET] * len(prompts))) == expected
    assert decoding.way == "eager" and len(notes) == 1
    assert notes[0] == f"texts are generated with a growing cache, which is slower: {decoding.why_eager}"
    assert re.fullmatch(why, decoding.why_eager)
    alone = Decoding(model)  # steps on a CPU have no free slots
    assert lists(alone.generate(prompts, tokens, [BUDGET] * len(prompts))) == expected and alone.way == "launched"
    budgets = np.random.default_rng(3).integers(1, BUDGET + 1, size=len(prompts)).tolist()
    decoding.together = 7
    found = decoding.generate(prompts, tokens, budgets)
    assert lists(found) == [text[:most] for text, most in zip(expected, budgets, strict=True)]
    assert decoding.parts == [7] * 5 + [5]


@pytest.mark.usefixtures("recorded")
def test_where_tables_end_rows_that_are_left_to_the_growing_cache_end_by_themselves() -> None:
    class Ended(CountsKeys):
        last_position = 19

    model, prompts = outside(Ended), prompts_of(30, longest=19)
    decoding = as_on_a_gpu(model)
    found = decoding.generate(prompts, Ends(), [BUDGET] * len(prompts))
    assert decoding.way == "eager"
    assert lists(found) == [generate(model, [prompt], Ends(), BUDGET)[0].tolist() for prompt in prompts]


@pytest.mark.usefixtures("recorded")
def test_what_cannot_be_captured_is_launched() -> None:
    model, prompts, notes = outside(AsksHost), prompts_of(40), []
    tokens = ends_apart(model, prompts, BUDGET)
    decoding = as_on_a_gpu(model, None, notes.append)
    for _ in range(2):
        found = decoding.generate(prompts, tokens, [BUDGET] * len(prompts))
        assert lists(found) == lists(generate(model, prompts, tokens, BUDGET))
    assert decoding.way == "launched" and not decoding.why_eager
    (note,) = notes
    assert note.startswith("cannot capture steps of generation here, so they are slower (RuntimeError: operation not")


@pytest.mark.usefixtures("recorded")
def test_a_recorded_step_keeps_what_python_knew() -> None:
    """The double itself: a step that wrote where Python says would write there again and again."""
    rows, graph, place = torch.zeros(4), RecordedGraph(), 0

    def step() -> None:
        rows[place] += 1

    with torch.cuda.graph(graph, pool=None, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
        step()
    for _ in range(3):
        graph.replay()
        place += 1
    assert rows.tolist() == [3, 0, 0, 0]
