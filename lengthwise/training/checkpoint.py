"""A trained model from its file: the file knows how the model was built."""

from pathlib import Path

import torch

from lengthwise import configuration, door
from lengthwise.door import visible
from lengthwise.encodings.choice import EncodingChoice, words_of
from lengthwise.errors import RunError
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.study import Run
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import load_tensors


def load_model(path: Path) -> Decoder:
    """The decoder of a run's checkpoint, on the CPU."""
    tensors, metadata = load_tensors(path)
    described = _DESCRIBED.checked(metadata, f"{path}: its description")
    try:
        run = run_from(described["run"])
        lengths = Lengths(trained=described["lengths"]["trained"], met=described["lengths"]["met"])
        with torch.device("meta"):  # nothing is allocated for what a file says of itself
            counting = run.data.make_placement().counting
            expected = build(run.model, run.make_tokens().rows, run.encoding.layers, lengths, counting).state_dict()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"{path} is damaged (what it says of its run: {error!r})") from error
    if tensors.keys() != expected.keys():
        odd = sorted(tensors.keys() ^ expected.keys())[0]
        raise RunError(f"{path} is damaged ({'no' if odd in expected else 'an unknown'} tensor {visible(odd)!r})")
    for name, value in expected.items():
        if tensors[name].shape != value.shape or tensors[name].dtype != value.dtype:
            raise RunError(f"{path} is damaged ({name} is {tuple(tensors[name].shape)} of {tensors[name].dtype})")
    model = build(run.model, run.make_tokens().rows, run.encoding.layers, lengths, counting)
    model.load_state_dict(tensors)
    return model


_LENGTH = door.Number(least=1, most=2**40, whole=True)
_DESCRIBED = door.Object(
    needed={"run": door.Object(), "lengths": door.Object(needed={"trained": _LENGTH, "met": _LENGTH})},
)


def run_from(table: dict) -> Run:
    """The run that `Run.table` describes."""
    return Run(
        task=table["task"],
        encoding=EncodingChoice(words_of(table["encoding"]), tuple(table["encoding"])),
        seed=table["seed"],
        model=configuration.read(ModelConfig, table["model"], "model"),
        data=configuration.read(DataConfig, table["data"], "data"),
        training=configuration.read(TrainingConfig, table["training"], "training"),
    )
