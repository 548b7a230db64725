"""Any model on our tasks: what is asked, how it is judged, models of Transformers, servers, what is refused."""

import json
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from conftest import slow, small_study
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from typer.testing import CliRunner

import lengthwise as lw
from lengthwise.cli.main import app
from lengthwise.data import splits
from lengthwise.data.splits import Split
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.foreign_models.evaluating import Evaluation, evaluate, prepare_questions
from lengthwise.foreign_models.judged import judge
from lengthwise.foreign_models.questions import Asking, Questions
from lengthwise.foreign_models.server import base_of
from lengthwise.foreign_models.transformers_model import TransformersModel
from lengthwise.foreign_models.written import Written
from lengthwise.hub.export import export
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.rows import load_results
from lengthwise.runtime import Listener

TASK = {"name": "copy.words", "symbols": 20, "data": {"train_lengths": [2, 4], "test_lengths": [5, 6]}}
SET = ("--set", "symbols=20", "--set", "data.train_lengths=[2,4]", "--set", "data.test_lengths=[5,6]")


def command(*words: str | Path) -> tuple[int, str]:
    """Exit code, and what was printed or the error."""
    done = CliRunner().invoke(app, [*map(str, words)])
    return done.exit_code, str(done.exception) if isinstance(done.exception, UserError) else done.output


class Knowing:
    """A writer that knows the answers and says what `say` makes of them."""

    label, identity, about, parameters, device, batch = "knowing", {"double": 1}, {}, 0, "CPU", 2

    def __init__(self, say: Callable[[str, int], Written] = lambda target, index: Written(target, True)) -> None:
        self.say, self.asked = say, []

    def refuse(self, questions: Questions) -> None: ...

    def write(self, questions: Questions, indices: Sequence[int], note: Any) -> list[Written]:
        self.asked += indices
        return [self.say(questions.texts[index][1], index) for index in indices]


# Questions and judgements.


def test_questions_are_the_examples_that_runs_are_tested_on() -> None:
    questions = prepare_questions(TASK, count=10)
    assert questions.lengths == [2, 3, 4, 5, 6] and len(questions) == 50
    run = small_study(tasks=[{"name": "copy.words", "symbols": 20}]).runs()[0]
    from lengthwise.evaluation.test_set import test_set as whole_test_set

    task, tests = run.make_task(), whole_test_set(run.make_task(), run.data)
    of_runs = [task.vocabulary.decode(row[:prompt]) for row, prompt in zip(tests.tokens, tests.prompt, strict=True)]
    assert [prompt for prompt, _ in questions.texts] == of_runs
    some = prepare_questions(TASK, [3, 6], count=10)
    kept = [pair for pair, length in zip(questions.texts, questions.length_E, strict=True) if length in (3, 6)]
    assert sorted(some.texts) == sorted(kept)


def test_few_shot_examples_are_of_training_and_never_of_the_test() -> None:
    for task in ("copy.words", "parity", "addition"):
        questions = prepare_questions(task, count=20, asking=Asking(shots=5, seed=3))
        assert len(set(questions.shots)) == 5
        assert not set(questions.shots) & set(questions.texts)
    assert questions.plain(0).count("\n") == 5 and questions.plain(0).endswith(questions.texts[0][0])
    prompt, target = questions.shots[0]
    assert questions.plain(0).startswith(f"{prompt} {target}\n")
    said = prepare_questions(TASK, asking=Asking(shots=1, chat=True, instruction="Do it.")).messages(0)
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert said[0]["content"].startswith("Do it.\n")


def test_lengths_beyond_the_published_are_asked_too() -> None:
    questions = prepare_questions("copy.repeat", [1, 5, 50], count=3)
    assert questions.lengths == [1, 5, 50] and np.bincount(questions.length_E)[[1, 5, 50]].tolist() == [3, 3, 3]
    assert [questions.seen(length) for length in (1, 5, 50)] == [True, True, False]


CASES = {
    "correct": lambda target: Written(f" {target}\nand more", False),
    "wrong_symbol": lambda target: Written(f"{target.split()[0]} zebra", True),
    "stopped_early": lambda target: Written(target.split()[0] + "\n", True),
    "ran_on": lambda target: Written(f"{target} more", True),
}


