"""T5's relative bias without steps: a distance between two buckets has a mean of their biases."""

import math

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.t5 import T5


class T5Interpolated(T5):
    """T5's learned bias, interpolated between the log-spaced buckets of distance."""

    name = "t5-interpolated"
    card = Card(
        kind="bias",
        equation='b_h(d) = (1 - s) B_h[k] + s B_h[k + 1], k = bucket(d), s "how far beyond" k',
    )

    def learned_bias(self, distance: Tensor) -> Tensor:
        buckets, most = self.config.buckets, self.config.max_distance
        exact = buckets // 2
        distance = distance.clamp(max=most)
        octave = (distance.clamp(min=exact) / exact).log() / math.log(most / exact)
        place = torch.where(distance < exact, distance.float(), exact + octave * (buckets - exact))
        bucket = self.bucket_of_distance[distance]
        share = (place.clamp(max=buckets - 1) - bucket).clamp(0, 1)
        table = self.config.rate * self.table.float()
        above = table[(bucket + 1).clamp(max=buckets - 1)]
        return torch.lerp(table[bucket], above, share[..., None]).movedim(-1, 0)
