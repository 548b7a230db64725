"""The four regions of a sequence with a separator: prefix, source, separator, target; which token is in which.

    Copy:    station station station    [SEP]        station station station <end>
    prefix   source                     separator    target

Shape letters: E examples, B examples of a batch, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lengthwise.analysis.inputs import InputBatch, Inputs, drawn_by_length, material_of
from lengthwise.data.examples import ABSENT, Examples, Part, concatenate
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import kept_parts, laid_out
from lengthwise.data.splits import Split
from lengthwise.data.tokenization import SEPARATOR, separator_symbols
from lengthwise.data.tokens import Tokens
from lengthwise.errors import UserError
from lengthwise.study import Run


class Region(IntEnum):
    """In the order in which they stand in a sequence."""

    PREFIX = 0
    """The constant first words of the prompt."""
    SOURCE = 1
    """The rest of the prompt, up to its separator."""
    SEPARATOR = 2
    TARGET = 3
    """The end belongs to it."""
    PADDING = 4

    @property
    def title(self) -> str:
        return self.name.lower()


REGIONS = (Region.PREFIX, Region.SOURCE, Region.SEPARATOR, Region.TARGET)


def regions_of(examples: Examples, separators: Sequence[int], tokens: Tokens) -> np.ndarray | None:
    """The region of every token (E, T), laid out as `render` lays out the tokens; None where a prompt does not end
    with its only separator.

    `examples`: the symbols that are rendered; `separators`: those that separate. An example's tokens are compared with
    those of its beginnings (the prefix alone; prefix and source): what they have in common belongs to the beginning.
    So it does not matter how a word becomes tokens. A piece across two regions counts to the later one.
    """
    region_N = np.where(examples.parts == Part.ANCHOR, Region.PREFIX, Region.SOURCE)
    region_N[np.isin(examples.tokens, separators)] = Region.SEPARATOR
    region_N[examples.parts > Part.PROMPT] = Region.TARGET
    if not _separated(region_N, examples):
        return None
    whole = tokens.convert(examples)
    size_E = whole.sizes + 1
    ids_ET = laid_out(whole, int(size_E.max()), ABSENT)
    ends = [_shared(ids_ET, _beginning(examples, region_N <= last, tokens)) for last in (Region.PREFIX, Region.SOURCE)]
    ends += [_counted(whole.parts <= Part.PROMPT, whole.starts), size_E]
    return np.sum([np.arange(ids_ET.shape[1]) >= end_E[:, None] for end_E in ends], axis=0)


def _separated(region_N: np.ndarray, examples: Examples) -> bool:
    """Whether each example has one separator, as the last symbol of its prompt."""
    is_separator_N = region_N == Region.SEPARATOR
    prompt_E = _counted(examples.parts <= Part.PROMPT, examples.starts)
    if not (_counted(is_separator_N, examples.starts) == 1).all():
        return False
    return bool((np.flatnonzero(is_separator_N) == examples.starts[:-1] + prompt_E - 1).all())


def _beginning(examples: Examples, chosen_N: np.ndarray, tokens: Tokens) -> Examples:
    """The tokens that the chosen first symbols of each example are, by themselves."""
    before = np.concatenate([[0], np.cumsum(chosen_N)])
    first = Examples(examples.tokens[chosen_N], examples.parts[chosen_N], before[examples.starts], examples.buckets)
    return tokens.convert(first).keep((Part.ANCHOR, Part.PROMPT))


def _shared(ids_ET: np.ndarray, beginning: Examples) -> np.ndarray:
    """With how many tokens of a beginning each example begins."""
    found_ET = laid_out(beginning, int(beginning.sizes.max(initial=0)), ABSENT - 1)  # unlike any token and any gap
    width = min(ids_ET.shape[1], found_ET.shape[1])
    same_ET = ids_ET[:, :width] == found_ET[:, :width]
    return np.logical_and.accumulate(same_ET, axis=1).sum(axis=1)


def _counted(chosen_N: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """How many are chosen of each example."""
    before = np.concatenate([[0], np.cumsum(chosen_N)])
    return before[starts[1:]] - before[starts[:-1]]


@dataclass(frozen=True)
class RegionInputs:
    """Examples by length, with the region of every token."""

    inputs: Inputs
    region_ET: np.ndarray

    def of(self, batch: InputBatch) -> Tensor:
        """(B, T)."""
        return torch.from_numpy(self.region_ET[batch.example_B, : batch.tokens_BT.shape[1]])

    @cached_property
    def source_E(self) -> np.ndarray:
        """Tokens of the source."""
        return (self.region_ET == Region.SOURCE).sum(axis=1)

    @cached_property
    def separator_E(self) -> np.ndarray:
        """Tokens of the separator."""
        return (self.region_ET == Region.SEPARATOR).sum(axis=1)


def region_inputs(run: Run, count: int, lengths: Sequence[int] = (), split: Split = Split.TEST) -> RegionInputs:
    """Up to `count` examples of each length; by default of all lengths of the study."""
    task, tokens = run.make_task(), run.make_tokens()
    drawn = drawn_by_length(run, count, lengths, split)
    kept = kept_parts(task, concatenate(drawn), Scratchpad(run.data.scratchpad), run.data.anchor)
    region_ET = regions_of(kept, separator_symbols(task), tokens)
    if region_ET is None:
        raise UserError(f"prompts of {run.title} do not end with a separator {SEPARATOR}")
    found = RegionInputs(material_of(run, drawn), region_ET)
    if not found.separator_E.all():
        raise UserError(f"separators of {run.title} have no token of their own: the tokenizer joins them with a space")
    return found


def has_separator(run: Run) -> bool:
    return bool(separator_symbols(run.make_task()))