@pytest.mark.parametrize("kind", CASES)
def test_what_became_of_an_answer(kind: str) -> None:
    questions = prepare_questions(TASK, count=4)
    judged = judge(questions, [CASES[kind](target) for _, target in questions.texts])
    for row in judged.rows():
        assert row["n"] == 4 and row[kind] == 4
        assert sum(row[each] for each in CASES) == 4
    for failure in judged.failures():
        assert failure["kind"] == kind.replace("_", " ")
        assert failure["right_text"] == " ".join(failure["target"].split()[: failure["first_error"]])


def test_an_answer_that_never_ends_ran_on_and_tied_symbols_are_symbols() -> None:
    questions = prepare_questions(TASK, count=2)
    written = [Written(target, False) for _, target in questions.texts]
    assert all(row["ran_on"] == 2 for row in judge(questions, written).rows())
    tied = prepare_questions("lego", [3], count=2)
    (prompt, target), index = tied.texts[0], 0
    cut = [Written(each.removesuffix("."), True) for _, each in tied.texts]
    assert target.endswith(".") and judge(tied, cut).outcomes.stopped_early_E[index], prompt


def test_final_answers_after_a_scratchpad_are_judged_by_themselves() -> None:
    table = {"name": "addition", "data": {"scratchpad": "full"}}
    questions = prepare_questions(table, [3, 10], count=4)
    only_answer = [Written(target.rpartition(". Thus,")[2], True) for _, target in questions.texts]
    for row in judge(questions, only_answer).rows():
        assert row["correct"] == 0 and row["answers"]["right"] == row["n"]


# Folders.


def test_rows_are_read_by_every_command_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    questions, out = prepare_questions(TASK, count=4), tmp_path / "out"
    odd = Knowing(lambda target, index: Written(target if index % 4 else "no", True))
    results = evaluate(odd, questions, out)
    (run,) = results.runs
    assert run.counts_by_length("last") == {length: (3, 4) for length in (2, 3, 4, 5, 6)}
    other = Knowing()
    other.label = "other"
    evaluate(other, questions, out)
    assert load_results(out).accuracies()["copy.words", "other"] == {0: 1.0}
    for words in (
        ("show", out),
        ("report", out, "--out", tmp_path / "r.html"),
        ("collect", out, "--out", tmp_path / "c"),
    ):
        code, told = command(*words)
        assert code == 0, told
    again = Knowing()
    again.label = "other"
    evaluate(again, questions, out)
    assert again.asked == [] and not (out / "fleets").exists()
    assert len(evaluate(Knowing(), prepare_questions(TASK, [3], count=4)).rows) == 2  # in memory, any lengths


def test_a_stopped_evaluation_goes_on_where_it_was(tmp_path: Path) -> None:
    questions = prepare_questions(TASK, count=4)

    def stop(reached: int, total: int) -> None:
        if reached == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Evaluation(Knowing(), questions, StudyDirectory(tmp_path / "out")).run(Listener(step=stop))
    (answers,) = tmp_path.glob("out/*/*/*/answers.jsonl")
    with answers.open("a") as file:
        file.write('{"question": 8, "te')  # of a process that was killed while it wrote
    second = Knowing()
    evaluate(second, questions, tmp_path / "out")
    evaluate(Knowing(), questions, tmp_path / "whole")
    assert second.asked == list(range(8, 20))
    found, whole = (next((tmp_path / name).glob("*/*/*/rows.jsonl")).read_text() for name in ("out", "whole"))
    assert found == whole


