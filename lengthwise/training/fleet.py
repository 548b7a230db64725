"""Models of equal shape side by side: one set of stacked weights, one program.

The decoder is written for one model; `torch.func.vmap` runs it for all. Weights live in one matrix, a row per model, so
that clipping, optimizer and checkpoints are row operations; so do the gradients that our kernels find.
Shape letters: N models, W weights of one model, S elements of a weight, R rows, T tokens, P predicted tokens, L places
that drop, V vocabulary rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from lengthwise.errors import UserError
from lengthwise.kernels import attention as kernel
from lengthwise.kernels import loss as loss_kernel
from lengthwise.kernels import norm as norm_kernel
from lengthwise.kernels.dropout import place_keys
from lengthwise.kernels.side_stream import on_side_stream, when_differentiated
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.training.batches import Batches
from lengthwise.training.gradient_check import GradientCheck

Tensors = dict[str, Tensor]
Told = Callable[[str], None]
"""Is told the name of a section."""

GRAD_OUT = "grad_out"
"""A module with a buffer of this name has a weight whose gradient its operation writes there by itself."""


@dataclass(frozen=True)
class Batch:
    """One step of a whole fleet on its device; see `Batches`."""

    ARRAYS: ClassVar = ("tokens_KNRT", "segments_KNRT", "positions_KNRT", "predicting_KNP", "targets_KNP")
    """Where `Batches` keeps the same things."""

    tokens_NRT: Tensor
    segments_NRT: Tensor
    positions_NRT: Tensor
    predicting_NP: Tensor
    targets_NP: Tensor
    consecutive: bool = False
    """Whether positions count up by one within each example."""
    from_zero: bool = False
    """Whether they also begin at 0."""

    def arrays(self) -> tuple[Tensor, ...]:
        return self.tokens_NRT, self.segments_NRT, self.positions_NRT, self.predicting_NP, self.targets_NP

    @classmethod
    def of(cls, batches: Batches, index: int, device: torch.device) -> "Batch":
        """Step `index` of several, without the padding that only others need."""
        rows, predictions = batches.rows_K[index], batches.predictions_K[index]
        parts = (
            batches.tokens_KNRT[index, :, :rows],
            batches.segments_KNRT[index, :, :rows],
            batches.positions_KNRT[index, :, :rows],
            batches.predicting_KNP[index, :, :predictions],
            batches.targets_KNP[index, :, :predictions],
        )
        arrays = (torch.from_numpy(part).to(device) for part in parts)
        return cls(*arrays, consecutive=batches.consecutive, from_zero=batches.from_zero)

    @property
    def order(self) -> tuple[bool, bool]:
        """What is known of its positions: whether they are consecutive, and from zero."""
        return self.consecutive, self.from_zero


@dataclass(frozen=True)
class Section:
    """A stretch of a model's row: the weights of one block, of one encoding, of the embedding, or of the output."""

    start: int
    names: tuple[str, ...]
    """Of its weights, as the decoder names them."""
    shapes: tuple[torch.Size, ...]

    ALIGNED: ClassVar = 64
    """Sections begin at multiples of this many weights: kernels read 16 bytes at a time."""

    @property
    def size(self) -> int:
        weights = sum(shape.numel() for shape in self.shapes)
        return -(-weights // self.ALIGNED) * self.ALIGNED

    def cut(self, matrix_NW: Tensor) -> Tensor:
        return matrix_NW[:, self.start : self.start + self.size]


def sections_of(model: Decoder) -> dict[str, Section]:
    """By name: `encodings.0`, `embedding`, `blocks.0`, `blocks.1`, ..., `output`. In the order of the weights."""
    groups: dict[str, dict[str, torch.Size]] = {}
    for name, parameter in model.named_parameters():
        path = name.split(".")
        numbered = path[0] in ("encodings", "blocks")
        group = ".".join(path[:2]) if numbered else "embedding" if path[0] == "embedding" else "output"
        groups.setdefault(group, {})[name] = parameter.shape
    sections: dict[str, Section] = {}
    start = 0
    for group, shapes in groups.items():
        sections[group] = Section(start, tuple(shapes), tuple(shapes.values()))
        start += sections[group].size
    return sections


class Fleet:
    """N models that share `model`'s architecture; `model` itself lends only its code."""

    def __init__(self, model: Decoder, count: int, device: torch.device, precision: str = "fp32") -> None:
        self.model = model.to(device)
        self.count = count
        self.device = device
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.kernels = kernel.available(device) and norm_kernel.supports(model.config.width)
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        self.sections = sections_of(model)
        self.matrix_NW = torch.zeros(count, sum(each.size for each in self.sections.values()), device=device)
        # What the arithmetic reads: the weights themselves, or a copy in bf16 that the optimizer keeps up to date.
        self.read_NW = self.matrix_NW if self.dtype == torch.float32 else self.matrix_NW.to(self.dtype)
        self._gradients_NW: Tensor | None = None
        self._pass = _Pass(model)
        self.self_written = {f"{path}.weight" for path, module in model.named_modules() if GRAD_OUT in module._buffers}
        """Weights whose gradient our kernels write, because their modules say so; PyTorch finds all others."""
        self._gradient_check = GradientCheck(device)

    @property
    def kernels(self) -> bool:
        """Whether our own kernels do the work: they do where they can, on a GPU, if the width is a multiple of 16."""
        return self.model.backend == "kernel"

    @kernels.setter
    def kernels(self, wanted: bool) -> None:
        # PyTorch's attention has no rule for stacked models; a lone model takes it.
        self.model.backend = "kernel" if wanted else "fused" if self.count == 1 else "eager"

    def named(self, matrix_NW: Tensor) -> Tensors:
        """Views of the rows under the names of the decoder's weights, each (N, *shape)."""
        views = {}
        for section in self.sections.values():
            start = section.start
            for name, shape in zip(section.names, section.shapes, strict=True):
                cut = matrix_NW.detach()[:, start : start + shape.numel()]
                views[name] = cut.unflatten(1, shape) if shape else cut.squeeze(1)  # a lone number has no dimension
                start += shape.numel()
        return views

    def flat(self, matrix_NW: Tensor) -> Tensors:
        """The same as `named`, each (N, S)."""
        return {name: view.reshape(len(view), -1) for name, view in self.named(matrix_NW).items()}

    def initialize(self, seeds: Sequence[int]) -> None:
        for row, seed in enumerate(seeds):
            initialize(self.model, seed)
            self.put(row, dict(self.model.named_parameters()))

    @torch.no_grad()
    def put(self, row: int, weights: Mapping[str, Tensor]) -> None:
        """Gives one model these weights."""
        for name, view in self.named(self.matrix_NW).items():
            view[row] = weights[name]
        self.refresh()

    def refresh(self) -> None:
        """After the weights were changed by anyone but the optimizer."""
        if self.read_NW is not self.matrix_NW:
            self.read_NW.copy_(self.matrix_NW)

    def decays_weight(self, name: str, norms: bool) -> bool:
        """Whether weight decay applies: to what an encoding says it does, to norms only if `norms`."""
        if name.startswith("encodings."):
            _, index, own = name.split(".", 2)
            return self.model.distinct_encodings()[int(index)].decays(own)
        return norms or len(self.shapes[name]) > 1

    def decays(self, norms: bool) -> Tensor:
        """(W,): whether weight decay applies."""
        decays_1W = torch.zeros(1, self.matrix_NW.shape[1], dtype=torch.bool, device=self.device)
        for name, view in self.named(decays_1W).items():
            view.fill_(self.decays_weight(name, norms))
        return decays_1W[0]

    def row(self, matrix_NW: Tensor, index: int) -> Tensors:
        """One model's weights, copied to the CPU, for a checkpoint of its own."""
        return {name: value[0].cpu().clone() for name, value in self.named(matrix_NW[index : index + 1]).items()}

    def keys(self, seeds_N: Tensor | None) -> Tensor | None:
        """Of dropout, from the seeds of a step: (N, L), one for each place that drops; None where nothing does."""
        if seeds_N is None or self.model.config.dropout == 0:
            return None
        # All models' keys of a place lie side by side: that is what a kernel reads.
        return place_keys(seeds_N, sum(self.model.dropout_places())).t().contiguous().t()

    def gradients(
        self,
        batch: Batch,
        keys_NL: Tensor | None = None,
        reads: Told = lambda section: None,
        wrote: Told | None = None,
    ) -> tuple[Tensor, Tensors]:
        """Mean loss of each model on its own examples (N,) and its gradient, weight by weight: (N, *shape).

        `keys_NL`: of dropout. `reads` is told each section before its weights are read, `wrote` each block (and the
        output) when what computes its gradient was launched, if our kernels do all of it. With our kernels the
        gradients are overwritten by the next call.
        """
        places = self.named(self.gradient_matrix()) if self.kernels else {}
        leaves = self.named(self.read_NW)
        written = {name: place for name, place in places.items() if name in self.self_written}
        for name, leaf in leaves.items():
            # PyTorch goes all the way back only if something at the very beginning asks for a gradient.
            leaf.requires_grad_(name not in written or name.startswith("embedding."))
        self._gradient_check.begin(written)
        if written and self.model.unembedding is not None:
            with on_side_stream():  # to what a tied output layer would write, the embedding adds
                places["embedding.weight"].zero_()
        arrays = (*batch.arrays()[:-1], keys_NL)
        logits_NPV = self._call(leaves, written, arrays, batch.order, reads, wrote and self._only_written(wrote))
        losses_N, dlogits_NPV = cross_entropy(logits_NPV, batch.targets_NP, self.kernels)
        asked = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        answers = torch.autograd.grad(logits_NPV, list(asked.values()), dlogits_NPV, allow_unused=True)
        found = dict(zip(asked, answers, strict=True))
        self._gradient_check.end(written, losses_N)
        gradients: Tensors = {}
        for name in leaves:
            gradient = written[name] if name in written else found[name]
            if gradient is None:
                raise UserError(
                    f"the parameter {name} has no part in the loss, so nothing would ever train it; "
                    "use it, or leave it out"
                )
            gradients[name] = gradient
        others = [name for name in places if name not in written]
        if others:  # in one launch for a lone model: encodings have many small ones
            torch._foreach_copy_([places[name] for name in others], [gradients[name] for name in others])
        return losses_N, places or gradients

    def _only_written(self, wrote: Told) -> Told:
        """Tells of those sections alone that our kernels write in whole: what PyTorch finds is there at the end."""

        def tell(section: str) -> None:
            if self.self_written.issuperset(self.sections[section].names):
                wrote(section)

        return tell

    def gradient_matrix(self) -> Tensor:
        """(N, W), where our kernels write gradients."""
        if self._gradients_NW is None:
            self._gradients_NW = torch.zeros_like(self.read_NW)
        return self._gradients_NW

    @torch.no_grad()
    def predictions(self, matrix_NW: Tensor, batch: Batch) -> Tensor:
        """The most likely token (N, P) at every predicted place."""
        arrays = (*batch.arrays()[:-1], None)
        return self._call(self.named(matrix_NW.to(self.dtype)), {}, arrays, batch.order).argmax(dim=-1)

    def _call(
        self,
        weights: Tensors,
        outs: Tensors,
        arrays: tuple[Tensor | None, ...],
        order: tuple[bool, bool],
        reads: Told = lambda section: None,
        wrote: Told | None = None,
    ) -> Tensor:
        """Logits (N, P, V): runs what is written for one model on stacked weights and arrays."""

        def alone(weights: Tensors, outs: Tensors, *arrays: Tensor | None) -> Tensor:
            given = weights | {_grad_out(name): out for name, out in outs.items()}
            named = {f"model.{name}": value for name, value in given.items()}
            return functional_call(self._pass, named, (*arrays, order, reads, wrote))

        if self.count > 1:
            stacks = (dict.fromkeys(weights, 0), dict.fromkeys(outs, 0))
            return vmap(alone, in_dims=(*stacks, *(None if each is None else 0 for each in arrays)))(
                weights, outs, *arrays
            )
        own, out = ({name: value.squeeze(0) for name, value in group.items()} for group in (weights, outs))
        return alone(own, out, *(None if each is None else each.squeeze(0) for each in arrays)).unsqueeze(0)


def _grad_out(weight: str) -> str:
    """The name of the place for a weight's gradient."""
    return weight.removesuffix("weight") + GRAD_OUT


class _Pass(nn.Module):
    """A whole pass, written for one model: the logits of what is to be predicted."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens_RT: Tensor,
        segments_RT: Tensor,
        positions_RT: Tensor,
        predicting_P: Tensor,
        keys_L: Tensor | None,
        order: tuple[bool, bool],
        reads: Told,
        wrote: Told | None,
    ) -> Tensor:
        model = self.model
        for name in ("embedding", *(f"encodings.{index}" for index in range(len(model.encodings)))):
            reads(name)
        names = [*(f"blocks.{layer}" for layer in range(len(model.blocks))), "output"]

        def before(layer: int, x_RTD: Tensor) -> Tensor:
            reads(names[layer])
            return x_RTD if wrote is None else when_differentiated(x_RTD, lambda: wrote(names[layer]))

        consecutive, from_zero = order
        layout = Decoder.layout(tokens_RT, positions_RT, segments_RT, consecutive=consecutive, from_zero=from_zero)
        # The last layer is not finished where nothing is predicted.
        states_PD = model.hidden(tokens_RT, layout, dropout_keys=keys_L, before=before, chosen_P=predicting_P)
        return model.unembed(states_PD)


def cross_entropy(logits_NPV: Tensor, targets_NP: Tensor, kernels: bool) -> tuple[Tensor, Tensor]:
    """Each model's mean over its targets (N,), and its gradient, which our kernels write over the logits."""
    if kernels:
        return loss_kernel.cross_entropy(logits_NPV.detach(), targets_NP)
    real_NP = targets_NP >= 0
    count_N = real_NP.sum(dim=1)
    target_NP1 = targets_NP.clamp(min=0).long()[..., None]
    with torch.no_grad():
        wide_NPV = logits_NPV.float()
        dlogits_NPV = wide_NPV.softmax(dim=-1)
        # From the likeliest token, whose probability is never too small. Logits first: the logarithm would lose its
        # last digits beside a large one.
        behind_NP = wide_NPV.amax(dim=-1) - wide_NPV.gather(2, target_NP1)[..., 0]
        loss_NP = torch.where(real_NP, behind_NP - dlogits_NPV.amax(dim=-1).log(), 0.0)
        dlogits_NPV.scatter_add_(2, target_NP1, -torch.ones_like(target_NP1, dtype=wide_NPV.dtype))
        dlogits_NPV *= torch.where(real_NP, 1 / count_N[:, None], 0.0)[..., None]
        return loss_NP.sum(dim=1) / count_N, dlogits_NPV.to(logits_NPV.dtype)
