"""The settings of training and its data. Imports no torch, so that they are checked at once."""

from dataclasses import dataclass
from typing import Literal

from lengthwise.scratchpad import Scratchpad
from lengthwise.tasks.task import Span, Task


@dataclass(frozen=True)
class DataConfig:
    """Which examples; the defaults are the published ones."""

    train_lengths: tuple[int, int] | None = None
    """First and last length of training; None for the task's published ones."""
    test_lengths: tuple[int, int] | None = None
    examples: int = 100_000
    """Training examples, seen again and again; 0 for an endless supply of new ones."""
    validation: int = 1000
    """In-distribution examples that choose the best checkpoint."""
    test_per_length: int = 500
    """Mean over the lengths, where a task does not spread its examples equally."""
    scratchpad: str = "none"
    anchor: bool = True
    """Keep the constant first words of prompts; without them NoPE has nothing to count from."""

    def __post_init__(self) -> None:
        if self.examples < 0 or self.validation < 1 or self.test_per_length < 1:
            raise ValueError("examples must be 0 or more, validation and test_per_length 1 or more")
        for name in ("train_lengths", "test_lengths"):
            if getattr(self, name) is not None:
                try:
                    Span(*getattr(self, name))
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
        if self.train_lengths and self.test_lengths and self.test_lengths[0] <= self.train_lengths[1]:
            raise ValueError(
                f"test_lengths must begin above the last of train_lengths ({self.train_lengths[1]}), "
                f"not at {self.test_lengths[0]}: they are the unseen lengths"
            )
        _ = Scratchpad(self.scratchpad).parts  # an unknown name is an error now, not after training

    def spans(self, task: Task) -> tuple[Span, Span]:
        """Train and test lengths for `task`."""
        train = Span(*self.train_lengths) if self.train_lengths else task.train_lengths
        test = Span(*self.test_lengths) if self.test_lengths else task.test_lengths
        if test.first <= train.last:
            raise ValueError(
                f"{task.name}: the unseen lengths {test} overlap the training lengths {train}; "
                "set both data.train_lengths and data.test_lengths"
            )
        for span in (train, test):
            if not task.buckets(Span(span.last, span.last)):
                raise ValueError(f"{task.title} has no examples of length {span.last} ({task.length_means})")
        return train, test


@dataclass(frozen=True)
class TrainingConfig:
    """How the weights are found; the defaults are the published ones."""

    steps: int = 40_000
    batch: int = 64
    """Examples in a step."""
    learning_rate: float = 3e-5
    final_learning_rate: float = 1e-7
    warmup: float = 0.06
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = 0.05
    clip: float = 1.0
    """Largest norm of the gradient."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    validate_every: int = 2000
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the forward and backward pass; weights and optimizer state are always fp32.

    `auto`: bf16 on a GPU, fp32 on a CPU. Published: fp32.
    """

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "validate_every", "learning_rate", "clip", "epsilon"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("final_learning_rate", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for name in ("warmup", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}")

    def precision_on(self, device: str) -> str:
        """The arithmetic on a kind of device (`cpu`, `cuda`)."""
        return self.precision if self.precision != "auto" else "bf16" if device == "cuda" else "fp32"

    def learning_rate_at(self, step: int) -> float:
        """For the update number `step`, counted from 0: up from nothing, then down in a straight line."""
        warm = round(self.warmup * self.steps)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        left = (self.steps - step) / max(1, self.steps - warm)
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * left
