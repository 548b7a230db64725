"""Hostile corpora, prepared tokens, language runs, Hugging Face folders, own examples and words of commands.

`cases` yields a name and a callable, which raises AssertionError where the promise is broken: what cannot be is refused
by a UserError of one line, within ten seconds, and nothing is written.
"""

import copy
import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from lengthwise.analysis.analyses import parse_lengths
from lengthwise.cli.main import app
from lengthwise.context_extension.extending import read_lengths
from lengthwise.context_extension.hugging_face import load_decoder
from lengthwise.errors import UserError
from lengthwise.language.corpus import Corpus
from lengthwise.language.description import read_description, read_finished, read_log
from lengthwise.language.model import load_language_model
from lengthwise.language.prepared import open_prepared
from lengthwise.language.settings import LanguageData, settings_from
from lengthwise.language.store import prepare_at
from lengthwise.language.training import train_language_model
from lengthwise.training.state import load_tensors, save_tensors

Case = tuple[str, Callable[[], None]]
SECONDS = 10
ODD: list[Any] = [None, True, -1, 0, 1.5, 10**12, 10**30, "", "x", "../x", "\0", "a" * 20_000, [], [1], {}, {"a": 1}]
"""Put in the place of every value."""
LAYERS = 2
LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": 16, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 24, "vocab_size": 40, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


# What is expected.


