"""Language models: documents to tokens and back, rows that lose no boundary, training that stops and goes on."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import INTERPRETED, changed
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import UserError
from lengthwise.language import sharded as sharded_module
from lengthwise.language import store as store_module
from lengthwise.language import training as training_module
from lengthwise.language.corpus import Corpus, split_of
from lengthwise.language.learner import summed_loss
from lengthwise.language.model import build_language_model, load_language_model
from lengthwise.language.passkey_rows import DIGITS, Passkeys, draw_key
from lengthwise.language.processes import ProcessGroup
from lengthwise.language.settings import LanguageData, LanguageSettings, LanguageTraining, read_count, settings_from
from lengthwise.language.sharded import ShardedLearner
from lengthwise.language.steps import TextSteps
from lengthwise.language.store import Documents, TokenStore, prepare, prepare_at
from lengthwise.language.tokenizer import BEGIN, END, Tokenizer
from lengthwise.language.training import train_language_model
from lengthwise.language.whole import WholeLearner
from lengthwise.language.windows import Arrangement, Windows
from lengthwise.records.files import read_json, read_rows, write_json
from lengthwise.seeding import stream
from lengthwise.training.batches import NO_TARGET
from lengthwise.training.state import load_tensors

WORDS = ("the", "old", "captain", "saw", "a", "small", "lamp", "near", "river", "and", "went", "home", "in", "1843")


def sentences(number: int, words: int) -> str:
    """A text of its own for every number, in which words have habits: each has only three that may follow it."""
    generator = stream(number, "sentences")
    word, found = int(generator.integers(len(WORDS))), []
    for step in generator.integers(1, 4, size=words):
        word = (word + int(step)) % len(WORDS)
        found.append(WORDS[word])
    return " ".join(found) + ".\n"


def write_corpus(folder: Path) -> Path:
    for split, sizes in {"train": (900, 40, 700, 15, 500), "validation": (300, 50), "test": (100,)}.items():
        (folder / split).mkdir(parents=True)
        for number, size in enumerate(sizes):
            (folder / split / f"{number}.txt").write_text(sentences(len(split) * 1000 + number, size))
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("language") / "corpus")


@pytest.fixture(scope="module")
def store(corpus: Path) -> TokenStore:
    return prepare(Corpus(corpus), LanguageData(vocabulary=320), corpus.parent / "tokens", lambda text: None)


def small(**changes: Any) -> LanguageSettings:
    """Settings of a model that trains in a second or two."""
    table: dict[str, Any] = {
        "encoding": "none",
        "seed": 1,
        "model": {"layers": 2, "width": 32, "heads": 2},
        "data": {"context": 32, "vocabulary": 320, "validation_tokens": 512},
        "training": {"tokens": 24 * 256, "batch_tokens": 256, "learning_rate": 0.01, "validations": 3},
    }
    return settings_from(changed(table, changes))


def train(corpus: Path, out: Path, settings: LanguageSettings, **options: Any) -> bool:
    return train_language_model(corpus, settings, out, "cpu", tokens_folder=corpus.parent / "tokens", **options)


# Corpus.


def test_text_files_are_documents_and_folders_are_splits(corpus: Path) -> None:
    (corpus / "README.txt").write_text("not a document: it lies outside of the splits")
    documents = list(Corpus(corpus).documents())
    assert [d.name for d in documents if d.split == "train"] == [f"train/{i}.txt" for i in range(5)]
    assert {d.split for d in documents} == {"train", "validation", "test"}
    assert documents[0].text == (corpus / "train/0.txt").read_text()
    assert [d.split for d in Corpus(corpus).documents(["test"])] == ["test"]


def test_json_lines_are_divided_by_their_names(tmp_path: Path) -> None:
    lines = [json.dumps({"body": f"number {i}\nsecond line", "id": i}) for i in range(400)]
    (tmp_path / "many.jsonl").write_text("\n".join(lines) + "\n\n")
    documents = list(Corpus(tmp_path, field="body").documents())
    assert [d.text for d in documents] == [f"number {i}\nsecond line" for i in range(400)]
    assert all(d.split == split_of(d.name) for d in documents)
    shares = {split: sum(d.split == split for d in documents) / 400 for split in ("train", "validation", "test")}
    assert 0.02 < shares["validation"] < 0.09 and 0.02 < shares["test"] < 0.09 and shares["train"] > 0.8
    assert list(Corpus(tmp_path / "many.jsonl", field="body").documents()) == documents


BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "binary": ("a.txt", b"fine\nso far \0 \1", r"a\.txt:2 holds a zero byte"),
    "latin": ("a.txt", "eins\nzwei\ncaf\xe9".encode("latin-1"), r"a\.txt:3 is not UTF-8 \(byte 0xe9\)"),
    "broken": ("a.jsonl", b'{"text": "good"}\n{"text": "cut of', r"a\.jsonl:2 is not JSON"),
    "huge": ("a.jsonl", b"[" + b"1," * 600_000, r"a\.jsonl:1 is not JSON .*1,200,001 bytes: is it one line"),
    "field": ("a.jsonl", b'{"body": "x", "id": 1}', r"a\.jsonl:1 has no field 'text'; it has body, id"),
    "list": ("a.jsonl", b"[1]", r"a\.jsonl:1 has no field 'text'; it is a list"),
    "number": ("a.jsonl", b'{"text": 7}', r"a\.jsonl:1: 'text' must be a text, not int"),
    "surrogate": ("a.jsonl", b'{"text": "\\ud800"}', r"a\.jsonl:1: 'text' holds half of a character"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    file, content, message = BAD_FILES[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(Corpus(tmp_path).documents())


def test_a_bad_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no corpus at"):
        Corpus(tmp_path / "nowhere")
    (tmp_path / "picture.png").write_bytes(b"x")
    with pytest.raises(UserError, match=r"holds no document: no file in it ends in \.txt, \.jsonl, \.arrow"):
        Corpus(tmp_path)
    with pytest.raises(UserError, match="must be a folder, or a file"):
        Corpus(tmp_path / "picture.png")
    (tmp_path / "test").mkdir()
    with pytest.raises(UserError, match="none called train"):
        Corpus(tmp_path)


@pytest.mark.parametrize("texts", [["", " \n"], ["all of it in one document"]])
def test_a_corpus_without_text_or_without_held_out_text_is_an_error(texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "corpus/train").mkdir(parents=True)
    for number, text in enumerate(texts):
        (tmp_path / f"corpus/train/{number}.txt").write_text(text)
    with pytest.raises(UserError, match=r"has no (train|validation) documents with text in them"):
        prepare(Corpus(tmp_path / "corpus"), LanguageData(vocabulary=300), tmp_path / "tokens", lambda text: None)
    assert not (tmp_path / "tokens").exists(), "nothing half-made is left"


def test_a_saved_dataset_is_read(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    file = tmp_path / "train/data-00000-of-00001.arrow"
    if importlib.util.find_spec("pyarrow") is None:
        file.write_bytes(b"")
        with pytest.raises(UserError, match="pip install pyarrow"):
            Corpus(tmp_path)
        return
    import pyarrow

    table = pyarrow.table({"text": ["one", "two\nlines", "three"], "id": [1, 2, 3]})
    with pyarrow.OSFile(str(file), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    assert [(d.name, d.text) for d in Corpus(tmp_path).documents()] == [
        ("train/data-00000-of-00001.arrow:0", "one"),
        ("train/data-00000-of-00001.arrow:1", "two\nlines"),
        ("train/data-00000-of-00001.arrow:2", "three"),
    ]
    with pytest.raises(UserError, match="has no column 'body'; it has text, id"):
        list(Corpus(tmp_path, field="body").documents())
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match="is not a whole Arrow file"):
        list(Corpus(tmp_path).documents())


# Tokenizer.


def test_tokens_give_the_text_back(store: TokenStore) -> None:
    for text in ("the old captain", "Grüße, 你好 \t\n\n  🙂", f"{BEGIN} and {END}", "\r\n x", ""):
        tokens = store.tokenizer.encode(text)
        assert store.tokenizer.decode(tokens) == text
        assert not {store.tokenizer.begin, store.tokenizer.end, store.tokenizer.padding} & set(tokens.tolist())


def test_digits_are_tokens_of_their_own(store: TokenStore) -> None:
    """Also in `1843`, which the corpus is full of."""
    digits = store.tokenizer.digits
    for text in ("1843", "in 1843 the", "x1843y", "18 43"):
        tokens = store.tokenizer.encode(text)
        assert [int(token) for token in tokens if token in digits] == digits[[1, 8, 4, 3]].tolist()
    assert store.tokenizer.encode("90210").tolist() == digits[[9, 0, 2, 1, 0]].tolist()


def test_a_tokenizer_depends_on_its_texts_alone(store: TokenStore, corpus: Path) -> None:
    texts = [document.text for document in Corpus(corpus).documents(["train"])]
    again = Tokenizer.train(texts, 320)
    assert again.text() == store.tokenizer.text() and again.rows <= 320


# Store.


def test_a_store_holds_every_document(store: TokenStore, corpus: Path) -> None:
    tokenizer = store.tokenizer
    for split in ("train", "validation", "test"):
        documents = store.documents(split)
        assert isinstance(documents.tokens, np.memmap) and documents.tokens.dtype == np.uint16
        texts = [document.text for document in Corpus(corpus).documents([split])]
        assert len(documents) == len(texts)
        for number, text in enumerate(texts):
            begin, *inside, end = documents[number].tolist()
            assert (begin, end) == (tokenizer.begin, tokenizer.end)
            assert inside == tokenizer.encode(text).tolist()


def test_documents_cut_for_many_cores_have_the_same_tokens(
    corpus: Path, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "PIECE", 50)
    monkeypatch.setattr(store_module, "TOGETHER", 120)
    cut = prepare(Corpus(corpus), LanguageData(vocabulary=320), tmp_path, lambda text: None)
    for split in ("train", "validation"):
        np.testing.assert_array_equal(cut.documents(split).tokens, store.documents(split).tokens)
        np.testing.assert_array_equal(cut.documents(split).starts, store.documents(split).starts)


@pytest.mark.slow
def test_one_huge_line_is_a_document(tmp_path: Path) -> None:
    letters = "".join(chr(97 + number) for number in stream(0, "letters").integers(26, size=300_000))
    for split, text in (("train", letters), ("validation", " " * 200_000 + "end")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "line.txt").write_text(text)
    made = prepare(Corpus(tmp_path), LanguageData(vocabulary=600), tmp_path / "tokens", lambda text: None)
    assert made.tokenizer.decode(made.documents("train")[0]) == letters
    assert made.manifest["splits"]["validation"]["characters"] == 200_003


def test_a_store_is_made_once_and_anew_when_the_corpus_changes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    said: list[str] = []

    def prepared(**changes: Any) -> Path:
        return prepare(
            Corpus(corpus), LanguageData(**{"vocabulary": 300, **changes}), tmp_path / "t", said.append
        ).folder

    first = prepared()
    assert said
    said.clear()
    assert prepared() == first and not said
    assert prepared(vocabulary=310) != first
    (corpus / "train/0.txt").write_text("other words")
    assert prepared() != first
    os.truncate(first / "train.tokens", 100)
    with pytest.raises(UserError, match="is damaged"):
        TokenStore(first).documents("train")


# Prepared folders.


@pytest.fixture
def prepared(corpus: Path, tmp_path: Path) -> Path:
    data = LanguageData(vocabulary=320)
    return prepare_at(Corpus(corpus), data, tmp_path / "prepared", lambda text: None).folder


def test_a_prepared_folder_trains_the_same_model_without_the_texts(
    corpus: Path, prepared: Path, tmp_path: Path
) -> None:
    settings = small(data__context=128, data__passkey_share=0.25, training__tokens=4 * 256)
    train(corpus, tmp_path / "texts", settings)
    elsewhere = shutil.copytree(prepared, tmp_path / "carried" / "novels")
    shutil.rmtree(prepared)
    train_language_model(elsewhere, settings, tmp_path / "carried/run", "cpu")
    assert not (tmp_path / "carried/tokens").exists(), "tokens are read where they are"
    weights = [load_tensors(tmp_path / run / "last.safetensors")[0] for run in ("texts", "carried/run")]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    facts = [read_json(tmp_path / run / "run.json") for run in ("texts", "carried/run")]
    assert facts[0]["tokens"] == facts[1]["tokens"] and facts[1]["tokens_folder"] == "../novels"


def test_a_prepared_folder_is_checked(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"was prepared with data\.vocabulary=320, not 300; use --set"):
        train_language_model(prepared, small(data__vocabulary=300), tmp_path / "run", "cpu")
    content = bytearray((prepared / "train.tokens").read_bytes())
    content[11] ^= 1
    (prepared / "train.tokens").write_bytes(content)
    with pytest.raises(UserError, match=r"train\.tokens is damaged"):
        train_language_model(prepared, small(), tmp_path / "run", "cpu")
    (prepared / "test.starts.npy").unlink()
    with pytest.raises(UserError, match=r"test\.starts\.npy is missing"):
        TokenStore(prepared).check()
    assert not (tmp_path / "run/run.json").exists()


def test_a_model_is_not_written_among_the_runs_of_a_study(prepared: Path, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/study.json").write_text("{}")
    with pytest.raises(UserError, match="holds a study"):
        train_language_model(prepared, small(), tmp_path / "study", "cpu")
    assert not (tmp_path / "study/run.json").exists()
    with pytest.raises(UserError, match="unknown split 'tests'; there are"):
        TokenStore(prepared).documents("tests")


def test_prepare_overwrites_nothing(corpus: Path, prepared: Path, tmp_path: Path) -> None:
    said: list[str] = []
    prepare_at(Corpus(corpus), LanguageData(vocabulary=320), prepared, said.append)
    assert not said, "what is there is not made again"
    with pytest.raises(UserError, match="other settings; choose another folder"):
        prepare_at(Corpus(corpus), LanguageData(vocabulary=300), prepared, said.append)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        prepare_at(Corpus(corpus), LanguageData(vocabulary=300), tmp_path / "full", said.append)


# Rows.


def numbered(sizes: list[int]) -> Documents:
    """Documents in which every token is another number, counting up."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Documents(np.arange(starts[-1], dtype=np.uint32), starts)


