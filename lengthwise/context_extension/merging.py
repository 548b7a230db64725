"""What `lengthwise extend merge` does: a model, what was fitted to it and extensions become a model of Transformers.

A run of ours becomes the Llama or SmolLM3 that it is on the way, whose logits have to be those of the run.
"""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from lengthwise import configuration
from lengthwise.context_extension.fit_files import precision_of
from lengthwise.context_extension.hugging_face import Positions, is_hugging_face
from lengthwise.context_extension.loaded_model import open_model
from lengthwise.context_extension.reader import DecoderReader, Reader
from lengthwise.context_extension.transformers_reader import TransformersReader
from lengthwise.context_extension.variant import Variant, variant
from lengthwise.errors import UserError
from lengthwise.extensions.extended import make_extension
from lengthwise.extensions.extension import Extension
from lengthwise.extensions.naming import AUTO
from lengthwise.hub import merging
from lengthwise.hub.merge_plan import OpenedModel
from lengthwise.hub.merging import Merged
from lengthwise.hub.native import native_model, refusal
from lengthwise.hub.tokenizer import language_tokenizer
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.runtime import Listener, choose_device

PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def merge(
    model: PreTrainedModel, extensions: Sequence[Extension], to: Path, trained: int = 0, dtype: str = "auto"
) -> Merged:
    """Writes a model of Transformers with extensions into a new folder, without a tokenizer; it stays as it was."""
    merging.refuse_target(to)
    reader = TransformersReader.of(_in_full_precision(model), trained).extended(extensions)
    return merging.merge(_opened(reader, dtype=model.dtype), to, dtype)


def merge_folder(
    path: Path,
    to: Path,
    extensions: Sequence[str] = (),
    fit: Path | None = None,
    positions: Positions = "auto",
    trained: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    listener: Listener | None = None,
) -> Merged:
    """The same of the folder of a Hugging Face model, or of a run of ours, as the command line names everything."""
    merging.refuse_target(to)
    if not extensions and fit is None:
        raise UserError("nothing to merge: give --fit, or --extension once or more")
    chosen = _chosen(path, extensions, fit, positions, trained, choose_device(device))
    if listener is not None:
        listener.note(chosen.loaded.described())
    context = _context(chosen)
    extended = chosen(context)
    accompany: Callable[[Path], object] = lambda folder: None  # noqa: E731
    if isinstance(extended, TransformersReader):
        opened = _opened(extended, path)
    else:
        native, accompany = _native(path, chosen)
        reader = native.extended(extended.extensions, context)
        opened = _opened(reader, reference=extended.logits)
    fitted = chosen.fitted
    origin = {} if fitted is None else {"fit": configuration.table(fitted.settings)}
    return merging.merge(opened, to, dtype, 0 if fitted is None else fitted.settings.length, accompany, origin)


def _in_full_precision(model: PreTrainedModel) -> PreTrainedModel:
    if model.dtype == torch.float32:
        return model
    # Made anew: a cast model has cast its rotary tables, too, and those of what is saved are exact.
    made = AutoModelForCausalLM.from_config(copy.deepcopy(model.config), dtype=torch.float32)
    made.load_state_dict(model.state_dict())
    return made.to(model.device).eval()


def _opened(
    reader: TransformersReader,
    folder: Path | None = None,
    dtype: torch.dtype = torch.float32,
    reference: Callable[[Tensor], Tensor] | None = None,
) -> OpenedModel:
    return OpenedModel(
        reader.examined, reader.encodings, reader.name, reader.trained, reader.last_position, folder, dtype, reference
    )


def _chosen(
    path: Path, extensions: Sequence[str], fit: Path | None, positions: Positions, trained: int, device: torch.device
) -> Variant:
    """The model in fp32, and what is to be merged into it."""
    foreign = is_hugging_face(path)
    # A fit knows its model by its weights in the precision in which it read them.
    precision = "fp32" if fit is None else PRECISIONS.get(precision_of(fit), "fp32")
    loaded = open_model(path, device, None, positions, trained, precision if foreign else "auto")
    chosen = variant(loaded, extensions, fit)
    if foreign and precision != "fp32":
        loaded = open_model(path, device, None, positions, trained, "fp32")
        chosen = Variant(loaded, chosen.extensions, chosen.fitted)
    for table in chosen.extensions:
        if table.get("factor") == AUTO:
            raise UserError(f"a merged model has one factor at every length: say {table['name']}:factor=4 or another")
    return chosen


def _context(chosen: Variant) -> int:
    """The longest that anything in it is made for."""
    loaded, fitted = chosen.loaded, chosen.fitted
    tables = [*chosen.extensions, *([] if fitted is None else fitted.settings.extensions)]
    reached = [make_extension(table).reach(loaded.trained) for table in tables]
    longest = max([loaded.trained, *reached, 0 if fitted is None else fitted.settings.length])
    last = loaded.model.last_position
    return longest if last is None else min(longest, last + 1)


def _native(path: Path, chosen: Variant) -> tuple[TransformersReader, Callable[[Path], object]]:
    """A run of ours as a model of Transformers, with the weights of its fit; and what writes its tokenizer."""
    loaded = chosen.loaded
    if not isinstance(loaded.tokenizer, Tokenizer):
        raise UserError(
            f"{path} is a model of ours, which needs lengthwise; export its run with --as native, merge that"
        )
    decoder = _with_learned(chosen)
    if reason := refusal(decoder):
        raise UserError(f"{path} cannot be merged: it is no Llama and no SmolLM3, as {reason}")
    tokenizer = language_tokenizer(loaded.tokenizer)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    model: Any = native_model(decoder, **special).requires_grad_(False)
    model = model.to(loaded.model.device)
    return TransformersReader.of(model, loaded.trained, loaded.name), tokenizer.save_pretrained


def _with_learned(chosen: Variant) -> Any:
    """The decoder of a run; where a fit has trained all of its weights, with those."""
    reader: Reader = chosen.loaded.model
    if chosen.fitted is not None and not chosen.fitted.settings.head_scale:
        reader = reader.copied()
        reader.put(chosen.fitted.learned)
    assert isinstance(reader, DecoderReader)
    return reader.model
