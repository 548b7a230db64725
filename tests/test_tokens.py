"""Tokens: the published pieces are those of T5's tokenizer, any tokenizer works, and text is read back from them."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import t5_pieces
from conftest import small_table
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from lengthwise import registry
from lengthwise.data.examples import STEP_PARTS, Examples, Part, assemble, concatenate
from lengthwise.data.published_tokens import TABLE
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import pieces_of, render
from lengthwise.data.tokenization import make_tokens
from lengthwise.data.tokenizer_file import TextTokens
from lengthwise.data.tokens import PieceTokens, Tokens
from lengthwise.data.vocabulary import TIE
from lengthwise.errors import UserError
from lengthwise.records import published
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.rows import load_results
from lengthwise.seeding import stream
from lengthwise.study import load_study, study_from
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Task
from lengthwise.tasks.words import words
from lengthwise.training.evaluator import mean_sizes
from lengthwise.training.plan import plan
from lengthwise.training.recipe import DataConfig

FORMATS = [
    "+".join(part.name.lower() for i, part in enumerate(STEP_PARTS) if bits >> i & 1) or "none" for bits in range(32)
]
T5 = t5_pieces.tokenizer()


def examples_of(task: Task, each: int = 3) -> Examples:
    """Some examples of every length of training and test."""
    buckets = [*task.buckets(task.train_lengths), *task.buckets(task.test_lengths)]
    return concatenate(
        [task.examples(bucket, each, stream(5, bucket)) for bucket in buckets[:: 1 + len(buckets) // 60]]
    )


def assert_whole_texts_agree(task: Task, kept: Examples, tokens: Tokens, tokenizer: Tokenizer) -> None:
    """Pieces, where the target begins, and the text read back are what the tokenizer makes of each whole text."""
    converted = tokens.convert(kept)
    texts = [task.text(kept, i) for i in range(len(kept))]
    whole = tokenizer.encode_batch([f"{prompt} {target}" for prompt, target in texts], add_special_tokens=False)
    prompts = tokenizer.encode_batch([prompt for prompt, _ in texts], add_special_tokens=False)
    for i, (begin, end) in enumerate(pairwise(converted.starts.tolist())):
        ids, parts = converted.tokens[begin:end], converted.parts[begin:end]
        assert tokens.pieces(ids) == whole[i].tokens, texts[i]
        prompt = int((parts <= Part.PROMPT).sum())
        assert prompt == len(prompts[i].ids) and (parts[:prompt] <= Part.PROMPT).all()
        assert (tokens.text(ids[:prompt]), tokens.text(ids[prompt:])) == texts[i]


def test_the_table_is_what_the_tokenizer_says() -> None:
    assert TABLE.read_text(encoding="utf-8") == "".join(t5_pieces.lines()), "python tests/t5_pieces.py writes it anew"


@pytest.mark.parametrize("name", published.LENGTHS)
def test_pieces_of_every_published_task_are_the_tokenizers(name: str) -> None:
    task = make_task(name)
    tokens = make_tokens(task, "published")
    assert tokens.rows == 32_100 and tokens.end == T5.token_to_id("</s>") and tokens.pad == T5.token_to_id("<pad>")
    assert_whole_texts_agree(task, task.formatted(examples_of(task), Scratchpad()), tokens, T5)


@pytest.mark.slow
@pytest.mark.parametrize("scratchpad", FORMATS[1:])
def test_pieces_of_every_scratchpad_are_the_tokenizers(scratchpad: str) -> None:
    for name in registry.tasks.names():
        if registry.tasks.get(name).step_parts:
            task = make_task(name)
            kept = task.formatted(examples_of(task, 1), Scratchpad(scratchpad))
            assert_whole_texts_agree(task, kept, make_tokens(task, "published"), T5)


OWN = [name for name in registry.tasks.names() if name not in (*published.LENGTHS, "file", "dyck")]
"""T5 does not know the braces of `dyck`."""


@pytest.mark.parametrize("name", OWN)
def test_our_own_tasks_have_pieces_too(name: str) -> None:
    task = make_task(name)
    assert_whole_texts_agree(task, task.formatted(examples_of(task), Scratchpad()), make_tokens(task, "published"), T5)


@pytest.mark.parametrize("length", [2, 7, 20, 40])
def test_copy_repeat_is_two_n_and_seven_tokens(length: int) -> None:
    """As the released statistics say: 11 at 2, 47 at 20."""
    task = make_task("copy.repeat")
    sequences = render(task, task.examples(length, 5, stream(0)), Scratchpad(), tokens=make_tokens(task, "published"))
    assert (sequences.size == 2 * length + 7).all() and (sequences.prompt == length + 6).all()
    (row,) = pieces_of(task.drawn(length, 1, 0), make_tokens(task, "published"))
    assert row[0][:2] == ["▁Copy", ":"] and row[0][-4:] == ["▁[", "S", "EP", "]"] and row[1][-1] == "</s>"


def test_rows_say_how_many_tokens_sequences_have() -> None:
    """Of what is tested, at each length; the committed rows of the published size are of 2n + 7."""
    task = make_task("copy.repeat")
    examples = concatenate([task.examples(length, 3, stream(0)) for length in (4, 9)])
    for tokens, others in (("published", 7), ("symbols", 3)):
        sequences = render(task, examples, Scratchpad(), tokens=make_tokens(task, tokens))
        assert mean_sizes(sequences) == {4: 8 + others, 9: 18 + others}
    task = make_task("sort.numbers")
    drawn = task.examples(3, 50, stream(0))
    sequences = render(task, drawn, Scratchpad(), tokens=make_tokens(task, "published"))
    texts = [" ".join(task.text(task.formatted(drawn, Scratchpad()), i)) for i in range(50)]
    expected = sum(len(T5.encode(text).ids) for text in texts) / 50  # with the end
    assert mean_sizes(sequences) == {3: round(expected, 2)}
    rows = load_results(Path(__file__).parent.parent / "results/nope-paper").rows
    assert rows and all(row["sequence_tokens"] == 2 * row["length"] + 7 for row in rows)


def test_pieces_that_the_published_runs_are_known_to_have() -> None:
    known = {"Reverse:": 3, "Solve:": 3, "Compute": 2, "Compute:": 3, "Evaluate": 2, "Is": 2, "[SEP]": 4, "[NEXT]": 5}
    known |= {"thrice": 3, "sorted": 2, "0": 2, "7": 1, "8,": 1, "6.": 1, "0,": 1, "]": 2, "?": 2, ".": 2, "].": 2}
    known |= {"x": 2, "-": 2, "-1": 2, "+1": 2, "swap_first_last": 5, "A1": 2}
    table = {line.split("\t")[0]: len(line.split("\t")[1].split()) for line in TABLE.read_text().splitlines()}
    assert {word: table[word] for word in known} == known
    assert all(table[word] == 1 for word in words(6400))


@pytest.mark.parametrize("name", ["copy.repeat", "addition", "lego", "scan", "pcfg"])
def test_trimmed_rows_are_the_same_pieces_under_other_numbers(name: str) -> None:
    task = make_task(name)
    kept = task.formatted(examples_of(task), Scratchpad("full" if task.step_parts else "none"))
    whole, trimmed = make_tokens(task, "published"), make_tokens(task, "published", trimmed=True)
    assert trimmed.rows < 8000 and trimmed.rows % 64 == 0
    ids, own = whole.convert(kept), trimmed.convert(kept)
    assert whole.pieces(ids.tokens) == trimmed.pieces(own.tokens) and np.array_equal(ids.starts, own.starts)
    assert own.tokens.max() < trimmed.rows and (trimmed.pad, trimmed.end) == (0, 1)
    assert len(set(zip(ids.tokens.tolist(), own.tokens.tolist(), strict=True))) == len(set(own.tokens.tolist()))
    assert "spare" in trimmed.piece(trimmed.rows - 1) and "spare" in trimmed.text([5, trimmed.rows - 1])


def test_a_word_of_several_tied_symbols_is_one_word() -> None:
    """Numbers with two symbols tied to them, and a target that begins with a tied one."""

    class Tied(Task):
        name = "tied"

        def symbols(self) -> list[str]:
            return ["Compute", "7", "6", TIE + ".", TIE + ",", TIE + "[SEP]"]

    task = Tied()
    ids = task.vocabulary.ids
    columns = [
        (Part.PROMPT, ids(["Compute", "7", TIE + ".", TIE + "[SEP]", "6"])),
        (Part.ANSWER, ids([TIE + ",", "6", TIE + "."])),
    ]
    kept = assemble(1, 2, columns)
    tokens = PieceTokens(task.vocabulary, _whole_words(), trimmed=False)
    converted = tokens.convert(kept)
    assert converted.sizes.tolist() == [5, 5]
    assert tokens.pieces(converted.tokens[:5]) == ["Compute", "7.[SEP]", "6", ",", "6."]


def _whole_words():  # a double that spells every word as one piece, in the order in which it meets them
    class Whole:
        size, pad, end = 100, 0, 1

        def __init__(self) -> None:
            self.met = ["<pad>", "<end>"]

        def spell(self, word: str, first: bool) -> list[int]:
            if word not in self.met:
                self.met.append(word)
            return [self.met.index(word)]

        def piece(self, index: int) -> str:
            return self.met[index]

        def text(self, pieces: list[int]) -> str:
            return " ".join(map(self.piece, pieces))

        def unknown(self, word: str) -> UserError:
            return UserError(word)

    return Whole()


# Tokenizers from files.


@pytest.fixture(scope="module")
def t5_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tokenizers") / "t5.json"
    T5.save(str(path))
    return str(path)


NAMES = ["addition", "scan", "sort.numbers"]


def bytes_tokenizer(path: Path, crossing: bool = False) -> Tokenizer:
    """A byte-level BPE such as GPT-2's; `crossing`: one whose pieces may cross spaces."""
    tokenizer = Tokenizer(models.BPE())
    if crossing:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r"\n"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [" ".join(pair) for name in NAMES for n in (3, 4) for pair in make_task(name).sample(n, 200)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.save(str(path))
    return tokenizer


@pytest.mark.parametrize("name", ["copy.words", "addition", "scan", "pcfg"])
def test_the_same_tokenizer_from_a_file_is_the_same(name: str, t5_file: str) -> None:
    task = make_task(name)
    kept = task.formatted(examples_of(task), Scratchpad("full" if task.step_parts else "none"))
    table, file = make_tokens(task, "published"), make_tokens(task, t5_file)
    assert isinstance(file, PieceTokens) and file.rows == table.rows and file.end == table.end
    assert np.array_equal(table.convert(kept).tokens, file.convert(kept).tokens)


@pytest.mark.slow
@pytest.mark.parametrize("crossing", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_any_tokenizer_makes_what_it_makes_of_whole_texts(name: str, crossing: bool, tmp_path: Path) -> None:
    path = tmp_path / "bytes.json"
    tokenizer, task = bytes_tokenizer(path, crossing), make_task(name)
    tokens = make_tokens(task, str(path))
    assert isinstance(tokens, TextTokens if crossing else PieceTokens)
    assert tokens.end == tokenizer.get_vocab_size() == tokens.rows - 1, (
        "it has no end of its own, so it gets a row more"
    )
    kept = task.formatted(examples_of(task), Scratchpad("full" if task.step_parts else "none"))
    converted = tokens.convert(kept)
    crosses = 0
    for i, (begin, end) in enumerate(pairwise(converted.starts.tolist())):
        prompt, target = task.text(kept, i)
        encoded = tokenizer.encode(f"{prompt} {target}")
        assert converted.tokens[begin:end].tolist() == encoded.ids
        crosses += any(" " in text.strip() for piece in encoded.ids if (text := tokenizer.decode([piece])))
        assert tokens.text(converted.tokens[begin:end]) == f"{prompt} {target}"
    assert (crosses > 0) == crossing


def test_a_tokenizer_that_cannot_write_the_task_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "Copy:": 1, "[SEP]": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "few.json"))
    task = make_task("copy.words")
    with pytest.raises(UserError, match="has no pieces for"):
        render(task, task.examples(3, 2, stream(0)), Scratchpad(), tokens=make_tokens(task, str(tmp_path / "few.json")))
    with pytest.raises(UserError, match="has the words of the tasks that come with the package"):
        dyck = make_task({"name": "dyck", "kinds": 3})
        render(dyck, dyck.examples(6, 20, stream(0)), Scratchpad(), tokens=make_tokens(dyck, "published"))


