"""A language model from its settings, or from the folder of a finished run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise import configuration, door, registry
from lengthwise.errors import RunError, UserError
from lengthwise.language.description import no_language_model
from lengthwise.language.settings import LanguageSettings, settings_from
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.model.build import Lengths, build
from lengthwise.model.decoder import Decoder
from lengthwise.training.state import load_tensors

TOKENIZER = "tokenizer.json"
LAST = "last.safetensors"
MOST_BYTES = 2**42
"""Of a file of weights: a model of a trillion."""
METADATA = door.Object({"settings": door.ANY_OBJECT, "vocabulary_rows": door.Number(1, 2**24, whole=True)})


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
        raise UserError(f"{run} is not finished: train it to the end" if unfinished else no_language_model(run))
    door.refuse_unreadable(run / LAST, MOST_BYTES)
    tensors, metadata = load_tensors(run / LAST)
    if "vocabulary_rows" not in metadata:
        raise UserError(f"{run} holds no language model, but a run of a study")
    METADATA.checked(metadata, f"{run / LAST}")
    tokenizer = Tokenizer.load(run / TOKENIZER)
    settings = settings_from(metadata["settings"])
    if tokenizer.rows != metadata["vocabulary_rows"] or settings.model.layers > len(tensors):
        raise RunError(f"{run / LAST} does not fit its settings or {TOKENIZER}; restore the run, or train it again")
    with torch.device("meta"):  # what it should be, before anything of that size is asked for
        expected = build_language_model(settings, tokenizer.rows).state_dict()
    refuse_other_weights(tensors, expected, run / LAST)
    model = build_language_model(settings, tokenizer.rows)
    model.load_state_dict(tensors)
    return model, tokenizer, settings


def refuse_other_weights(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], file: Path) -> None:
    """Refuses weights of other names, shapes or types than a model's, and numbers that are none."""
    for name in sorted(expected.keys() ^ tensors.keys()):
        has = "lacks" if name in expected else "has, unlike its settings,"
        raise RunError(f"{file} {has} the weights {door.visible(name, 80)!r}; restore the run, or train it again")
    for name, wanted in expected.items():
        found = tensors[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            shapes = [f"{tuple(each.shape)} in {str(each.dtype).removeprefix('torch.')}" for each in (found, wanted)]
            raise RunError(f"{file}: {name} is {shapes[0]}, not {shapes[1]}; restore the run, or train it again")
        if not bool(found.isfinite().all()):
            raise RunError(f"{file}: {name} holds numbers that are not finite; restore the run, or train it again")
