"""What the residual stream knows of position, and whether it goes on knowing beyond the training length.

A probe reads the absolute position of a token from its residual stream, or the distance of two tokens from theirs. It
is fitted at positions within the training length and then asked on other examples, within and beyond. Linear probes
are ridge regressions, nonlinear ones small networks. Each has a control that is fitted to shuffled answers: what it
explains, a probe explains by chance.

Shape letters: Y residual streams, N tokens or pairs of tokens, F features, C answers (the true one, the shuffled one),
B examples, T tokens, D width.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lengthwise.analysis.probe_network import Networks, fit
from lengthwise.analysis.probe_scores import ProbeScores, holds_until
from lengthwise.analysis.ridge import LinearProbe, Moments
from lengthwise.seeding import derive

SAMPLE = 4096
"""Tokens, or pairs of them, that networks are fitted to."""

Target = Literal["position", "distance"]
TARGETS: tuple[Target, ...] = ("position", "distance")
CONTROLS = (False, True)


@dataclass(frozen=True)
class ProbeQuestions:
    """What probes are asked in one batch, the same for all streams."""

    row_N: Tensor
    query_N: Tensor
    """Position of the token asked about; this is the position that must lie within or beyond the training length."""
    key_N: Tensor | None
    """Of the other token of a pair."""
    answer_NC: Tensor
    """The true answer, and that of another token or pair, drawn from all."""

    def features(self, x_BTD: Tensor) -> Tensor:
        """(N, F): the residual stream of the token, or of both, side by side."""
        own = x_BTD[self.row_N, self.query_N]
        return (own if self.key_N is None else torch.cat([own, x_BTD[self.row_N, self.key_N]], dim=-1)).float()


def ask(target: Target, batch: int, tokens: int, spread_P: Tensor, seed: int, device: torch.device) -> ProbeQuestions:
    """The first `tokens` of `batch` sequences; for distances, each with one random token that is not after it.

    `spread_P`: how often each position occurs in all batches. Shuffled answers come from there: those of the batch
    itself would tell how long its sequences are, which a model may know.
    """
    generator = torch.Generator().manual_seed(seed)

    def earlier(position_N: Tensor) -> Tensor:
        return (torch.rand(len(position_N), generator=generator) * (position_N + 1)).long()

    row_N = torch.arange(batch).repeat_interleave(tokens)
    query_N = torch.arange(tokens).repeat(batch)
    other_N = torch.multinomial(spread_P, len(query_N), replacement=True, generator=generator)
    key_N = None
    answers = [query_N, other_N]
    if target == "distance":
        key_N = earlier(query_N)
        answers = [query_N - key_N, other_N - earlier(other_N)]
        key_N = key_N.to(device)
    return ProbeQuestions(row_N.to(device), query_N.to(device), key_N, torch.stack(answers, dim=-1).to(device))


class Sample:
    """A random part of all questions, of bounded size, for networks that see them more than once."""

    def __init__(self, expected: int, seed: int) -> None:
        """`expected`: how many there will be."""
        self.share = min(1.0, SAMPLE / max(1, expected))
        self.generator = torch.Generator().manual_seed(seed)
        self.x: dict[int, list[Tensor]] = {}
        self.y: list[Tensor] = []

    def choose(self, count: int, device: torch.device) -> Tensor:
        return (torch.rand(count, generator=self.generator) < self.share).nonzero()[:, 0].to(device)

    def streams(self) -> Tensor:
        """(Y, N, F)."""
        return torch.stack([torch.cat(self.x[stream]) for stream in sorted(self.x)])


class ProbeStudy:
    """Fits and asks all probes of one target for one model: `fit` sees every batch once, then `examine` does."""

    def __init__(
        self,
        target: Target,
        streams: int,
        width: int,
        trained: int,
        longest: int,
        sizes: Iterable[int],
        device: torch.device,
    ) -> None:
        """`trained`: positions below it are within. `sizes`: tokens of the sequences that `fit` will see."""
        self.target, self.trained, self.device = target, trained, device
        within_E = torch.tensor([min(int(size), trained) for size in sizes])
        self.spread_P = (within_E[:, None] > torch.arange(trained)).sum(0).float()
        features = width * (2 if target == "distance" else 1)
        self.moments = [Moments(features, len(CONTROLS), device) for _ in range(streams)]
        self.sample = Sample(int(within_E.sum()), derive(0, "probes", "sample", target))
        self.scores = ProbeScores(2 * streams * len(CONTROLS), longest, device)
        self.linear: list[LinearProbe] = []
        self.nonlinear: Networks | None = None
        self._questions: tuple[int, ProbeQuestions, Tensor] | None = None

    def fit(self, batch: int, stream: int, x_BTD: Tensor) -> None:
        """Streams of a batch in order, from 0."""
        questions, chosen_N = self._ask("fit", batch, stream, x_BTD)
        x_NF = questions.features(x_BTD)
        self.moments[stream].add(x_NF, questions.answer_NC)
        self.sample.x.setdefault(stream, []).append(x_NF[chosen_N])

    def solve(self) -> None:
        """Between `fit` and `examine`."""
        self.linear = [each.ridge() for each in self.moments]
        seed = derive(0, "probes", "network", self.target)
        self.nonlinear = fit(self.moments, self.sample.streams(), torch.cat(self.sample.y), seed)
        self.sample.x.clear()
        self._questions = None

    def examine(self, batch: int, stream: int, x_BTD: Tensor) -> None:
        assert self.nonlinear is not None, "solve comes first"
        questions, _ = self._ask("examine", batch, stream, x_BTD)
        x_NF = questions.features(x_BTD)
        for number, estimate_NC in enumerate(
            (self.linear[stream].estimate(x_NF), self.nonlinear.estimate(stream, x_NF))
        ):
            for control in CONTROLS:
                # The control, too, is asked for the truth.
                kind = self._kind(stream, number, control)
                self.scores.add(kind, questions.query_N, questions.answer_NC[:, 0], estimate_NC[:, int(control)])

    def rows(self) -> list[dict[str, Any]]:
        """For each stream, kind of probe and control. Stream 0 is the embedding; a layer's is what it wrote."""
        found = []
        for stream in range(len(self.moments)):
            for number, name in enumerate(("linear", "nonlinear")):
                for control in CONTROLS:
                    kind = self._kind(stream, number, control)
                    within = self.scores.part(kind, 0, self.trained)
                    row = {
                        "target": self.target,
                        "layer": stream,
                        "probe": name,
                        "control": control,
                        "trained_tokens": self.trained,
                        "fitted_to": self.moments[0].count if name == "linear" else len(torch.cat(self.sample.y)),
                        "within": within,
                        "beyond": self.scores.part(kind, self.trained, self.scores.sums_FMP.shape[-1]),
                    }
                    if not control:
                        by_position = self.scores.by_position(kind)
                        row["holds_until"] = holds_until(by_position, self.trained, within["error"] or 0.0)
                        row["by_position"] = by_position
                    found.append(row)
        return found

    @staticmethod
    def _kind(stream: int, number: int, control: bool) -> int:
        return (stream * 2 + number) * len(CONTROLS) + int(control)

    def _ask(self, use: str, batch: int, stream: int, x_BTD: Tensor) -> tuple[ProbeQuestions, Tensor]:
        """The same questions for all streams of a batch; only those within the training length when fitting."""
        if stream == 0 or self._questions is None:
            seed = derive(0, "probes", use, self.target, batch)
            batch_size, tokens, _ = x_BTD.shape
            asked = min(tokens, self.trained) if use == "fit" else tokens
            questions = ask(self.target, batch_size, asked, self.spread_P, seed, self.device)
            chosen_N = torch.zeros(0, dtype=torch.long, device=self.device)
            if use == "fit":
                chosen_N = self.sample.choose(len(questions.query_N), self.device)
                self.sample.y.append(questions.answer_NC[chosen_N])
            self._questions = batch, questions, chosen_N
        number, questions, chosen_N = self._questions
        assert number == batch, "the streams of a batch come together"
        return questions, chosen_N
