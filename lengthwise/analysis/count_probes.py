"""Can the number of source tokens be read from the residual stream, at the separator and on both sides of it?

A ridge regression for each layer and place is fitted to training lengths, then asked on other examples of these and of
unseen lengths. The same is done with the weights that the model began with: what can be read there, training did not
have to put there.

Shape letters: B examples of a batch, E examples, T tokens, D width, P places, N cases.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.analysis.inputs import InputBatch
from lengthwise.analysis.model_adapter import ModelAdapter, Watch
from lengthwise.analysis.probe_scores import ProbeScores
from lengthwise.analysis.regions import Region, RegionInputs
from lengthwise.analysis.ridge import LinearProbe, Moments

FITTED = 100
"""Examples of each training length that probes are fitted to, from those that training may show. With the 19 lengths of
the copy tasks that is twice and a half the width of a base model."""


@dataclass(frozen=True)
class CountQuestions:
    """What probes are asked in one batch: tokens at each place, and the count that is right."""

    token_BP: Tensor
    """Index of the token; -1 where an example has no such place."""
    count_B: Tensor
    length_B: Tensor

    def at(self, place: int, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the examples that have the place: its residual stream (N, D), their count and their length (N,)."""
        row_N = (self.token_BP[:, place] >= 0).nonzero()[:, 0]
        return x_BTD[row_N, self.token_BP[row_N, place]].float(), self.count_B[row_N], self.length_B[row_N]


def place_names(separator_tokens: int) -> list[str]:
    """The last token of the adapter, each of the separator, the first of the target."""
    return ["source", *(f"separator {i + 1}" for i in range(separator_tokens)), "target"]


def place_tokens(region_ET: np.ndarray, separator_tokens: int) -> np.ndarray:
    """The index of each place's token (E, P); -1 where an example has none."""
    source_E, begin_E, end_E = ((region_ET < region).sum(axis=1) for region in list(Region)[1:4])
    number = np.arange(separator_tokens)
    separator_EP = np.where(begin_E[:, None] + number < end_E[:, None], begin_E[:, None] + number, -1)
    last_E = np.where(begin_E > source_E, begin_E - 1, -1)
    return np.concatenate([last_E[:, None], separator_EP, end_E[:, None]], axis=1)


class CountProbes:
    """Fits and asks the probes of one model: `fit` sees every batch once, then `examine` does."""

    def __init__(
        self, streams: int, width: int, separator_tokens: int, lengths: list[int], seen: int, device: torch.device
    ) -> None:
        """`lengths`: those asked about, of which the first `seen` are of training."""
        self.places = place_names(separator_tokens)
        self.lengths, self.seen = lengths, seen
        self.moments = [[Moments(width, 1, device) for _ in self.places] for _ in range(streams)]
        self.probes: list[list[LinearProbe]] = []
        self.scores = ProbeScores(streams * len(self.places), len(lengths), device)

    def fit(self, stream: int, x_BTD: Tensor, questions: CountQuestions) -> None:
        for place, moments in enumerate(self.moments[stream]):
            x_ND, count_N, _ = questions.at(place, x_BTD)
            moments.add(x_ND, count_N[:, None])

    def solve(self) -> None:
        """Between `fit` and `examine`."""
        self.probes = [[moments.ridge() for moments in of_stream] for of_stream in self.moments]

    def examine(self, stream: int, x_BTD: Tensor, questions: CountQuestions) -> None:
        for place, probe in enumerate(self.probes[stream]):
            x_ND, count_N, length_N = questions.at(place, x_BTD)
            self.scores.add(self._kind(stream, place), length_N, count_N, probe.estimate(x_ND)[:, 0])

    def rows(self) -> list[dict[str, Any]]:
        """For each layer and place. Layer 0 is the embedding; a layer's stream is what it wrote."""
        found = []
        for stream, of_stream in enumerate(self.moments):
            for place, name in enumerate(self.places):
                kind = self._kind(stream, place)
                by_length = self.scores.by_position(kind)
                parts = {"within": (0, self.seen), "beyond": (self.seen, len(self.lengths))}
                found.append(
                    {
                        "place": name,
                        "layer": stream,
                        "fitted_to": of_stream[place].count,
                        **{
                            part: {**self.scores.part(kind, *span), "correlation": self.scores.correlation(kind, *span)}
                            for part, span in parts.items()
                        },
                        "by_length": {
                            "length": [self.lengths[i] for i in by_length["position"]],
                            "estimate": by_length["estimate"],
                            "error": by_length["error"],
                        },
                    }
                )
        return found

    def _kind(self, stream: int, place: int) -> int:
        return stream * len(self.places) + place


def count_rows(adapter: ModelAdapter, fitting: RegionInputs, asking: RegionInputs) -> list[dict[str, Any]]:
    """`fitting`: of training lengths; `asking`: of any."""
    separator_tokens = int(max(fitting.separator_E.max(), asking.separator_E.max()))
    lengths = asking.inputs.lengths
    seen = sum(asking.inputs.seen(length) for length in lengths)
    probes = CountProbes(adapter.layers + 1, adapter.width, separator_tokens, lengths, seen, adapter.device)
    for batch, questions in _questions(fitting, separator_tokens, adapter.device):
        adapter.forward(batch.tokens_BT, _Shown(probes.fit, questions))
    probes.solve()
    for batch, questions in _questions(asking, separator_tokens, adapter.device):
        adapter.forward(batch.tokens_BT, _Shown(probes.examine, questions))
    return [{**row, "counted_up_to": int(fitting.source_E.max())} for row in probes.rows()]


def _questions(
    divided: RegionInputs, separator_tokens: int, device: torch.device
) -> Iterator[tuple[InputBatch, CountQuestions]]:
    token_EP = place_tokens(divided.region_ET, separator_tokens)
    for batch in divided.inputs.batches():
        token_BP, count_B = (torch.from_numpy(each[batch.example_B]) for each in (token_EP, divided.source_E))
        yield batch, CountQuestions(token_BP.to(device), count_B.to(device), batch.length_B.to(device))


class _Shown(Watch):
    """Shows every residual stream to the probes."""

    def __init__(self, use: Callable[[int, Tensor, CountQuestions], None], questions: CountQuestions) -> None:
        self.use, self.questions = use, questions

    def residual(self, layer: int, x_BTD: Tensor) -> None:
        self.use(layer, x_BTD, self.questions)
