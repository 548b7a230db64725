"""Our tasks in lm-evaluation-harness: the questions and numbers of `lengthwise evaluate`, by length."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from conftest import small_study
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from test_foreign_models import SHAPE, byte_tokenizer, command, written_by_hand

from lengthwise.context_extension.foreign_tokenizer import ForeignTokenizer
from lengthwise.context_extension.passkey import KeyDocuments, draw
from lengthwise.executors.local import run_study
from lengthwise.foreign_models.evaluating import prepare_questions
from lengthwise.foreign_models.questions import Asking
from lengthwise.hub.export import export
from lengthwise.records.rows import load_results

pytestmark = pytest.mark.slow

TABLE = {"name": "parity", "data": {"train_lengths": [6, 8], "test_lengths": [9, 10]}}
SET = ("--set", "data.train_lengths=[6,8]", "--set", "data.test_lengths=[9,10]", "--count", "20")


def evaluated(folder: Path, model: Any, task: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What lm-eval says of a task: its scores, and every question with what became of it."""
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = simple_evaluate(model, tasks=[task], task_manager=manager, log_samples=True, bootstrap_iters=0)
    assert found is not None
    return found["results"][task], found["samples"][task]


def of_length(scores: dict[str, Any], length: int) -> float:
    return scores[f"length {length:06d},none"]


@pytest.mark.parametrize("shots", [0, 2])
def test_an_exported_run_has_the_numbers_that_we_find(shots: int, tmp_path: Path) -> None:
    lengths = {"data__train_lengths": [6, 8], "data__test_lengths": [9, 10], "data__test_per_length": 20}
    study = small_study(tasks=["parity"], encodings=["alibi"], seeds=[1], **lengths, training__steps=200)
    run_study(study, tmp_path / "runs", "cpu")
    (run,) = tmp_path.glob("runs/*/*/seed-*")
    export(run, tmp_path / "model")
    code, told = command("lm-eval", "--to", tmp_path / "tasks", "--task", "parity", "--shots", str(shots), *SET)
    assert code == 0, told
    model = HFLM(str(tmp_path / "model"), trust_remote_code=True, device="cpu", batch_size=8)
    scores, samples = evaluated(tmp_path / "tasks", model, "lengthwise_parity")
    questions = prepare_questions(TABLE, count=20, asking=Asking(shots=shots))
    asked = {sample["doc_id"]: sample["arguments"][0][0] for sample in samples}
    assert asked == {index: questions.plain(index) for index in range(len(questions))}
    words = ("evaluate", tmp_path / "model", "--task", "parity", *SET, "--shots", str(shots), "--device", "cpu")
    code, told = command(*words, "--out", tmp_path / "out")
    assert code == 0, told
    (ours,) = load_results(tmp_path / "out").runs
    counts = ours.counts_by_length("last")
    assert {length: of_length(scores, length) for length in counts} == {n: c / all_ for n, (c, all_) in counts.items()}
    if not shots:  # the run's own numbers too
        assert counts == load_results(tmp_path / "runs").runs[0].counts_by_length("last")
        assert 0 < sum(correct for correct, _ in counts.values()) < len(questions)
    right, total = (sum(pair[place] for pair in counts.values()) for place in (0, 1))
    assert scores["exact_match,none"] == pytest.approx(right / total)


@torch.no_grad()
def test_passkeys_are_read_as_the_tokens_that_we_ask_for(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=len(tokenizer), eos_token_id=1, pad_token_id=0, **{**SHAPE, "max_position_embeddings": 512}
    )
    model = hf.LlamaForCausalLM(config).eval()
    tokenizer.save_pretrained(tmp_path / "model")
    words = ("lm-eval", "--to", tmp_path / "tasks", "--passkey", tmp_path / "model", "--context", "300,400")
    code, told = command(*words, "--depths", "2", "--trials", "2")
    assert code == 0 and "lengthwise_passkey" in told, told
    scores, samples = evaluated(
        tmp_path / "tasks", HFLM(model, tokenizer=tokenizer, batch_size=2), "lengthwise_passkey"
    )
    own = ForeignTokenizer.load(tmp_path / "model")
    documents = KeyDocuments(own, own.begins)
    rows = [json.loads(line) for line in (tmp_path / "tasks" / "lengthwise_passkey.jsonl").read_text().splitlines()]
    assert [row["length"] for row in rows] == 4 * [300] + 4 * [400]
    for number, (row, sample) in enumerate(zip(rows, sorted(samples, key=lambda each: each["doc_id"]), strict=True)):
        found = draw(documents, row["tokens"], row["depth"], 0, number % 2)
        assert row["length"] - 4 <= len(found.prompt) + len(found.answer) <= row["length"]
        assert tokenizer(sample["arguments"][0][0]).input_ids == found.prompt.tolist()
        assert row["target"] == tokenizer.decode(found.answer) and len(row["target"].strip()) == 5
        wanted, _ = written_by_hand(model, tokenizer, sample["arguments"][0][0], len(row["target"]))
        assert sample["resps"][0][0] == wanted.partition("\n")[0]
        rightly = wanted.strip().startswith(row["target"].strip())
        assert sample["exact_match"] == float(rightly)
    assert scores["length 000300 depth 1.00,none"] == 0.0


