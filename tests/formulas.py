"""The formulas of encodings after the first six, one head, one query and one key at a time.

They share nothing with the encodings but the parameters. Shape letters: T tokens, D model width, K head width.
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


class Kerple(OfModel):
    def bias(self, head: int, t: int, s: int) -> float:
        p, a = (math.log1p(math.exp(float(raw[head]))) for raw in (self.own.raw_p, self.own.raw_a))
        distance = self.positions[t] - self.positions[s]
        if self.own.config.kernel == "log":
            return -p * math.log(1 + a * distance)
        return -a * distance ** (2 / (1 + math.exp(-float(self.own.raw_p[head])))) if distance else 0.0


class Sandwich(OfModel):
    def bias(self, head: int, t: int, s: int) -> float:
        distance = self.positions[t] - self.positions[s]
        found = sum(math.cos(distance * 10000 ** (-2 * pair / 128)) for pair in range(1, 65))
        return found * self.model.config.heads / (8 * (head + 1))


class Window(OfModel):
    def sees(self, head: int, t: int, s: int) -> bool:
        return self.positions[t] - self.positions[s] < self.own.config.size


class Chunk(OfModel):
    def sees(self, head: int, t: int, s: int) -> bool:
        return self.positions[t] // self.own.config.size == self.positions[s] // self.own.config.size


class HardAlibi(OfModel):
    def sees(self, head: int, t: int, s: int) -> bool:
        return head >= self.model.config.heads // 2 or self.positions[t] - self.positions[s] <= head


class Nape(OfModel):
    def bias(self, head: int, t: int, s: int) -> float:
        number = head - self.model.config.heads // 2 + 1
        return -(self.positions[t] - self.positions[s]) / number if number > 0 else 0.0


class T5Interpolated(OfModel):
    def bias(self, head: int, t: int, s: int) -> float:
        buckets, most = self.own.config.buckets, self.own.config.max_distance
        distance, exact = min(self.positions[t] - self.positions[s], most), buckets // 2
        place = float(distance)
        if distance >= exact:
            place = exact + (buckets - exact) * math.log(distance / exact, most / exact)
        place = min(place, buckets - 1)
        below = min(int(place + 1e-9), buckets - 1)
        above = min(below + 1, buckets - 1)
        share = max(place - below, 0.0)
        return float((1 - share) * self.own.table[below, head] + share * self.own.table[above, head])


class StickBreaking(OfModel):
    def weights(self, logits: list[float], t: int) -> list[float]:
        left, found = 1.0, []
        for logit in reversed(logits):
            taken = 1 / (1 + math.exp(-logit))
            found.append(left * taken)
            left *= 1 - taken
        return found[::-1]


class Sink(OfModel):
    def weights(self, logits: list[float], t: int) -> list[float]:
        total = sum(map(math.exp, logits)) + math.exp(float(self.own.logit_H[self.head]))
        return [math.exp(logit) / total for logit in logits]


class Logn(OfModel):
    def scale(self, head: int, t: int) -> float:
        return max(1.0, math.log(t + 1) / math.log(self.own.geometry.trained_context))


class Llama4Temperature(OfModel):
    def scale(self, head: int, t: int) -> float:
        step = self.own.config.step
        return 1 + 0.1 * math.log(1 + (self.positions[t] + 1) // step)


class Asentmax(Entmax):
    def scale(self, head: int, t: int) -> float:
        heads, weight, bias = self.model.config.heads, self.own.scaler.weight, self.own.scaler.bias
        raw = [float(weight[row] @ self.x_TD[t] + bias[row]) for row in (head, heads + head)]
        return 1 + math.log1p(math.exp(raw[0])) * math.log(t + 2) ** (2 * math.tanh(raw[1]))


class Pope(OfModel):
    """Entries as complex numbers, their real and imaginary parts side by side."""

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return self._polar(q_K, self.positions[t], [0.0] * self.K)

    def key(self, k_K: Tensor, s: int) -> Tensor:
        group = self.head * len(self.own.offset_GK) // self.model.config.heads
        offsets = [min(max(float(each), -2 * math.pi), 0.0) for each in self.own.offset_GK[group]]
        return self._polar(k_K, self.positions[s], offsets)

    def _polar(self, x_K: Tensor, position: int, offsets: list[float]) -> Tensor:
        phases = [position * 10000 ** (-entry / self.K) + offset for entry, offset in enumerate(offsets)]
        polar = [cmath.rect(math.log1p(math.exp(float(x))), phase) for x, phase in zip(x_K, phases, strict=True)]
        return torch.tensor([*(each.real for each in polar), *(each.imag for each in polar)])


class Exclusive(OfModel):
    def output(self, mixed_K: Tensor, head: int, t: int) -> Tensor:
        own = self.own_value_K / self.own_value_K.norm()
        return mixed_K - float(mixed_K @ own) * own


class Convolved(OfModel):
    """Numbers of tokens through the taps of a causal convolution."""

    def tapped(self, numbers: list[Tensor], t: int) -> Tensor:
        width = self.own.taps.shape[1]
        places = [place for place in range(t - width + 1, t + 1) if place >= 0]
        found = [numbers[place] * self.own.taps[:, width - 1 - (t - place)] for place in places]
        return torch.stack(found).sum(0)


class Path(Convolved):
    """One reflection after the other, on every key."""

    def scores(self, logits: list[float], query_K: Tensor) -> list[float]:
        t = len(logits) - 1
        raw = [self.own.up.weight @ (self.own.down.weight @ x_D) for x_D in self.x_TD]
        mine = slice(self.head * self.K, (self.head + 1) * self.K)
        found = []
        for s, logit in enumerate(logits):
            key = self.keys[s]
            for token in range(s + 1, t + 1):
                w = self.tapped(raw, token)
                w = (w / (1 + (-w).exp()))[mine]
                w = w / w.norm()
                raw_beta = self.own.strength.weight[self.head] @ self.x_TD[token] + self.own.strength.bias[self.head]
                key = key - 2 / (1 + math.exp(-float(raw_beta))) * float(w @ key) * w
            found.append(logit + self.factor * float(query_K @ (key - self.keys[s])))
        return found


class SelectiveRotary(Convolved):
    """Pairs as complex numbers, entry i with entry i + half."""

    def query(self, q_K: Tensor, t: int) -> Tensor:
        return self._rotated(q_K, t)

    def key(self, k_K: Tensor, s: int) -> Tensor:
        return self._rotated(k_K, s)

    def _rotated(self, x_K: Tensor, place: int) -> Tensor:
        heads, half = self.model.config.heads, self.K // 2
        units = [torch.cat([part / part.norm() for part in x_D.split(len(x_D) // heads)]) for x_D in self.x_TD]
        raw = [self.own.up.weight @ (self.own.down.weight @ unit) for unit in units]
        summed = torch.stack([self.tapped(raw, token) for token in range(place + 1)]).sum(0)
        group = self.head * self.model.config.groups // heads
        found = x_K.clone()
        for pair in range(half):
            angle = float(summed[group * half + pair]) * 500_000 ** (-pair / half)
            turned = complex(float(x_K[pair]), float(x_K[pair + half])) * cmath.exp(1j * angle)
            found[pair], found[pair + half] = turned.real, turned.imag
        return found


FORMULAS: dict[str, type[OfModel]] = {
    "asentmax": Asentmax,
    "chunk": Chunk,
    "cope": Cope,
    "entmax": Entmax,
    "exclusive": Exclusive,
    "fire": Fire,
    "fox": Fox,
    "gated-output": GatedOutput,
    "hard-alibi": HardAlibi,
    "kerple": Kerple,
    "llama4-temperature": Llama4Temperature,
    "logn": Logn,
    "nape": Nape,
    "path": Path,
    "pope": Pope,
    "sandwich": Sandwich,
    "selective-rotary": SelectiveRotary,
    "sink": Sink,
    "ssmax": Ssmax,
    "stick-breaking": StickBreaking,
    "t5-interpolated": T5Interpolated,
    "window": Window,
    "window-rotary-ssmax": WindowRotarySsmax,
    "xpos": Xpos,
}
BROUGHT = ["window-rotary-ssmax"]
"""Files outside of the package, as a user has them."""
