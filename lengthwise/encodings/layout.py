"""Where queries and keys stand in one pass, and which keys each query may see.

Shape letters: B batch (1 where all rows are alike), T queries, S keys, D model width, C numbers of a token.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.errors import UserError

if TYPE_CHECKING:
    from lengthwise.encodings.contribution import Contribution
    from lengthwise.encodings.encoding import Encoding

A = TypeVar("A")
LARGEST_MASK = 2**26
"""Pairs of a query and a key that are looked at together, where they need not be all."""


def _running_sums(numbers_BSC: Tensor) -> Tensor:
    return numbers_BSC.float().cumsum(1)


@dataclass(frozen=True)
class AttentionLayout:
    """All that an encoding may know of the pass that it acts in.

    Positions are explicit integers, so that cache, packing and padding need no special case. A token sees the earlier
    tokens of its own segment; which those are is asked of `hidden_BTS`, never of positions.
    """

    query_positions_BT: Tensor
    key_positions_BS: Tensor
    hide: Callable[[], Tensor] | None = None
    """Makes `hidden_BTS`, once; None where the causal order says it all."""
    hide_rows: Callable[[Tensor], Tensor] | None = None
    """Makes the rows of `hidden_BTS` of some queries, by their index: for whoever has no room for all of them."""
    causal: bool = True
    """With `hide` None: whether later keys are hidden, or (one cached step) there are none."""
    segments_BT: Tensor | None = None
    """Which sequence of its row a token belongs to; None for one sequence a row, and where keys come from a cache."""
    key_segments_BS: Tensor | None = None
    """The same of all keys, cached ones too; None for one sequence a row."""
    consecutive: bool = False
    """Whether the tokens of each segment lie side by side, their positions count up by one, and there is no cache: then
    a distance is a difference of index. Found out by whoever makes the layout, never taken for granted."""
    from_zero: bool = False
    """Whether they also begin at 0 in each segment."""
    layer: int | None = None
    """Its number, from 0; this and what follows are None for an encoding that does not ask for its layer."""
    layer_input_BTD: Tensor | None = None
    """What the layer reads, normalised, for the tokens of the queries."""
    token_numbers_BSC: Tensor | None = None
    """What `Encoding.token_numbers` made of the layer's input for the tokens of all keys, cached ones too."""
    tracks: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Further positions that a placement gives tokens, by name: of the queries and of the keys."""
    chosen_T: Tensor | None = None
    """Which keys the queries are, by index; None for the last ones. See `own_key_T`."""
    window: int | tuple[int, ...] | None = None
    """Keys at this distance and beyond are hidden by another method of the layer; see `Contribution.window`."""
    chunk: int | None = None
    """Keys of another chunk are hidden by another method of the layer; see `Contribution.chunk`."""
    key_places_BS: Tensor | None = None
    """What `places_BS` are, where keys do not show it: the first ones of a sequence may be gone from a cache."""
    own_values: Callable[[], Tensor] | None = None
    """Makes the values (B, H, T, K) of the queries' own tokens; only for a change of the output."""
    sums: Callable[[Tensor], Tensor] = _running_sums
    """Numbers of tokens (B, S, C) to their sums in fp32, up to each token; a backend may have a faster program."""
    convolve: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    """A backend's program for short convolutions of numbers of tokens (B, S, C) with taps (C, W) within segments (B, S)
    whose tokens lie side by side; see `convolution`."""
    _said: dict[tuple[int, str], tuple[object, object]] = field(default_factory=dict)
    """What encodings have said of this pass; layers that share an encoding ask it once."""

    @property
    def hidden_BTS(self) -> Tensor | None:
        """True where a key may not be seen; None where the causal order says it all."""
        return None if self.hide is None else self.hide()

    def mask_BTS(self) -> Tensor:
        """True where a key may be seen; its batch is 1 where all rows are alike."""
        return self.queries_mask(slice(None))

    @property
    def own_key_T(self) -> Tensor:
        """The index of the key that is each query's own token: picks what belongs to queries out of numbers of keys."""
        if self.chosen_T is not None:
            return self.chosen_T
        queries, keys = self.query_positions_BT.shape[1], self.key_positions_BS.shape[1]
        return torch.arange(keys - queries, keys, device=self.key_positions_BS.device)

    def of_queries(self, numbers_S: Tensor) -> Tensor:
        """Numbers of the tokens of keys (..., S) for the tokens of queries alone: (..., T)."""
        queries, keys = self.query_positions_BT.shape[1], self.key_positions_BS.shape[1]
        if self.chosen_T is not None:
            return numbers_S[..., self.chosen_T]
        # As they are where they can be, else a view: the gradient of a view is a copy, that of picked numbers a sum.
        return numbers_S if queries == keys else numbers_S[..., -queries:]

    @property
    def visible_BT(self) -> Tensor:
        """How many keys each query sees, itself among them, within what other methods of the layer hide."""
        return self.once(None, "visible", self._visible)

    def _visible(self) -> Tensor:
        if self.hide is None and self.causal and self.window is None and self.chunk is None:
            return self.own_key_T[None] + 1
        if not self.in_parts:
            return self.seen_BTS().sum(-1)
        queries, keys = self.query_positions_BT.shape[1], self.key_positions_BS.shape[1]
        every_T = torch.arange(queries, device=self.query_positions_BT.device)
        some = every_T.split(max(1, LARGEST_MASK // (len(self.key_positions_BS) * keys)))
        return torch.cat([self.queries(index_Q).seen_BTS().sum(-1) for index_Q in some], dim=1)

    def seen_BTS(self) -> Tensor:
        """`mask_BTS` within the window and the chunks of other methods of the layer."""
        seen_BTS = self.mask_BTS()
        if self.chunk is not None:
            seen_BTS = seen_BTS & ~self.elsewhere_BTS(self.chunk)
        if self.window is None:
            return seen_BTS
        if not isinstance(self.window, int):
            raise UserError(
                "windows that differ between heads hide different keys for each head; a method that asks which keys "
                "are seen cannot be in the same layer"
            )
        return seen_BTS & (self.distances_BTS < self.window)

    def elsewhere_BTS(self, chunk: int) -> Tensor:
        """Where a key is of another chunk of positions than the query."""
        query_BT, key_BS = (
            each.div(chunk, rounding_mode="floor") for each in (self.query_positions_BT, self.key_positions_BS)
        )
        return query_BT[:, :, None] != key_BS[:, None]

    @property
    def places_BS(self) -> Tensor:
        """How many tokens of its own sequence precede each key, whatever their positions; (1, S) where all rows are
        alike."""
        return self.once(None, "places", self._places) if self.key_places_BS is None else self.key_places_BS

    def _places(self) -> Tensor:
        index_S = torch.arange(self.key_positions_BS.shape[1], device=self.key_positions_BS.device)
        if self.key_segments_BS is None:
            return index_S[None]
        sorted_BS, order_BS = self.key_segments_BS.sort(dim=1, stable=True)
        places_BS = index_S - torch.searchsorted(sorted_BS.contiguous(), sorted_BS.contiguous())
        return torch.zeros_like(order_BS).scatter(1, order_BS, places_BS)

    @property
    def continues_BT(self) -> Tensor:
        """Whether the token before a query is of its own sequence: False where a sequence begins."""
        return self.once(None, "continues", self._continues)

    def _continues(self) -> Tensor:
        if self.segments_BT is not None:
            same_BT = self.segments_BT[:, 1:] == self.segments_BT[:, :-1]
            return torch.cat([torch.zeros_like(same_BT[:, :1]), same_BT], dim=1)
        previous_T = self.own_key_T - 1
        if self.hide is None:
            return (previous_T >= 0)[None]
        seen_BTS = ~self.hide()
        index_BT1 = previous_T.clamp(min=0).expand(len(seen_BTS), -1)[..., None]
        return seen_BTS.gather(2, index_BT1)[..., 0] & (previous_T >= 0)

    @property
    def distances_BTS(self) -> Tensor:
        """How far each key lies before each query, 0 for the query itself and for later keys.

        From positions; from the index in the row, which is the same for every pair that sees each other and for all
        rows alike, where positions are consecutive.
        """

        def find() -> Tensor:
            if not self.consecutive:
                return distances(self.query_positions_BT, self.key_positions_BS)
            index = torch.arange(self.key_positions_BS.shape[1], device=self.key_positions_BS.device)[None]
            return distances(index, index)

        return self.once(None, "distances", find)

    def running_sums(self, numbers_BSC: Tensor) -> Tensor:
        """Sums of numbers of tokens, up to each token and itself among them, over the tokens of its own sequence.

        But for a constant of each sequence: it is the difference of two tokens of one sequence that has a meaning.
        """
        if self.key_segments_BS is None or self.consecutive:
            return self.sums(numbers_BSC)  # what precedes a sequence in its row is the constant
        segments_BS = self.key_segments_BS
        # Sequences may lie between one another's tokens: side by side, what precedes one is the constant.
        order_BS = self.once(None, "by segment", lambda: segments_BS.argsort(dim=1, stable=True))
        order_BSC = order_BS[..., None].expand_as(numbers_BSC)
        sums_BSC = self.sums(numbers_BSC.gather(1, order_BSC))
        return torch.zeros_like(sums_BSC).scatter(1, order_BSC, sums_BSC)

    def earlier(self, numbers_BSC: Tensor, back: int) -> Tensor:
        """Numbers of the token `back` places before each token in its own sequence; 0 where there is none."""
        if self.key_segments_BS is None or self.consecutive:
            return _moved(numbers_BSC, self.key_segments_BS, back)
        segments_BS = self.key_segments_BS
        order_BS = self.once(None, "by segment", lambda: segments_BS.argsort(dim=1, stable=True))
        order_BSC = order_BS[..., None].expand_as(numbers_BSC)
        moved_BSC = _moved(numbers_BSC.gather(1, order_BSC), segments_BS.gather(1, order_BS), back)
        return torch.zeros_like(moved_BSC).scatter(1, order_BSC, moved_BSC)

    def later_in_sequence_BSS(self) -> Tensor:
        """Whether a key (first S) is of the same sequence as another and later than it: (B or 1, S, S)."""
        index_S = torch.arange(self.key_positions_BS.shape[1], device=self.key_positions_BS.device)
        later_SS = (index_S[:, None] > index_S)[None]
        segments_BS = self.key_segments_BS
        return later_SS if segments_BS is None else later_SS & (segments_BS[:, :, None] == segments_BS[:, None])

    def within(self, window: int | tuple[int, ...] | None, chunk: int | None) -> "AttentionLayout":
        """The same pass, as those see it who ask which keys are seen where other methods hide some."""
        if window is None and chunk is None:
            return self
        said = self.once(None, f"within {window}, {chunk}", dict)
        return replace(self, window=window, chunk=chunk, _said=said)

    def at_layer(self, layer: int, layer_input_BTD: Tensor, token_numbers_BSC: Tensor | None) -> "AttentionLayout":
        """The same pass, as a layer sees it."""
        return replace(self, layer=layer, layer_input_BTD=layer_input_BTD, token_numbers_BSC=token_numbers_BSC)

    def queries(self, chosen: slice | Tensor) -> "AttentionLayout":
        """The same keys, and only some of the queries, by their index in the row."""
        hidden_BQS = ~self.queries_mask(chosen)
        return replace(
            self,
            query_positions_BT=self.query_positions_BT[:, chosen],
            hide=lambda: hidden_BQS,
            hide_rows=None,
            causal=False,
            segments_BT=None,
            consecutive=False,
            from_zero=False,
            layer_input_BTD=None if self.layer_input_BTD is None else self.layer_input_BTD[:, chosen],
            tracks={name: (query[:, chosen], key) for name, (query, key) in self.tracks.items()},
            chosen_T=self.own_key_T[chosen],
            _said={},
        )

    def block(self, first: int, end: int) -> "AttentionLayout":
        """Queries `first` to `end`, and the keys that they may see."""
        chosen, last = slice(first, end), self.keys_before(end)
        hidden_BQS = ~self.queries_mask(chosen)[:, :, :last]
        numbers = self.token_numbers_BSC
        return replace(
            self.queries(chosen),
            key_positions_BS=self.key_positions_BS[:, :last],
            hide=lambda: hidden_BQS,
            key_segments_BS=None if self.key_segments_BS is None else self.key_segments_BS[:, :last],
            key_places_BS=None if self.key_places_BS is None else self.key_places_BS[:, :last],
            token_numbers_BSC=None if numbers is None else numbers[:, :last],
            tracks={name: (query[:, chosen], key[:, :last]) for name, (query, key) in self.tracks.items()},
        )

    def keys_before(self, end: int) -> int:
        """How many keys the queries before `end` may see at most."""
        queries, keys = self.query_positions_BT.shape[1], self.key_positions_BS.shape[1]
        return keys if self.chosen_T is not None else keys - queries + end

    @property
    def in_parts(self) -> bool:
        """Whether what is hidden can be found for a few queries at a time."""
        return self.hide_rows is not None or (self.hide is None and self.causal)

    def queries_mask(self, chosen: slice | Tensor) -> Tensor:
        """The rows of `mask_BTS` of some queries, made without the others."""
        if self.hide_rows is not None:
            index_T = torch.arange(self.query_positions_BT.shape[1], device=self.query_positions_BT.device)
            return ~self.hide_rows(index_T[chosen])
        if self.hide is not None:
            return ~self.hide()[:, chosen]
        own_Q = self.own_key_T[chosen]
        seen_QS = torch.arange(self.key_positions_BS.shape[1], device=own_Q.device) <= own_Q[:, None]
        return (seen_QS if self.causal else torch.ones_like(seen_QS))[None]

    def contribution(self, encoding: "Encoding") -> "Contribution":
        """What an encoding contributes here; asked once for all layers where it does not depend on the layer."""
        if encoding.reads_layer:
            return encoding.contribute(self)
        anywhere = replace(self, layer=None, layer_input_BTD=None, token_numbers_BSC=None)
        return self.once(encoding, "contribution", lambda: encoding.contribute(anywhere))

    def once(self, asked: object, what: str, ask: Callable[[], A]) -> A:
        """What `ask` returns, asked once in this pass."""
        key = (id(asked), what)
        if key not in self._said:
            self._said[key] = (asked, ask())  # what was asked is kept: a number of its own must stay its own
        return cast(A, self._said[key][1])


def _moved(numbers_BSC: Tensor, segments_BS: Tensor | None, back: int) -> Tensor:
    """By some places within each sequence, where the tokens of a sequence lie side by side."""
    length = numbers_BSC.shape[1]
    moved_BSC = F.pad(numbers_BSC, (0, 0, back, 0))[:, :length]
    if segments_BS is None:
        return moved_BSC
    same_BS = segments_BS == F.pad(segments_BS, (back, 0), value=-1)[:, :length]
    return moved_BSC * same_BS[..., None]


def distances(query_BT: Tensor, key_BS: Tensor) -> Tensor:
    """How far each key lies before each query: (B, T, S) integers, 0 for the query itself and for later keys."""
    return (query_BT[:, :, None] - key_BS[:, None, :]).clamp(min=0)