@pytest.mark.slow
@given(st.lists(st.integers(3, 60), min_size=1, max_size=40), st.integers(2, 24))
def test_no_boundary_is_lost(sizes: list[int], context: int) -> None:
    """Each token but a document's first is predicted once, from the one before it, among its own document alone."""
    documents = numbered(sizes)
    arrangement = Arrangement(documents, context, padding=10**6)
    rows = arrangement.fill(np.arange(len(arrangement)))
    predicted: list[int] = []
    for tokens_T, segments_T, positions_T, targets_T in zip(
        rows.tokens_RT, rows.segments_RT, rows.positions_RT, rows.targets_RT, strict=True
    ):
        assert (tokens_T[segments_T == 0] == 10**6).all() and (targets_T[segments_T == 0] == NO_TARGET).all()
        for segment in range(1, segments_T.max() + 1):
            inside = segments_T == segment
            tokens, targets = tokens_T[inside], targets_T[inside]
            assert inside.any() and (np.diff(np.flatnonzero(inside)) == 1).all()
            assert (positions_T[inside] == np.arange(inside.sum())).all()
            assert (targets == tokens + 1).all() and (np.diff(tokens) == 1).all()
            assert len(set(np.searchsorted(documents.starts, np.append(tokens, targets[-1]), side="right"))) == 1
            predicted += targets.tolist()
    assert sorted(predicted) == sorted(set(range(sum(sizes))) - set(documents.starts[:-1].tolist()))


