"""Runs, examples and models for tests of separators; of the models the answer is known.

Shape letters: B examples, T tokens, D width, P predicted tokens.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import torch
from conftest import small_study
from torch import Tensor, nn

from lengthwise.analysis.theory import FIRST, FP32, absolute_decoder
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Block, Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.study import Run

LONGEST = 30
"""Tokens of the longest sequence, or more."""


def a_run(separator_tokens: int = 3, task: str = "copy.repeat") -> Run:
    table = {"name": task, "symbols": 20, "prefix_tokens": 2, "separator_tokens": separator_tokens}
    (run, *_) = small_study(tasks=[table], data__test_lengths=[5, 9]).runs()
    return run


def decoder(layers: int = 2, encoding: str = "alibi", seed: int = 3) -> Decoder:
    config = ModelConfig(layers=layers, width=16, heads=2)
    model = build(config, a_run().make_tokens().rows, [{"name": encoding}], Lengths(LONGEST, LONGEST))
    initialize(model, seed)
    with torch.no_grad():  # initial queries are so small that attention would be as good as even
        for block in model.blocks:
            cast(Block, block).attention.projection.weight.mul_(4)
    return model.eval()


def even_decoder(run: Run) -> Decoder:
    """Looks at everything alike; after its layer it knows the position of each token, from the first of the prompt."""
    tokens = run.make_tokens()
    model = absolute_decoder(LONGEST, tokens.rows, FP32)
    vocabulary = run.make_task().vocabulary
    with torch.no_grad():
        model.embedding.weight[:, FIRST] = 0
        model.embedding.weight[vocabulary.id("Copy:"), FIRST] = 1
    return model


class Counter(nn.Module):
    """A model that knows how many source tokens came before each token, and ends an answer when it has as many.

    It takes the count from the first or last separator token (`separator`), or counts the source itself (`source`).
    Tokens of the answer are always right; hidden or exchanged is only what layer 0 reads.
    """

    def __init__(self, run: Run, reads: str) -> None:
        super().__init__()
        tokens, vocabulary = run.make_tokens(), run.make_task().vocabulary
        self.config, self.reads, self.end = SimpleNamespace(layers=1, width=1), reads, tokens.end
        self.separator, self.last_word = vocabulary.id("[SEP]"), vocabulary.id("[NEXT]")
        self.embedding = nn.Embedding(tokens.rows, 1)
        self.symbols = len(vocabulary)

    def layout(self, tokens_BT: Tensor) -> None:
        return None

    def hidden(
        self, tokens_BT: Tensor, layout: None, before: Callable[[int, Tensor], Tensor], chosen_P: Tensor | None = None
    ) -> Tensor:
        is_symbol_BT = (tokens_BT > self.last_word) & (tokens_BT < self.symbols)
        first_B = (tokens_BT == self.separator).int().argmax(1)
        index_T = torch.arange(tokens_BT.shape[1])
        count_BT = (is_symbol_BT & (index_T < first_B[:, None])).cumsum(1)
        x_BTD = before(0, count_BT[..., None].float())
        said_B = x_BTD[torch.arange(len(x_BTD)), first_B + (2 if self.reads == "last" else 0), 0]
        due_B = count_BT[:, -1] if self.reads == "source" else said_B
        place_BT = index_T - (first_B[:, None] + 2)  # of the token that is predicted; the separator has three
        is_end_BT = (place_BT == due_B[:, None]).float()
        before(1, x_BTD)
        return is_end_BT.flatten()[..., None] if chosen_P is None else is_end_BT.flatten()[chosen_P, None]

    def unembed(self, hidden_PD: Tensor) -> Tensor:
        return nn.functional.one_hot(torch.where(hidden_PD[:, 0] > 0, self.end, 5), len(self.embedding.weight)).float()


def counter(reads: str) -> Decoder:
    return cast(Decoder, cast(Any, Counter(a_run(), reads)))