def long_model(folder: Path) -> Path:
    """A small Llama that reads bytes, as a folder."""
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=len(tokenizer), eos_token_id=1, pad_token_id=0, **{**SHAPE, "max_position_embeddings": 4096}
    )
    hf.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_longbench_is_read_from_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows as LongBench's data.zip has them; prompts and scores are those of lm-eval's own tasks."""
    pytest.importorskip("jieba")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    rows = {
        "passage_retrieval_en": {
            "input": "An abstract.",
            "context": "Paragraph 1: a\n\nParagraph 2: b",
            "answers": ["Paragraph 2"],
        },
        "trec": {
            "input": "Question: who?",
            "context": "Question: when?\nType: Date",
            "answers": ["Individual"],
            "all_classes": ["Individual", "Date"],
        },
    }
    (tmp_path / "data").mkdir()
    for name, row in rows.items():
        both = [{**row, "length": 9, "dataset": name, "language": "en", "_id": str(number)} for number in range(2)]
        (tmp_path / f"data/{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in both))
    code, told = command("lm-eval", "--to", tmp_path / "tasks", "--longbench", tmp_path / "data")
    assert code == 0, told
    model, answers = HFLM(str(long_model(tmp_path / "model")), device="cpu", batch_size=2), {}
    for name, answer in {"passage_retrieval_en": " Paragraph 2, or 7.", "trec": " Individual"}.items():
        monkeypatch.setattr(model, "generate_until", lambda asked, answer=answer, **_: [answer for _ in asked])
        scores, samples = evaluated(tmp_path / "tasks", model, f"lengthwise_longbench_{name}")
        prompt = samples[0]["arguments"][0][0]
        assert rows[name]["input"] in prompt and rows[name]["context"] in prompt and len(samples) == 2
        answers[name] = scores["score,none"]
    assert answers == {"passage_retrieval_en": 0.5, "trec": 1.0}
    refused = {
        "none": "no such folder",
        "empty": "has no .jsonl file",
        "odd": "is not named after a task of LongBench; did you mean 'trec'",
        "other": "its first row has no 'answers'",
    }
    for name in ("empty", "odd", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "odd/tric.jsonl").write_text("{}\n")
    (tmp_path / "other/trec.jsonl").write_text('{"context": "", "input": ""}\n')
    for name, said in refused.items():
        assert said in command("lm-eval", "--to", tmp_path / "new", "--longbench", tmp_path / name)[1]
    assert not (tmp_path / "new").exists()


def test_ruler_runs_on_a_folder_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of docs/evaluating-models.md, with a model that says the first number and then what it likes."""
    pytest.importorskip("wonderwords")
    folder = str(long_model(tmp_path / "model"))
    model, numbers = HFLM(folder, device="cpu", batch_size=1, max_length=4096), list[str]()
    generate = model.generate_until

    def knows_the_first(asked: list[Any], **options: Any) -> list[str]:
        for each in asked:
            (number,) = re.findall(r"is: (\d{7})\.", each.args[0])
            numbers.append(number)
        return [f" {numbers[0]}.", *generate(asked[1:], **options)]

    monkeypatch.setattr(model, "generate_until", knows_the_first)
    found = simple_evaluate(
        model,
        tasks=["niah_single_1"],
        metadata={"pretrained": folder, "max_seq_lengths": [1024]},
        limit=2,
        bootstrap_iters=0,
        gen_kwargs={"max_gen_toks": 8},
        log_samples=True,
    )
    assert found is not None
    samples = found["samples"]["niah_single_1"]
    assert [sample["doc"]["outputs"] for sample in samples] == [[number] for number in numbers]
    lengths = [len(byte_tokenizer()(sample["arguments"][0][0]).input_ids) for sample in samples]
    assert all(700 < length <= 1024 - 128 for length in lengths), "with room for the answer"
    assert [sample["1024"] for sample in samples] == [1.0, 0.0]
    assert found["results"]["niah_single_1"]["1024,none"] == 0.5


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    assert "not empty" in command("lm-eval", "--to", tmp_path, "--task", "parity")[1]
    assert "did you mean" in command("lm-eval", "--to", tmp_path / "a", "--task", "partiy")[1]
    assert not (tmp_path / "a").exists()
