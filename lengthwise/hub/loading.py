"""Opens the folder of a Hugging Face model or tokenizer: none of its code is run, nothing is downloaded.

What a folder from outside may say is checked before the library acts on it: it would build any model that a config
describes.
"""

from pathlib import Path
from typing import Any

import torch
import transformers

import lengthwise.hub  # noqa: F401 -- registers our own models with AutoModelForCausalLM and AutoTokenizer
from lengthwise import door
from lengthwise.errors import UserError
from lengthwise.hub.quiet import quietly
from lengthwise.machine import require_memory
from lengthwise.weight_files import weight_files

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
SAFE = {"local_files_only": True, "trust_remote_code": False}
WIDER = 4
"""How many bytes of parameters a byte of weight files may stand for: files may be in half precision or less, and leave
out what is tied."""
LARGEST = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 1000),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "head_dim"), 2**17),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim"), 2**24),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 2**30),
    "vocab_size": 2**24,
}
"""What a config may say."""


def open_causal_model(folder: Path, dtype: str = "auto", attention: str | None = None) -> Any:
    """The causal language model in a folder, on the CPU. `dtype`: `auto` for that of its files."""
    refuse_absurd_config(folder)
    files = weight_files(folder)
    size = sum(file.stat().st_size for file in files)
    given: dict[str, Any] = {**SAFE, "dtype": DTYPES.get(dtype, "auto")}
    given |= {"attn_implementation": attention} if attention else {}
    try:
        with quietly():
            config = transformers.AutoConfig.from_pretrained(folder, **SAFE)
            with torch.device("meta"):
                described = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
            parameters = sum(parameter.numel() for parameter in described.parameters())
            _refuse_size(folder, parameters, size)
            model, loading = transformers.AutoModelForCausalLM.from_pretrained(
                folder, **given, output_loading_info=True
            )
    except UserError:
        raise
    except Exception as error:  # the library raises whatever a mistyped config leads to
        raise UserError(f"{folder} holds no causal language model that can be read: {first_line(error)}") from error
    if missing := sorted(loading["missing_keys"]):
        raise UserError(f"{folder} lacks weights of its model ({missing[0]} and perhaps others); restore its files")
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise UserError(f"{folder}: {door.visible(name, 80)!r} holds numbers that are not finite")
    return model.eval()


def _refuse_size(folder: Path, parameters: int, size: int) -> None:
    if parameters > WIDER * size + 2**20:
        raise UserError(
            f"the config of {folder} describes {parameters:,} parameters, and its files of weights have {size:,} "
            "bytes: they are not of the same model"
        )
    require_memory(4 * parameters, f"the model in {folder}", "choose a smaller one")


def open_tokenizer(folder: Path) -> Any:
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise UserError(
            f"{folder} has no tokenizer; save it there (tokenizer.save_pretrained), or name the folder of one with "
            "--tokenizer"
        )
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, **SAFE)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{folder} holds no tokenizer that can be read: {first_line(error)}") from error


def refuse_absurd_config(folder: Path) -> None:
    """Refuses a config whose model nobody could build."""
    config = door.read_json(folder / "config.json", most=door.SMALL)
    for name, most in LARGEST.items():
        if config.get(name) is not None:
            door.Number(least=0, most=most, whole=True).checked(config[name], f"{folder / 'config.json'}: {name}")


def first_line(error: Exception) -> str:
    return door.visible((str(error).strip() or type(error).__name__).splitlines()[0], 300)
