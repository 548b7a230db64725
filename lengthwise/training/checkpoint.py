"""A trained model from its file: the file knows how the model was built."""

from pathlib import Path

from lengthwise import configuration
from lengthwise.encodings.choice import EncodingChoice, words_of
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.study import Run
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import load_tensors


def load_model(path: Path) -> Decoder:
    """The decoder of a run's checkpoint, on the CPU."""
    tensors, metadata = load_tensors(path)
    run = run_from(metadata["run"])
    model = build(run.model, run.make_tokens().rows, run.encoding.layers, Lengths(**metadata["lengths"]))
    model.load_state_dict(tensors)
    return model


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
