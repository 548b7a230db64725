"""Models for Transformers: the same logits, bit for bit; generation, caches, tokenizers; what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import slow
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging
from typer.testing import CliRunner

import lengthwise.hub as hub
from lengthwise import registry
from lengthwise.cli.main import app
from lengthwise.context_extension.hugging_face import load_decoder
from lengthwise.context_extension.loaded_model import open_model
from lengthwise.data.tokenizer_file import FileSpeller, TextTokens
from lengthwise.data.tokens import SymbolTokens
from lengthwise.errors import UserError
from lengthwise.evaluation.generate import generate
from lengthwise.hub.export import export
from lengthwise.hub.native import native_model, refusal
from lengthwise.hub.tokenizer import task_tokenizer, texts_of, word_level
from lengthwise.language.model import load_language_model
from lengthwise.language.settings import settings_from
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.language.training import train_language_model
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.records.results import Results
from lengthwise.tasks.choosing import make_task
from lengthwise.training.checkpoint import load_model
from lengthwise.training.recipe import DataConfig

logging.disable_progress_bar()
logging.set_verbosity_error()

ROWS, PAD, END = 40, 0, 7
FULL = {"name": "rotary", "fraction": 1.0}
KINDS: dict[str, list[dict[str, Any]]] = {
    **{name: [{"name": name}] for name in ("none", "learned", "t5", "alibi", "rotary", "sinusoidal", "fox", "cope")},
    "path": [{"name": "path"}],
    "entmax in a composition": [{"methods": [{"name": "rotary"}, {"name": "entmax"}]}],
    "schedule": [{"name": "none"}, FULL],
    "mamba2": [{"name": "mamba2"}],
}
OTHERS = sorted({*registry.encodings.names(), *registry.mixers.names()} - KINDS.keys() - {"entmax"})


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield


def decoder_of(encodings: list[dict[str, Any]], style: str = "t5", **shape: Any) -> Decoder:
    """With random weights, those of encodings too, and a choice of tokens that is clear."""
    config = ModelConfig(size="", style=style, **{"layers": 2, "width": 32, "heads": 4, **shape})  # pyrefly: ignore
    model = build(config, ROWS, encodings, Lengths(32, 64))
    initialize(model, seed=3)
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def saved(decoder: Decoder, encodings: list[dict[str, Any]], folder: Path) -> hub.LengthwiseForCausalLM:
    """As a folder of Transformers, and read from it."""
    model = hub.LengthwiseForCausalLM(hub.LengthwiseConfig.of(decoder, encodings, pad_token_id=PAD, eos_token_id=END))
    model.decoder.load_state_dict(decoder.state_dict())
    model.save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def tokens_of(batch: int, length: int) -> Tensor:
    return torch.randint(2, ROWS, (batch, length), generator=torch.Generator().manual_seed(batch + length))


def assert_same(encodings: list[dict[str, Any]], folder: Path, **shape: Any) -> None:
    ours = decoder_of(encodings, **shape)
    theirs = saved(ours, encodings, folder)
    assert {name: value.numpy().tobytes() for name, value in theirs.decoder.state_dict().items()} == {
        name: value.numpy().tobytes() for name, value in ours.state_dict().items()
    }
    tokens_BT = tokens_of(3, 14)
    assert torch.equal(theirs(tokens_BT).logits, ours(tokens_BT))
    mask_BT = torch.ones_like(tokens_BT)
    mask_BT[0, :5] = mask_BT[1, :1] = 0
    padded = theirs(tokens_BT, attention_mask=mask_BT).logits
    assert torch.equal(padded, ours(tokens_BT, segments_BT=mask_BT))
    torch.testing.assert_close(padded[0, 5:], ours(tokens_BT[:1, 5:])[0], atol=1e-4, rtol=0)
    packed = torch.cat([torch.arange(6), torch.arange(8)])[None]
    second = theirs(tokens_BT[:1], position_ids=packed).logits[0, 6:]
    torch.testing.assert_close(second, ours(tokens_BT[:1, 6:])[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_ours_bit_for_bit(kind: str, tmp_path: Path) -> None:
    assert_same(KINDS[kind], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_logits_of_every_other_method_are_ours(name: str, tmp_path: Path) -> None:
    assert_same([{"name": name}], tmp_path, style="llama")


def test_logits_of_loops_and_shared_keys_are_ours(tmp_path: Path) -> None:
    assert_same(KINDS["t5"], tmp_path, style="llama", loops=2, inject=True, key_value_heads=2)


# Generation.


QUICK = ("t5", "fox", "schedule", "mamba2")
GENERATED = {**KINDS, **{name: [{"name": name}] for name in OTHERS}}
"""Every encoding and every mixer, a schedule and a composition."""
PROMPTS = 1000


def prompts_of(count: int, longest: int) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.integers(2, ROWS, size=int(generator.integers(1, longest + 1))) for _ in range(count)]


def generated(model: hub.LengthwiseForCausalLM, prompts: list[np.ndarray], budget: int, **options: Any) -> list[Any]:
    """What follows each prompt, up to and including the end."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), PAD)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.from_numpy(prompt)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    found = model.generate(ids, attention_mask=mask, max_new_tokens=budget, do_sample=False, **options)[:, width:]
    rows = []
    for row in found.tolist():
        rows.append(row[: row.index(END) + 1] if END in row else row)
    return rows