def test_many_short_documents_fill_their_rows() -> None:
    sizes = (3 + stream(0, "sizes").integers(60, size=2000)).tolist()
    arrangement = Arrangement(numbered(sizes), 128, padding=0)
    assert sum(sizes) - len(sizes) > 0.97 * 128 * len(arrangement)


def test_the_order_depends_on_seed_and_step_alone() -> None:
    arrangement = Arrangement(numbered([200, 50, 9, 9, 77]), 16, padding=0)
    windows = Windows(arrangement, seed=3)
    whole = windows.batches(0, 12, rows=6)
    for first, end in ((0, 5), (5, 6), (6, 12)):
        part = Windows(arrangement, seed=3).batches(first, end, rows=6)
        for name in ("tokens_KNRT", "segments_KNRT", "positions_KNRT", "targets_KNP", "predicting_KNP"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[first:end])
    assert (Windows(arrangement, seed=4).batches(0, 12, rows=6).tokens_KNRT != whole.tokens_KNRT).any()
    halves = [windows.batches(0, 12, 6, ProcessGroup(number, 2).part(6)) for number in range(2)]
    np.testing.assert_array_equal(np.concatenate([h.tokens_KNRT for h in halves], axis=2), whole.tokens_KNRT)
    assert whole.tokens == (whole.targets_KNP != NO_TARGET).sum()
    epochs = [windows.rows(np.arange(len(arrangement)) + epoch * len(arrangement)).tokens_RT for epoch in (0, 1)]
    assert (epochs[0] != epochs[1]).any(), "each epoch has an order of its own"
    assert sorted(map(tuple, epochs[0])) == sorted(map(tuple, epochs[1])), "of the same rows"


