"""The finished run that another training begins from: its weights instead of initial ones, and what must fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from lengthwise import configuration
from lengthwise.errors import UserError
from lengthwise.language.model import load_language_model
from lengthwise.language.settings import LanguageSettings
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.model.decoder import Decoder
from lengthwise.records.directory import differences
from lengthwise.training.state import checksum

FREE = ("size", "dropout")
"""Settings of a model that its weights know nothing of."""


@dataclass(frozen=True)
class Origin:
    folder: Path
    settings: LanguageSettings
    tokenizer: Tokenizer
    tensors: Mapping[str, Tensor]
    checksum: int
    """Of all its weights."""

    @classmethod
    def load(cls, folder: Path) -> "Origin":
        model, tokenizer, settings = load_language_model(folder)
        tensors = {name: weight.detach() for name, weight in model.state_dict().items()}
        return cls(folder, settings, tokenizer, tensors, checksum(tensors))

    def refuse_other_shape(self, settings: LanguageSettings) -> None:
        """Refuses a model that these weights are not of; its encoding may be another one."""
        own, other = (configuration.table(each.model) for each in (self.settings, settings))
        changes = [f"{key} was {old!r}, is {new!r}" for key, old, new in differences(own, other) if key not in FREE]
        if changes:
            raise UserError(
                f"{self.folder} is another model ({'; '.join(changes[:3])}); training that begins from it keeps its "
                "shape"
            )

    def weights(self, settings: LanguageSettings, model: Decoder, tokenizer: Tokenizer) -> dict[str, Tensor]:
        """What `model` begins with: all weights, but those of the encoding where that is another one."""
        if tokenizer.text() != self.tokenizer.text():
            raise UserError(f"{self.folder} was trained with another tokenizer than that of this corpus")
        for name, _ in model.named_parameters():
            if name not in self.tensors and not name.startswith("encodings."):
                raise UserError(f"{self.folder} has no weights {name!r}: layers keep what they have for attention")
        same = settings.choice.layers == self.settings.choice.layers
        return {name: value for name, value in self.tensors.items() if same or not name.startswith("encodings.")}
