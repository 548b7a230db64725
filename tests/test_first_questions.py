"""The four questions of the first page, asked as they stand there: only the models are small and the steps are few."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import transformers as hf
from test_foreign_models import SHAPE, byte_tokenizer
from test_one_file import ENCODING

from lengthwise.records.rows import load_results

README = (Path(__file__).parent.parent / "README.md").read_text()
SECTION = README.split("\n## Four questions to begin with\n")[1].split("\n## ")[0]
ASKED = dict(re.findall(r"^\*\*(.*?)\*\*.*?^```bash\n(.*?)^```", SECTION, flags=re.MULTILINE | re.DOTALL))
SHORT = {
    "run": ["--set", "training.steps=2", "--set", "data.test_per_length=4", "--set", "data.validation=10"],
    "evaluate": ["--count", "1"],
    "extend compare": ["--windows", "8"],
}

pytestmark = pytest.mark.slow


def ask(question: str, folder: Path) -> list[str]:
    """Gives the commands of a question, one after the other; what they printed."""
    environment, printed = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}, []
    lines = ASKED[question].strip().splitlines()
    assert len(lines) <= 5
    for line in lines:
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
            continue
        assert words[0] == "lengthwise"
        program = [
            sys.executable,
            "-c",
            "from lengthwise.cli import main; main()",
            *words[1:],
            *SHORT.get(words[1], []),
            *SHORT.get(" ".join(words[1:3]), []),
        ]
        done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)
        printed.append(done.stdout + done.stderr)
    return printed


def small_model(folder: Path, context: int) -> None:
    tokenizer = byte_tokenizer()
    config = hf.LlamaConfig(
        vocab_size=len(tokenizer), eos_token_id=1, pad_token_id=0, **{**SHAPE, "max_position_embeddings": context}
    )
    hf.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_there_are_four_questions() -> None:
    assert [question.split()[0] for question in ASKED] == ["Is", "Does", "How", "Does"]


def test_a_bias_of_ones_own_beside_alibi(tmp_path: Path) -> None:
    (tmp_path / "my_folder/encodings").mkdir(parents=True)
    (tmp_path / "my_folder/encodings/squared.py").write_text(ENCODING)
    _, shown, _, _ = ask("Is my bias better than ALiBi?", tmp_path)
    assert "minus that of alibi" in shown and "95 % CI" in shown
    assert "squared" in (tmp_path / "mine.svg").read_text() and "squared" in (tmp_path / "mine.html").read_text()


def test_two_ways_to_extend_a_llama_of_ones_own(tmp_path: Path) -> None:
    small_model(tmp_path / "models/mine", 256)
    (tmp_path / "texts").mkdir()
    for name in "ab":
        (tmp_path / f"texts/{name}.txt").write_text("".join(f"line {number} of {name}\n" for number in range(1500)))
    compared, _ = ask("Does YaRN or NTK extend my Llama further?", tmp_path)
    assert "all of them are read" in compared and "ntk:factor=auto" in compared
    rows = [json.loads(line) for line in (tmp_path / "runs/ways/perplexity.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows[::4]] == ["as trained", "yarn:factor=auto", "ntk:factor=auto"]
    assert [row["context"] for row in rows[:4]] == [256, 512, 1024, 2048] and len({row["targets"] for row in rows}) == 1
    assert "yarn:factor=auto" in (tmp_path / "ways.html").read_text()


def test_a_model_of_ones_own_by_length(tmp_path: Path) -> None:
    small_model(tmp_path / "models/mine", 1024)
    ask("How far does my own model copy?", tmp_path)
    (run,) = load_results(tmp_path / "runs/copying").runs
    assert [*run.counts_by_length("last")] == list(range(2, 41)) and run.description["train_lengths"] == [2, 20]
    assert "copy.words" in (tmp_path / "copying.html").read_text()


def test_a_grid_in_a_tracker(tmp_path: Path) -> None:
    trained, shown, _ = ask("Does it depend on depth and learning rate?", tmp_path)
    assert "The runs are in wandb: wandb sync" in trained and "layers" in shown
    runs = list((tmp_path / "runs/sweep/wandb").glob("offline-run-*"))
    assert len(runs) == len(load_results(tmp_path / "runs/sweep").runs) == 5 * 2 * 2 * 2
