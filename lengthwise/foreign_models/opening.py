"""Opens what a user names: a server, a folder, or an object."""

from pathlib import Path
from typing import Any

from lengthwise.foreign_models.server import Server, is_server
from lengthwise.foreign_models.written import Writer

BATCH = {"model": 32, "server": 8}
"""Questions at a time, where nothing is said."""


def open_writer(
    model: Any,
    tokenizer: Any = None,
    name: str = "",
    device: str = "auto",
    dtype: str = "auto",
    batch: int = 0,
    beyond_context: bool = False,
    server_model: str = "",
) -> Writer:
    """`tokenizer`: of an object; of a folder's model a folder, by default its own. `batch`: 0 for the usual one."""
    if isinstance(model, str) and is_server(model):
        return Server(model, server_model, name, batch or BATCH["server"])
    from lengthwise.foreign_models.transformers_model import TransformersModel, open_folder

    several = batch or BATCH["model"]
    if isinstance(model, str | Path):
        other = None if tokenizer is None else Path(tokenizer)
        return open_folder(Path(model), other, name, device, dtype, several, beyond_context)
    return TransformersModel(model, tokenizer, name, several, beyond_context)