def test_the_border_is_where_training_of_the_model_ended(tmp_path: Path) -> None:
    task = {"name": "copy.words", "symbols": 20}
    for said, spans in {"2-4": ((2, 4), (5, 40)), "6": ((2, 6), (7, 40)), "50": ((2, 50), (51, 51))}.items():
        questions = prepare_questions(task, count=2, trained=said)
        assert tuple((span.first, span.last) for span in questions.data.spans(questions.task)) == spans
        assert questions.trained_lengths_known
    questions = prepare_questions(task, [2, 3, 7, 9], count=2, trained="2-4")
    assert [questions.seen(length) for length in (2, 3, 7, 9)] == [True, True, False, False]
    with pytest.raises(UserError, match="no gaps; write 6 or 2-6"):
        prepare_questions(task, count=2, trained="2,4")
    results = evaluate(Knowing(), questions, tmp_path / "known")
    assert {row["length"]: row["seen"] for row in results.rows} == {2: True, 3: True, 7: False, 9: False}
    evaluate(Knowing(), prepare_questions(task, [2, 21], count=2), tmp_path / "unknown")
    told = "knowing was not trained here, and nobody said on which lengths"
    for name, is_told in (("known", False), ("unknown", True)):
        shown = " ".join(command("show", tmp_path / name)[1].split())
        assert (told in shown) == is_told
        assert "Budgets" not in shown and "Ranking" not in shown, "one model, which was not trained here"
        code, said = command("report", tmp_path / name, "--out", tmp_path / "r.html")
        assert code == 0 and "Next:" not in said
        page = (tmp_path / "r.html").read_text()
        assert (told in page) == is_told
        assert "Models that were not trained here (knowing) were asked" in page and "were trained on short" not in page


