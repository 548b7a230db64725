"""A trained run as a folder of Transformers: config, weights, tokenizer; checked before it is there.

DIR/
  config.json, generation_config.json, model.safetensors
  tokenizer.json, tokenizer_config.json
  modeling_lengthwise.py          of a lengthwise model: what `trust_remote_code=True` loads
  lengthwise.json                 where it comes from
"""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from lengthwise import configuration
from lengthwise.errors import RunError, UserError
from lengthwise.exported import ORIGIN
from lengthwise.hub.configuration import LengthwiseConfig
from lengthwise.hub.model import LengthwiseForCausalLM
from lengthwise.hub.native import native_model, refusal
from lengthwise.hub.quiet import quietly
from lengthwise.hub.spelling_tokenizer import LengthwiseSpellingTokenizer
from lengthwise.hub.tokenizer import LengthwiseTokenizer, language_tokenizer, task_tokenizer
from lengthwise.language.model import load_language_model
from lengthwise.model.decoder import Decoder
from lengthwise.placements.choosing import CONSECUTIVE
from lengthwise.records.directory import RunDirectory, make_folder
from lengthwise.records.files import read_json, storage_error, write_json
from lengthwise.records.provenance import installed_version
from lengthwise.records.schema import DESCRIPTION
from lengthwise.tasks.task import Task
from lengthwise.training.checkpoint import load_model, run_from

Kind = Literal["auto", "native", "lengthwise"]
"""`native`: a Llama or SmolLM3, which loads without this package; `lengthwise`: our decoder; `auto`: native for a
language model that is one, else lengthwise."""

SHIM = "modeling_lengthwise.py"
SHIM_TEXT = '''"""The classes of the installed package lengthwise, for `trust_remote_code=True`."""
from lengthwise.hub import *  # noqa: F403
'''
NATIVE_TOLERANCE = 1e-5
"""Of logits, relative to the largest: other kernels round otherwise."""
PROBED = 64
"""Tokens of the sequence by which an export is checked."""


@dataclass(frozen=True)
class LoadedRun:
    """What is exported."""

    decoder: Decoder
    encodings: list[dict[str, Any]]
    """Tables, cycled over the layers."""
    tokenizer: PreTrainedTokenizerBase
    origin: dict[str, Any]
    language: bool
    asked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exported:
    folder: Path
    architecture: str
    difference: float
    """The largest between logits of the folder and of the run."""
    asked: tuple[str, ...] = ()
    """Options of `lengthwise evaluate` by which it is asked what the run was tested on; none of a language model."""


def export(run: Path, to: Path, kind: Kind = "auto", checkpoint: str = "") -> Exported:
    """Writes the folder, or nothing. `checkpoint`: `last` or `best` of a run of a study; by default the last."""
    _refuse_target(to)
    loaded = _loaded(run, checkpoint, alone=kind == "native")
    reason = refusal(loaded.decoder)
    if kind == "native" and reason:
        raise UserError(f"{run} is no Llama and no SmolLM3: {reason}; export it with --as lengthwise")
    native = kind == "native" or (kind == "auto" and loaded.language and not reason)
    model = _native(loaded) if native else _wrapped(loaded)
    make_folder(to.parent)
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{to.name}.", suffix=".partial", dir=to.parent))
    except OSError as error:
        raise storage_error(error, to.parent) from error
    try:
        with quietly():
            model.save_pretrained(partial)
            loaded.tokenizer.save_pretrained(partial)
            if not native:
                _add_shim(partial)
            write_json(partial / ORIGIN, loaded.origin)
            difference = _difference(partial, loaded.decoder, native)
        open_to_others(partial)
        partial.replace(to)
    except OSError as error:
        raise storage_error(error, to) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Exported(to, type(model).__name__, difference, loaded.asked)


def _refuse_target(to: Path) -> None:
    if to.resolve() == Path.cwd():
        raise UserError(f"{to} is the current folder; name a new one with --to")
    if to.is_dir() and any(to.iterdir()):
        raise UserError(f"{to} is there and not empty; choose another folder with --to, or delete it")
    if to.exists() and not to.is_dir():
        raise UserError(f"{to} is a file; name a folder with --to")


def _loaded(run: Path, checkpoint: str, alone: bool) -> LoadedRun:
    """`alone`: for a folder that loads without this package."""
    if not run.is_dir():
        raise UserError(f"no such folder: {run}; name a run's folder, as `lengthwise run` or `language train` left it")
    if not (run / "run.json").exists():
        runs = next(run.glob("*/*/seed-*/run.json"), None)
        hint = f"; it is a study's, name one of its runs: {runs.parent}" if runs else ""
        if not hint and (runs := next(chain(run.glob("seed-*/run.json"), run.glob("*/seed-*/run.json")), None)):
            hint = f"; name one of those in it: {runs.parent}"
        if not hint and (run / "config.json").exists():
            hint = ", but a model of Transformers already"
        raise UserError(f"{run} is not the folder of a run{hint}")
    if read_json(run / "run.json").get("kind") == "language model":
        if checkpoint == "best":
            raise UserError(f"{run} is a language model, which keeps its last weights alone; leave out --checkpoint")
        return _of_language_run(run)
    return _of_task_run(run, checkpoint or "last", alone)


