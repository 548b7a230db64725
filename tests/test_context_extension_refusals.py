"""Tables of a matched pair: what was cut off is measured again, what cannot be is refused before anything is done."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.context_extension import extension_study as study_module
from lengthwise.context_extension import table as table_module
from lengthwise.context_extension.extension_study import (
    DocumentsOfModels,
    load_extension_study,
    run_extension_study,
)
from lengthwise.context_extension.fitting_rows import TrainingWindows, choose_targets
from lengthwise.context_extension.loaded_model import LoadedModel, open_model
from lengthwise.context_extension.table import About, LineTable, MeasureSettings, reach, what_is_scored
from lengthwise.errors import UserError
from lengthwise.language.store import Documents
from lengthwise.records.files import read_rows
from lengthwise.runtime import Listener
from lengthwise.seeding import stream

CPU = torch.device("cpu")
CONTEXT = 128
WORDS = ("the", "old", "captain", "saw", "a", "small", "lamp", "near", "river", "and", "went", "home", "in", "1843")
LENGTHS = {"train": 900, "validation": 600, "test": 600}
"""Words; a word has one token or more."""
CHANGES = (
    "model={layers=1, width=16, heads=2, key_value_heads=1}", f"data.context={CONTEXT}", "data.vocabulary=300",
    "data.validation_tokens=128", "data.passkey_share=0", "training.tokens=512", "training.batch_tokens=512",
    "training.validations=1", "measure.times=[1,2]", "only_times=[2]", "measure.windows=2", "measure.search_windows=1",
    "measure.scored=8", "fit.steps=1", "fit.batch=1", "measure.depths=2", "measure.trials=1", "measure.heads=1",
    "seeds=[1]",
)  # fmt: skip


def write_corpus(place: Path, **lengths: int) -> Path:
    """A document for each split; `lengths`: words that are not the usual ones."""
    for split, words in {**LENGTHS, **lengths}.items():
        (place / split).mkdir(parents=True)
        chosen = stream(words, split).integers(len(WORDS), size=words)
        (place / split / "0.txt").write_text(" ".join(WORDS[word] for word in chosen))
    return place


def run(corpus: Path, out: Path, *changes: str) -> None:
    studies = load_extension_study("headscale-small", [*CHANGES, *changes])
    run_extension_study(studies, corpus, out, "cpu", 60.0, Listener())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study."""
    place = tmp_path_factory.mktemp("refusals")
    run(write_corpus(place / "corpus"), place / "study")
    return place / "study/seed-1"


@pytest.fixture(scope="module")
def pair(made: Path) -> tuple[LoadedModel, LoadedModel]:
    return open_model(made / "none", CPU), open_model(made / "rotary", CPU)


(STUDY,) = load_extension_study("headscale-small", CHANGES)


def table(pair: tuple[LoadedModel, LoadedModel], out: Path, **changes: Any) -> LineTable:
    models, settings = dict(zip(("none", "rotary"), pair, strict=True)), dataclasses.replace(STUDY.measure, **changes)
    about = About(STUDY.name, STUDY.summary)
    return LineTable(models, STUDY.all_lines, settings, out, DocumentsOfModels(None), about=about)


# What a crash leaves.


def keep(content: bytes, lines: int, more: int = 0) -> bytes:
    """The first lines, and so many bytes of the next."""
    whole = content.splitlines(keepends=True)
    return b"".join(whole[:lines]) + whole[lines][:more]


