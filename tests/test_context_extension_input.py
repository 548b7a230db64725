"""What the `extend` and `language` commands say to input that cannot be meant, or that is harder than the usual."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from test_context_extension import CONTEXT, folder, story
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.context_extension.extension_study import refuse_other_precision
from lengthwise.context_extension.hugging_face import load_decoder
from lengthwise.context_extension.loaded_model import open_model
from lengthwise.context_extension.variant import extension_table
from lengthwise.errors import UserError
from lengthwise.language.corpus import Corpus

__all__ = ["folder"]

pytestmark = pytest.mark.slow  # a matched pair is trained for it once more


def extend(*words: object) -> Result:
    return CliRunner().invoke(app, ["extend", *map(str, words)], catch_exceptions=True)


def test_settings_may_be_lists(folder: Path) -> None:
    factors = [1.0, 1.5, 2.0, 2.5]
    given = f"longrope:factor=2,long={json.dumps(factors)},short=[1.0, 1.0, 1.0, 1.0]"
    found = extension_table(given.replace(" ", ""))
    assert found == {"name": "longrope", "factor": 2, "long": factors, "short": [1.0] * 4}
    done = extend("perplexity", folder / "rotary", "--extension", given, "--context", 64, "--scored", 16)
    assert done.exit_code == 0, done.exception


def test_a_learning_rate_of_zero_is_not_the_usual_one(folder: Path, tmp_path: Path) -> None:
    words = ("fit", folder / "none", "head-scale", "--length", 64, "--out", tmp_path / "fit", "--initial", 1.2)
    done = extend(*words, "--learning-rate", 0)
    assert isinstance(done.exception, UserError) and "learning_rate must be above 0" in str(done.exception)
    assert not (tmp_path / "fit").exists()


def test_a_fit_knows_its_factor(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "fit"
    words = ("yarn:factor=auto", "--length", 2 * CONTEXT, "--out", out, "--steps", 1, "--batch", 1)
    done = extend("fit", folder / "rotary", *words)
    assert done.exit_code == 0, done.exception
    assert json.loads((out / "fit.json").read_text())["settings"]["extensions"] == [{"name": "yarn", "factor": 2.0}]


def test_entropy_at_contexts_below_the_trained_one(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "fit"
    words = ("head-scale", "--length", 64, "--out", out, "--initial", 1.2, "--steps", 2, "--batch", 1)
    assert extend("fit", folder / "none", *words).exit_code == 0
    found = []
    for context in (CONTEXT // 2, CONTEXT, 2 * CONTEXT):
        rows = tmp_path / f"{context}.jsonl"
        done = extend("entropy", folder / "none", "--fit", out, "--context", context, "--scored", 8, "--out", rows)
        assert done.exit_code == 0, done.exception
        found.append(json.loads(rows.read_text().splitlines()[-1]))
    assert found[0] == found[1] == found[2], "the correlation is always that at the trained length"
    assert found[0]["kind"] == "correlation"


def test_short_documents_before_long_ones_do_not_hide_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts/train").mkdir(parents=True)
    for number in range(9):
        (tmp_path / "texts/train" / f"{number}.txt").write_text(story(number, 40))
    (tmp_path / "texts/train/z.txt").write_text(story(99, 900))
    words = ("--length", 200, "--initial", 1.2, "--steps", 1, "--batch", 1, "--corpus", tmp_path / "texts")
    done = extend("fit", folder / "none", "head-scale", "--out", tmp_path / "fit", *words)
    assert done.exit_code == 0, done.exception


def test_runs_and_tokens_beside_texts_are_no_texts(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(story(1, 50))
    names = [file.name for file in Corpus(tmp_path).files]
    shutil.copytree(folder / "none", tmp_path / "runs/none")
    shutil.copytree(folder / "tokens", tmp_path / "runs/tokens")
    assert (tmp_path / "runs/none/training.jsonl").exists()
    assert [file.name for file in Corpus(tmp_path).files] == names == ["a.txt"]


def test_folders_without_a_language_model(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "none", tmp_path / "none")
    (tmp_path / "none/last.safetensors").unlink()
    with pytest.raises(UserError, match="has no weights: they were not kept"):
        open_model(tmp_path / "none", torch.device("cpu"))
    study = tmp_path / "study"
    words = ["--set", "training.steps=2", "--only", "task=copy.repeat,encoding=none,seed=1", "--out", str(study)]
    assert CliRunner().invoke(app, ["run", "quickstart", "--device", "cpu", *words]).exit_code == 0
    (run,) = {path.parent for path in study.rglob("last.safetensors")}
    with pytest.raises(UserError, match="no language model, but a run of a study"):
        open_model(run, torch.device("cpu"))


def test_damaged_checkpoints_of_others(tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
              "intermediate_size": 32, "vocab_size": 50, "max_position_embeddings": 32}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    for content in (b"", b"not a checkpoint", np.arange(9).tobytes()):
        (tmp_path / "pytorch_model.bin").write_bytes(content)
        with pytest.raises(UserError, match=r"pytorch_model\.bin cannot be read: ."):
            load_decoder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_attention_heads": 3}))
    with pytest.raises(UserError, match="width 16 cannot be divided among 3 heads"):
        load_decoder(tmp_path)


def test_a_tokenizer_with_more_tokens_than_the_model(folder: Path) -> None:
    loaded = open_model(folder / "none", torch.device("cpu"))

    class Large:
        def encode(self, text: str) -> np.ndarray:
            return np.array([3, loaded.model.rows])

    object.__setattr__(loaded, "tokenizer", Large())
    with pytest.raises(UserError, match="makes token 300, but the model has 300 rows"):
        loaded.documents("test", folder / "corpus")


def test_models_of_a_study_have_one_precision(folder: Path, tmp_path: Path) -> None:
    for name in ("none", "rotary", "tokens"):
        shutil.copytree(folder / name, tmp_path / name)
    described = json.loads((tmp_path / "none/run.json").read_text())
    (tmp_path / "none/run.json").write_text(json.dumps({**described, "precision": "bf16"}))
    models = [open_model(tmp_path / name, torch.device("cpu")) for name in ("none", "rotary")]
    with pytest.raises(UserError, match=r"trained in different precision \(none in bf16, rotary in fp32\)"):
        refuse_other_precision(models)