def test_settings_of_tokens_are_checked_at_once(tmp_path: Path, t5_file: str) -> None:
    (tmp_path / "bad.json").write_text(json.dumps({"model": 3}))
    for tokens, told in {
        "publishd": "did you mean 'published'",
        str(tmp_path / "missing.json"): "cannot read",
        str(tmp_path): "known: published, symbols",
    }.items():
        with pytest.raises((UserError, ValueError), match=told):
            DataConfig(tokens=tokens)
    with pytest.raises(UserError, match="is not the file of a tokenizer"):
        DataConfig(tokens=str(tmp_path / "bad.json")).make_tokens(make_task("copy.words"))
    with pytest.raises(ValueError, match="no rows to spare"):
        DataConfig(trimmed=True)
    with pytest.raises(ValueError, match="a tokenizer has a row for each piece"):
        DataConfig(tokens="published", rows=512)
    with pytest.raises(ValueError, match="rows are at most"):
        DataConfig(rows=10**10)
    with pytest.raises(UserError, match="prefix_tokens and"):
        DataConfig(tokens="published", prefix_tokens=2).make_tokens(make_task("copy.words"))
    with pytest.raises(UserError, match="pieces cross spaces"):
        bytes_tokenizer(tmp_path / "crossing.json", crossing=True)
        DataConfig(tokens=str(tmp_path / "crossing.json"), trimmed=True).make_tokens(make_task("scan"))
    with pytest.raises(ValueError, match="no longer the tokenizer"):
        DataConfig(tokens=t5_file, tokens_sha256="0" * 64)
    assert len(DataConfig(tokens=t5_file).tokens_sha256) == 64


