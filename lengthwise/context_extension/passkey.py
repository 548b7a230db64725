"""The passkey test: a key of five digits among filler, asked at the end; lengths x depths x trials.

The documents are those of the training mix (`language.passkey`), with keys that training never has. An answer counts
if every one of its tokens is the likeliest: that is what greedy decoding writes. The length of a document is that of
prompt and answer together, so there is room for the answer.
Shape letters: R documents, T tokens, A tokens of an answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthwise.context_extension.foreign_tokenizer import TextTokenizer
from lengthwise.context_extension.forward import choices
from lengthwise.context_extension.perplexity import ModelAt
from lengthwise.errors import UserError
from lengthwise.language.passkey_rows import DIGITS, FILLER, QUESTION, STATEMENT, draw_key
from lengthwise.seeding import stream


@dataclass(frozen=True)
class KeyDocument:
    prompt: np.ndarray
    answer: np.ndarray
    """The tokens of the key as they follow the question."""


class KeyDocuments:
    """Makes them for any tokenizer: for ours the same as `language.passkey.Passkeys`, without the end token."""

    def __init__(self, tokenizer: TextTokenizer, begins: np.ndarray) -> None:
        self.tokenizer, self.begins = tokenizer, begins
        self._filler = [tokenizer.encode(sentence) for sentence in FILLER]

    def document(self, size: int, depth: float, key: str, first_sentence: int = 0) -> KeyDocument:
        """With exactly `size` tokens, the answer included. `depth`: share of the filler before the key."""
        question, answer = self._question(key)
        statement = self.tokenizer.encode(STATEMENT[0] + key + STATEMENT[1])
        room = size - self.shortest(key)
        if room < 0:
            raise UserError(f"a passkey document has {size - room} tokens or more, not {size}")
        sentences = self._filler[first_sentence:] + self._filler[:first_sentence]
        filler = np.resize(np.concatenate(sentences), room)
        ends = np.cumsum(np.resize([len(sentence) for sentence in sentences], room))
        between = np.concatenate([[0], ends[ends < room], [room]])
        before = between[np.abs(between - depth * room).argmin()]
        prompt = [self.begins, filler[:before], statement, filler[before:], question]
        return KeyDocument(np.concatenate(prompt).astype(np.int64), answer)

    def shortest(self, key: str) -> int:
        """Tokens of a document without any filler."""
        statement = self.tokenizer.encode(STATEMENT[0] + key + STATEMENT[1])
        return len(self.begins) + len(statement) + sum(map(len, self._question(key)))

    def _question(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """A tokenizer may join the question's last space with the key: what differs from the question is the answer."""
        alone, whole = self.tokenizer.encode(QUESTION), self.tokenizer.encode(QUESTION + key)
        shared = min(len(alone), len(whole))
        same = np.append(alone[:shared] == whole[:shared], False).argmin()
        return whole[:same], whole[same:]

    def digits(self) -> str:
        """How the tokenizer writes a key, in words."""
        key = "12345"
        _, answer = self._question(key)
        pieces = [self.tokenizer.decode([token]) for token in answer]
        return f"a key of {DIGITS} digits has {len(answer)} tokens, {key} is {' | '.join(pieces)}"


def depths(count: int) -> list[float]:
    """From 0 (right after the beginning) to 1 (right before the question)."""
    return [round(float(depth), 6) for depth in np.linspace(0, 1, count)] if count > 1 else [0.5]


def passkey_rows(
    model_at: ModelAt,
    documents: KeyDocuments,
    lengths: Sequence[int],
    depths: Sequence[float],
    trials: int,
    seed: int = 0,
    told: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """One row for each length and depth: how many of the trials were answered right."""
    rows = []
    for length in lengths:
        made = [draw(documents, length, depth, seed, trial) for depth in depths for trial in range(trials)]
        model = model_at(length)
        right = np.zeros(len(made), dtype=bool)
        sizes = np.array([len(document.answer) for document in made])
        for size in np.unique(sizes).tolist():  # keys may differ in their number of tokens
            chosen = np.flatnonzero(sizes == size)
            rows_RT = np.stack([np.concatenate([made[k].prompt, made[k].answer]) for k in chosen])
            right[chosen] = (choices(model, rows_RT, size) == rows_RT[:, -size:]).all(axis=1)
        for depth, correct in zip(depths, right.reshape(len(depths), trials).sum(axis=1).tolist(), strict=True):
            rows.append({"length": length, "depth": depth, "n": trials, "correct": correct})
            told(rows[-1])
    return rows


def draw(documents: KeyDocuments, length: int, depth: float, seed: int, trial: int) -> KeyDocument:
    """The same keys at all lengths."""
    generator = stream(seed, "passkey test", str(depth), trial)
    key, first = draw_key(generator, held_out=True), int(generator.integers(len(FILLER)))
    return documents.document(length, depth, key, first)