# Key-recall documents.


def test_a_key_is_stated_once_and_asked_at_the_end(store: TokenStore) -> None:
    passkeys = Passkeys(store.tokenizer)
    for size, depth in ((passkeys.shortest, 0.3), (200, 0.0), (200, 0.5), (200, 1.0)):
        document = passkeys.document(size, depth, "47129", first_sentence=2)
        assert (
            len(document.tokens) == size
            and document.answer.tolist() == store.tokenizer.digits[[4, 7, 1, 2, 9]].tolist()
        )
        text = store.tokenizer.decode(document.tokens)
        assert text.count(" The pass key is 47129. Remember it.") == 1
        assert text.endswith(" What is the pass key? The pass key is 47129")
        assert size > passkeys.shortest or store.tokenizer.encode(text).tolist() == document.tokens[1:-1].tolist()
        assert document.tokens[0] == store.tokenizer.begin and document.tokens[-1] == store.tokenizer.end
        before, after = text.split(" What is")[0].split(" The pass key is 47129. Remember it.")
        assert before == "" or before.endswith(".") or after == "", "only the last sentence may be cut"
        assert size < 200 or abs(len(before) / len(before + after) - depth) < 0.1
    with pytest.raises(UserError, match=f"has {passkeys.shortest} tokens or more"):
        passkeys.document(passkeys.shortest - 1, 0.5, "47129")


