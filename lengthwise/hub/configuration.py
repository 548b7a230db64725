"""What a decoder of ours is built from, as a config.json of Transformers."""

from typing import Any

from transformers import PreTrainedConfig

from lengthwise import configuration
from lengthwise.model.build import Lengths
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder


class LengthwiseConfig(PreTrainedConfig):
    """There is no `max_position_embeddings`: programs cut prompts to it, and longer ones are the point. Where positions
    end (`learned`), the decoder says so."""

    model_type = "lengthwise"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012
    attribute_map = {  # noqa: RUF012
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "groups",
    }

    vocab_size: int = 64
    """Embedding rows."""
    shape: dict[str, Any] | None = None
    """The table of a ModelConfig."""
    encodings: list[dict[str, Any]] | None = None
    """Tables of a name and settings, cycled over the layers."""
    trained_length: int = 512
    """The longest sequences, in tokens, that it was trained on and that it was made for."""
    met_length: int = 512
    tie_word_embeddings: bool = False  # the t5 style has one matrix for both, not two that are tied
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.shape = configuration.table(ModelConfig()) if self.shape is None else self.shape
        self.encodings = [{"name": "none"}] if self.encodings is None else self.encodings
        # What generation, caches and evaluation harnesses look for.
        for name in ("width", "layers", "heads"):
            setattr(self, name, self.shape[name])
        self.groups = self.shape["key_value_heads"] or self.shape["heads"]
        super().__post_init__(**kwargs)

    @classmethod
    def of(cls, decoder: Decoder, encodings: list[dict[str, Any]], **others: Any) -> "LengthwiseConfig":
        """`encodings`: the tables that the decoder was built from."""
        geometry = decoder.encoding_at(0).geometry
        return cls(
            vocab_size=decoder.embedding.num_embeddings,
            shape=configuration.table(decoder.config),
            encodings=encodings,
            trained_length=geometry.trained_context,
            met_length=geometry.context,
            **others,
        )

    @property
    def model(self) -> ModelConfig:
        return configuration.read(ModelConfig, dict(self.shape or {}), "shape")

    @property
    def lengths(self) -> Lengths:
        return Lengths(self.trained_length, self.met_length)