class Ends(SymbolTokens):
    """Tokens as our own decoding asks for them."""

    def __init__(self) -> None:
        self.pad, self.end = PAD, END


@pytest.mark.parametrize("kind", [*QUICK, *map(slow, sorted(GENERATED.keys() - set(QUICK)))])
def test_generation_with_a_cache_is_our_greedy_decoding(kind: str, tmp_path: Path) -> None:
    """Prompts of all lengths in one batch, so that all but the longest are padded on the left."""
    ours = decoder_of(GENERATED[kind], "llama")
    theirs = saved(ours, GENERATED[kind], tmp_path)
    prompts = prompts_of(PROMPTS, longest=12)
    expected = [row.tolist() for row in generate(ours, prompts, Ends(), 10)]
    assert len({tuple(row) for row in expected}) > 30, "answers that depend on the prompt"
    assert any(len(row) < 10 for row in expected), "some end early"
    assert generated(theirs, prompts, 10) == expected


@pytest.mark.parametrize("kind", ["rotary", "fox", "mamba2"])
def test_beams_follow_their_rows_through_the_cache(kind: str, tmp_path: Path) -> None:
    theirs = saved(decoder_of(KINDS[kind], layers=2), KINDS[kind], tmp_path)
    prompts = prompts_of(8, longest=6)
    found = generated(theirs, prompts, 8, num_beams=3)
    assert found == generated(theirs, prompts, 8, num_beams=3, use_cache=False)
    assert found != generated(theirs, prompts, 8)


def test_tokens_are_taken_back_from_the_cache(tmp_path: Path) -> None:
    theirs = saved(decoder_of(KINDS["fox"], "llama"), KINDS["fox"], tmp_path)
    tokens_BT = tokens_of(2, 9)
    wrong_BT = torch.cat([tokens_BT[:, :5], tokens_BT[:, :2]], dim=1)
    kept = theirs(wrong_BT, use_cache=True).past_key_values
    kept.crop(-2)
    rest = theirs(tokens_BT[:, 5:], past_key_values=kept).logits
    torch.testing.assert_close(rest, theirs(tokens_BT).logits[:, 5:], atol=1e-4, rtol=0)
    # Prompt lookup guesses, and takes back what was wrong.
    prompt = np.array([5, 6, 8, 5, 6, 8, 5, 6])
    assert generated(theirs, [prompt], 12, prompt_lookup_num_tokens=3) == generated(theirs, [prompt], 12)
    state = saved(decoder_of(KINDS["mamba2"]), KINDS["mamba2"], tmp_path / "state")
    kept = state(tokens_of(1, 4), use_cache=True).past_key_values
    assert not kept.is_croppable
    with pytest.raises(ValueError, match="none can be taken back"):
        kept.crop(-1)


def test_what_transformers_may_ask_and_we_refuse(tmp_path: Path) -> None:
    theirs = saved(decoder_of(KINDS["learned"]), KINDS["learned"], tmp_path)
    tokens_BT = tokens_of(1, 5)
    with pytest.raises(ValueError, match="keeps its 40 embedding rows"):
        theirs.resize_token_embeddings(80)
    with pytest.raises(ValueError, match=r"pass past_key_values=None"):
        theirs(tokens_BT, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match=r"0, 1, 2 \.\.\. of each sequence"):
        theirs(tokens_BT, position_ids=torch.arange(3, 8)[None])
    with pytest.raises(ValueError, match=r"should be \(1, 5\)"):
        theirs(tokens_BT, attention_mask=torch.ones(1, 4))
    with pytest.raises(TypeError, match="takes no inputs_embeds"):
        theirs(tokens_BT, inputs_embeds=torch.zeros(1, 5, 32))
    with pytest.raises(UserError, match="beyond the last one that the encoding knows"):
        theirs(tokens_of(1, 100))


