"""A state that is a matrix (keys by values), carried along a row in chunks: a few products, no loop over tokens.

    S_t = fade_t * S_(t-1) + write_t (erase_t . S_(t-1)) + k_t v_t,   o_t = q_t . S_t

Mamba-2 fades and adds; the delta rules also erase what a key held before. Within a chunk all pairs of tokens meet, as
in attention; from one chunk to the next goes the state alone, by one small product a chunk.
Shape letters: B batch, T tokens, H heads, K key width, V value width, F = 1 for one fade a head or K for one an entry;
N chunks, C tokens of a chunk.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64
"""Tokens that meet in pairs: long enough for few chunks, short enough for the matrices of pairs to be small."""
LEAST_FADE = -20.0
"""Of a fade's logarithm: less than e^-20 of a number is below what fp32 tells from nothing beside it, and differences
of sums of large logarithms would be inexact."""
LEAST_FADE_OF_ENTRIES = -1.0
"""The same where entries fade by themselves: there e to minus the sum over a chunk must be a number."""


def scan_states(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    log_fade_BTHF: Tensor,
    continues_BT: Tensor,
    before_BHKV: Tensor,
    erase_BTHK: Tensor | None = None,
    write_BTHK: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What the queries read (B, T, H, V), and the state after the last token (B, H, K, V).

    `log_fade_BTHF`: 0 or less; with one for each entry, -1 or more. `continues_BT`: False where a sequence begins, with
    a state of 0; its batch may be 1. `before_BHKV`: the state before the first token. Keys and queries may have one
    head for all heads of values.
    """
    length = q_BTHK.shape[1]
    size = min(CHUNK, length)
    missing = -length % size

    def chunks(x_BTHX: Tensor) -> Tensor:
        """(B, N, H, C, X). Tokens that fill up the last chunk neither fade the state nor add to it."""
        return F.pad(x_BTHX, (0, 0, 0, 0, 0, missing)).unflatten(1, (-1, size)).transpose(2, 3)

    q, k, v = chunks(q_BTHK), chunks(k_BTHK), chunks(v_BTHV)
    by_entry = log_fade_BTHF.shape[-1] > 1
    fade = chunks(log_fade_BTHF.clamp(min=LEAST_FADE_OF_ENTRIES if by_entry else LEAST_FADE))
    faded = fade.cumsum(dim=-2)  # since the chunk began, the token's own fade among it
    left = faded[..., -1:, :] - faded  # until the chunk ends
    sees, earlier, reached, stays, carries = _sequences(continues_BT, size, missing, v.dtype)

    def pairs(reads: Tensor, since: Tensor, writes: Tensor, seen: Tensor) -> Tensor:
        """(B, N, H, C, C): how much each token reads of what each one wrote."""
        if by_entry:
            return (reads * since.exp()) @ (writes * (-faded).exp()).mT * seen
        return (reads @ writes.mT) * (since - faded.mT).clamp(max=0).exp() * seen

    carried = (fade.sum(dim=-2).exp() * carries)[..., None]  # (B, N, H, F, 1): what is left of each entry of the state
    added = (k * left.exp() * stays).mT @ v
    own = pairs(q, faded, k, sees) @ v
    reading = q * faded.exp() * reached
    if erase_BTHK is None or write_BTHK is None:
        states, after = _carry(lambda n, state: carried[:, n] * state + added[:, n], added.shape[1], before_BHKV)
        found = own + reading @ states
    else:
        erase, write = chunks(erase_BTHK), chunks(write_BTHK)
        before = faded - fade  # since the chunk began, the token's own fade not among it: it erases the state before it
        # What a token erases depends on what earlier ones of its chunk erased: a triangular system. It is solved, not
        # inverted by powers of its matrix: for keys that are alike these grow beyond all digits.
        erased = torch.cat([erase * before.exp() * reached, pairs(erase, before, k, earlier) @ v], dim=-1)
        system = -pairs(erase, before, write, earlier)
        solved = torch.linalg.solve_triangular(system, erased, upper=False, unitriangular=True)
        of_state, of_chunk = solved.split([erase.shape[-1], v.shape[-1]], dim=-1)
        written = (write * left.exp() * stays).mT
        identity = torch.eye(erase.shape[-1], dtype=v.dtype, device=v.device)
        moved, added = carried * identity + written @ of_state, added + written @ of_chunk
        states, after = _carry(lambda n, state: moved[:, n] @ state + added[:, n], added.shape[1], before_BHKV)
        found = own + reading @ states + pairs(q, faded, write, sees) @ (of_state @ states + of_chunk)
    return found.transpose(2, 3).flatten(1, 2)[:, :length], after


def _sequences(continues_BT: Tensor, size: int, missing: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """1 where two tokens of a chunk are of one sequence, the second no later (`sees`) or earlier than the first; where
    a token is of the sequence of the state that reaches the chunk, of the one that leaves it; where these are one."""
    number_BNC = F.pad((~continues_BT).long(), (0, missing)).cumsum(dim=1).unflatten(1, (-1, size))
    leaving_BN1 = number_BNC[..., -1:]
    arriving_BN1 = F.pad(leaving_BN1[:, :-1], (0, 0, 1, 0))
    same_BNCC = number_BNC[..., :, None] == number_BNC[..., None, :]
    found = (
        same_BNCC.tril()[:, :, None],
        same_BNCC.tril(-1)[:, :, None],
        (number_BNC == arriving_BN1)[:, :, None, :, None],
        (number_BNC == leaving_BN1)[:, :, None, :, None],
        (leaving_BN1 == arriving_BN1)[..., None],
    )
    return tuple(each.to(dtype) for each in found)


def _carry(step: Callable[[int, Tensor], Tensor], count: int, state: Tensor) -> tuple[Tensor, Tensor]:
    """The states before each chunk, (B, N, H, K, V), and the one after the last."""
    states = []
    for n in range(count):
        states.append(state)
        state = step(n, state)
    return torch.stack(states, dim=1), state
