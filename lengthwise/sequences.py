"""Examples as a model reads them: prompt, target, end, padded on the right to one width."""

from dataclasses import dataclass

import numpy as np

from lengthwise.errors import UserError
from lengthwise.examples import Examples, Part
from lengthwise.scratchpad import Scratchpad
from lengthwise.tasks.task import Task


@dataclass(frozen=True)
class Sequences:
    """`tokens[i, :prompt[i]]` is the prompt, `tokens[i, prompt[i]:size[i]]` the target, its last token the end."""

    tokens: np.ndarray
    prompt: np.ndarray
    size: np.ndarray
    buckets: np.ndarray

    def __len__(self) -> int:
        return len(self.size)

    def select(self, indices: np.ndarray | slice) -> "Sequences":
        """The chosen ones, at the width that they need."""
        size = self.size[indices]
        width = int(size.max()) if len(size) else 0
        return Sequences(self.tokens[indices, :width], self.prompt[indices], size, self.buckets[indices])


def render(task: Task, examples: Examples, scratchpad: Scratchpad, anchor: bool = True) -> Sequences:
    """Examples in a scratchpad format; `anchor=False` leaves out the constant first words."""
    kept = task.formatted(examples, scratchpad)
    if not anchor:
        kept = kept.keep([part for part in Part if part is not Part.ANCHOR])
    in_prompt = np.concatenate([[0], np.cumsum(kept.parts <= Part.PROMPT)])
    prompt = in_prompt[kept.starts[1:]] - in_prompt[kept.starts[:-1]]
    if not prompt.all():
        raise UserError(
            f"task {task.name} has examples without a prompt: there is nothing to predict their first token from"
            + ("" if anchor else "; data.anchor = true gives them one")
        )
    size = kept.sizes + 1
    tokens = np.full((len(kept), int(size.max())), task.vocabulary.pad, dtype=np.int32)
    column = np.arange(tokens.shape[1])
    tokens[column < kept.sizes[:, None]] = kept.tokens
    tokens[np.arange(len(kept)), size - 1] = task.vocabulary.end
    return Sequences(tokens, prompt.astype(np.int32), size.astype(np.int32), kept.buckets)


def join(parts: list[Sequences], pad: int) -> Sequences:
    """One after the other, at the width of the widest."""
    width = max(part.tokens.shape[1] for part in parts)
    tokens = [np.pad(part.tokens, ((0, 0), (0, width - part.tokens.shape[1])), constant_values=pad) for part in parts]
    return Sequences(
        np.concatenate(tokens),
        np.concatenate([part.prompt for part in parts]),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.buckets for part in parts]),
    )
