"""A language model from its settings, or from the folder of a finished run."""

from pathlib import Path
from typing import Any

from lengthwise import configuration, registry
from lengthwise.errors import UserError
from lengthwise.language.settings import LanguageSettings, settings_from
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.model.build import Lengths, build
from lengthwise.model.decoder import Decoder
from lengthwise.training.state import load_tensors

TOKENIZER = "tokenizer.json"
LAST = "last.safetensors"


def build_language_model(settings: LanguageSettings, vocabulary_rows: int) -> Decoder:
    """Without initial weights."""
    lengths = Lengths(trained=settings.data.context, met=settings.data.context)
    try:
        return build(settings.model, vocabulary_rows, settings.choice.layers, lengths)
    except ValueError as error:
        raise UserError(str(error)) from error


def resolved_layers(settings: LanguageSettings) -> list[dict[str, Any]]:
    """The encodings of the schedule with all their settings, defaults included."""
    layers = []
    for table in settings.choice.layers:
        cls = registry.encodings.get(table["name"])
        given = {key: value for key, value in table.items() if key != "name"}
        config = configuration.read(cls.Config, given, f"encoding {cls.name}")
        layers.append({"name": cls.name, **configuration.table(config)})
    return layers


def load_language_model(run: Path) -> tuple[Decoder, Tokenizer, LanguageSettings]:
    """What `lengthwise language train` left in a finished run's folder, on the CPU."""
    if not (run / LAST).exists():
        if (run / "finished.json").exists():
            raise UserError(f"{run} has no weights: they were not kept, or not copied with it")
        unfinished = (run / "run.json").exists()
        raise UserError(f"{run} is not finished: train it to the end" if unfinished else f"no language model at {run}")
    tensors, metadata = load_tensors(run / LAST)
    if "vocabulary_rows" not in metadata:
        raise UserError(f"{run} holds no language model, but a run of a study")
    settings = settings_from(metadata["settings"])
    model = build_language_model(settings, metadata["vocabulary_rows"])
    model.load_state_dict(tensors)
    return model, Tokenizer.load(run / TOKENIZER), settings
