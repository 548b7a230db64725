"""A language model goes the whole round: trained, exported, extended, fitted, merged, and read without this package."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from test_any_model import assert_close
from test_context_extension import WORDS
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.context_extension.fitting_rows import choose_targets
from lengthwise.context_extension.forward import continued
from lengthwise.context_extension.loaded_model import open_model
from lengthwise.context_extension.passkey import KeyDocuments, draw
from lengthwise.context_extension.perplexity import perplexity_at
from lengthwise.context_extension.transformers_reader import TransformersReader
from lengthwise.context_extension.variant import variant
from lengthwise.language.model import load_language_model
from lengthwise.language.settings import settings_from
from lengthwise.language.training import train_language_model
from lengthwise.seeding import stream

CPU = torch.device("cpu")
CONTEXT, LONGER = 96, 384
CONTEXTS = (CONTEXT, 2 * CONTEXT, LONGER)
KEY_LENGTHS = (90, 180, 300)
ANSWER = 5
CLOSE = 1e-4
"""Of perplexities, relative."""
ENCODINGS: dict[str, Any] = {"none": "none", "rotary": {"name": "rotary", "fraction": 1.0}}
FIT = ("--length", 2 * CONTEXT, "--steps", 12, "--batch", 4, "--scored", 32)
WAYS: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "scales of heads": ("none", ("head-scale", "--initial", 1.3, *FIT), ()),
    "scales by entropy": ("none", ("head-scale", "--method", "entropy", *FIT), ()),
    "yarn": ("rotary", (), ("--extension", "yarn:factor=4")),
    "yarn, with all weights trained": ("rotary", ("yarn:factor=4", *FIT), ()),
    "yarn and a uniform scale": (
        "rotary",
        (),
        ("--extension", "yarn:factor=4", "--extension", "uniform-scale:constant=1.2"),
    ),
}
"""An encoding, what is fitted, and the extensions that are put on then."""

ALONE = """
import json, math, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lengthwise":
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Blocked())
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

asked = json.load(open("asked.json"))
tokenizer = AutoTokenizer.from_pretrained(asked["folder"])
model = AutoModelForCausalLM.from_pretrained(asked["folder"], dtype=torch.float32).eval()
told = {"texts": [], "perplexities": [], "answers": [], "class": type(model).__module__}
with torch.no_grad():
    for text in asked["texts"]:
        told["texts"].append(tokenizer(text)["input_ids"])
    for rows in asked["rows"]:
        losses = []
        for row in rows:
            log_probabilities = model(torch.tensor([row[:-1]])).logits[0].double().log_softmax(-1)
            for place in range(len(row) - asked["scored"], len(row)):
                losses.append(-float(log_probabilities[place - 1, row[place]]))
        told["perplexities"].append(math.exp(sum(losses) / len(losses)))
    for prompt in asked["prompts"]:
        written = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=asked["answer"], do_sample=False,
        )
        told["answers"].append(written[0, len(prompt):].tolist())