def _of_task_run(path: Path, checkpoint: str, alone: bool) -> LoadedRun:
    directory = RunDirectory(path)
    if not directory.is_finished:
        raise UserError(f"{path} is not finished; `lengthwise run` resumes it")
    description = read_json(directory.description, DESCRIPTION)
    run = run_from(description["settings"])
    if run.data.placement != CONSECUTIVE:
        raise UserError(
            f"{path} was trained with positions of the placement {run.data.placement}, and Transformers gives tokens "
            "the positions 0, 1, 2 ...: its answers would be others"
        )
    tokenizer = task_tokenizer(run.make_task(), run.make_tokens(), alone)
    decoder = load_model(directory.best if checkpoint == "best" else directory.last)
    origin = {
        "lengthwise": installed_version("lengthwise"),
        "kind": "task model",
        "name": description["name"],
        "fingerprint": description["fingerprint"],
        "checkpoint": checkpoint,
        "settings": description["settings"],
    }
    asked = _asked(run.make_task(), description)
    return LoadedRun(decoder, list(run.encoding.layers), tokenizer, origin, language=False, asked=asked)


def _asked(task: Task, description: dict[str, Any]) -> tuple[str, ...]:
    """With what is set otherwise than by default; nothing where a command line is no place for it."""
    given = configuration.table(task.config)
    if task.name == "file":
        named, settings = str(given["path"]), {}
    else:
        defaults = configuration.table(type(task).Config())
        named, settings = task.name, {key: value for key, value in given.items() if value != defaults[key]}
    data = description["settings"]["data"]
    if data.get("scratchpad", "none") != "none":
        settings["data.scratchpad"] = data["scratchpad"]
    if not all(isinstance(value, str | int | float) for value in settings.values()):
        return ()
    train, test = description["train_lengths"], description["test_lengths"]
    chosen = ",".join(map(str, data["test_at"])) if data.get("test_at") else f"{test[0]}-{test[1]}"
    lengths = (
        f"{train[0]}-{test[1]}"
        if test[0] == train[1] + 1 and not data.get("test_at")
        else f"{train[0]}-{train[1]},{chosen}"
    )
    options = ["--task", named, "--lengths", lengths, "--trained", f"{train[0]}-{train[1]}"]
    return (*options, *(word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")))


def _of_language_run(path: Path) -> LoadedRun:
    decoder, tokenizer, settings = load_language_model(path)
    origin = {
        "lengthwise": installed_version("lengthwise"),
        "kind": "language model",
        "name": path.resolve().name,
        "settings": read_json(path / "run.json")["settings"],
    }
    encodings = [dict(table) for table in settings.choice.layers]
    return LoadedRun(decoder, encodings, language_tokenizer(tokenizer), origin, language=True)


def _wrapped(loaded: LoadedRun) -> PreTrainedModel:
    model = LengthwiseForCausalLM(LengthwiseConfig.of(loaded.decoder, loaded.encodings, **_special(loaded)))
    model.decoder.load_state_dict(loaded.decoder.state_dict())
    return model.eval()


def _native(loaded: LoadedRun) -> PreTrainedModel:
    return native_model(loaded.decoder, **_special(loaded))


def _special(loaded: LoadedRun) -> dict[str, int | None]:
    return {f"{name}_token_id": getattr(loaded.tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}


def _add_shim(folder: Path) -> None:
    """Lets `trust_remote_code=True` find the classes where nobody has imported them."""
    (folder / SHIM).write_text(SHIM_TEXT, encoding="utf-8")
    module = SHIM.removesuffix(".py")
    config, tokenizer = folder / "config.json", folder / "tokenizer_config.json"
    classes = {"AutoConfig": LengthwiseConfig.__name__, "AutoModelForCausalLM": LengthwiseForCausalLM.__name__}
    write_json(config, {**read_json(config), "auto_map": {auto: f"{module}.{name}" for auto, name in classes.items()}})
    described = read_json(tokenizer)
    slow, fast = LengthwiseSpellingTokenizer.__name__, LengthwiseTokenizer.__name__
    if described["tokenizer_class"] in (slow, fast):
        named = [f"{module}.{each}" if described["tokenizer_class"] == each else None for each in (slow, fast)]
        write_json(tokenizer, {**described, "auto_map": {"AutoTokenizer": named}})


@torch.no_grad()
def _difference(folder: Path, decoder: Decoder, native: bool) -> float:
    """The largest difference of logits that the folder's model and the run's give for random tokens; refuses more than
    rounding."""
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    last = decoder.last_position
    length = PROBED if last is None else min(PROBED, last + 1)
    generator = torch.Generator().manual_seed(0)
    tokens_BT = torch.randint(decoder.embedding.num_embeddings, (2, length), generator=generator)
    ours = decoder.eval()(tokens_BT)
    found = float((loaded(tokens_BT).logits - ours).abs().max())
    if not found <= (NATIVE_TOLERANCE * max(1.0, float(ours.abs().max())) if native else 0.0):
        raise RunError(f"the exported model gives other logits than the run, by up to {found:.2g}; nothing was written")
    return found


def open_to_others(folder: Path) -> None:
    """Temporary folders, and files of safetensors, are their owner's alone."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~mask)
