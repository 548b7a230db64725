"""Keys, values, their positions and further numbers from earlier calls, so that decoding reads each token once."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Cache:
    """Room for `capacity` tokens. B batch, G key-value heads, C capacity, K head width."""

    keys: list[Tensor]
    values: list[Tensor]
    positions_BC: Tensor
    segments_BC: Tensor
    numbers: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> what an encoding made of each token there (B, C, numbers), for layers that have such."""
    states: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> what a mixer remembers of all earlier tokens, for layers without attention."""
    later_loops: list["Cache"] = field(default_factory=list)
    """Of a model that passes its layers several times: keys and values of each time but the first."""
    used: int = 0
    segmented: bool = False
    """Whether any tokens came with segments: then later ones may not see all that is here."""

    @classmethod
    def empty(cls, layers: int, shape_BGCK: tuple[int, int, int, int], like: Tensor) -> "Cache":
        batch, _, capacity, _ = shape_BGCK
        return cls(
            keys=[like.new_zeros(shape_BGCK) for _ in range(layers)],
            values=[like.new_zeros(shape_BGCK) for _ in range(layers)],
            positions_BC=torch.zeros(batch, capacity, dtype=torch.int64, device=like.device),
            segments_BC=torch.zeros(batch, capacity, dtype=torch.int64, device=like.device),
        )

    def append_segments(self, segments_BT: Tensor) -> Tensor:
        """Notes the segments of new tokens; returns the segments of all keys so far."""
        end = self.used + segments_BT.shape[1]
        if end > self.segments_BC.shape[1]:
            raise ValueError(f"the cache has room for {self.segments_BC.shape[1]} tokens, not for {end}")
        self.segments_BC[:, self.used : end] = segments_BT
        return self.segments_BC[:, :end]

    def append_positions(self, positions_BT: Tensor) -> Tensor:
        """Notes the positions of new tokens; returns the positions of all keys so far."""
        end = self.used + positions_BT.shape[1]
        self.positions_BC[:, self.used : end] = positions_BT
        return self.positions_BC[:, :end]

    def extend(self, layer: int, k_BGTK: Tensor, v_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Appends one layer's new keys and values; returns all of that layer's."""
        end = self.used + k_BGTK.shape[2]
        if k_BGTK.shape[3] != self.keys[layer].shape[3]:  # an encoding may make them wider or narrower
            assert self.used == 0
            self.keys[layer] = self.keys[layer].new_zeros(*self.keys[layer].shape[:3], k_BGTK.shape[3])
        self.keys[layer][:, :, self.used : end] = k_BGTK
        self.values[layer][:, :, self.used : end] = v_BGTK
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def extend_numbers(self, layer: int, numbers_BTN: Tensor) -> Tensor:
        """Appends one layer's numbers of new tokens; returns those of all tokens so far."""
        if layer not in self.numbers:
            batch, capacity = self.positions_BC.shape
            self.numbers[layer] = numbers_BTN.new_zeros(batch, capacity, numbers_BTN.shape[2])
        end = self.used + numbers_BTN.shape[1]
        self.numbers[layer][:, self.used : end] = numbers_BTN
        return self.numbers[layer][:, :end]

    def state(self, layer: int, like: Tensor) -> Tensor:
        """What a mixer kept; zeros like this where it kept nothing yet."""
        return self.states[layer] if layer in self.states else torch.zeros_like(like)

    def keep_state(self, layer: int, state: Tensor) -> None:
        self.states[layer] = state

    def advance(self, tokens: int) -> None:
        """Called once all layers have extended, in all loops."""
        for each in (self, *self.later_loops):
            each.used += tokens

    def grow(self, capacity: int) -> None:
        """Makes room for so many tokens; what is here stays."""
        more = capacity - self.positions_BC.shape[1]
        if more > 0:
            self._replace(lambda kept: F.pad(kept, (0, 0, 0, more)), lambda kept_BC: F.pad(kept_BC, (0, more)))

    def choose_rows(self, chosen: Tensor) -> None:
        """Makes the batch one of these rows, in this order; a row may be chosen several times, or never."""
        self._replace(*[lambda kept: kept.index_select(0, chosen)] * 2)
        for each in (self, *self.later_loops):
            each.states = {layer: state.index_select(0, chosen) for layer, state in each.states.items()}

    def drop_last(self, tokens: int) -> None:
        """Forgets the last tokens. What a mixer remembers has no single tokens in it, so no mixer may be here."""
        if tokens and any(each.states for each in (self, *self.later_loops)):
            raise ValueError("a layer without attention keeps a state of all tokens, so that none can be taken back")
        for each in (self, *self.later_loops):
            each.used -= tokens

    def mapped(self, change: Callable[[Tensor, int | None], Tensor]) -> "Cache":
        """A cache that nothing was read into, of what `change` makes of everything that is kept here.

        It is given a tensor, whose first dimension are rows, and the dimension of its slots (None for a state).
        """
        return Cache(
            keys=[change(kept, -2) for kept in self.keys],
            values=[change(kept, -2) for kept in self.values],
            positions_BC=change(self.positions_BC, -1),
            segments_BC=change(self.segments_BC, -1),
            numbers={layer: change(kept, -2) for layer, kept in self.numbers.items()},
            states={layer: change(kept, None) for layer, kept in self.states.items()},
            later_loops=[each.mapped(change) for each in self.later_loops],
        )

    def _replace(self, by_layer: Callable[[Tensor], Tensor], by_token: Callable[[Tensor], Tensor]) -> None:
        """`by_layer` is given what layers keep of each token (..., C, K), `by_token` numbers of tokens (B, C)."""
        for each in (self, *self.later_loops):
            each.keys, each.values = ([by_layer(kept) for kept in part] for part in (each.keys, each.values))
            each.numbers = {layer: by_layer(kept) for layer, kept in each.numbers.items()}
            each.positions_BC, each.segments_BC = by_token(each.positions_BC), by_token(each.segments_BC)