def test_training_with_labels_has_gradients_and_drops(tmp_path: Path) -> None:
    theirs = saved(decoder_of(KINDS["none"], dropout=0.2), KINDS["none"], tmp_path)
    tokens_BT = tokens_of(2, 6)
    expected = torch.nn.functional.cross_entropy(
        theirs(tokens_BT).logits[:, :-1].flatten(0, 1), tokens_BT[:, 1:].flatten()
    )
    torch.testing.assert_close(theirs(tokens_BT, labels=tokens_BT).loss, expected)
    with torch.enable_grad():
        torch.manual_seed(0)
        first, second = (theirs.train()(tokens_BT, labels=tokens_BT).loss for _ in range(2))
        assert first != second
        first.backward()
        assert all(parameter.grad is not None for parameter in theirs.parameters())


# Tokenizers.


def test_every_task_is_read_as_its_model_was_trained() -> None:
    checked = 0
    for name in registry.tasks.names():
        if name == "file":
            continue
        task = make_task(name)
        made = hub.LengthwiseTokenizer(tokenizer_object=word_level(task.vocabulary))
        for ids, text in texts_of(task, count=1, lengths=4):
            assert made(text)["input_ids"] == ids.tolist() == task.vocabulary.encode(text).tolist(), (name, text)
            assert made.decode(ids.tolist()) == text
            checked += 1
    assert checked > 300


def test_a_word_that_is_not_known_is_named() -> None:
    task = make_task("copy.words")
    made = task_tokenizer(task, SymbolTokens(task.vocabulary))
    prompt = task.sample(length=3)[0][0]
    for text in (f"{prompt} Zanzibar", [prompt, f"Zanzibar {prompt}"]):
        with pytest.raises(
            ValueError, match="not in the vocabulary: 'Zanzibar'; the model knows the 105 words"
        ) as error:
            made(text)
        assert "\n" not in str(error.value)


PUBLISHED = {"tokens": "published", "trimmed": True}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("copy.words", PUBLISHED),
        ("addition", {"tokens": "published"}),
        ("copy.replace", {"prefix_tokens": 3, "separator_tokens": 2}),
        *(slow(name, PUBLISHED) for name in ("scan", "parity", "polynomial", "sort.numbers", "lego", "pcfg")),
    ],
)
def test_words_of_several_tokens_are_read_as_in_training(name: str, data: dict[str, Any], tmp_path: Path) -> None:
    task = make_task(name)
    tokens = DataConfig(**data).make_tokens(task)
    task_tokenizer(task, tokens).save_pretrained(tmp_path)
    made = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(made, hub.LengthwiseSpellingTokenizer)
    assert (made.pad_token_id, made.eos_token_id) == (tokens.pad, tokens.end) and len(made) == tokens.rows
    examples = task.drawn(5, 8, seed=1)
    converted = tokens.convert(examples)
    for number in range(len(examples)):
        ids = converted.tokens[converted.starts[number] : converted.starts[number + 1]].tolist()
        text = task.vocabulary.decode(examples.tokens[examples.starts[number] : examples.starts[number + 1]])
        assert made(text)["input_ids"] == ids
        assert made.decode([*ids, tokens.end], skip_special_tokens=True) == tokens.text(ids) == text
    padded = made([text, text.split()[0]], padding=True, return_tensors="pt")
    assert padded["attention_mask"][1, 0] == 0 and padded["input_ids"][1, 0] == tokens.pad
    with pytest.raises(ValueError, match="not in the vocabulary: 'Zanzibar'"):
        made(f"{text} Zanzibar")


def test_tokenizers_of_files_are_refused() -> None:
    task = make_task("copy.words")
    file = FileSpeller(Tokenizer.train(["a text"], 300)._inner)
    with pytest.raises(UserError, match="those of a tokenizer's file"):
        task_tokenizer(task, TextTokens(task.vocabulary, file))


# Folders.


