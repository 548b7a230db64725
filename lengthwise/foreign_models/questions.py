"""What a model is asked: test examples as text, with few-shot examples that are never among them. Needs no torch."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lengthwise.data import splits
from lengthwise.data.examples import Examples, concatenate
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import kept_parts
from lengthwise.data.splits import Split
from lengthwise.errors import UserError
from lengthwise.evaluation.test_set import tested_examples
from lengthwise.tasks.task import Span, Task
from lengthwise.training.recipe import DataConfig

END_OF_LINE = "\n"
"""Ends an answer, as the end-of-sequence token does: few-shot examples are lines."""
CANDIDATES = 64
"""Examples of a length from which a few-shot example is taken that is not in the test."""

Message = dict[str, str]


@dataclass(frozen=True)
class Asking:
    """How questions are put."""

    shots: int = 0
    """Solved examples before each question: short ones, the same for all questions of a task."""
    chat: bool = False
    """As messages of a conversation, in the model's chat template."""
    instruction: str = ""
    """What comes before everything else."""
    seed: int = 0
    """Of the choice of few-shot examples. Test examples are the same for all seeds."""


@dataclass(frozen=True)
class Questions:
    """The test examples of one task, in order of length."""

    task: Task
    data: DataConfig
    asking: Asking
    examples: Examples
    """With the parts that are asked for and answered."""
    shots: tuple[tuple[str, str], ...]
    """Prompts and targets."""
    trained_lengths_known: bool = False
    """Whether somebody said on which lengths the model was trained; else those of the task are taken for them."""

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def scratchpad(self) -> Scratchpad:
        return Scratchpad(self.data.scratchpad)

    @cached_property
    def length_E(self) -> np.ndarray:
        return np.array([self.task.length_of(int(bucket)) for bucket in self.examples.buckets])

    @property
    def lengths(self) -> list[int]:
        return np.unique(self.length_E).tolist()

    def seen(self, length: int) -> bool:
        """Whether a length counts as one of training."""
        return length <= self.data.spans(self.task)[0].last

    @cached_property
    def texts(self) -> list[tuple[str, str]]:
        """Prompt and target of each example."""
        return [self.task.text(self.examples, index) for index in range(len(self))]

    def plain(self, index: int) -> str:
        """The whole prompt of one question, few-shot examples included, as a text to be continued."""
        shown = (f"{prompt} {target}{END_OF_LINE}" for prompt, target in self.shots)
        return "".join([*self._introduction(), *shown, self.texts[index][0]])

    def messages(self, index: int) -> list[Message]:
        """The same as a conversation; the answer is the next message of the assistant.

        The instruction begins the first message: not every chat template knows of a system.
        """
        found: list[Message] = []
        for prompt, target in self.shots:
            found += [{"role": "user", "content": prompt}, {"role": "assistant", "content": target}]
        found.append({"role": "user", "content": self.texts[index][0]})
        found[0]["content"] = "".join([*self._introduction(), found[0]["content"]])
        return found

    def _introduction(self) -> Iterator[str]:
        if self.asking.instruction:
            yield self.asking.instruction + END_OF_LINE


def make_questions(task: Task, data: DataConfig, asking: Asking, lengths: Collection[int]) -> Questions:
    """The examples that runs with these settings are tested on, as far as they have the lengths."""
    drawn = tested_examples(task, data, lengths)
    drawn = drawn.select(drawn.buckets.argsort(kind="stable"))
    lengths_E = np.array([task.length_of(int(bucket)) for bucket in drawn.buckets])
    drawn = drawn.select(lengths_E.argsort(kind="stable"))
    scratchpad = Scratchpad(data.scratchpad)
    shots: tuple[tuple[str, str], ...] = ()
    if asking.shots:
        shown = kept_parts(task, _draw_shots(task, data, asking, drawn), scratchpad, data.anchor)
        shots = tuple(task.text(shown, index) for index in range(len(shown)))
    return Questions(task, data, asking, kept_parts(task, drawn, scratchpad, data.anchor), shots)


def _draw_shots(task: Task, data: DataConfig, asking: Asking, tested: Examples) -> Examples:
    """Of lengths spread evenly over those of training, from the training split, without the prompts of the test:
    splits of tasks with few examples may share them."""
    train = data.spans(task)[0]
    buckets: dict[int, list[int]] = {}
    for bucket in task.buckets(train):
        buckets.setdefault(task.length_of(bucket), []).append(bucket)
    lengths = sorted(buckets)
    taken = set(tested.fingerprints().tolist())
    chosen = []
    for number, place in enumerate(np.linspace(0, len(lengths) - 1, asking.shots)):
        for length in sorted(lengths, key=lambda length: abs(length - lengths[round(place)])):
            candidates = splits.draw(
                *(task, Split.TRAIN, Span(length, length), CANDIDATES, asking.seed, "shots", number),
                division=data.division(task),
                buckets=buckets[length],
            )
            prompts = candidates.fingerprints().tolist()
            free = next((index for index, prompt in enumerate(prompts) if prompt not in taken), None)
            if free is not None:
                taken.add(prompts[free])
                chosen.append(candidates.select(np.array([free])))
                break
        else:
            raise UserError(
                f"{task.title} has too few different examples of the lengths {train} for {asking.shots} few-shot "
                "examples that are not in the test; ask for fewer --shots, or test with a smaller --count"
            )
    order = np.random.Generator(np.random.PCG64(asking.seed)).permutation(len(chosen))
    return concatenate([chosen[index] for index in order])
