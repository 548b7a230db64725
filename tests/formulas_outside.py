"""The formulas of the encodings in `encodings_outside`, one head, one query and one key at a time.

They share nothing with the files there but the parameters. Shape letters: T tokens, D model width, K head width.
"""

import cmath
import math
from typing import Any

import torch
from attention_by_hand import ByHand
from torch import Tensor

from lengthwise.model.decoder import Decoder


class OfModel(ByHand):
    """Looks up parameters in the layer's own encoding."""

    def __init__(self, model: Decoder) -> None:
        self.model = model

    def begin_layer(self, layer: int, x_TD: Tensor) -> None:
        super().begin_layer(layer, x_TD)
        self.own: Any = self.model.encoding_at(layer)
        self.K = self.model.config.head_width


class Cope(OfModel):
    def scores(self, logits: list[float], query_K: Tensor) -> list[float]:
        found = []
        for s, logit in enumerate(logits):
            counted = sum(1 / (1 + math.exp(-later)) for later in logits[s:])
            counted = min(counted, self.own.config.rows - 1)
            below = int(counted)
            row_K = self.own.table_RK[below]
            if counted > below:
                row_K = row_K + (counted - below) * (self.own.table_RK[below + 1] - row_K)
            found.append(logit + float(query_K @ row_K))
        return found


class Fox(OfModel):
    def bias(self, head: int, t: int, s: int) -> float:
        gates = [self.own.gate.weight[head] @ self.x_TD[l] + self.own.gate.bias[head] for l in range(s + 1, t + 1)]
        return sum(math.log(1 / (1 + math.exp(-float(gate)))) for gate in gates)


class Fire(OfModel):
    def bias(self, head: int, t: int, s: int) -> float:
        farthest = max(self.own.config.threshold * abs(float(self.own.threshold)), self.positions[t])
        share = self._psi(self.positions[t] - self.positions[s]) / (self._psi(farthest) + 1e-6)
        found = float(self.own.outer.bias[head])
        for unit in range(self.own.config.width):
            inner = float(self.own.inner.weight[unit, 0]) * share + float(self.own.inner.bias[unit])
            found += float(self.own.outer.weight[head, unit]) * max(inner, 0.0)
        return found

    def _psi(self, distance: float) -> float:
        return math.log(abs(float(self.own.c) * distance) + 1)


class Ssmax(OfModel):
    def scale(self, head: int, t: int) -> float:
        return float(self.own.s_H[head]) * math.log(t + 1)


class Entmax(OfModel):
    def weights(self, logits: list[float], t: int) -> list[float]:
        """By bisection: the weights sum to less, the larger tau is."""
        low, high = max(logits) / 2 - 1, max(logits) / 2
        for _ in range(60):
            tau = (low + high) / 2
            if sum(max(logit / 2 - tau, 0) ** 2 for logit in logits) > 1:
                low = tau
            else:
                high = tau
        return [max(logit / 2 - low, 0) ** 2 for logit in logits]


class Xpos(OfModel):
    """Pairs as complex numbers."""

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return self._moved(q_K, self.positions[t], 1)

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return self._moved(k_K, self.positions[s], -1)

    def _moved(self, x_K: Tensor, position: int, sign: int) -> Tensor:
        found = []
        for pair in range(self.K // 2):
            decay = (2 * pair + 0.4 * self.K) / (1.4 * self.K)
            frequency = 10000 ** (-2 * pair / self.K)
            moved = complex(*x_K[2 * pair : 2 * pair + 2].tolist()) * cmath.exp(1j * position * frequency)
            moved *= decay ** (sign * position / self.own.config.scale)
            found += [moved.real, moved.imag]
        return torch.tensor(found)


class GatedOutput(OfModel):
    def output(self, mixed_K: Tensor, head: int, t: int) -> Tensor:
        return mixed_K / (1 + math.exp(-float(self.own.gate.weight[head] @ self.x_TD[t])))


class WindowRotarySsmax(OfModel):
    def query(self, q_K: Tensor, t: int) -> Tensor:
        return self._rotated(q_K, self.positions[t])

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return self._rotated(k_K, self.positions[s])

    def _rotated(self, x_K: Tensor, position: int) -> Tensor:
        found, width = x_K.tolist(), int(self.K * self.own.config.fraction)
        for pair in range(width // 2):
            angle = position * 10000 ** (-2 * pair / width)
            turned = complex(found[2 * pair], found[2 * pair + 1]) * cmath.exp(1j * angle)
            found[2 * pair : 2 * pair + 2] = [turned.real, turned.imag]
        return torch.tensor(found)

    def sees(self, head: int, t: int, s: int) -> bool:
        return self.positions[t] - self.positions[s] < self.own.config.window

    def scale(self, head: int, t: int) -> float:
        return float(self.own.s_H[head]) * math.log(sum(self.sees(head, t, s) for s in range(t + 1)))


class Alibi(OfModel):
    def bias(self, head: int, t: int, s: int) -> float:
        return -(2 ** (-8 * (head + 1) / self.model.config.heads)) * (self.positions[t] - self.positions[s])


FORMULAS: dict[str, type[OfModel]] = {
    "cope": Cope,
    "entmax": Entmax,
    "fire": Fire,
    "fox": Fox,
    "gated-output": GatedOutput,
    "ssmax": Ssmax,
    "window-rotary-ssmax": WindowRotarySsmax,
    "xpos": Xpos,
}
