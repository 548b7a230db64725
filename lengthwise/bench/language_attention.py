"""Programs of PyTorch that compute the causal attention of rows with one sequence or several.

Shape letters: B rows, T tokens of a row, M tokens of all rows, H heads, K head width, S sequences of all rows.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class AttentionProgram:
    """What a token sees, and the program that computes it."""

    backends: ClassVar[tuple[SDPBackend, ...]] = ()
    """Of scaled_dot_product_attention, the allowed ones; none for PyTorch's own choice."""

    def __init__(self, sequences: int, compiled: bool) -> None:
        """`sequences`: how many a step has at most."""
        self.sequences, self.compiled = sequences, compiled

    def seen(self, segments_BT: Tensor) -> Any:
        """What `mix` needs to know of a step's rows: found once for all layers."""
        return None

    def mix(self, q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor, seen: Any) -> Tensor:
        """The mixed values (B, T, H, K)."""
        raise NotImplementedError

    def allowed(self) -> AbstractContextManager[Any]:
        return sdpa_kernel(list(self.backends)) if self.backends else nullcontext()


class Causal(AttentionProgram):
    """Rows that hold one sequence each."""

    def mix(self, q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor, seen: Any) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q_BTHK, k_BTHK, v_BTHK))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Flash(Causal):
    backends = (SDPBackend.FLASH_ATTENTION,)


class Cudnn(Causal):
    backends = (SDPBackend.CUDNN_ATTENTION,)


class Dense(AttentionProgram):
    """Several sequences in a row by a mask of all pairs: for a CPU, where flex attention has no backward pass."""

    def seen(self, segments_BT: Tensor) -> Tensor:
        length = segments_BT.shape[1]
        earlier_TT = torch.ones(length, length, dtype=torch.bool, device=segments_BT.device).tril()
        return (earlier_TT & (segments_BT[:, :, None] == segments_BT[:, None, :]))[:, None]

    def mix(self, q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor, seen: Any) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q_BTHK, k_BTHK, v_BTHK))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2)


class Flex(AttentionProgram):
    """Several sequences in a row by a mask of blocks: blocks that no token sees are left out."""

    def __init__(self, sequences: int, compiled: bool) -> None:
        super().__init__(sequences, compiled)
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        # Compiled, it never makes the mask of all pairs. The attention is compiled with the model that calls it.
        self.make_mask: Callable[..., Any] = torch.compile(create_block_mask) if compiled else create_block_mask
        self.attend: Callable[..., Any] = flex_attention

    def seen(self, segments_BT: Tensor) -> Any:
        def visible(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (segments_BT[row, query] == segments_BT[row, key])

        rows, length = segments_BT.shape
        return self.make_mask(visible, rows, None, length, length, device=segments_BT.device)

    def mix(self, q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor, seen: Any) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q_BTHK, k_BTHK, v_BTHK))
        return self.attend(q, k, v, block_mask=seen).transpose(1, 2)


class Varlen(AttentionProgram):
    """Several sequences in a row, all rows of a step end to end: flash attention that is told where each begins."""

    def __init__(self, sequences: int, compiled: bool) -> None:
        super().__init__(sequences, compiled)
        from torch.nn.attention.varlen import varlen_attn

        self.attend: Callable[..., Any] = varlen_attn
        self.starts: Callable[[Tensor], Tensor] = torch.compile(self._starts) if compiled else self._starts

    def seen(self, segments_BT: Tensor) -> Tensor:
        return self.starts(segments_BT)

    def _starts(self, segments_BT: Tensor) -> Tensor:
        """(S + 1,): where each sequence begins, then as often as need be where the last one ends, so that all steps
        have one shape: what follows the last sequence is empty."""
        begins_BT = torch.ones_like(segments_BT, dtype=torch.bool)
        begins_BT[:, 1:] = segments_BT[:, 1:] != segments_BT[:, :-1]
        begins_M = begins_BT.flatten()
        place_M = torch.arange(len(begins_M), dtype=torch.int32, device=segments_BT.device)
        # The tokens that begin nothing all write to one more place, which is then cut off.
        slot_M = torch.where(begins_M, begins_M.cumsum(0) - 1, self.sequences + 1)
        starts = torch.full((self.sequences + 2,), len(begins_M), dtype=torch.int32, device=segments_BT.device)
        return starts.scatter(0, slot_M, place_M)[:-1]

    def mix(self, q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor, seen: Any) -> Tensor:
        rows, length = q_BTHK.shape[:2]
        q, k, v = (x.flatten(0, 1) for x in (q_BTHK, k_BTHK, v_BTHK))
        mixed_MHK = self.attend(q, k, v, seen, seen, length, length, window_size=(-1, 0))  # causal
        return mixed_MHK.unflatten(0, (rows, length))


ATTENTIONS: dict[str, type[AttentionProgram]] = {
    "sdpa": Causal,
    "flash": Flash,
    "cudnn": Cudnn,
    "dense": Dense,
    "flex": Flex,
    "varlen": Varlen,
}