def test_a_run_knows_the_content_of_its_tokenizer_not_its_path(tmp_path: Path, t5_file: str) -> None:
    copy = tmp_path / "elsewhere.json"
    copy.write_bytes(Path(t5_file).read_bytes())
    prints = [
        load_study("nope-paper", [f"data.tokens='{path}'", "tasks=['copy.words']"]).runs()[0].fingerprint
        for path in (t5_file, copy)
    ]
    assert prints[0] == prints[1] != load_study("nope-paper", ["tasks=['copy.words']"]).runs()[0].fingerprint


# The layout of the template.


@pytest.mark.parametrize(("prefix", "separator"), [(1, 1), (2, 4), (4, 8), (0, 2)])
@pytest.mark.parametrize("name", ["copy.repeat", "copy.replace", "scan"])
def test_prefix_and_separator_take_as_many_tokens_as_asked_for(name: str, prefix: int, separator: int) -> None:
    task = make_task(name)
    drawn = examples_of(task)
    plain, tokens = make_tokens(task), make_tokens(task, prefix_tokens=prefix, separator_tokens=separator)
    one, several = (render(task, drawn, Scratchpad(), tokens=each) for each in (plain, tokens))
    added = max(prefix, 1) + max(separator, 1) - 2
    assert (several.size == one.size + added).all() and (several.prompt == one.prompt + added).all()
    for i in range(len(drawn)):
        prompt, target = (
            several.tokens[i, : several.prompt[i]],
            several.tokens[i, several.prompt[i] : several.size[i] - 1],
        )
        assert (tokens.text(prompt), tokens.text(target)) == task.text(drawn, i)
    first = several.tokens[:, : max(prefix, 1)]
    assert (first == first[0]).all() and len(set(first[0].tolist())) == max(prefix, 1), "each of its own"
    shown = tokens.pieces(several.tokens[0, : several.prompt[0]])
    assert sum("[SEP]" in piece for piece in shown) == max(separator, 1)


