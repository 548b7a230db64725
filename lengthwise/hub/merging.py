"""An extended model of Transformers as a folder that needs nothing but Transformers: extensions in weights and config.

What was written is opened again, by Transformers alone, and compared with the extended model before it is there under
its name.
DIR/
  config.json, model.safetensors (or parts of it and their index)
  lengthwise.json                 what was merged
  tokenizer.json and the like     as they were
Shape letters: B rows, T tokens, V vocabulary.
"""

import inspect
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from lengthwise import configuration, door
from lengthwise.errors import RunError, UserError
from lengthwise.exported import ORIGIN
from lengthwise.hub.export import open_to_others
from lengthwise.hub.loading import DTYPES, first_line, open_causal_model
from lengthwise.hub.merge_plan import OpenedModel, Plan, plan_of
from lengthwise.hub.query_scales import scaled_queries
from lengthwise.hub.quiet import quietly
from lengthwise.leftovers import clear_leftovers_of, partial_of, remove_empty
from lengthwise.records.directory import make_folder
from lengthwise.records.files import read_json, storage_error, write_json
from lengthwise.records.provenance import installed_version
from lengthwise.weight_files import weight_files

TOLERANCE = 2e-5
"""Of logits in fp32, relative to the largest."""
ANGLES = 2.0**-24
"""By how much more for each token, where rotations were changed: so an angle of one radian is rounded in fp32."""
READ, COMPARED = 1024, 64
"""Tokens of the trained length that are read at most, and tokens at the end of a row whose logits are compared."""
ACCOMPANYING = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "spiece*",
    "chat_template*", "generation_config.json", "LICENSE*",
)  # fmt: skip
"""Files of a model's folder that are copied."""


@dataclass(frozen=True)
class Merged:
    folder: Path
    architecture: str
    difference: float
    """The largest between logits of the folder and of the extended model, relative to the largest logit."""
    told: list[str]
    """What went where, in lines."""


def merge(
    opened: OpenedModel,
    to: Path,
    dtype: str = "auto",
    fitted: int = 0,
    accompany: Callable[[Path], object] = lambda folder: None,
    origin: Mapping[str, Any] | None = None,
) -> Merged:
    """Writes the folder, or nothing. The model itself stays as it was, to the bit.

    `dtype`: of the weights; `auto` for as they were saved, or fp32 where rounding would show. `fitted`: tokens that
    something was fitted for. `accompany` writes further files, such as a tokenizer.
    """
    refuse_target(to)
    plan = plan_of(opened, fitted)
    rows = _rows(opened)
    expected = [_expected(opened, *row) for row in rows]
    there = next(each for each in to.absolute().parents if each.exists())
    begun = partial_of(to)
    try:
        make_folder(to.parent)
        clear_leftovers_of(to)
        with scaled_queries(opened.model, plan.scales_H, opened.name, ", ".join(plan.scaling)) as carriers:

            def tried(dtypes: _Dtypes) -> _Compared:
                _write(opened.model, plan, dtypes, begun, opened.name)
                return _compared(begun, rows, expected, plan, opened.name)

            difference, rounding = _settled(tried, _saved(opened), dtype, opened.name)
        if opened.folder is not None:
            _copy_accompanying(opened.folder, begun)
        accompany(begun)
        write_json(begun / ORIGIN, _described(opened, origin or {}))
        _finish(begun, to)
    except OSError as error:
        raise storage_error(error, to) from error
    finally:
        shutil.rmtree(begun, ignore_errors=True)
        if not to.exists():
            remove_empty(to.absolute().parent, there)
    return Merged(to, type(opened.model).__name__, difference, [*plan.told(carriers), *rounding])


def refuse_target(to: Path) -> None:
    if to.exists() or to.is_symlink():
        raise UserError(f"{to} is there already; choose another folder with --out, or delete it")


# In which precision.


@dataclass(frozen=True)
class _Dtypes:
    each: dict[str, torch.dtype]
    """Of weights, by their names in files."""
    most: torch.dtype
    """Of all others."""

    @property
    def low(self) -> bool:
        return any(dtype.itemsize < 4 for dtype in (*self.each.values(), self.most))


@dataclass(frozen=True)
class _Compared:
    difference: float
    fits: bool


FULL = _Dtypes({}, torch.float32)
SAVED = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def _saved(opened: OpenedModel) -> _Dtypes:
    """As the folder has them."""
    each: dict[str, torch.dtype] = {}
    numbers: dict[torch.dtype, int] = {}
    for file in [] if opened.folder is None else weight_files(opened.folder):
        if file.suffix != ".safetensors":
            continue
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 -- it is no dictionary
                part = weights.get_slice(name)
                if (dtype := SAVED.get(part.get_dtype())) is not None:
                    each[name] = dtype
                    numbers[dtype] = numbers.get(dtype, 0) + torch.Size(part.get_shape()).numel()
    return _Dtypes(each, max(numbers, key=lambda dtype: numbers[dtype]) if numbers else opened.dtype)


def _settled(
    tried: Callable[[_Dtypes], _Compared], saved: _Dtypes, dtype: str, name: str
) -> tuple[float, Sequence[str]]:
    """Leaves the folder in a precision that fits, or in the one that was asked for; else refuses. Returns the largest
    difference of logits, and what is to be said of rounding."""
    asked = None if dtype == "auto" else _Dtypes({}, DTYPES[dtype])
    rounds = asked is not None and asked.low
    first = FULL if rounds else asked or saved
    found = tried(first)
    told: list[str] = []
    if not found.fits and first.low:
        told.append(f"weights in fp32: rounded as they were, logits would differ by {found.difference:.1g}")
        found = tried(FULL)
    if not found.fits:
        raise RunError(
            f"the merged model gives other logits than {name} under its extensions, by up to {found.difference:.2g} of "
            "the largest; nothing was written"
        )
    if asked is not None and rounds:
        found = tried(asked)
        told.append(f"weights in {dtype}: logits differ by their rounding")
    return found.difference, told


