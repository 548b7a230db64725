"""Evaluation driven by doubles that know the answer, and one pass against real generation."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from lengthwise import registry
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences, render
from lengthwise.data.tokens import SymbolTokens, Tokens
from lengthwise.evaluation.answers import AnswerVerdict, judge_text
from lengthwise.evaluation.decoding import Decoding
from lengthwise.evaluation.exact import judge
from lengthwise.evaluation.generate import MARGIN, generate
from lengthwise.evaluation.test_set import test_set as make_test_set
from lengthwise.evaluation.verdicts import verdicts_by_bucket
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.seeding import stream
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.optimizer import corrections
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import TrainingState
from lengthwise.training.update import Updater

DATA = DataConfig(train_lengths=(2, 4), test_lengths=(5, 8), examples=0, test_per_length=20)
END = 1


def targets_of(sequences: Sequences) -> np.ndarray:
    rows = zip(sequences.tokens, sequences.prompt, sequences.size, strict=True)
    return np.concatenate([tokens[prompt:size] for tokens, prompt, size in rows])


@pytest.mark.parametrize("name", [name for name in registry.tasks.names() if name != "file"])
def test_an_oracle_is_always_right(name: str) -> None:
    sequences = make_test_set(make_task(name), DataConfig(test_per_length=20))
    outcomes = judge(targets_of(sequences), sequences, END)
    assert outcomes.correct_E.all()
    assert (outcomes.right_tokens_E == outcomes.tokens_E).all()
    for row in outcomes.by_bucket():
        assert row["correct"] == row["n"] > 0
        assert row["wrong_symbol"] == row["stopped_early"] == row["ran_on"] == 0


def test_a_guesser_scores_chance() -> None:
    task = make_task({"name": "copy.repeat", "symbols": 4})
    sequences = render(task, task.examples(3, 4000, stream(1)), Scratchpad())
    guessed = task.first_symbol + stream(0).integers(4, size=len(sequences))
    predicted = targets_of(sequences)
    predicted[predicted != END] = np.repeat(guessed, sequences.size - sequences.prompt - 1)
    assert judge(predicted, sequences, END).correct_E.mean() == pytest.approx(task.chance(3), abs=0.02)


def test_first_error_decides_the_kind() -> None:
    """One example, target a b c <end>; each prediction fails in its own way."""
    tokens = np.array([[9, 5, 6, 7, END]] * 6)
    sequences = Sequences(tokens, np.full(6, 1), np.full(6, 5), np.full(6, 3))
    predicted = np.array(
        [
            [5, 6, 7, END],  # right
            [5, 8, 7, END],  # wrong symbol
            [5, END, 7, END],  # stopped early
            [5, 6, 7, 7],  # ran on
            [8, END, 7, 7],  # wrong symbol first
            [END, 8, 7, END],  # stopped early first
        ]
    )
    outcomes = judge(predicted.ravel(), sequences, END)
    assert outcomes.correct_E.tolist() == [True, False, False, False, False, False]
    assert outcomes.wrong_symbol_E.tolist() == [False, True, False, False, True, False]
    assert outcomes.stopped_early_E.tolist() == [False, False, True, False, False, True]
    assert outcomes.ran_on_E.tolist() == [False, False, False, True, False, False]
    assert outcomes.first_error_E.tolist() == [4, 1, 1, 3, 0, 0]
    assert outcomes.right_tokens_E.tolist() == [4, 3, 3, 3, 1, 2]
    (row,) = outcomes.by_bucket()
    assert row["correct"] + row["wrong_symbol"] + row["stopped_early"] + row["ran_on"] == row["n"] == 6


def train(fleet: Fleet, recipe: TrainingConfig, data: TrainingData, row_width: int) -> None:
    """A lone model, at a constant rate."""
    updater = Updater(fleet, recipe, TrainingState.begin(fleet.matrix_NW))
    rate_N = torch.tensor([recipe.learning_rate])
    for step in range(recipe.steps):
        batch = Batch.of(collate([data.slice(step * recipe.batch, recipe.batch)], 0, row_width), 0, fleet.device)
        updater.step(batch, None, rate_N, torch.tensor(corrections(recipe, step)))


FIRST = ("none", "sinusoidal", "learned", "t5", "alibi", "rotary")
LATER = ("fox", "path", "cope", "stick-breaking")
"""One of each kind; that a cache changes nothing is in the contract of all."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "style"), [*((e, "t5") for e in (*FIRST, *LATER)), *((e, "llama") for e in FIRST)]
)
def test_one_pass_agrees_with_generation_on_half_trained_models(encoding: str, style: str) -> None:
    """Trained just long enough to be right sometimes, so that agreement means something."""
    task = make_task({"name": "copy.repeat", "symbols": 8})
    recipe = TrainingConfig(steps=120, batch=16, learning_rate=5e-3)
    config = ModelConfig(layers=2, width=32, heads=4, style=style)  # type: ignore[arg-type]
    fleet = Fleet(build(config, task.vocabulary.rows, [{"name": encoding}], Lengths(20, 40)), 1, torch.device("cpu"))
    fleet.initialize([1])
    train(fleet, recipe, TrainingData(task, DATA, 1), row_width=22)
    sequences = make_test_set(task, DATA)
    batch = Batch.of(collate([sequences], 0, 40), 0, fleet.device)  # two of the shorter ones in a row
    outcomes = judge(fleet.predictions(fleet.matrix_NW, batch)[0].numpy(), sequences, END)
    fleet.model.load_state_dict(fleet.row(fleet.matrix_NW, 0), strict=True)
    prompts = [tokens[:prompt] for tokens, prompt in zip(sequences.tokens, sequences.prompt, strict=True)]
    golds = [t[p:s] for t, p, s in zip(sequences.tokens, sequences.prompt, sequences.size, strict=True)]
    written = generate(fleet.model, prompts, SymbolTokens(task.vocabulary), budget=max(map(len, golds)) + 3)
    fast = Decoding(fleet.model).generate(
        prompts, SymbolTokens(task.vocabulary), [max(map(len, golds)) + 3] * len(golds)
    )
    assert all(np.array_equal(*pair) for pair in zip(fast, written, strict=True))
    generated = np.array([np.array_equal(w, g) for w, g in zip(written, golds, strict=True)])
    np.testing.assert_array_equal(generated, outcomes.correct_E)
    assert 0 < generated.mean() < 1