def test_key_recall_rows_have_their_share_and_the_corpus_keeps_its_order(store: TokenStore) -> None:
    arrangement = Arrangement(store.documents("train"), 128, store.tokenizer.padding)
    plain = Windows(arrangement, 5)
    mixed = Windows(arrangement, 5, Passkeys(store.tokenizer), 0.03)
    rows = mixed.rows(np.arange(1000))
    key = tuple(store.tokenizer.encode(" What is the pass key?").tolist())
    made = np.array([key in set(zip(*(row[i:] for i in range(len(key))), strict=False)) for row in rows.tokens_RT])
    assert made.sum() == 30 and (rows.segments_RT[made] > 0).all()
    np.testing.assert_array_equal(rows.tokens_RT[~made], plain.rows(np.arange(970)).tokens_RT)
    ends = np.diff(rows.segments_RT[made], axis=1) > 0
    assert (rows.targets_RT[made][:, :-1][ends] == store.tokenizer.end).all()
    assert (rows.positions_RT[made][:, 1:][ends] == 0).all()
    again = Windows(arrangement, 5, Passkeys(store.tokenizer), 0.03).rows(np.arange(990, 1000))
    np.testing.assert_array_equal(again.targets_RT, rows.targets_RT[990:])


def test_every_other_key_recall_row_has_short_documents(store: TokenStore) -> None:
    passkeys = Passkeys(store.tokenizer)
    least, inputs = passkeys.shortest, 8 * passkeys.shortest
    for number in range(40):
        sizes = [len(each.tokens) for each in passkeys.row(inputs, 3, number)]
        assert sum(sizes) - len(sizes) == inputs and min(sizes) >= least
        # The last one takes what is too little for another.
        assert number % 2 or (max(sizes[:-1]) <= 2 * least and sizes[-1] <= 3 * least)
    longest = [max(len(each.tokens) for each in passkeys.row(inputs, 3, number)) for number in range(1, 40, 2)]
    assert max(longest) == inputs + 1 or max(longest) > 7 * least, "far keys are asked for too"


def test_a_tenth_of_the_keys_is_held_out() -> None:
    generator = stream(0, "keys")
    trained, held_out = ({draw_key(generator, wanted) for _ in range(300)} for wanted in (False, True))
    assert not trained & held_out and all(len(key) == DIGITS for key in trained | held_out)


# Settings.


def test_a_budget_in_tokens_is_a_number_of_steps() -> None:
    training = LanguageTraining(tokens=1_000_001, batch_tokens=1000, learning_rate=1.0, warmup=0.01)
    assert training.steps == 1001
    rates = [training.learning_rate_at(step) for step in range(1001)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == rates[9] == rates[10] == 1.0
    assert rates[505] == pytest.approx(0.55, abs=0.001) and rates[-1] == pytest.approx(0.1)
    assert [read_count(text) for text in ("32768", "300K", "1.5B", "200m")] == [
        32768,
        300_000,
        1_500_000_000,
        200_000_000,
    ]
    with pytest.raises(UserError, match="write 32768"):
        read_count("many")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__size": "lm-smal"}, "lm-small"),
        ({"encoding": "rotory"}, "rotary"),
        ({"training__batch_tokens": 100}, "multiple of the context"),
        ({"data__passkey_share": 1.0}, "passkey_share"),
        ({"training__speed": 1}, "unknown setting 'training.speed'"),
    ],
)
def test_wrong_settings_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        small(**changes)


def test_the_small_size_has_as_many_weights_as_it_says() -> None:
    with torch.device("meta"):
        model = build_language_model(settings_from({}), 8192)
    assert model.config.style == "llama" and model.unembedding is not None
    assert round(sum(weight.numel() for weight in model.parameters()) / 1e6) == 17