@contextmanager
def _within_time() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError(f"it takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _seen(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(each): (each.lstat().st_size, each.lstat().st_mtime_ns) for each in sorted(folder.rglob("*"))}


def expect(work: Callable[[], object], folder: Path, refused: bool) -> None:
    """`refused`: whether it must be; else it may be, in the right way."""
    before = _seen(folder)
    try:
        with _within_time():
            work()
    except UserError as error:
        assert "\n" not in str(error), f"an error of several lines: {error}"
        assert len(str(error)) < 2000, "an endless error"
        assert _seen(folder) == before, "something was written"
    except AssertionError:
        raise
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    else:
        assert not refused, "it was accepted"


def _called(words: list[str]) -> Callable[[], None]:
    def work() -> None:
        result = CliRunner().invoke(app, words)
        if isinstance(result.exception, UserError):
            raise result.exception
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code:  # typer's own refusal of a word
            raise UserError("refused by the command line")

    return work


# What is changed.


def _mutations(table: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """The table without each of its fields, and with odd values in the place of each."""
    for key, value in table.items():
        inside = {name: each for name, each in table.items() if name != key}
        yield f"without {'.'.join((*at, key))}", inside
        for odd in ODD:
            if odd != value:
                yield f"{'.'.join((*at, key))}={str(odd)[:20]!r}", {**table, key: odd}
        if isinstance(value, dict) and len(at) < 3:
            for name, changed in _mutations(value, (*at, key)):
                yield name, {**table, key: changed}


TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "no table": b"[]",
    "a half": b'{"a": ',
    "deep": b"[" * 100_000,
    "deep tables": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "no text": b"\xff\xfe\x00",
    "zeros": bytes(100),
    "endless number": b'{"a": ' + b"9" * 10_000 + b"}",
    "NaN": b'{"a": NaN}',
}
"""In the place of a file of JSON."""


class Place:
    """A folder in which one thing is changed at a time."""

    def __init__(self, source: Path, work: Callable[[Path], object]) -> None:
        self.source, self.work = source, work

    def case(self, change: Callable[[Path], object], refused: bool) -> Callable[[], None]:
        def run() -> None:
            with tempfile.TemporaryDirectory() as above:
                folder = Path(above) / "it"
                shutil.copytree(self.source, folder)
                change(folder)
                expect(lambda: self.work(folder), Path(above), refused)

        return run

    def files(self, name: str, refused: bool = True) -> Iterator[Case]:
        """In the place of a file: a pipe, a folder, a device, nothing, rubbish."""

        def put(make: Callable[[Path], object]) -> Callable[[Path], object]:
            def change(folder: Path) -> None:
                (folder / name).unlink()
                make(folder / name)

            return change

        changes: dict[str, Callable[[Path], object]] = {
            "pipe": os.mkfifo,
            "folder": Path.mkdir,
            "device": lambda path: path.symlink_to("/dev/zero"),
            "dangling": lambda path: path.symlink_to("nowhere"),
            "rubbish": lambda path: path.write_bytes(random.Random(0).randbytes(500)),
            "empty": Path.touch,
        }
        for kind, make in changes.items():
            yield f"{name} is {kind}", self.case(put(make), refused)

    def json(self, name: str, only: Callable[[str], bool] = lambda change: True) -> Iterator[Case]:
        content = json.loads((self.source / name).read_text())
        for change, table in _mutations(content):
            if only(change):
                text = json.dumps(table)
                yield f"{name}: {change}", self.case(lambda folder, text=text: (folder / name).write_text(text), False)
        for kind, raw in TEXTS.items():
            yield f"{name} is {kind}", self.case(lambda folder, raw=raw: (folder / name).write_bytes(raw), True)


# What is attacked.


def _read_prepared(folder: Path) -> None:
    store = open_prepared(folder, LanguageData(vocabulary=280))
    for split in ("train", "validation", "test"):
        store.documents(split)
    assert store.key


def _prepared(source: Path) -> Iterator[Case]:
    place = Place(source, _read_prepared)
    yield from place.json("manifest.json")
    for name in ("train.tokens", "train.starts.npy", "tokenizer.json"):
        yield from place.files(name)

    def put(name: str, content: bytes) -> Callable[[Path], None]:
        """With the hash that belongs to it: a hash protects from damage, not from people."""

        def change(folder: Path) -> None:
            (folder / name).write_bytes(content)
            manifest = json.loads((folder / "manifest.json").read_text())
            manifest["hashes"][name] = hashlib.sha256(content).hexdigest()
            (folder / "manifest.json").write_text(json.dumps(manifest))

        return change

    starts = np.load(source / "train.starts.npy", allow_pickle=False)
    header = (source / "train.starts.npy").read_bytes()[:128]
    arrays: dict[str, bytes] = {
        "10^12 entries": header.replace(b"(3,), }" + b" " * 12, b"(1000000000000,), }") + starts.tobytes(),
        "half": (source / "train.starts.npy").read_bytes()[:-5],
        "only a header": header,
        "negative": header + np.array([0, -5, starts[-1]]).tobytes(),
        "falling": header + np.array([0, starts[-1], 3]).tobytes(),
        "huge": header + np.array([0, 5, 2**62]).tobytes(),
        "beyond": header + np.array([0, 5, starts[-1] + 7]).tobytes(),
        "objects": header.replace(b"<i8", b"|O ") + starts.tobytes(),
        "floats": header.replace(b"<i8", b"<f8") + starts.tobytes(),
        "code": header.replace(b"<i8", b"x()") + starts.tobytes(),
        "no magic": b"PK\x03\x04" + header,
    }
    for name, content in arrays.items():
        yield f"starts: {name}", place.case(put("train.starts.npy", content), True)
    tokens = np.fromfile(source / "train.tokens", np.uint16)
    for name, each in {"beyond": np.where(tokens == tokens[3], 60_000, tokens), "fewer": tokens[:-1]}.items():
        yield f"tokens: {name}", place.case(put("train.tokens", each.astype(np.uint16).tobytes()), True)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    changed: dict[str, Any] = {}
    for key in ("model", "pre_tokenizer", "decoder", "added_tokens", "version"):
        changed |= {f"{key}={str(odd)[:10]!r}": {**tokenizer, key: odd} for odd in ODD[:8]}
    for number in (2**31, 2**32, -1, 10**30):
        table = copy.deepcopy(tokenizer)
        table["added_tokens"][0]["id"] = number
        changed[f"token {number}"] = table
        table = copy.deepcopy(tokenizer)
        table["model"]["vocab"]["a"] = number
        changed[f"entry {number}"] = table
    for name, table in changed.items():
        yield f"tokenizer: {name}", place.case(put("tokenizer.json", json.dumps(table).encode()), False)


def _read_run(folder: Path) -> None:
    read_description(folder)
    read_log(folder)
    read_finished(folder)
    load_language_model(folder)


def _runs(source: Path) -> Iterator[Case]:
    place = Place(source, _read_run)
    yield from place.json("run.json", lambda change: any(word in change for word in ("=None", "=-1", "='x'", "=[]")))
    yield from place.json("finished.json")
    for name in ("last.safetensors", "tokenizer.json", "run.json"):
        yield from place.files(name)
    tensors, metadata = load_tensors(source / "last.safetensors")
    first = next(iter(tensors))
    weights: dict[str, dict[str, torch.Tensor]] = {
        "missing": {name: value for name, value in tensors.items() if name != first},
        "more": {**tensors, "evil": torch.zeros(1)},
        "NaN": {**tensors, first: tensors[first] * float("nan")},
        "half": {**tensors, first: tensors[first].half()},
        "whole numbers": {**tensors, first: tensors[first].long()},
        "shape": {**tensors, first: tensors[first][:1].clone()},
        "none": {},
    }
    for name, each in weights.items():

        def change(folder: Path, each: dict[str, torch.Tensor] = each) -> None:
            save_tensors(folder / "last.safetensors", each, {k: v for k, v in metadata.items() if k != "checksum"})

        yield f"weights: {name}", place.case(change, True)
    for key in ("vocabulary_rows", "settings"):
        for odd in ODD:

            def described(folder: Path, key: str = key, odd: Any = odd) -> None:
                save_tensors(folder / "last.safetensors", tensors, {**metadata, key: odd})

            yield f"metadata: {key}={str(odd)[:20]!r}", place.case(described, True)
    for layers in (10**9, 2**62):
        settings = {**metadata["settings"], "model": {**metadata["settings"]["model"], "layers": layers}}

        def deep(folder: Path, settings: dict[str, Any] = settings) -> None:
            save_tensors(folder / "last.safetensors", tensors, {**metadata, "settings": settings})

        yield f"metadata: {layers} layers", place.case(deep, True)


def make_llama(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    generator = torch.Generator().manual_seed(0)
    shapes = {"model.embed_tokens": (40, 16), "lm_head": (40, 16), "model.norm": (16,)}
    for layer in range(LAYERS):
        inside = f"model.layers.{layer}"
        shapes |= {f"{inside}.self_attn.{part}_proj": (16, 16) for part in "qo"}
        shapes |= {f"{inside}.self_attn.{part}_proj": (8, 16) for part in "kv"}
        shapes |= {f"{inside}.mlp.{part}_proj": (24, 16) for part in ("gate", "up")}
        shapes |= {f"{inside}.mlp.down_proj": (16, 24)}
        shapes |= {f"{inside}.{part}_layernorm": (16,) for part in ("input", "post_attention")}
    weights = {f"{name}.weight": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    load_decoder(folder)
    return folder


def _hugging_face(source: Path) -> Iterator[Case]:
    place = Place(source, load_decoder)
    yield from place.json("config.json")
    for name in ("config.json", "model.safetensors"):
        yield from place.files(name)
    weights = load_file(source / "model.safetensors")
    for name in weights:
        changed = {
            "missing": {each: value for each, value in weights.items() if each != name},
            "NaN": {**weights, name: weights[name] * float("nan")},
            "flat": {**weights, name: weights[name].flatten()[:7].clone()},
            "cube": {**weights, name: weights[name].reshape(1, 1, -1).clone()},
            "whole numbers": {**weights, name: weights[name].long()},
        }
        for kind, each in changed.items():
            yield (
                f"weights: {name} is {kind}",
                place.case(lambda folder, each=each: save_file(each, folder / "model.safetensors"), True),
            )
    for named in (
        "../model.safetensors",
        "/etc/passwd",
        "..",
        "",
        "a\0b",
        5,
        None,
        [],
        "model.bin",
        "nowhere.safetensors",
    ):

        def index(folder: Path, named: Any = named) -> None:
            shutil.copy(folder / "model.safetensors", folder.parent / "model.safetensors")
            table = {"weight_map": {"lm_head.weight": named}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(table))

        yield f"an index names {named!r}", place.case(index, True)
    for kind, raw in TEXTS.items():

        def torn(folder: Path, raw: bytes = raw) -> None:
            (folder / "model.safetensors.index.json").write_bytes(raw)

        yield f"an index is {kind}", place.case(torn, True)
    # Protocol 0 by hand: what a pickle with code looks like.
    code = b"cos\nsystem\n(S'touch pickled'\ntR."
    for name, raw in {
        "code": code,
        "nothing": b"",
        "rubbish": b"\x80\x02}q\x00.",
        "zip": b"PK\x03\x04" + bytes(50),
    }.items():

        def pickled(folder: Path, raw: bytes = raw) -> None:
            (folder / "model.safetensors").unlink()
            (folder / "pytorch_model.bin").write_bytes(raw)

        yield f"a .bin is {name}", place.case(pickled, True)


LINES: dict[str, bytes] = {
    "length 10^9": b'{"prompt": "a", "target": "b", "length": 1000000000}\n',
    "length 10^30": b'{"prompt": "a", "target": "b", "length": 1' + b"0" * 30 + b"}\n",
    "length 0": b'{"prompt": "a", "target": "b", "length": 0}\n',
    "length true": b'{"prompt": "a", "target": "b", "length": true}\n',
    "length 1.5": b'{"prompt": "a", "target": "b", "length": 1.5}\n',
    "length NaN": b'{"prompt": "a", "target": "b", "length": NaN}\n',
    "length endless": b'{"prompt": "a", "target": "b", "length": ' + b"9" * 9000 + b"}\n",
    "no prompt": b'{"target": "b", "length": 1}\n',
    "empty prompt": b'{"prompt": " ", "target": "b", "length": 1}\n',
    "a list as prompt": b'{"prompt": ["a"], "target": "b", "length": 1}\n',
    "a blank line": b'{"prompt": "a", "target": "b", "length": 1}\n\n{"prompt": "a", "target": "b", "length": 1}\n',
    "a list": b"[]\n",
    "a number": b"5\n",
}


def _examples(folder: Path) -> Iterator[Case]:
    contents = {**TEXTS, **LINES}
    for name, content in contents.items():
        file = folder / f"{name.replace(' ', '-').replace('^', '')}.jsonl"
        file.write_bytes(content)
        yield f"own examples: {name}", lambda file=file: expect(_called(["sample", str(file)]), folder, True)
    (folder / "folder.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "zero.jsonl").symlink_to("/dev/zero")
    (folder / "...jsonl").write_bytes(b'{"prompt": "a", "target": "b", "length": 1}\n')
    with (folder / "sparse.jsonl").open("wb") as sparse:
        sparse.truncate(2**40)
    for name in ("folder", "pipe", "zero", "absent", "..", "sparse"):
        words = ["sample", str(folder / f"{name}.jsonl")]
        yield f"own examples: {name}", lambda words=words: expect(_called(words), folder, True)


def _words(folder: Path) -> Iterator[Case]:
    refused = [
        ["parity", "--length", "100000"], ["parity", "--length", "10000000000"], ["parity", "--length", "-1"],
        ["parity", "--length", "20000", "--count", "1000"], ["copy.words", "--count", "100000", "--length", "100000"],
        ["copy.words", "--seed", "-1"], ["nothing"], [""], ["copy.words", "--scratchpad", "\x1b[31m"],
        ["copy.words", "--tokens", "/dev/zero"], ["copy.words", "--tokens", str(folder)], ["../../etc/passwd"],
        ["copy.words", "--set", "a"], ["copy.words", "--set", "=1"], ["copy.words", "--set", "a.b.c=1"],
    ]  # fmt: skip
    for words in refused:
        yield f"sample {words}", lambda words=words: expect(_called(["sample", *words]), folder, True)
    for text in ("1-1000000000", "1-" + "9" * 5000, "0", "5-2", "x", "1,,2", "-", "1-2-3", "100000", "1-100000", "²"):
        yield f"--lengths {text[:20]}", lambda text=text: expect(lambda: parse_lengths(text), folder, True)
    for text in ("0", "-1", "1" + "0" * 5000, "10000000000", "x", "1.5", "k", "²", ",".join(["1"] * 5000), "1\x1b"):
        yield f"--context {text[:20]}", lambda text=text: expect(lambda: read_lengths(text), folder, True)


def _corpora(folder: Path) -> Iterator[Case]:
    def corpus(name: str, content: bytes) -> Callable[[], None]:
        def run() -> None:
            with tempfile.TemporaryDirectory() as above:
                for split in ("train", "validation"):
                    (Path(above) / "corpus" / split).mkdir(parents=True)
                    (Path(above) / "corpus" / split / "good.txt").write_text("once upon a time")
                (Path(above) / "corpus" / "train" / name).write_bytes(content)
                words = ["language", "prepare", f"{above}/corpus", "--out", f"{above}/new/prepared"]
                expect(_called([*words, "--set", "data.vocabulary=270"]), Path(above), True)

        return run

    for kind, content in TEXTS.items():
        if content:
            yield f"a corpus of {kind}", corpus("bad.jsonl", content)
    more = {"number": b'{"text": 5}\n', "half": b'{"text": "\\ud800"}\n', "none": b'{"body": "x"}\n', "list": b"[1]\n"}
    for kind, content in more.items():
        yield f"a corpus with {kind}", corpus("bad.jsonl", content)
    for kind in ("no text", "zeros"):
        yield f"a text of {kind}", corpus("bad.txt", TEXTS[kind])
    yield "an arrow of rubbish", corpus("bad.arrow", b"ARROW1" + bytes(100))
    good = str(folder)
    for change in (
        "data.vocabulary=10000000000", "data.vocabulary=-1", "data.vocabulary=1.5", "data.context=100000000000000000",
        "data.tokenizer_characters=0", "data.validation_tokens=-1", "training.tokens=1e30", "model.layers=1000000000",
        "model.width=100000000000", "model.layers=0", "model.heads=7", "training.batch_tokens=1000000000000",
        "seed=-1", "data.passkey_share=1", "data.field=5", "nothing=1", "model.size=[]", "encoding=5", "encoding='x'",
    ):  # fmt: skip
        words = ["language", "train", good, "--out", f"{good}-out/run", "--set", change, "--device", "cpu"]
        yield f"train --set {change}", lambda words=words: expect(_called(words), folder.parent, True)
    for named in ("/dev/zero", "nowhere", "/dev/null", ""):
        words = ["language", "train", named, "--out", f"{good}-out/run", "--device", "cpu"]
        yield f"train {named!r}", lambda words=words: expect(_called(words), folder.parent, True)


def make_things(folder: Path) -> dict[str, Path]:
    """A corpus, its tokens, a finished run, a Llama, an empty folder."""
    generator = random.Random(0)
    for split, sizes in {"train": (300, 100), "validation": (100,), "test": (100,)}.items():
        (folder / "corpus" / split).mkdir(parents=True)
        for number, size in enumerate(sizes):
            words = generator.choices(
                ["the", "old", "captain", "saw", "a", "small", "lamp", "near", "river", "1843"], k=size
            )
            (folder / "corpus" / split / f"{number}.txt").write_text(" ".join(words))
    prepare_at(Corpus(folder / "corpus"), LanguageData(vocabulary=280), folder / "prepared", lambda text: None)
    table = {
        "model": {"layers": 1, "width": 16, "heads": 2},
        "data": {"context": 16, "vocabulary": 280, "validation_tokens": 64},
        "training": {"tokens": 64, "batch_tokens": 64, "validations": 1},
    }
    train_language_model(folder / "prepared", settings_from(table), folder / "run", "cpu")
    make_llama(folder / "llama")
    (folder / "examples").mkdir()
    return {name: folder / name for name in ("corpus", "prepared", "run", "llama", "examples")}


def cases(seed: int = 0) -> Iterator[Case]:
    """All of them, in an order that the seed decides."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-language-"))
    things = make_things(folder)
    found: list[Case] = []
    doors: dict[str, Callable[[Path], Iterator[Case]]] = {
        "prepared": _prepared,
        "run": _runs,
        "llama": _hugging_face,
        "examples": _examples,
        "corpus": _corpora,
    }
    for name, make in doors.items():
        found += [(f"{name}: {case}", run) for case, run in make(things[name])]
    found += list(_words(things["examples"]))
    random.Random(seed).shuffle(found)
    try:
        yield from found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