def test_a_run_becomes_a_folder_and_comes_back(finished: tuple[Path, Results], tmp_path: Path) -> None:
    folder, _ = finished
    run = _run(folder, "alibi")
    done = CliRunner().invoke(app, ["export", str(run), "--to", str(tmp_path / "deep/model"), "--checkpoint", "best"])
    assert done.exit_code == 0, done.output
    assert "LengthwiseForCausalLM, logits within 0 of the run's" in done.output
    out = tmp_path / "deep/model"
    assert not list(out.parent.glob(".*"))
    ours, theirs = load_model(run / "best.safetensors"), AutoModelForCausalLM.from_pretrained(out)
    assert all(torch.equal(value, theirs.decoder.state_dict()[name]) for name, value in ours.state_dict().items())
    assert json.loads((out / "lengthwise.json").read_text())["checkpoint"] == "best"
    assert len((out / "modeling_lengthwise.py").read_text().splitlines()) == 2
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert isinstance(tokenizer, hub.LengthwiseTokenizer) and tokenizer.padding_side == "left"
    task = make_task({"name": "copy.repeat", "symbols": 20})
    prompts = [prompt for length in (2, 4) for prompt, _ in task.sample(length, count=4)]
    read = tokenizer(prompts, padding=True, return_tensors="pt")
    found = theirs.generate(**read, max_new_tokens=8, do_sample=False)[:, read["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(found, skip_special_tokens=True)
    tokens = SymbolTokens(task.vocabulary)
    rows = generate(ours, [task.vocabulary.encode(prompt) for prompt in prompts], tokens, 8)
    assert texts == [task.vocabulary.decode([i for i in row if i > 1]) for row in rows]


def _run(folder: Path, encoding: str) -> Path:
    return next(path.parent for path in sorted(folder.glob(f"*/{encoding}/seed-*/run.json")))


def test_what_cannot_be_exported_is_told_and_nothing_is_written(finished: tuple[Path, Results], tmp_path: Path) -> None:
    folder, _ = finished
    run = _run(folder, "none")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "run.json").write_text((run / "run.json").read_text())
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("kept")
    out = tmp_path / "new/out"
    cases = [
        ([str(unfinished), "--to", str(out)], "is not finished; `lengthwise run` resumes it"),
        ([str(folder), "--to", str(out)], "it is a study's, name one of its runs"),
        ([str(tmp_path / "no"), "--to", str(out)], "no such folder"),
        ([str(tmp_path), "--to", str(out)], "is not the folder of a run"),
        ([str(run.parent), "--to", str(out)], f"is not the folder of a run; name one of those in it: {run}"),
        ([str(run), "--to", str(full)], "is there and not empty"),
        ([str(run), "--to", str(full / "mine")], "is a file"),
        ([str(run), "--to", "."], "is the current folder; name a new one"),
        ([str(run), "--to", str(out), "--as", "native"], "is no Llama and no SmolLM3: its style is t5"),
    ]
    for words, told in cases:
        done = CliRunner().invoke(app, ["export", *words])
        assert isinstance(done.exception, UserError) and told in str(done.exception), (words, done.exception)
        assert "\n" not in str(done.exception)
    assert not out.parent.exists() and [file.name for file in full.iterdir()] == ["mine"]


def test_positions_that_transformers_would_not_give_are_refused(finished: tuple[Path, Results], tmp_path: Path) -> None:
    described = json.loads((_run(finished[0], "none") / "run.json").read_text())
    described["settings"]["data"]["placement"] = "randomized"
    run = tmp_path / "run"
    run.mkdir()
    (run / "finished.json").write_text("{}")
    (run / "run.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match="positions of the placement randomized"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_transformers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in [name for name in sys.modules if name.startswith("lengthwise.hub")]:
        monkeypatch.delitem(sys.modules, name)
    done = CliRunner().invoke(app, ["export", str(tmp_path), "--to", str(tmp_path / "out")])
    assert isinstance(done.exception, UserError) and "pip install 'lengthwise[hub]'" in str(done.exception)


# Native models.


@pytest.mark.parametrize(
    ("encodings", "family"),
    [
        ([FULL], "llama"),
        ([{**FULL, "pairs": "halves", "base": 5e5}], "llama"),
        ([{"name": "none"}], "smollm3"),
        ([{"name": "none"}, FULL], "smollm3"),
    ],
)
def test_native_models_are_the_same_function(encodings: list[dict[str, Any]], family: str, tmp_path: Path) -> None:
    ours = decoder_of(encodings, "llama", layers=3, key_value_heads=2)
    assert refusal(ours) == ""
    native_model(ours, pad_token_id=0, eos_token_id=1).save_pretrained(tmp_path)
    tokens_BT = tokens_of(2, 24)
    expected, theirs = ours(tokens_BT), AutoModelForCausalLM.from_pretrained(tmp_path)
    assert theirs.config.model_type == family
    torch.testing.assert_close(theirs(tokens_BT).logits, expected, atol=2e-6, rtol=0)
    assert (load_decoder(tmp_path)(tokens_BT) - expected).abs().max() <= 2e-6


@pytest.mark.parametrize(
    ("encodings", "shape", "told"),
    [
        ([{"name": "rotary"}], {}, "layer 0 rotates 2 of 8 entries of each head"),
        ([{"name": "none"}, {"name": "alibi"}], {}, "layer 1 has the encoding alibi"),
        ([{"name": "mamba2"}], {}, "layer 0 has no attention, but mamba2"),
        ([FULL, {**FULL, "base": 5e5}], {}, "different bases: 10000, 500000"),
        ([FULL], {"loops": 2}, "passes its layers several times"),
        ([FULL], {"style": "t5"}, "its style is t5"),
    ],
)
def test_other_models_are_not_native(encodings: list[dict[str, Any]], shape: dict[str, Any], told: str) -> None:
    assert told in refusal(decoder_of(encodings, **{"style": "llama", **shape}))


@pytest.fixture(scope="module")
def language_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("language")
    for split in ("train", "validation", "test"):
        (place / "corpus" / split).mkdir(parents=True)
        (place / "corpus" / split / "a.txt").write_text(
            "".join(f"the cat of {split} sat on mat {i}\n" for i in range(90))
        )
    table = {
        "encoding": ["none", FULL],
        "model": {"layers": 2, "width": 32, "heads": 4, "key_value_heads": 2},
        "data": {"context": 32, "vocabulary": 280, "validation_tokens": 64},
        "training": {"tokens": 1024, "batch_tokens": 256, "learning_rate": 0.01, "validations": 1},
    }
    train_language_model(place / "corpus", settings_from(table), place / "run", "cpu")
    return place / "run"


ALONE = """
import sys
sys.modules["lengthwise"] = None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("native")
ids = tokenizer("the cat sat <|end|>", return_tensors="pt").input_ids
torch.save((ids, AutoModelForCausalLM.from_pretrained("native")(ids).logits.detach()), "native.pt")
del sys.modules["lengthwise"]
model = AutoModelForCausalLM.from_pretrained("wrapped", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("wrapped", trust_remote_code=True)
torch.save((tokenizer("the cat sat <|end|>", return_tensors="pt").input_ids, model(ids).logits.detach()), "wrapped.pt")
tokenizer = AutoTokenizer.from_pretrained("task", trust_remote_code=True)
try:
    tokenizer("Zanzibar")
except ValueError as error:
    print(type(tokenizer).__name__, error)
"""


@pytest.mark.slow
def test_a_process_loads_native_models_without_us_and_others_by_their_shim(
    finished: tuple[Path, Results], language_run: Path, tmp_path: Path
) -> None:
    done = export(language_run, tmp_path / "native")
    assert done.architecture == "SmolLM3ForCausalLM" and done.difference < 2e-6
    assert export(language_run, tmp_path / "wrapped", "lengthwise").difference == 0
    export(_run(finished[0], "none"), tmp_path / "task")
    root = Path(hub.__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(root),
            "HF_HOME": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "LengthwiseTokenizer not in the vocabulary: 'Zanzibar'" in ran.stdout
    ours, tokenizer, _ = load_language_model(language_run)
    ids, logits = torch.load(tmp_path / "native.pt")
    again, wrapped = torch.load(tmp_path / "wrapped.pt")
    assert ids[0].tolist() == again[0].tolist() == [tokenizer.begin, *tokenizer.encode("the cat sat <|end|>")]
    torch.testing.assert_close(logits, ours(ids), atol=2e-6, rtol=0)
    assert torch.equal(wrapped, ours(ids))
    again = open_model(tmp_path / "native", torch.device("cpu"))
    assert again.begins.tolist() == [tokenizer.begin] and again.trained == 32
    torch.testing.assert_close(again.model.logits(ids), ours(ids), atol=2e-6, rtol=0)
    with pytest.raises(UserError, match="keeps its last weights alone"):
        export(language_run, tmp_path / "other", checkpoint="best")
