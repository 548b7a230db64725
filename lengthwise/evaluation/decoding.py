"""Greedy decoding of many prompts, fast: steps of fixed shape, which a GPU replays as graphs.

`generate` says what comes out; this says it sooner. Prompts of like length are continued together, as many as fit into
memory. A step never asks the host: whether texts have ended is looked at every few tokens, and rows that have are
dropped. Models whose steps of fixed shape compute something else are left to `generate`, and `why_eager` says why.
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch

from lengthwise.data.tokens import Tokens
from lengthwise.evaluation.decoding_buffers import DecodingBuffers, bytes_of_row
from lengthwise.evaluation.generate import generate, until_end
from lengthwise.evaluation.step_check import difference
from lengthwise.evaluation.step_graphs import StepGraphs
from lengthwise.model.cache import Cache
from lengthwise.model.decoder import Decoder

TOGETHER = {"cpu": 512, "cuda": 4096}
"""Prompts that are continued at the same time, at most: more are hardly faster, and their lengths differ more."""
LOOK_EVERY = 8
"""Tokens after which the host looks which texts have ended."""
SHRINK = 0.75
"""Rows are dropped where no more than this share of them is left: to move the others costs about a step."""
FEWEST_ROWS = 8
"""A step of fewer rows takes as long."""
SLOTS = 64
"""Where shapes are to be few, numbers of slots are multiples of this, or of an eighth of themselves at most."""
CPU_MEMORY, GPU_SHARE = 2**32, 0.25
"""For the texts that are continued together: bytes, or a share of what is free. Other processes need the rest."""
STEPS_TRIED = 2


@dataclass(frozen=True)
class Prompt:
    """A prompt, by its number, and how many tokens may follow it."""

    number: int
    prompt: np.ndarray
    budget: int


class Decoding:
    """Continues prompts with one model, again and again: memory and graphs are kept for the next time."""

    def __init__(
        self, model: Decoder, precision: str | None = None, note: Callable[[str], None] = lambda text: None
    ) -> None:
        """`precision`: fp32 or bf16; None for that of the model's weights. `note` is told what makes it slower."""
        weight = model.embedding.weight
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, None: weight.dtype}[precision]
        self.source, self.note, self.device = model, note, weight.device
        self.model = model if dtype == weight.dtype else rounded(model, dtype)
        self.graphs = StepGraphs(self.device, note) if self.device.type == "cuda" else None
        self.few_shapes = self.graphs is not None
        """Whether numbers of rows and slots are rounded up. Else steps have just the slots that are in use."""
        self.together = TOGETHER[self.device.type]
        self.why_eager = ""
        """Why prompts are left to `generate`; nothing where they are not."""
        self.parts: list[int] = []
        """How many prompts were continued together the last time."""
        self.buffers: DecodingBuffers | None = None
        self._sample: Cache | None = None
        self._tried = 0
        """Slots with which steps were tried."""

    @property
    def way(self) -> str:
        """`eager`, or in steps of fixed shape: `launched` kernel by kernel, or `captured` in graphs."""
        if self.why_eager:
            return "eager"
        return "captured" if self.graphs and self.graphs.captures else "launched"

    def refresh(self) -> None:
        """After the weights of the model were changed."""
        self._tried = 0
        if self.model is not self.source:
            with torch.no_grad():
                for mine, theirs in zip(self.model.parameters(), self.source.parameters(), strict=True):
                    mine.copy_(theirs)

    @torch.no_grad()
    def generate(self, prompts: Sequence[np.ndarray], tokens: Tokens, budgets: Sequence[int]) -> list[np.ndarray]:
        """What follows each prompt, up to and including the end, or as many tokens as its budget has without one.

        A model whose positions end ends there too, each row by itself.
        """
        found, self.parts = [np.zeros(0, dtype=np.int64)] * len(prompts), []
        last = self.model.last_position
        asked = []
        for number, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
            # The last token written needs no position.
            most = budget if last is None else min(budget, last + 2 - len(prompt))
            if most > 0:
                asked.append(Prompt(number, prompt, most))
        # The largest first: what has room for them has room for all.
        asked.sort(key=lambda each: (len(each.prompt), each.budget), reverse=True)
        if asked:
            with self.graphs.working() if self.graphs else nullcontext():
                self._try_steps(asked, tokens.pad)
                (self._eagerly if self.why_eager else self._in_parts)(asked, tokens, found)
        if self.graphs is None:
            self.buffers = None  # nothing would be gained by keeping it
        return found

    def _in_parts(self, asked: list[Prompt], tokens: Tokens, found: list[np.ndarray]) -> None:
        while asked:
            part = self._next_part(asked)
            try:
                self._continue(part, tokens, found)
                asked = asked[len(part) :]
                self.parts.append(len(part))
                continue
            except torch.cuda.OutOfMemoryError:
                if len(part) == 1:
                    raise
            # Out of the handler: until it is left, the error holds on to what the steps had.
            self._forget()
            self.together = len(part) // 2

    def _continue(self, part: list[Prompt], tokens: Tokens, found: list[np.ndarray]) -> None:
        """Continues some prompts together until all have ended."""
        rows = self._rows(len(part))
        buffers = self._buffers_for(rows, self._capacity(part))
        empty = rows - len(part)
        prompts, budgets = [each.prompt for each in part], [each.budget for each in part]
        buffers.read(prompts + prompts[:1] * empty, budgets + [0] * empty, tokens.pad, tokens.end)
        going = list(part)
        """Whose the first rows are. Those beyond are nobody's: they go on being read."""
        left = np.arange(len(going))
        while True:
            last = buffers.width - 1 + max(going[row].budget for row in left)
            for _ in range(min(LOOK_EVERY, last - buffers.place)):
                self._step(buffers, rows)
            ended = buffers.ended(rows)[: len(going)]
            left = np.flatnonzero(~ended)
            fewer = max(self._rows(len(left)), min(FEWEST_ROWS, rows))
            if len(left) and fewer > SHRINK * rows:
                continue
            texts = buffers.texts(rows)
            for row in np.flatnonzero(ended):
                found[going[row].number] = until_end(texts[row, : going[row].budget], tokens.end)
            if not len(left):
                return
            others = np.setdiff1d(np.arange(rows), left)
            buffers.keep(np.concatenate([left, others])[:fewer])
            going, rows = [going[row] for row in left], fewer
            left = np.arange(len(going))

    def _step(self, buffers: DecodingBuffers, rows: int) -> None:
        slots = self._slots(buffers.place + 1)
        if self.graphs is None:
            buffers.step(rows, slots)
        else:
            self.graphs.run((rows, slots), lambda: buffers.step(rows, slots))
        buffers.place += 1

    def _eagerly(self, asked: list[Prompt], tokens: Tokens, found: list[np.ndarray]) -> None:
        """By `generate`, those with alike budgets together: there all wait for the longest."""
        # Where positions end, the widest prompt of a batch says where all end: only prompts as wide go together.
        ends = self.model.last_position is not None
        width = lambda each: len(each.prompt) if ends else 0  # noqa: E731
        for _, alike in groupby(sorted(asked, key=lambda each: (width(each), each.budget)), key=width):
            chosen = list(alike)
            for first in range(0, len(chosen), self.together):
                part = chosen[first : first + self.together]
                self.parts.append(len(part))
                texts = generate(self.model, [each.prompt for each in part], tokens, part[-1].budget)
                for each, text in zip(part, texts, strict=True):
                    found[each.number] = text[: each.budget]

    def _try_steps(self, asked: Sequence[Prompt], pad: int) -> None:
        """Finds out what the model keeps of a token, and whether steps of fixed shape compute what `generate` does."""
        # Asked as `generate` asks: a model that needs no cache, or none so long, says so here.
        cache = self.model.new_cache(1, max(len(each.prompt) + each.budget for each in asked))
        if self._sample is None:
            token_11 = torch.full((1, 1), pad, device=self.device)
            self.model(token_11, segments_BT=torch.ones_like(token_11), cache=cache)
            self._sample = cache
        slots, stepping = self._capacity(asked), [each for each in asked if each.budget > 1]
        if not self.few_shapes or self.why_eager or slots <= self._tried or not stepping:
            return  # without free slots a step is what it is in `generate`
        pair = stepping[0], stepping[-1]
        steps = min(STEPS_TRIED, *(each.budget - 1 for each in pair))
        self.why_eager = difference(self.source, [each.prompt for each in pair], steps, slots, pad)
        self._tried = slots
        if self.why_eager:
            self.note(f"texts are generated with a growing cache, which is slower: {self.why_eager}")

    def _next_part(self, asked: list[Prompt]) -> list[Prompt]:
        """As many of the first as fit."""
        part = asked[: self.together]
        fits = self._fitting(self._capacity(part))
        part = part[:fits]
        while self._rows(len(part)) > fits:
            part = part[:-1]
        return part

    def _fitting(self, capacity: int) -> int:
        """How many rows of so many slots there is memory for; 1 at least."""
        assert self._sample is not None
        config, memory = self.model.config, CPU_MEMORY
        # What a step makes in between, in numbers of four bytes: logits of tokens and of keys, each a few times,
        # states, and keys and values of groups for every head.
        between = 3 * self.model.embedding.num_embeddings + 8 * config.heads * capacity
        between += 16 * config.width + 4 * config.inner_width
        if config.groups < config.heads:
            between += 2 * config.width * capacity
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
            free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            if self.buffers is not None:
                free += int(self.buffers.rows * bytes_of_row(self._sample, self.buffers.capacity))
            memory = int(GPU_SHARE * free)
        return max(1, int(memory / (bytes_of_row(self._sample, capacity) + 4 * between)))

    def _buffers_for(self, rows: int, capacity: int) -> DecodingBuffers:
        """The one that is there where it is large enough, with the graphs that read it."""
        buffers = self.buffers
        if buffers is None or buffers.rows < rows or buffers.capacity < capacity:
            self._forget()
            assert self._sample is not None
            buffers = self.buffers = DecodingBuffers(self.model, self._sample, rows, capacity)
        return buffers

    def _forget(self) -> None:
        if self.graphs is not None:
            self.graphs.forget()
        self.buffers = None

    def _capacity(self, part: Sequence[Prompt]) -> int:
        return self._slots(max(len(each.prompt) for each in part) + max(each.budget for each in part))

    def _rows(self, count: int) -> int:
        """Rounded up to 1, 2, 3, 4, 6, 8, 12, ... where shapes are to be few."""
        if not self.few_shapes:
            return count
        power = 1 << (count - 1).bit_length()
        return 3 * power // 4 if 4 * count <= 3 * power and power >= 4 else power

    def _slots(self, count: int) -> int:
        unit = max(SLOTS, (1 << count.bit_length()) // 16) if self.few_shapes else 1
        return -(-count // unit) * unit


def rounded(model: Decoder, dtype: torch.dtype) -> Decoder:
    """A copy with other weights; what is no weight stays as it is, as where a fleet evaluates."""
    found = copy.deepcopy(model)
    for parameter in found.parameters():
        parameter.data = parameter.data.to(dtype)
    return found