def test_layouts_are_refused_where_a_task_has_no_such_words() -> None:
    with pytest.raises(UserError, match="has no \\[SEP\\]"):
        make_tokens(make_task("parity"), separator_tokens=2)
    with pytest.raises(UserError, match="do not begin with one constant word"):
        make_tokens(make_task("parity"), prefix_tokens=2)


def test_a_piece_that_is_part_of_prompt_and_answer_is_refused(tmp_path: Path) -> None:
    tokenizer, task = bytes_tokenizer(tmp_path / "crossing.json", crossing=True), make_task("addition")
    kept = task.formatted(task.examples(203, 4, stream(0)), Scratchpad())
    pieces = tokenizer.encode(" ".join(task.text(kept, 0))).ids
    assert any("? The" in tokenizer.decode([piece]) for piece in pieces)
    with pytest.raises(UserError, match="part of prompt and answer"):
        make_tokens(task, str(tmp_path / "crossing.json")).convert(kept)


@pytest.mark.slow
def test_tasks_of_equal_rows_share_a_fleet(tmp_path: Path) -> None:
    tasks = [{"name": "copy.repeat", "symbols": 200}, "parity"]
    apart, together = (
        study_from({**small_table(tasks=tasks, encodings=["none"]), "data": {"rows": rows, "validation": 30}})
        for rows in (0, 256)
    )
    fleets = [plan(study.runs(), StudyDirectory(tmp_path), 64, "cuda") for study in (apart, together)]
    assert [len(each) for each in fleets] == [2, 1]
    assert {run.make_tokens().rows for run in together.runs()} == {256}
    assert "rows" not in apart.runs()[0].table()["data"] and together.runs()[0].table()["data"]["rows"] == 256
    trimmed = DataConfig(tokens="published", trimmed=True, rows=1000).make_tokens(make_task("parity"))
    assert trimmed.rows == 1024 and "spare" in trimmed.piece(1023)