# Training.


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["none", "rotary", ["rotary", "none"]], ids=str)
def test_the_loss_falls(encoding: Any, corpus: Path, store: TokenStore, tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes: dict[str, Any] = {"encoding": encoding, "data__context": 80, "data__passkey_share": 0.1}
    changes |= {"data__validation_tokens": 10**6, "training__batch_tokens": 320}
    assert train(corpus, out, small(**changes, training__tokens=80 * 320))
    rows = [row for row in read_rows(out / "training.jsonl") if "loss" in row]
    validations = [row["validation_loss"] for row in read_rows(out / "training.jsonl") if "validation_loss" in row]
    assert rows[0]["loss"] == pytest.approx(np.log(store.tokenizer.rows), abs=0.1), "at first all are equally likely"
    assert rows[-1]["loss"] < 2 and validations == sorted(validations, reverse=True)
    assert rows[-1]["step"] == 80 and rows[-1]["tokens"] == 80 * 320
    model, tokenizer, settings = load_language_model(out)
    names = encoding if isinstance(encoding, list) else [encoding] * 2
    assert model.encoding_names() == names == read_json(out / "run.json")["encoding_of_each_layer"]
    assert settings.table() == read_json(out / "run.json")["settings"]
    assert validations[-1] == pytest.approx(loss_of(model, tokenizer, corpus, context=80), abs=1e-5)
    assert not train(corpus, out, settings), "nothing is left to do"
    with pytest.raises(UserError, match=r"training.tokens was 25600, is 32000"):
        train(corpus, out, small(**changes, training__tokens=100 * 320))
    assert sorted(path.name for path in out.iterdir()) == [
        "finished.json", "last.safetensors", "lock", "run.json", "tokenizer.json", "training.jsonl"
    ]  # fmt: skip


def loss_of(model: Any, tokenizer: Tokenizer, corpus: Path, context: int) -> float:
    """The loss of all validation documents by a loop of its own: from their texts, each window alone."""
    total = count = 0.0
    for document in Corpus(corpus).documents(["validation"]):
        tokens = torch.tensor([tokenizer.begin, *tokenizer.encode(document.text), tokenizer.end])
        for start in range(0, len(tokens) - 1, context):
            window = tokens[start : start + context + 1]
            with torch.no_grad():
                likelihood = torch.log_softmax(model(window[None, :-1])[0], dim=-1)
            total -= float(likelihood.gather(1, window[1:, None]).sum())
            count += len(window) - 1
    return total / count


class Killed(Exception):
    """Raised in the middle of training, as a signal would break it off."""


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_killed_between_saves_it_ends_with_the_same_bits(
    sharded: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small(encoding="rotary", model__dropout=0.1, training__sharded=sharded, training__validations=2)
    train(corpus, tmp_path / "straight", settings)
    learner = ShardedLearner if sharded else WholeLearner
    calls: list[int] = []
    run: Callable[..., Any] = learner.run

    def killed(self: Any, steps: Any) -> Any:
        calls.append(len(steps))
        if len(calls) == 3:
            run(self, steps)
            raise Killed
        return run(self, steps)

    with monkeypatch.context() as patched:
        patched.setattr(learner, "run", killed)
        with pytest.raises(Killed):
            train(corpus, tmp_path / "killed", settings, save_every=0)
    assert not (tmp_path / "killed/finished.json").exists()
    with pytest.raises(UserError, match="is not finished"):
        load_language_model(tmp_path / "killed")
    assert train(corpus, tmp_path / "killed", settings)
    ends = [load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("straight", "killed")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    logs = [(tmp_path / name / "training.jsonl").read_text() for name in ("straight", "killed")]
    assert logs[0] == logs[1]


def begun(corpus: Path, out: Path, settings: LanguageSettings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Goes on with a run, and is killed after its next saved state; returns what then describes the run."""
    run: Callable[..., Any] = WholeLearner.run
    calls: list[int] = []

    def killed(self: Any, steps: Any) -> Any:
        calls.append(len(steps))
        if len(calls) == 2:
            raise Killed
        return run(self, steps)

    with monkeypatch.context() as patched:
        patched.setattr(WholeLearner, "run", killed)
        with pytest.raises(Killed):
            train(corpus, out, settings, save_every=0)
    return read_json(out / "run.json")


def test_who_goes_on_with_a_run_is_written_down(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, out = small(), tmp_path / "run"
    before = begun(corpus, out, settings, monkeypatch)
    assert begun(corpus, out, settings, monkeypatch) == before, "the same code on the same machine"
    real = training_module.provenance
    monkeypatch.setattr(training_module, "provenance", lambda device: {**real(device), "commit": "another"})
    assert train(corpus, out, settings)
    after = read_json(out / "run.json")
    (session,) = after.pop("sessions")
    assert after == before
    assert session.pop("step") == 16 and session.pop("commit") == "another"
    assert session.keys() == {"started", "versions", "hardware", "processes"}
    assert session["hardware"] == before["hardware"]


def test_another_precision_is_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, out = small(), tmp_path / "run"
    described = begun(corpus, out, settings, monkeypatch)
    assert described["precision"] == "fp32"
    write_json(out / "run.json", {**described, "precision": "bf16"})
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(UserError, match=r"begun in bf16, .* in fp32; finish it on the device where it began"):
        train(corpus, out, settings)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    write_json(out / "run.json", described)
    assert train(corpus, out, settings)


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_training_begins_from_another_run(sharded: bool, corpus: Path, tmp_path: Path) -> None:
    """A step of Adam has at most the size of the learning rate: so near to the other run's weights it must end."""
    once: dict[str, Any] = {"training__tokens": 256, "training__warmup": 0.0, "training__validations": 1}
    first, then = tmp_path / "t5", tmp_path / "none"
    train(corpus, first, small(encoding="t5", training__tokens=4 * 256))
    begun_from, _ = load_tensors(first / "last.safetensors")
    slow = {**once, "training__learning_rate": 1e-6, "training__sharded": sharded}
    assert train(corpus, then, small(seed=2, **slow), begin_from=first)
    found, _ = load_tensors(then / "last.safetensors")
    assert found.keys() == {name for name in begun_from if not name.startswith("encodings.")}
    assert all(float((weight - begun_from[name]).abs().max()) < 3e-6 for name, weight in found.items())
    described = read_json(then / "run.json")
    assert described["begin_from"] == str(first) and described["settings"]["begins_from"]
    assert load_language_model(then)[2].begins_from == described["settings"]["begins_from"]
    assert not train(corpus, then, small(seed=2, **slow), begin_from=first), "the same run"
    with pytest.raises(UserError, match="begins_from was"):
        train(corpus, then, small(seed=2, **slow))
    if not sharded:
        train(corpus, tmp_path / "same", small(encoding="t5", **slow), begin_from=first)
        same, _ = load_tensors(tmp_path / "same/last.safetensors")
        assert all(float((weight - begun_from[name]).abs().max()) < 3e-6 for name, weight in same.items())


def test_what_a_training_cannot_begin_from_is_refused(corpus: Path, tmp_path: Path) -> None:
    first, out = tmp_path / "first", tmp_path / "out"
    train(corpus, first, small(training__tokens=256))
    with pytest.raises(UserError, match=r"is another model \(heads was 2, is 4\)"):
        train(corpus, out, small(model__heads=4), begin_from=first)
    with pytest.raises(UserError, match="another tokenizer"):
        train(corpus, out, small(data__vocabulary=300), begin_from=first)
    with pytest.raises(UserError, match=r"first has no weights 'blocks.0.lstm"):
        train(corpus, out, small(encoding=["lstm", "none"]), begin_from=first)
    with pytest.raises(UserError, match="say with --begin-from"):
        train(corpus, out, small(begins_from=5))
    with pytest.raises(UserError, match="no language model at"):
        train(corpus, out, small(), begin_from=tmp_path / "nowhere")
    assert not out.exists()


def test_a_context_too_short_for_rare_keys_is_an_error_at_once(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a context of 32 tokens is too short for passkey documents"):
        train(corpus, tmp_path / "run", small(data__passkey_share=1e-6))  # the first would be row number 1,000,000
    assert not (tmp_path / "run/run.json").exists()


def test_a_context_longer_than_any_document_is_an_error(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a context of 8192 tokens is longer than any document .* --context"):
        train(corpus, tmp_path / "run", small(data__context=8192, training__batch_tokens=8192))
    assert not (tmp_path / "run/run.json").exists()


def test_a_broken_step_of_a_sharded_model_is_left_out(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small()
    source = TextSteps(settings, store, ProcessGroup())
    model = build_language_model(settings, store.tokenizer.rows)
    learner = ShardedLearner(model, settings, ProcessGroup(), torch.device("cpu"))
    try:
        learner.run(source.steps(0, 2))
        before = learner.weights()
        with monkeypatch.context() as patched:
            patched.setattr(sharded_module, "summed_loss", lambda *given: summed_loss(*given) * float("nan"))
            assert np.isnan(learner.run(source.steps(2, 3)).read()[1]).all()
        assert all(torch.equal(before[name], weight) for name, weight in learner.weights().items())
        learner.run(source.steps(3, 4))
        assert not torch.equal(before["embedding.weight"], learner.weights()["embedding.weight"])
    finally:
        learner.close()


# Several processes.


PROGRAM = """
import atexit, os, pathlib
from lengthwise.cli import main
from lengthwise.language.sharded import ShardedLearner

def name_threads():
    print(*(f"alive: {file.read_text()}" for file in pathlib.Path("/proc/self/task").glob("*/comm")))

def stop(*given):
    raise KeyboardInterrupt

atexit.register(name_threads)
if "STOPS" in os.environ:
    ShardedLearner.run = stop
main()
"""


def torchrun(corpus: Path, out: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Two processes on the CPU, started as anyone would start them; they end without threads of a process group."""
    program = [sys.executable, "-c", PROGRAM]
    words = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"),
        *(*program, "language", "train", str(corpus), "--out", str(out), "--device", "cpu", "--encoding", "rotary"),
        *("--layers", "2", "--width", "32", "--heads", "2", "--seed", "1", "--context", "32", "--tokens", "6144"),
        *("--batch-tokens", "256", "--store", str(corpus.parent / "tokens")),
        *("--set", "training.learning_rate=0.01", "--set", "data.vocabulary=320"),
        *("--set", "training.validations=3", "--set", "data.validation_tokens=512", *options),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert "alive: python" in done.stdout or not Path("/proc/self/task").exists()
    assert "gloo" not in done.stdout, "a thread of a process group at the end of Python can abort the process"
    return done


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_two_processes_take_the_steps_of_one(sharded: bool, corpus: Path, tmp_path: Path) -> None:
    """Gradients are means over all targets, though one process has more padding than the other."""
    train(corpus, tmp_path / "one", small(encoding="rotary"))
    done = torchrun(corpus, tmp_path / "two", *(["--sharded"] if sharded else []))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Finished") == 1
    one, two = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-4)
    logs = [read_rows(tmp_path / name / "training.jsonl") for name in ("one", "two")]
    assert [row["step"] for row in logs[0]] == [row["step"] for row in logs[1]]
    for kind in ("loss", "gradient_norm", "validation_loss"):
        values = [[row[kind] for row in log if kind in row] for log in logs]
        assert values[0] and values[1] == pytest.approx(values[0], rel=1e-4)
    assert read_json(tmp_path / "two/run.json")["processes"] == 2


@pytest.mark.slow
def test_a_sharded_run_that_is_stopped_leaves_no_threads(corpus: Path, tmp_path: Path) -> None:
    done = torchrun(corpus, tmp_path / "two", "--sharded", STOPS="yes")
    assert done.returncode != 0 and "Finished" not in done.stdout
    assert "SIGABRT" not in done.stderr


@pytest.mark.slow
def test_what_one_process_cannot_do_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = torchrun(tmp_path / "empty", tmp_path / "run")
    assert done.returncode != 0 and "empty holds no document" in done.stderr
    assert done.stderr.count("Traceback") == 1, "that of torchrun itself, and none of ours"
    assert not (tmp_path / "run/run.json").exists()


def test_rows_that_cannot_be_divided_are_an_error() -> None:
    with pytest.raises(UserError, match=r"8 rows of a step .* cannot be divided among 3 processes"):
        ProcessGroup(0, 3).part(8)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a minute, but on a busy machine
@pytest.mark.skipif(INTERPRETED, reason="this is that process")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_in_a_process_of_their_own() -> None:
    environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    command = [
        sys.executable,
        *["-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "interpreted"],
        __file__,
    ]
    done = subprocess.run(command, env=environment | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(not INTERPRETED, reason="in a process of its own")
@pytest.mark.parametrize(
    ("encoding", "context", "rows"),
    [(["rotary", "none"], 16, 4), ([{"name": "rotary", "fraction": 1.0}, "none"], 192, 2)],
    ids=["short", "long rows, whole heads rotated"],
)
def test_interpreted_kernels_take_the_same_steps(store: TokenStore, encoding: Any, context: int, rows: int) -> None:
    """What a GPU runs, rows with padding among them, against PyTorch."""
    settings = small(encoding=encoding, data__context=context, training__batch_tokens=rows * context)
    source = TextSteps(settings, store, ProcessGroup())
    padded = [step for step in range(24) if (source.windows.batches(step, step + 1, rows).targets_KNP < 0).any()]
    ends = []
    for kernels in (False, True):
        model = build_language_model(settings, store.tokenizer.rows)
        learner = WholeLearner(model, settings, ProcessGroup(), torch.device("cpu"), lambda text: None)
        learner.fleet.kernels = kernels
        measured = [learner.run(source.steps(step, step + 1)).read()[0] for step in (padded[0], padded[0] + 1)]
        validation = Arrangement(store.documents("validation"), context, 0)
        held_out = validation.fill(np.arange(min(3, len(validation))))
        ends.append((np.concatenate(measured), learner.losses(held_out).numpy(), learner.weights()))
    for index in range(2):
        np.testing.assert_allclose(ends[1][index], ends[0][index], rtol=1e-5)
    for name, weight in ends[0][2].items():
        torch.testing.assert_close(ends[1][2][name], weight, rtol=1e-3, atol=1e-4)


# The command line.


def test_commands(corpus: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    words = ["language", "train", str(corpus), "--out", str(tmp_path / "run"), "--size", "tiny", "--context", "32"]
    words += ["--tokens", "1K", "--batch-tokens", "128", "--groups", "2", "--device", "cpu"]
    words += ["--set", "data.vocabulary=320", "--set", "encoding={name='rotary',base=500.0}"]
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.exception
    assert f"Finished: {tmp_path / 'run'}" in done.stdout.replace("\n", "")
    assert "Nothing left to do" in runner.invoke(app, words).stdout
    shown = runner.invoke(app, ["language", "info", str(tmp_path / "run")])
    assert "8 of 8 (finished)" in shown.stdout and "style llama" in shown.stdout and "rotary, rotary" in shown.stdout
    facts = json.loads(runner.invoke(app, ["language", "info", str(tmp_path / "run"), "--json"]).stdout)
    assert facts["run"]["settings"]["model"]["key_value_heads"] == 2
    assert facts["run"]["encoding_settings"][0]["base"] == 500.0
    assert facts["finished"]["tokens"] == 1024
    assert facts["finished"]["validation_loss"] == facts["training"][-1]["validation_loss"]
    assert isinstance(runner.invoke(app, ["language", "info", str(tmp_path)]).exception, UserError)


def test_prepare_command(corpus: Path, tmp_path: Path) -> None:
    words = ["language", "prepare", str(corpus), "--out", str(tmp_path / "p"), "--set", "data.vocabulary=320"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    assert "train: 5 documents" in done.stdout and f"Prepared {tmp_path / 'p'}" in done.stdout
    train_words = ["language", "train", str(tmp_path / "p"), "--out", str(tmp_path / "run"), "--size", "tiny"]
    train_words += ["--context", "32", "--tokens", "256", "--batch-tokens", "128", "--device", "cpu"]
    done = CliRunner().invoke(app, [*train_words, "--set", "data.vocabulary=320"])
    assert done.exit_code == 0, done.exception
    assert read_json(tmp_path / "run/finished.json")["steps"] == 2