assert not any(name.split(".")[0] == "lengthwise" for name in sys.modules)
json.dump(told, open("told.json", "w"))
"""


def topics(number: int, words: int) -> str:
    """Words that come again: forty at a time are drawn from three of them, so that attention decides what is likely."""
    generator, found = stream(number, "topics"), []
    while len(found) < words:
        chosen = generator.choice(len(WORDS), size=3, replace=False)
        found += [WORDS[word] for word in generator.choice(chosen, size=40)]
    return " ".join(found[:words]) + ".\n"


def call(*words: Any) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def until_end(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a matched pair trained on it and on passkey rows, and both as folders of Transformers."""
    place = tmp_path_factory.mktemp("round")
    for split, sizes in {"train": (3000, 2000), "validation": (1200,), "test": (1500, 900)}.items():
        (place / "corpus" / split).mkdir(parents=True)
        for number, size in enumerate(sizes):
            (place / "corpus" / split / f"{number}.txt").write_text(topics(len(split) * 100 + number, size))
    for name, encoding in ENCODINGS.items():
        table = {
            "encoding": encoding,
            "seed": 1,
            "model": {"layers": 2, "width": 32, "heads": 4, "key_value_heads": 2},
            "data": {"context": CONTEXT, "vocabulary": 500, "validation_tokens": 192, "passkey_share": 0.5},
            "training": {"tokens": 240 * 768, "batch_tokens": 768, "learning_rate": 0.01, "validations": 1},
        }
        train_language_model(place / "corpus", settings_from(table), place / "runs" / name, "cpu")
        call("export", place / "runs" / name, "--to", place / "models" / name)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_model_goes_the_whole_round(way: str, exported: Path, tmp_path: Path) -> None:
    encoding, fitting, extensions = WAYS[way]
    folder, corpus = exported / "models" / encoding, ("--corpus", exported / "corpus", "--device", "cpu")

    # Exported, and read by plain Transformers: the run's own logits.
    plain: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    run, _, _ = load_language_model(exported / "runs" / encoding)
    rows = run.embedding.num_embeddings
    tokens_BT = torch.randint(rows, (2, 2 * CONTEXT), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert_close(plain(tokens_BT).logits, run.eval()(tokens_BT), 5e-6)

    # Fitted, and extended.
    fit = tmp_path / "fit" if fitting else None
    if fit is not None:
        assert "Fitted" in call("extend", "fit", folder, *fitting, *corpus, "--out", fit)
    with_fit = () if fit is None else ("--fit", fit)
    loaded = open_model(folder, CPU)
    chosen = variant(loaded, extensions[1::2], fit)
    targets = choose_targets(loaded.documents("test", exported / "corpus"), CONTEXTS, count=6, scored=32)
    expected = {context: perplexity_at(chosen(context), targets, context).perplexity for context in CONTEXTS}
    told = json.loads(
        call("extend", "perplexity", folder, *with_fit, *extensions, *corpus, "--context", ",".join(map(str, CONTEXTS)),
             "--windows", 6, "--scored", 32, "--json")
    )  # fmt: skip
    assert [row["perplexity"] for row in told] == pytest.approx(list(expected.values()), rel=1e-6)
    as_trained = perplexity_at(loaded.extended([], LONGER), targets, LONGER).perplexity
    assert abs(as_trained / expected[LONGER] - 1) > 20 * CLOSE, "the extension does something"

    # It answers, with the library's own generation and cache as in one pass.
    documents = KeyDocuments(loaded.tokenizer, loaded.begins)
    asked = [
        draw(documents, length, depth, 0, trial) for length in KEY_LENGTHS for depth in (0.1, 0.9) for trial in (0, 1)
    ]
    prompts = [document.prompt for document in asked]
    assert {len(document.answer) for document in asked} == {ANSWER}
    reader = chosen(LONGER)
    assert isinstance(reader, TransformersReader)
    answers = [until_end(continued(reader, prompt, ANSWER).tolist(), plain.config.eos_token_id) for prompt in prompts]
    assert len({tuple(answer) for answer in answers}) > 2, "they depend on the prompt"
    with torch.no_grad(), reader.attending() as model:
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = torch.from_numpy(prompt)[None]
            written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=ANSWER, do_sample=False)
            assert written[0, len(prompt) :].tolist() == answer

    # Merged: a folder that does the same, for whoever has never heard of us.
    said = call("extend", "merge", folder, *with_fit, *extensions, "--out", tmp_path / "merged", "--device", "cpu")
    assert f"Wrote {tmp_path / 'merged'}:".replace("\n", "") in said.replace("\n", "")
    texts = ["the old captain saw a small lamp", "the key is 12345"]
    question = {
        "folder": "merged",
        "texts": texts,
        "rows": [targets.rows(context).tolist() for context in CONTEXTS],
        "scored": 32,
        "prompts": [prompt.tolist() for prompt in prompts],
        "answer": ANSWER,
    }
    (tmp_path / "asked.json").write_text(json.dumps(question))
    ran = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=tmp_path,
        env={"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "told.json").read_text())
    assert found["class"].startswith("transformers.models.")
    assert found["perplexities"] == pytest.approx(list(expected.values()), rel=CLOSE)
    assert found["answers"] == answers
    for text, ids in zip(texts, found["texts"], strict=True):
        assert ids == np.concatenate([loaded.begins, loaded.tokenizer.encode(text)]).tolist()