def test_words_that_the_tokenizer_does_not_know_are_told_once() -> None:
    words = {word: index for index, word in enumerate(["<unk>", "<eos>", "Copy:", "[SEP]"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<eos>")
    model, notes = TransformersModel(model_of("llama", tokenizer), tokenizer, "mine"), list[str]()
    questions = prepare_questions(TASK, [2, 5], count=3)
    for indices in ([0, 1], [2]):
        model.write(questions, indices, notes.append)
    (told,) = notes
    asked = {word for pair in questions.texts for text in pair for word in text.split()}
    assert told.startswith(f"the tokenizer of mine reads {len(asked) - 2} of the {len(asked)} words of copy.words")
    known, silent = byte_tokenizer(), list[str]()
    TransformersModel(model_of("llama", known), known).write(questions, [0], silent.append)
    assert not silent


def test_what_tables_could_not_compare_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluate(Knowing(), prepare_questions(TASK, count=4), out)
    other = Knowing()
    other.label = "other"
    with pytest.raises(UserError, match="other lengths, counts or data settings"):
        evaluate(other, prepare_questions(TASK, count=5), out)
    changed = Knowing()
    changed.identity = {"double": 2}
    with pytest.raises(UserError, match=r"copy.words asked of another model that is called 'knowing'; .* --name"):
        evaluate(changed, prepare_questions(TASK, count=4), out)
    with pytest.raises(UserError, match=r"knowing with other settings \(asking.instruction was \"\", is \"Please\"\)"):
        evaluate(Knowing(), prepare_questions(TASK, count=4, asking=Asking(instruction="Please")), out)
    with pytest.raises(UserError, match=r"up to 4, .* only the former; add a longer one: --lengths 2-5$"):
        evaluate(Knowing(), prepare_questions(TASK, [2, 3], count=4), out)
    with pytest.raises(UserError, match=r"up to 20, .* only the latter; add .*: --lengths 20-30; or .* --trained 30$"):
        evaluate(Knowing(), prepare_questions("copy.words", [30], count=4), out)
    with pytest.raises(UserError, match=r"up to 3, .* only the former; add a longer one: --lengths 2-4$"):
        evaluate(Knowing(), prepare_questions("copy.words", [2, 3], count=4, trained="2-3"), out)


def test_lengths_that_were_asked_are_those_that_are_told(tmp_path: Path) -> None:
    """Not the last length that the task has, which was not asked."""
    (run,) = evaluate(Knowing(), prepare_questions(TASK, [2, 3, 5, 6], count=4), tmp_path / "out").runs
    assert run.description["test_lengths"] == [5, 6] and run.description["settings"]["data"].get("test_at") is None
    (run,) = evaluate(Knowing(), prepare_questions(TASK, [2, 5, 8], count=4), tmp_path / "gap").runs
    assert run.description["test_lengths"] == [5, 8] and run.description["settings"]["data"]["test_at"] == [5, 8]


# Models of Transformers.


def byte_tokenizer() -> Any:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<pad>", "<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([str(lw.task("copy.repeat", symbols=20).sample(5, 20))], trainer)
    return hf.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}
FAMILIES: dict[str, Any] = {
    "llama": hf.LlamaConfig,
    "qwen3": hf.Qwen3Config,
    "mistral": lambda **named: hf.MistralConfig(sliding_window=24, **named),
    "gpt2": lambda **named: hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256, **_special(named)),
    "neox": lambda **named: hf.GPTNeoXConfig(
        **{k: v for k, v in named.items() if k not in ("head_dim", "num_key_value_heads")}
    ),
    "gemma3": lambda **named: hf.Gemma3TextConfig(sliding_window=24, query_pre_attn_scalar=8, **named),
}


def _special(named: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in named.items() if key.endswith("_id") or key == "vocab_size"}


def model_of(family: str, tokenizer: Any) -> Any:
    torch.manual_seed(1)
    config = FAMILIES[family](vocab_size=len(tokenizer), eos_token_id=1, pad_token_id=0, bos_token_id=None, **SHAPE)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


@torch.no_grad()
def written_by_hand(model: Any, tokenizer: Any, prompt: str, budget: int) -> tuple[str, bool]:
    """The likeliest token again and again, without padding and without a cache."""
    tokens = tokenizer(prompt).input_ids
    found: list[int] = []
    while len(found) < budget:
        token = int(model(torch.tensor([tokens + found]), use_cache=False).logits[0, -1].argmax())
        if token == tokenizer.eos_token_id:
            return tokenizer.decode(found), True
        found.append(token)
    return tokenizer.decode(found), False


@pytest.mark.parametrize("family", [each if each in ("gpt2", "llama") else slow(each) for each in FAMILIES])
def test_batches_write_what_each_prompt_alone_leads_to(family: str, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    model = model_of(family, tokenizer)
    model.generation_config.repetition_penalty = 3.0  # of a folder; greedy decoding has none
    model.save_pretrained(tmp_path / family)
    tokenizer.save_pretrained(tmp_path / family)
    words = (
        "evaluate",
        tmp_path / family,
        "--task",
        "copy.words",
        "--lengths",
        "2,4,5",
        "--count",
        "2",
        "--shots",
        "1",
    )
    code, told = command(*words, *SET, "--out", tmp_path / "out", "--device", "cpu", "--batch", "4")
    assert code == 0, told
    asking = Asking(shots=1)
    questions = prepare_questions(TASK, [2, 4, 5], 2, asking)
    (file,) = (tmp_path / "out").glob("*/*/*/answers.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == len(questions) == 6
    for row in rows:
        target = " " + questions.texts[row["question"]][1]
        budget = len(tokenizer(target).input_ids) + 1 + 8
        wanted = written_by_hand(model, tokenizer, questions.plain(row["question"]), budget)
        assert (row["text"], row["ended"]) == wanted
    (run,) = load_results(tmp_path / "out").runs
    assert run.description["encoding"] == f"{family} (1-shot)"
    assert run.description["parameters"] == sum(p.numel() for p in model.parameters())


def test_chat_templates_are_the_models_own() -> None:
    tokenizer = byte_tokenizer()
    model = TransformersModel(model_of("llama", tokenizer), tokenizer)
    questions = prepare_questions(TASK, [2, 5], 1, Asking(shots=1, chat=True))
    with pytest.raises(UserError, match="no chat template; leave out --chat"):
        model.refuse(questions)
    tokenizer.chat_template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"
    (shot, answer), (prompt, _) = questions.shots[0], questions.texts[1]
    wanted = f"<user>{shot}<assistant>{answer}<user>{prompt}<assistant>"
    assert tokenizer.decode(model._prompt(questions, 1)) == wanted
    (run,) = lw.evaluate(model.model, tokenizer, TASK, [2, 5], count=1, chat=True).runs
    assert run.description["encoding"] == "LlamaForCausalLM (chat)"


def test_refusals_of_models(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    model = model_of("llama", tokenizer)
    questions = prepare_questions(TASK, count=1)
    for folder, said in {
        tmp_path / "none": "no such folder",
        tmp_path: "no config.json",
    }.items():
        code, told = command("evaluate", folder, "--task", "copy.words", "--count", "1")
        assert code == 1 and said in told
    (tmp_path / "run.json").write_text("{}")
    assert "lengthwise export" in command("evaluate", tmp_path, "--task", "copy.words", "--count", "1")[1]
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(UserError, match="bare has no tokenizer; save it there"):
        lw.evaluate(tmp_path / "bare", None, TASK, count=1)
    with pytest.raises(UserError, match="cannot generate"):
        lw.evaluate(torch.nn.Linear(2, 2), tokenizer, TASK, count=1)
    with pytest.raises(UserError, match="needs a tokenizer"):
        lw.evaluate(model, None, TASK, count=1)
    with pytest.raises(UserError, match=r"did you mean 'copy.repeat'"):
        lw.evaluate(model, tokenizer, "copy.repaet")
    with pytest.raises(UserError, match=r"no examples of length 5 .*"):
        prepare_questions("chomsky.missing_duplicate", [5])
    long = prepare_questions("copy.repeat", [2, 3, 60], 1)
    with pytest.raises(UserError, match=r"length 60 needs .* of LlamaForCausalLM has 256; test --lengths up to 3"):
        TransformersModel(model, tokenizer).refuse(long)
    TransformersModel(model, tokenizer, beyond_context=True).refuse(long)
    gpt = TransformersModel(model_of("gpt2", tokenizer), tokenizer, beyond_context=True)
    with pytest.raises(UserError, match="has no positions for"):
        gpt.write(long, [len(long) - 1], print)
    model.model.norm.weight.data[0] = float("nan")
    with pytest.raises(UserError, match="not numbers"):
        evaluate(TransformersModel(model, tokenizer), questions)
    torch.save({"a": torch.ones(1)}, tmp_path / "x")
    tokenizer.save_pretrained(tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="holds no weights"):
        lw.evaluate(tmp_path / "bare", None, TASK, count=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Path]:
    """A run that is right about half of the time, its results, and what was exported of it."""
    place = tmp_path_factory.mktemp("trained")
    lengths = {
        "data__train_lengths": [6, 8],
        "data__test_lengths": [9, 10],
        "data__test_per_length": 40,
        "training__steps": 200,
    }
    run_study(small_study(tasks=["parity"], encodings=["alibi"], seeds=[1], **lengths), place / "runs", "cpu")
    (folder,) = place.glob("runs/*/*/seed-*")
    export(folder, place / "model")
    return folder, load_results(place / "runs").runs[0], place / "model"


@pytest.mark.slow
def test_an_exported_run_has_the_numbers_of_the_run(trained: tuple[Path, Any, Path], tmp_path: Path) -> None:
    _, run, folder = trained
    words = ("evaluate", folder, "--task", "parity", "--count", "40", "--name", "alibi", "--device", "cpu")
    lengths = ("--set", "data.train_lengths=[6,8]", "--set", "data.test_lengths=[9,10]")
    code, told = command(*words, *lengths, "--out", tmp_path / "out")
    assert code == 0, told
    (found,) = load_results(tmp_path / "out").runs
    keys = ("length", "seen", "bucket", "n", "correct", "wrong_symbol", "stopped_early", "ran_on", "chance")
    ours = [{key: row[key] for key in (*keys, "sequence_tokens")} for row in run.rows if row["checkpoint"] == "last"]
    theirs = [{key: row[key] for key in ours[0]} for row in found.rows if row["checkpoint"] == "last"]
    assert theirs == ours
    correct = sum(row["correct"] for row in ours)
    assert 20 < correct < 180  # a test that all or nothing would pass says little


@pytest.mark.slow
def test_an_exported_run_is_asked_what_its_export_says(trained: tuple[Path, Any, Path], tmp_path: Path) -> None:
    folder, run, _ = trained
    done = CliRunner().invoke(app, ["export", str(folder), "--to", str(tmp_path / "model")])
    assert done.exit_code == 0, done.exception
    (line,) = [line for line in done.output.splitlines() if "lengthwise evaluate" in line]
    code, told = command(*shlex.split(line)[1:], "--out", tmp_path / "out", "--count", "40")
    assert code == 0, told
    (found,) = load_results(tmp_path / "out").runs
    assert found.description["train_lengths"] == run.description["train_lengths"] == [6, 8]
    assert found.description["test_lengths"] == run.description["test_lengths"] == [9, 10]
    assert found.totals["last", False].correct == run.totals["last", False].correct


def test_a_task_that_the_model_has_no_words_for_is_refused_with_its_own(
    trained: tuple[Path, Any, Path], tmp_path: Path
) -> None:
    _, _, model = trained
    words = ("--count", "2", "--device", "cpu", "--out", tmp_path / "out")
    code, told = command("evaluate", model, "--task", "copy.words", *words)
    assert code == 1 and "model has no token for 'Copy:', a word of copy.words; it was trained on parity" in told
    assert not (tmp_path / "out").exists()
    origin = model / "lengthwise.json"
    said = json.loads(origin.read_text())
    try:
        origin.write_text(json.dumps({**said, "settings": {"task": {"name": "copy.words", "symbols": 5}}}))
        code, told = command("evaluate", model, "--task", "copy.words", *words)
        assert code == 1 and "it was trained with other settings: add --set symbols=5" in told
        origin.unlink()
        code, told = command("evaluate", model, "--task", "copy.words", *words)
        assert code == 1 and "ask with the settings of the task that it was trained on" in told
    finally:
        origin.write_text(json.dumps(said))


# Servers.


class Answers(BaseHTTPRequestHandler):
    """OpenAI's protocol: copies what stands between `Copy:` and the separator, except at one length."""

    fails_after = 10**9
    requests: list[dict[str, Any]] = []

    def log_message(self, *words: Any) -> None: ...

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "models/tiny-7b"}, {"id": "other"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).requests.append({"path": self.path, **asked})
        if len(self.requests) > self.fails_after:
            self._send(503, {"error": {"message": "Loading model"}})
            return
        chat = self.path == "/v1/chat/completions"
        question = asked["messages"][-1]["content"] if chat else asked["prompt"].rpartition("\n")[2]
        words = question.removeprefix("Copy: ").partition(" [SEP]")[0].split()
        if len(words) > 9:
            self._send(400, {"error": {"message": "the request exceeds the available context size"}})
            return
        text = " " + " ".join(words[:5])  # one word too few at length 6
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        self._send(200, {"choices": [{**choice, "index": 0, "finish_reason": "stop"}]})

    def _send(self, status: int, table: dict[str, Any]) -> None:
        content = json.dumps(table).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def server() -> Iterator[tuple[str, type[Answers]]]:
    class Own(Answers):
        requests: list[dict[str, Any]] = []

    found = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{found.server_port}", Own
    found.shutdown()
    found.server_close()
    thread.join()


@pytest.mark.parametrize("chat", [slow(False), True])
def test_a_server_is_asked(chat: bool, server: tuple[str, type[Answers]], tmp_path: Path) -> None:
    url, handler = server
    words = (
        "evaluate",
        url + "/v1/",
        "--task",
        "copy.words",
        "--count",
        "3",
        "--shots",
        "2",
        "--out",
        tmp_path / "out",
    )
    code, told = command(*words, *SET, *(["--chat"] if chat else []))
    assert code == 0, told
    (run,) = load_results(tmp_path / "out").runs
    assert run.description["encoding"] == ("tiny-7b (2-shot, chat)" if chat else "tiny-7b (2-shot)")
    assert run.counts_by_length("last") == {2: (3, 3), 3: (3, 3), 4: (3, 3), 5: (3, 3), 6: (0, 3)}
    assert [row["stopped_early"] for row in run.rows if row["length"] == 6] == [3, 3]
    asked = handler.requests[0]
    assert asked["temperature"] == 0 and asked["model"] == "models/tiny-7b"
    assert (len(asked["messages"]) == 5) if chat else (asked["stop"] == ["\n"] and asked["prompt"].count("\n") == 2)


def test_a_server_that_went_away_is_asked_for_the_rest(server: tuple[str, type[Answers]], tmp_path: Path) -> None:
    url, handler = server
    handler.fails_after = 9
    words = ("evaluate", url, "--task", "copy.words", "--count", "4", "--batch", "1", *SET, "--out", tmp_path / "out")
    code, told = command(*words)
    assert code == 1 and "status 503: Loading model" in told
    handler.fails_after, before = 10**9, len(handler.requests)
    code, told = command(*words)
    assert code == 0, told
    assert len(handler.requests) - before == 1 + 20 - 8  # a try of the longest, and what was not saved


def test_refusals_of_servers(server: tuple[str, type[Answers]], tmp_path: Path) -> None:
    url, _ = server
    asked = ("--task", "copy.words", "--count", "1", "--out", tmp_path / "out")
    for words, said in {
        (url, "--server-model", "mine"): "has no model 'mine'; it has models/tiny-7b, other",
        (url, "--lengths", "2,21"): "at length 21 with status 400: the request exceeds the available context size",
        ("http://127.0.0.1:1",): "is the server running?",
        ("http://",): "is no address of a server",
        ("http://localhost:none",): "is no address of a server",
    }.items():
        code, told = command("evaluate", *words, *asked)
        assert code == 1 and said in told, told
    assert not (tmp_path / "out").exists()
    assert base_of("http://a:1/proxy/v1/") == "http://a:1/proxy"


# Datasets.


def test_a_task_is_a_dataset_of_pytorch() -> None:
    made = lw.dataset("copy.words", "3-6", count=50)
    assert len(made) == 50 and {row["length"] for row in made} == {3, 4, 5, 6}
    assert isinstance(made, torch.utils.data.Dataset) and made[-1] == made[49]
    batch = next(iter(torch.utils.data.DataLoader(made, batch_size=8)))
    assert len(batch["prompt"]) == 8 and batch["length"].shape == (8,)
    for row in made:
        assert row["prompt"] == f"Copy: {row['target']} [SEP]" and len(row["target"].split()) == row["length"]
    with pytest.raises(IndexError):
        made[50]
    held_out = lw.dataset("copy.words", "3-6", count=50, split="test")
    assert not {row["prompt"] for row in made} & {row["prompt"] for row in held_out}
    assert {row["length"] for row in lw.dataset("copy.words", count=300, split="test")} == set(range(21, 41))
    for words, said in {("copy.words", "", 0): "1 or more", ("copy.words", "1-x"): "must look like"}.items():
        with pytest.raises(UserError, match=said):
            lw.dataset(*words)
    with pytest.raises(UserError, match="unknown split 'tset'; did you mean 'test'"):
        lw.dataset("copy.words", split="tset")


def test_a_task_is_a_stream_of_datasets() -> None:
    import datasets

    endless = lw.dataset("copy.words", [3, 5], streaming=True)
    assert isinstance(endless, datasets.IterableDataset)
    first = list(endless.take(40))
    assert first == list(endless.take(40)) and {row["length"] for row in first} == {3, 5}
    finite = lw.dataset("copy.words", "3-6", count=2500, streaming=True)
    whole = [row["prompt"] for row in finite]
    assert len(whole) == 2500
    parts = [row["prompt"] for index in range(4) for row in finite.shard(4, index)]
    assert sorted(parts) == sorted(whole)  # workers of a loader share it
    task = lw.task("copy.words")
    ours = splits.draw(task, Split.TRAIN, task.train_lengths, 10, 0)
    assert next(iter(lw.dataset("copy.words", count=10, streaming=True))).keys() == {"prompt", "target", "length"}
    assert len(ours) == 10


def test_dataset_command_draws_what_is_asked_for(tmp_path: Path) -> None:
    words = ("dataset", "copy.repeat", "--set", "symbols=30", "--out", tmp_path / "d")
    code, told = command(*words, "--count", "200", "--lengths", "2-4", "--test-lengths", "4,9")
    assert code == 0 and "train 200, validation 30, test 20" in " ".join(told.split())
    rows = {
        split: [json.loads(line) for line in (tmp_path / "d" / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "test")
    }
    assert {row["length"] for row in rows["train"]} == {2, 3, 4} and {row["length"] for row in rows["test"]} == {4, 9}
    assert not {row["prompt"] for row in rows["train"]} & {row["prompt"] for row in rows["test"]}
    assert "leave them out" in command(*words, "--all", "--count", "3")[1]
    assert (
        "no examples of length 3"
        in command("dataset", "chomsky.missing_duplicate", "--lengths", "3", "--out", tmp_path / "e")[1]
    )