CUTS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "in the first row of a line": ("perplexity.jsonl", lambda content: keep(content, 2, 30)),
    "in its second row": ("perplexity.jsonl", lambda content: keep(content, 3, 30)),
    "between them": ("perplexity.jsonl", lambda content: keep(content, 3)),
    "before the end of a row": ("perplexity.jsonl", lambda content: keep(content, 4)[:-1]),
    "in the first row ever": ("perplexity.jsonl", lambda content: content[:20]),
    "in a row of keys": ("passkey.jsonl", lambda content: keep(content, 6, 30)),
    "between rows of keys": ("passkey.jsonl", lambda content: keep(content, 7)),
    "in a row of heads": ("heads.jsonl", lambda content: keep(content, 3, 30)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_a_table_that_was_cut_off_becomes_whole_again(
    name: str, made: Path, pair: tuple[LoadedModel, LoadedModel], tmp_path: Path
) -> None:
    file, cut = CUTS[name]
    whole = copied(made / "table", tmp_path)
    (tmp_path / file).write_bytes(cut(whole[file]))
    table(pair, tmp_path).run()
    assert {file: (tmp_path / file).read_bytes() for file in whole} == whole


@pytest.mark.slow
def test_a_line_without_some_of_its_rows_is_measured_again_in_its_place(
    made: Path, pair: tuple[LoadedModel, LoadedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = copied(made / "table", tmp_path)
    file, rows = tmp_path / "perplexity.jsonl", whole["perplexity.jsonl"].splitlines(keepends=True)
    file.write_bytes(b"".join([*rows[:3], *rows[4:]]))
    real, measured = table_module.perplexities, []

    def counted(*given: Any) -> Any:
        measured.append(given)
        return real(*given)

    monkeypatch.setattr(table_module, "perplexities", counted)
    table(pair, tmp_path).run()
    assert len(measured) == 1 and file.read_bytes() == whole["perplexity.jsonl"]
    assert len(read_rows(file)) == 2 * len({row["line"] for row in read_rows(file)})


def copied(table: Path, into: Path) -> dict[str, bytes]:
    """Its fits too; returns the files of rows."""
    for path in sorted(table.rglob("*")):
        if path.is_file() and path.name != "lock":
            (into / path.relative_to(table)).parent.mkdir(parents=True, exist_ok=True)
            (into / path.relative_to(table)).write_bytes(path.read_bytes())
    return {name: (table / name).read_bytes() for name in ("perplexity.jsonl", "passkey.jsonl", "heads.jsonl")}


# What cannot be.


IMPOSSIBLE: dict[str, tuple[dict[str, int], list[str], str]] = {
    "test": (
        {"test": 60},
        [],
        r"256 tokens \(2 x 128\) is longer than any document of the test split: .* out of measure.times",
    ),
    "validation": ({"validation": 60}, [], r"longer than any document of the validation split: the longest allows"),
    "train": ({"train": 300}, ["only_times=[4]"], r"of the train split: .* take 4 out of the times of lines"),
    "no test": ({"test": 0}, [], "has no test documents"),
    "scored": ({}, ["measure.scored=129"], "scored must be at most the 128 tokens of the trained context, not 129"),
    "keys": (
        {},
        ["data.context=32", "measure.times=[1,8]", "only_times=[8]"],
        r"a passkey document has \d+ tokens or more, not 32, the trained context; set trials to 0",
    ),
    "encoding": (
        {},
        ["models.rotary={encoding='none'}"],
        "line 'position-interpolation': position-interpolation applies to no layer of this model",
    ),
    "setting of the second": (
        {},
        ["models.rotary={encoding={name='rotary', fractoin=1.0}}"],
        "unknown setting .*fractoin",
    ),
    "too many pairs": (
        {},
        ["models.rotary.model={heads=8}"],
        "line 'dynamic-ntk': dynamic-ntk needs two rotated pairs or more",
    ),
    "both": ({}, ["models.none.folder='x'"], "models.none: needs an encoding to be trained with, or the folder"),
    "nothing to train": ({}, ["models.none={folder='nowhere'}"], "no language model at nowhere"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_study_is_refused_before_anything_is_trained(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, changes, message = IMPOSSIBLE[name]

    def train(*given: Any) -> None:
        raise AssertionError("a model is trained")

    monkeypatch.setattr(study_module, "train_language_model", train)
    corpus = write_corpus(tmp_path / "corpus", **lengths)
    with pytest.raises(UserError, match=message) as raised:
        run(corpus, tmp_path / "study", *changes)
    assert "\n" not in str(raised.value)
    assert {path.name for path in tmp_path.glob("study/*")} <= {"tokens"}


@dataclass
class Stored:
    """A store with one document of so many tokens in each split."""

    sizes: dict[str, int]

    def documents(self, split: str) -> Documents:
        return Documents(np.zeros(self.sizes[split], dtype=np.uint16), np.array([0, self.sizes[split]]))


@pytest.mark.parametrize("short", ["test", "validation", "train"])
def test_what_is_refused_is_exactly_what_could_not_be_read(short: str) -> None:
    """The last token of a document is predicted, never read: a context of n tokens needs a document of n + 1."""
    settings = MeasureSettings(times=(1, 2, 4), scored=8, trials=0)
    store = Stored({"test": 4 * 32 + 1, "validation": 4 * 32 + 1, "train": 2 * 32 + 1})
    needs = {"test": 4.0, "validation": 4.0, "train": 2.0}
    scored = what_is_scored(settings, 32, needs, store.documents, None)
    assert scored.validation is not None
    assert scored.test.tokens == scored.validation.tokens == 8 and scored.test.longest == 4 * 32
    assert len(TrainingWindows(store.documents("train"), 2 * 32, seed=0).starts) == 1
    store.sizes[short] -= 1
    with pytest.raises(UserError, match=f"longer than any document of the {short} split"):
        what_is_scored(settings, 32, needs, store.documents, None)
    with pytest.raises(UserError, match="longer than any document"):
        if short == "train":
            TrainingWindows(store.documents(short), 2 * 32, seed=0)
        else:
            choose_targets(store.documents(short), settings.contexts(32), 1, 8)


def test_what_lines_read_follows_from_them() -> None:
    """Nothing is asked of a split that no line reads."""
    (study,) = load_extension_study("headscale-small")
    settings = study.measure
    assert reach(study.all_lines, "none", settings) == {"test": 16, "validation": 16}
    assert reach(study.all_lines, "rotary", settings) == {"test": 16, "train": 8}
    uniform = [line for line in study.all_lines if line.name == "uniform-scale for 4x"]
    assert reach(uniform, "none", settings) == {"test": 16, "validation": 4}


@pytest.mark.parametrize("changes", [{"trials": 1, "times": (1, 2)}, {"scored": CONTEXT + 1}], ids=str)
def test_a_table_is_refused_before_its_first_line(
    changes: dict[str, Any], pair: tuple[LoadedModel, LoadedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "trials" in changes:  # as if sentences had more tokens
        monkeypatch.setattr("lengthwise.context_extension.passkey.QUESTION", " What is it?" * CONTEXT)
    with pytest.raises(UserError, match="trained context"):
        table(pair, tmp_path / "t", **changes)
    assert not (tmp_path / "t").exists()


COUNTS = ("windows", "search_windows", "scored", "depths")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        *((f"measure.{name}=0", f"measure: {name} must be 1 or more, not 0") for name in COUNTS),
        *((f"measure.{name}=-1", f"measure: {name} must be 0 or more, not -1") for name in ("trials", "seed", "heads")),
        ("measure.times=[0,1,2,4,8]", "measure: times must hold 1 and others above it"),
        ("measure.times=[1,2,2]", "measure: times names a multiple twice"),
        ("fit.learning_rate=0", "learning_rate must be above 0"),
        ("fit.steps=0", "steps must be 1 or more, not 0"),
        ("fit.passkey_share=1.5", "passkey_share must be between 0 and 1"),
        ("measure.trials=0", None),
        ("measure.heads=0", None),
    ],
)
def test_counts_of_a_table(assignment: str, message: str | None) -> None:
    if message is None:
        load_extension_study("headscale-small", [assignment])
        return
    with pytest.raises(UserError, match=message):
        load_extension_study("headscale-small", [assignment])


def test_a_table_of_the_trained_context_alone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hold 1 and others above it, not \[1\]"):
        MeasureSettings(times=(1,))
