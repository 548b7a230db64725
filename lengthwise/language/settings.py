"""The settings of a language model. Imports no torch, so that they are checked at once."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lengthwise import configuration
from lengthwise.encodings.choice import EncodingChoice, read_encoding
from lengthwise.errors import UserError, nearest
from lengthwise.model import config as model_config
from lengthwise.model.config import ModelConfig
from lengthwise.training.recipe import TrainingConfig

SIZES: dict[str, dict[str, Any]] = {"lm-small": {"layers": 6, "width": 384, "heads": 6}, **model_config.SIZES}
"""`lm-small` has 17 million parameters with a vocabulary of 8,192: 10.6 in its blocks, the rest in both embeddings."""

LANGUAGE_NUMERICS = 5
"""Part of every run's settings: raised when a change to this code changes the numbers of a run."""

LARGEST_VOCABULARY = 2**20
MOST_TOKENS = 10**15
"""Of anything: a hundred times what the largest models have read."""


@dataclass(frozen=True)
class LanguageData:
    """What is read."""

    context: int = 512
    """Tokens of a row: the longest sequence of training."""
    vocabulary: int = 8192
    """Tokens that the tokenizer may have."""
    field: str = "text"
    """Of JSON lines and Hugging Face datasets: where a document's text is."""
    tokenizer_characters: int = 200_000_000
    """The tokenizer is trained on so many characters, from the first training document on."""
    passkey_share: float = 0.0
    """Share of the rows that hold synthetic passkey documents instead of the corpus."""
    validation_tokens: int = 262_144
    """Held-out tokens that the validation loss is the mean of."""

    def __post_init__(self) -> None:
        if self.context < 2:
            raise ValueError(f"context must be 2 or more, not {self.context}")
        if not 260 <= self.vocabulary <= LARGEST_VOCABULARY:
            raise ValueError(
                f"vocabulary must be 260 or more (256 bytes and what is special) and at most {LARGEST_VOCABULARY:,}, "
                f"not {self.vocabulary}"
            )
        for name in ("context", "tokenizer_characters", "validation_tokens"):
            if getattr(self, name) > MOST_TOKENS:
                raise ValueError(f"{name} must be at most {MOST_TOKENS:,}, not {getattr(self, name)}")
        if not 0 <= self.passkey_share < 1:
            raise ValueError(f"passkey_share must be at least 0 and below 1, not {self.passkey_share}")
        if self.validation_tokens < 1 or self.tokenizer_characters < 1:
            raise ValueError("validation_tokens and tokenizer_characters must be 1 or more")


@dataclass(frozen=True)
class LanguageTraining:
    """How the weights are found: AdamW, a warm-up, then half a cosine down."""

    tokens: int = 200_000_000
    """The budget; the last step is done in full."""
    batch_tokens: int = 32_768
    """Of a step, over all processes."""
    learning_rate: float = 1e-3
    final_share: float = 0.1
    """The last learning rate, relative to the highest."""
    warmup: float = 0.02
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = 0.1
    clip: float = 1.0
    """Largest norm of the gradient."""
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    validations: int = 10
    """How often the validation loss is taken, the last step included."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic; weights and optimizer state are always fp32. `auto`: bf16 on a GPU, fp32 on a CPU."""
    sharded: bool = False
    """For models that do not fit: weights, gradients and optimizer state divided among the processes (FSDP2), and
    what a block computes forgotten and computed again in the backward pass."""

    def __post_init__(self) -> None:
        for name in ("tokens", "batch_tokens", "validations"):
            if not 1 <= getattr(self, name) <= MOST_TOKENS:
                raise ValueError(f"{name} must be 1 to {MOST_TOKENS:,}, not {getattr(self, name)}")
        if not 0 <= self.final_share <= 1:
            raise ValueError(f"final_share must be 0 to 1, not {self.final_share}")
        _ = self.recipe  # which checks the rest

    @property
    def steps(self) -> int:
        return -(-self.tokens // self.batch_tokens)

    @property
    def validate_every(self) -> int:
        return max(1, self.steps // self.validations)

    @property
    def recipe(self) -> TrainingConfig:
        """What the optimizer asks for; its learning rates are not asked for."""
        return TrainingConfig(
            steps=self.steps,
            learning_rate=self.learning_rate,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            decay_norms=False,
            clip=self.clip,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            validate_every=self.validate_every,
            precision=self.precision,
        )

    def learning_rate_at(self, step: int) -> float:
        """For the update number `step`, counted from 0."""
        warm = round(self.warmup * self.steps)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - 1 - warm)
        share = self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * share


@dataclass(frozen=True)
class LanguageSettings:
    """Everything but the corpus that can change the numbers of a language model."""

    encoding: Any = "none"
    """A name, a table of a name and settings, or a list of those: a schedule that is cycled over the layers."""
    seed: int = 0
    """Of the initial weights, of the order of the rows, of the passkey documents and of dropout."""
    model: ModelConfig = field(default_factory=lambda: model_of({}))
    data: LanguageData = field(default_factory=LanguageData)
    training: LanguageTraining = field(default_factory=LanguageTraining)
    begins_from: int | None = None
    """Checksum of the weights of another run that training begins with; None for initial ones."""
    numerics: int = LANGUAGE_NUMERICS

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")
        _ = self.choice  # an unknown name is an error now
        if self.model.loops > 1:
            raise ValueError("model.loops is for studies of tasks; a language model passes its layers once")
        if self.training.batch_tokens % self.data.context:
            raise ValueError(
                f"batch_tokens ({self.training.batch_tokens}) must be a multiple of the context ({self.data.context})"
            )

    @property
    def choice(self) -> EncodingChoice:
        return read_encoding(self.encoding)

    @property
    def rows(self) -> int:
        """In a step, over all processes."""
        return self.training.batch_tokens // self.data.context

    def table(self) -> dict[str, Any]:
        return configuration.table(self)


def settings_from(table: Mapping[str, Any]) -> LanguageSettings:
    """From a plain table; a model's `size` gives what the table does not say, in the style of Llama."""
    table = dict(table)
    if isinstance(table.get("model", {}), Mapping):
        table["model"] = configuration.table(model_of(table.get("model", {})))
    return configuration.read(LanguageSettings, table, "")


def model_of(table: Mapping[str, Any]) -> ModelConfig:
    size = table.get("size", "lm-small")
    if not isinstance(size, str) or size not in SIZES:
        raise UserError(f"model.size cannot be {size!r}; {nearest(str(size), SIZES)}")
    return configuration.read(ModelConfig, {"size": size, "style": "llama", **SIZES[size], **table}, "model")


def read_count(text: str) -> int:
    """`200M` is 200 million; also K and B, and plain numbers."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", text.strip().replace("_", "").upper())
    if not found:
        raise UserError(f"{text!r} is no number of tokens; write 32768, 300K, 200M or 1.5B")
    return round(float(found[1]) * {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}[found[2]])
