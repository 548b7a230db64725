"""Opens the folder of a Hugging Face model for context extension, with the library or without.

With Transformers any model that takes its attention interface is read by its own code, and a model that was exported
from here is again a decoder of ours. Without it a Llama or a SmolLM3 is, by a reader of our own.
"""

import importlib.util
from pathlib import Path

import torch

from lengthwise.context_extension.hugging_face import Positions, load_decoder
from lengthwise.context_extension.reader import DecoderReader, Reader
from lengthwise.errors import UserError


def open_foreign(
    path: Path, device: torch.device, positions: Positions = "auto", trained: int = 0, dtype: str = "auto"
) -> Reader:
    """`positions`: none where the rotation was taken out of a model whose config does not say so. `trained`: tokens of
    the longest sequences of training, 0 for what the config says. `dtype`: of the weights; auto for fp32 on a CPU, and
    on a GPU as they were saved.
    """
    if importlib.util.find_spec("transformers") is None:
        if dtype not in ("auto", "fp32"):
            raise UserError(f"weights in {dtype} need Hugging Face's library: pip install 'lengthwise[hub]'")
        return DecoderReader(load_decoder(path, positions, trained).to(device).eval())
    from lengthwise.context_extension.transformers_reader import TransformersReader
    from lengthwise.hub.loading import open_causal_model
    from lengthwise.hub.model import LengthwiseForCausalLM

    wanted = "fp32" if dtype == "auto" and device.type == "cpu" else dtype
    model = open_causal_model(path, wanted).to(device).requires_grad_(False)
    if isinstance(model, LengthwiseForCausalLM):
        if positions != "auto" or trained:
            raise UserError(f"{path} is a model of ours, which knows its positions and its training length")
        return DecoderReader(model.decoder)
    reader = TransformersReader.of(model, trained, path.name)
    return reader.without_rotation() if positions == "none" else reader