# How it is written.


def _write(model: PreTrainedModel, plan: Plan, dtypes: _Dtypes, folder: Path, name: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cast: dict[tuple[int, torch.Size], Tensor] = {}

    def saved(path: str, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        bare = path.removeprefix(f"{model.base_model_prefix}.")
        dtype = dtypes.each.get(path, dtypes.each.get(bare, dtypes.most))
        # Tied weights stay one tensor, which is saved once.
        return cast.setdefault((value.data_ptr(), value.shape), value.detach().to(dtype))

    config: Any = model.config
    before = {name: getattr(config, name, None) for name in ("dtype", "architectures")}
    try:
        with quietly():
            weights = {path: saved(path, value) for path, value in model.state_dict().items()}
            model.save_pretrained(folder, state_dict=weights)
    except OSError:
        raise
    except Exception as error:  # the library raises whatever a config leads to
        raise UserError(f"Transformers cannot save {name}: {first_line(error)}") from error
    finally:
        for key, value in before.items():
            setattr(config, key, value)
    described = read_json(folder / "config.json")
    described["dtype"] = str(dtypes.most).removeprefix("torch.")
    plan.put(_text_part(config, described))
    write_json(folder / "config.json", described)


def _text_part(config: PretrainedConfig, described: dict[str, Any]) -> dict[str, Any]:
    """Of a config as it was saved, what is of the language model."""
    text = config.get_text_config()
    name = next((each for each in getattr(config, "sub_configs", {}) if getattr(config, each, None) is text), None)
    return described if name is None else described[name]


def _copy_accompanying(source: Path, folder: Path) -> None:
    for pattern in ACCOMPANYING:
        for file in sorted(source.glob(pattern)):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)


def _described(opened: OpenedModel, origin: Mapping[str, Any]) -> dict[str, Any]:
    tables = [{"name": each.name, **configuration.table(each.config)} for each in opened.extensions]
    about = {"lengthwise": installed_version("lengthwise"), "kind": "merged model", "name": opened.name}
    return {**about, "trained": opened.trained, "extensions": tables, **origin}


def _finish(begun: Path, to: Path) -> None:
    """Nothing that is there under its name is still on its way to the disk."""
    open_to_others(begun)
    for file in begun.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    begun.rename(to)


# How it is checked.


def _rows(opened: OpenedModel) -> list[tuple[Tensor, int]]:
    """Tokens (1, T) and the position of the first one: within and beyond the trained length, as far as that is short.

    The shortest first: tables of Transformers that follow the length of what they read stay as long ones were met.
    """
    last, trained = opened.last_position, opened.trained
    lengths = [min(trained, READ), min(2 * trained, 2 * READ)]
    if last is not None:
        lengths = [min(length, last + 1) for length in lengths]
    rows = int(opened.model.config.get_text_config().vocab_size)
    generator = torch.Generator().manual_seed(0)

    def tokens(length: int) -> Tensor:
        return torch.randint(rows, (1, length), generator=generator).to(opened.model.device)

    found = [(tokens(length), 0) for length in dict.fromkeys(lengths)]
    if lengths[-1] < 2 * trained and last is None:
        found.append((tokens(COMPARED), trained - COMPARED // 2))
    return found


@torch.no_grad()
def _expected(opened: OpenedModel, tokens_BT: Tensor, first: int) -> Tensor:
    if opened.reference is not None and not first:
        return opened.reference(tokens_BT)[:, -COMPARED:].float()
    with opened.examined.running(opened.encodings):
        return _logits(opened.model, tokens_BT, first)


@torch.no_grad()
def _logits(model: PreTrainedModel, tokens_BT: Tensor, first: int) -> Tensor:
    """Of the last tokens, in fp32."""
    length = tokens_BT.shape[1]
    given: dict[str, Any] = {"use_cache": False}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        given["logits_to_keep"] = min(length, COMPARED)
    if first:
        given["position_ids"] = torch.arange(first, first + length, device=tokens_BT.device)[None]
    return model(tokens_BT, **given).logits[:, -COMPARED:].float()


def _compared(
    folder: Path, rows: Sequence[tuple[Tensor, int]], expected: Sequence[Tensor], plan: Plan, name: str
) -> _Compared:
    """Logits of the folder, opened by Transformers alone, with those expected."""
    with quietly():
        try:
            model = open_causal_model(folder, "fp32").to(expected[0].device)
        except UserError as error:
            reason = door.visible(" ".join(str(error.__cause__ or error).split()), 300)
            raise UserError(f"Transformers does not open {name} as it would be merged: {reason}") from error
        largest, fits = 0.0, True
        for (tokens_BT, first), wanted in zip(rows, expected, strict=True):
            found = _logits(model, tokens_BT, first)
            difference = float((found - wanted).abs().max() / wanted.abs().max())
            allowed = TOLERANCE + (ANGLES * (first + tokens_BT.shape[1]) if plan.rotates else 0.0)
            fits = fits and difference <= allowed  # not where it is no number
            largest = max(largest, difference)
    return _Compared(largest, fits)