@pytest.mark.slow
def test_what_follows_the_first_error_is_all_that_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are those of generating everything, with some right, some wrong and some unreadable."""
    task, scratchpad = make_task("parity"), Scratchpad("minimal")
    data = DataConfig(train_lengths=(2, 5), test_lengths=(6, 7), examples=0, test_per_length=10, scratchpad="minimal")
    recipe = TrainingConfig(steps=450, batch=16, learning_rate=3e-3, decay_norms=False)
    config = ModelConfig(layers=2, width=32, heads=4)
    fleet = Fleet(build(config, task.vocabulary.rows, [{"name": "none"}], Lengths(120, 120)), 1, torch.device("cpu"))
    fleet.initialize([1])
    untrained = fleet.matrix_NW.clone()
    train(fleet, recipe, TrainingData(task, data, 1), row_width=64)
    sequences = make_test_set(task, data)
    batch = Batch.of(collate([sequences], 0, 64), 0, fleet.device)
    asked: list[int] = []
    decoding = Decoding(fleet.model)
    decoding.together, continued = 7, decoding.generate

    def counted(prompts: Sequence[np.ndarray], tokens: Tokens, budgets: Sequence[int]) -> list[np.ndarray]:
        asked.append(len(prompts))
        return continued(prompts, tokens, budgets)

    monkeypatch.setattr(decoding, "generate", counted)
    kinds: set[AnswerVerdict] = set()
    for weights in (untrained, fleet.matrix_NW):  # the first writes what nobody can read, whatever the machine
        asked.clear()
        predicted = fleet.predictions(weights, batch)[0].numpy()
        outcomes = judge(predicted, sequences, END)
        fleet.model.load_state_dict(fleet.row(weights, 0), strict=True)
        expected: dict[int, Counter[AnswerVerdict]] = {}
        for bucket, tokens, prompt, size in zip(
            sequences.buckets, sequences.tokens, sequences.prompt, sequences.size, strict=True
        ):
            gold = tokens[prompt:size]
            (text,) = generate(fleet.model, [tokens[:prompt]], SymbolTokens(task.vocabulary), len(gold) + MARGIN)
            expected.setdefault(int(bucket), Counter())[judge_text(task, scratchpad, text, gold)] += 1
        decoding.refresh()
        found = verdicts_by_bucket(
            decoding, task, SymbolTokens(task.vocabulary), scratchpad, sequences, predicted, outcomes
        )
        assert found == expected
        assert sum(asked) == int((~outcomes.correct_E & ~outcomes.stopped_early_E).sum()) > 7
        kinds.update(*found.values())
    assert len(kinds) >= 3


def test_generation_stops_at_the_end_and_at_the_budget() -> None:
    task = make_task("copy.words")
    model = build(ModelConfig(layers=1, width=16, heads=2), task.vocabulary.rows, [{"name": "none"}], Lengths(9, 9))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    never_ending = generate(model, [np.array([5, 6]), np.array([5])], SymbolTokens(task.vocabulary), budget=4)
    assert [w.tolist() for w in never_ending] == [[0] * 4, [0] * 4]
    with torch.no_grad():  # the end's embedding alone has something in common with every state
        for parameter in model.parameters():
            parameter.fill_(1.0 if parameter.ndim == 1 else 0.0)
        model.embedding.weight.fill_(0.1)
        model.embedding.weight[END] = 1.0
    assert [
        w.tolist() for w in generate(model, [np.array([5, 6]), np.array([5])], SymbolTokens(task.vocabulary), 4)
    ] == [[END]] * 2
