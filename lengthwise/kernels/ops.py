"""What a decoder computes beside attention: plain PyTorch, and the same in our kernels.

`Ops` says what each operation is. `FusedOps` computes the same in fewer passes over memory, on a GPU; modules need not
know which of the two they are given. Both know the dropout of one part of a forward pass.
Shape letters: B batch, T tokens, D width, N models (here one), M tokens of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from lengthwise.kernels import drop as drop_kernel
from lengthwise.kernels import feed_forward as feed_forward_kernel
from lengthwise.kernels import norm as norm_kernel
from lengthwise.kernels.dropout import kept

if TYPE_CHECKING:
    from lengthwise.kernels.linear import Linear
    from lengthwise.model.norm import RMSNorm


class Stream(NamedTuple):
    """The residual stream, and perhaps a branch that is yet to be added: a kernel adds it and normalises at once."""

    x_BTD: Tensor
    branch_BTD: Tensor | None = None
    key: Tensor | None = None
    """Decides what dropout keeps of the branch; None for all."""


class Ops:
    """Plain PyTorch, one operation after the other. Each call that drops is another place and has a key of its own."""

    def __init__(self, dropout: float = 0.0, keys: Tensor | None = None) -> None:
        """`dropout`: its rate; `keys`: int32, one for each place that drops, None for no dropout (evaluation)."""
        self.rate = dropout
        self.keys = keys if dropout > 0 else None
        self.place = 0

    @property
    def drops(self) -> bool:
        return self.keys is not None

    def next_key(self) -> Tensor | None:
        """The key of the next place, for whoever drops there by the rule of `kept`; None where nothing is dropped."""
        if self.keys is None:
            return None
        self.place += 1
        return self.keys[self.place - 1]

    def drop(self, x: Tensor) -> Tensor:
        return _dropped(x, self.next_key(), self.rate)

    def drop_relu(self, x: Tensor) -> Tensor:
        """`drop(relu(x))`."""
        return self.drop(x.relu())

    def norm(self, stream: Stream, norm: RMSNorm) -> tuple[Stream, Tensor]:
        """The stream with everything added, and the same normalised."""
        return stream, norm(stream.x_BTD)

    def add(self, stream: Stream, branch_BTD: Tensor) -> Stream:
        """The stream with what dropout keeps of a branch."""
        return Stream(stream.x_BTD + self.drop(branch_BTD))

    def whole(self, stream: Stream) -> Tensor:
        """The stream with everything added."""
        return stream.x_BTD

    def relu_feed_forward(self, x_BTD: Tensor, inner: Linear, output: Linear) -> Tensor:
        return output(self.drop_relu(inner(x_BTD)))


class FusedOps(Ops):
    """The same by our kernels, which write the gradients of weights where the weights' modules say."""

    def drop(self, x: Tensor) -> Tensor:
        key = self.next_key()
        return x if key is None else norm_kernel.drop(x.flatten(0, -2)[None], key[None], self.rate).view(x.shape)

    def drop_relu(self, x: Tensor) -> Tensor:
        # A kernel of its own: it is the largest array that is dropped from.
        key = self.next_key()
        return x.relu() if key is None else drop_kernel.drop_relu(x[None], key[None], self.rate).squeeze(0)

    def norm(self, stream: Stream, norm: RMSNorm) -> tuple[Stream, Tensor]:
        shape = stream.x_BTD.shape
        branch_NMD = None if stream.branch_BTD is None else stream.branch_BTD.flatten(0, -2)[None]
        whole_NMD, normed_NMD = norm_kernel.join_norm(
            stream.x_BTD.flatten(0, -2)[None],
            branch_NMD,
            None if stream.key is None else stream.key[None],
            self.rate,
            norm.weight[None],
            None if norm.grad_out is None else norm.grad_out[None],
        )
        return Stream(whole_NMD.view(shape)), normed_NMD.view(shape)

    def add(self, stream: Stream, branch_BTD: Tensor) -> Stream:
        assert stream.branch_BTD is None, "a branch is added before the next one comes"
        return Stream(stream.x_BTD, branch_BTD, self.next_key())

    def whole(self, stream: Stream) -> Tensor:
        if stream.branch_BTD is None:
            return stream.x_BTD
        x_NMD, branch_NMD = (each.flatten(0, -2)[None] for each in (stream.x_BTD, stream.branch_BTD))
        key_N = None if stream.key is None else stream.key[None]
        return norm_kernel.add_drop(x_NMD, branch_NMD, key_N, self.rate).view(stream.x_BTD.shape)

    def relu_feed_forward(self, x_BTD: Tensor, inner: Linear, output: Linear) -> Tensor:
        if not feed_forward_kernel.suits(x_BTD.shape[-1], x_BTD.dtype):
            return super().relu_feed_forward(x_BTD, inner, output)
        given = (self.next_key(), inner.grad_out, output.grad_out)
        key_N, *outs = (None if each is None else each[None] for each in given)
        weights = inner.weight[None], output.weight[None]
        y_NMD = feed_forward_kernel.feed_forward(x_BTD.flatten(0, -2)[None], *weights, key_N, self.rate, *outs)
        return y_NMD.view(x_BTD.shape)


def _dropped(x: Tensor, key: Tensor | None, rate: float) -> Tensor:
    return x if key is None else x * (kept(x.shape, key, rate) / (1 - rate)).to(x.dtype)
