"""Models of equal shape side by side: one set of stacked weights, one program.

The decoder is written for one model; `torch.func.vmap` runs its parts for all. Weights live in one matrix, a row per
model, so that clipping, optimizer and checkpoints are row operations.
Shape letters: N models, W weights of one model, S weights of a section, R rows, T tokens, P predicted tokens, D width,
V vocabulary rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from lengthwise.engine.batches import Batches
from lengthwise.model import kernel
from lengthwise.model.build import initialize
from lengthwise.model.decoder import Decoder
from lengthwise.model.dropout import Dropout, place_keys

Tensors = dict[str, Tensor]
Program = Callable[..., Tensor]


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
        return cls(*(torch.from_numpy(part).to(device) for part in parts))


@dataclass(frozen=True)
class Section:
    """A stretch of a model's row: the weights of one block, of one encoding, of the embedding, or of the output."""

    start: int
    names: tuple[str, ...]
    """Of its weights, within the section."""
    shapes: tuple[torch.Size, ...]

    ALIGNED: ClassVar = 64
    """Sections begin at multiples of this many weights: kernels read 16 bytes at a time."""

    @property
    def size(self) -> int:
        weights = sum(shape.numel() for shape in self.shapes)
        return -(-weights // self.ALIGNED) * self.ALIGNED

    def cut(self, matrix_NW: Tensor) -> Tensor:
        return matrix_NW[:, self.start : self.start + self.size]

    def named(self, row_S: Tensor, prefix: str) -> Tensors:
        """The weights in this section of one model, under their names."""
        sizes = [shape.numel() for shape in self.shapes]
        parts = row_S.split([*sizes, self.size - sum(sizes)])
        return {
            prefix + name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=False)
        }


def sections_of(model: Decoder) -> dict[str, Section]:
    """By name: `encodings.0`, `embedding`, `blocks.0`, `blocks.1`, ..., `output`. In the order of the weights."""
    groups: dict[str, dict[str, torch.Size]] = {}
    for name, parameter in model.named_parameters():
        path = name.split(".")
        numbered = path[0] in ("encodings", "blocks")
        group = ".".join(path[:2]) if numbered else "embedding" if path[0] == "embedding" else "output"
        groups.setdefault(group, {})[".".join(path[2:]) if numbered else name] = parameter.shape
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
        # PyTorch's kernel has no rule for stacked models; a lone model takes it.
        model.backend = "kernel" if kernel.available(device) else "fused" if count == 1 else "written"
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        self.sections = sections_of(model)
        self.matrix_NW = torch.zeros(count, sum(each.size for each in self.sections.values()), device=device)
        # What the arithmetic reads: the weights themselves, or a copy in bf16 that the optimizer keeps up to date.
        self.read_NW = self.matrix_NW if self.dtype == torch.float32 else self.matrix_NW.to(self.dtype)
        self.leaves = {name: each.cut(self.read_NW).detach().requires_grad_() for name, each in self.sections.items()}
        self._plain = self._programs = _Programs(self, lambda program: program)
        self._compiled: _Programs | None = None

    @property
    def compiled(self) -> bool:
        """Whether each part of a pass is compiled to kernels of its own; all blocks of an encoding are, once."""
        return self._programs is not self._plain

    @compiled.setter
    def compiled(self, wanted: bool) -> None:
        if wanted and self._compiled is None:
            # All parts are one function to the compiler; what it knows of an earlier fleet is of no use to this one.
            torch._dynamo.reset()
            torch._dynamo.config.recompile_limit = 64
            self._compiled = _Programs(self, torch.compile)
        self._programs = self._compiled if wanted and self._compiled else self._plain

    def named(self, matrix_NW: Tensor) -> Tensors:
        """Views of the rows under the names of the decoder's weights, each (N, *shape)."""
        views = {}
        for group, section in self.sections.items():
            start = section.start
            for name, shape in zip(section.names, section.shapes, strict=True):
                full = f"{group}.{name}" if "." in group else name
                views[full] = matrix_NW.detach()[:, start : start + shape.numel()].unflatten(1, shape)
                start += shape.numel()
        return views

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

    def decays(self) -> Tensor:
        """(W,): whether weight decay applies. As published: not to norms, nor to anything of the encoding."""
        decays_1W = torch.zeros(1, self.matrix_NW.shape[1], dtype=torch.bool, device=self.device)
        for name, view in self.named(decays_1W).items():
            view.fill_(len(self.shapes[name]) > 1 and not name.startswith("encodings."))
        return decays_1W[0]

    def row(self, matrix_NW: Tensor, index: int) -> Tensors:
        """One model's weights, copied to the CPU, for a checkpoint of its own."""
        return {name: value[0].cpu().clone() for name, value in self.named(matrix_NW[index : index + 1]).items()}

    def gradients(self, batch: Batch, dropout_seeds_N: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss of each model on its own examples (N,) and its gradient, section by section."""
        keys = self._keys(dropout_seeds_N)
        x_NRTD = self._states(self.leaves, batch, keys)
        ends = {name: self.leaves[name] for name in ("embedding", "output")}
        losses_N = self._programs.loss(ends, x_NRTD, batch.predicting_NP, batch.targets_NP, keys[-1])
        # The models are independent, so the gradient of the sum holds every model's own gradient.
        gradients = torch.autograd.grad(losses_N.sum(), list(self.leaves.values()))
        return losses_N.detach(), dict(zip(self.leaves, gradients, strict=True))

    @torch.no_grad()
    def predictions(self, matrix_NW: Tensor, batch: Batch) -> Tensor:
        """The most likely token (N, P) at every predicted place."""
        weights = {name: section.cut(matrix_NW.to(self.dtype)) for name, section in self.sections.items()}
        x_NRTD = self._states(weights, batch, self._keys(None))
        ends = {name: weights[name] for name in ("embedding", "output")}
        return self._programs.predict(ends, x_NRTD, batch.predicting_NP)

    def _states(self, weights: Tensors, batch: Batch, keys: list[Tensor | None]) -> Tensor:
        """What the last layer wrote: (N, R, T, D)."""
        for array in (batch.tokens_NRT, batch.segments_NRT, batch.positions_NRT, batch.predicting_NP, batch.targets_NP):
            _leave_open(array)
        inputs = {name: value for name, value in weights.items() if name.startswith(("embedding", "encodings."))}
        x_NRTD = self._programs.begin(inputs, batch.tokens_NRT, batch.positions_NRT, keys[0])
        for layer, encoding in enumerate(self.model.encoding_of_layer):
            own = {"block": weights[f"blocks.{layer}"]}
            if f"encodings.{encoding}" in weights:
                own["encoding"] = weights[f"encodings.{encoding}"]
            _leave_open(x_NRTD)
            x_NRTD = self._programs.layers[encoding](
                own, x_NRTD, batch.segments_NRT, batch.positions_NRT, keys[layer + 1]
            )
        return _leave_open(x_NRTD)

    def _keys(self, dropout_seeds_N: Tensor | None) -> list[Tensor | None]:
        """Of dropout, for each part of a pass: (N, places); all None without seeds."""
        sizes = self.model.dropout_places()
        if dropout_seeds_N is None or self.model.config.dropout == 0:
            return [None for _ in sizes]
        return list(place_keys(dropout_seeds_N, sum(sizes)).split(sizes, dim=1))

    def stacked(self, part: "_Part") -> Program:
        """A part of a pass that is written for one model, for stacked weights and arrays."""

        def alone(weights: Tensors, *arrays: Tensor | None) -> Tensor:
            return functional_call(part, part.named(weights), arrays)

        def together(weights: Tensors, *arrays: Tensor | None) -> Tensor:
            if self.count > 1:
                given = tuple(None if array is None else 0 for array in arrays)
                return vmap(alone, in_dims=(dict.fromkeys(weights, 0), *given))(weights, *arrays)
            own = {name: value.squeeze(0) for name, value in weights.items()}
            return alone(own, *(None if array is None else array.squeeze(0) for array in arrays)).unsqueeze(0)

        return together


class _Programs:
    """The parts of a pass for stacked models, each wrapped by a compiler or by nothing."""

    def __init__(self, fleet: Fleet, wrap: Callable[[Program], Program]) -> None:
        model, sections = fleet.model, fleet.sections
        self.begin = wrap(fleet.stacked(_Begin(model, sections)))
        self.loss = wrap(fleet.stacked(_Loss(model, sections)))
        self.predict = wrap(fleet.stacked(_Predict(model, sections)))
        alike: dict[Any, Program] = {}
        self.layers: list[Program] = []
        """For each distinct encoding; those of equal settings share one."""
        for index, encoding in enumerate(model.distinct_encodings()):
            kind = (type(encoding), encoding.config)
            if kind not in alike:
                alike[kind] = wrap(fleet.stacked(_Layer(model, sections, index)))
            self.layers.append(alike[kind])


def _leave_open(array: Tensor) -> Tensor:
    """The second size, rows or predictions, differs from step to step: the compiler must not take it for fixed."""
    torch._dynamo.maybe_mark_dynamic(array, 1)
    return array


class _Part(nn.Module):
    """A part of a pass, written for one model."""

    def __init__(self, model: Decoder, sections: dict[str, Section]) -> None:
        super().__init__()
        self.model = model
        self.sections = sections

    def named(self, weights: Tensors) -> Tensors:
        """The sections that this part is given, as weights under the names that they have here."""
        found: Tensors = {}
        for group, row_S in weights.items():
            found |= self.sections[group].named(row_S, f"model.{group}." if "." in group else "model.")
        return found


class _Begin(_Part):
    def forward(self, tokens_RT: Tensor, positions_RT: Tensor, keys: Tensor | None) -> Tensor:
        return self.model.begin(tokens_RT, positions_RT, keys)


class _Layer(_Part):
    """A block with its encoding. All layers of an encoding run through the same one, each with its own weights."""

    def __init__(self, model: Decoder, sections: dict[str, Section], encoding: int) -> None:
        super().__init__(model, sections)
        self.index = encoding

    def named(self, weights: Tensors) -> Tensors:
        found = self.sections["blocks.0"].named(weights["block"], "model.blocks.0.")
        if "encoding" in weights:
            name = f"encodings.{self.index}"
            found |= self.sections[name].named(weights["encoding"], f"model.{name}.")
        return found

    def forward(self, x_RTD: Tensor, segments_RT: Tensor, positions_RT: Tensor, keys: Tensor | None) -> Tensor:
        model = self.model
        places = Decoder.places(segments_RT, positions_RT, segments_RT, consecutive=True)
        encoding = model.distinct_encodings()[self.index]
        dropout = Dropout(model.config.dropout, keys, model.backend == "kernel")
        return model.blocks[0](x_RTD, encoding, places, dropout, backend=model.backend)


class _Loss(_Part):
    def logits(self, x_RTD: Tensor, predicting_P: Tensor, keys: Tensor | None) -> Tensor:
        return self.model.unembed(self.model.end(x_RTD, keys).flatten(0, 1)[predicting_P])

    def forward(self, x_RTD: Tensor, predicting_P: Tensor, targets_P: Tensor, keys: Tensor | None) -> Tensor:
        logits_PV = self.logits(x_RTD, predicting_P, keys)
        real_P = targets_P >= 0
        if not torch.compiler.is_compiling():
            chosen_P = logits_PV.gather(1, targets_P.clamp(min=0).long()[:, None])[:, 0]
        else:
            # By comparison, not by index: its gradient then needs no array of zeros to scatter into.
            wanted_PV = torch.arange(logits_PV.shape[1], device=targets_P.device) == targets_P[:, None]
            chosen_P = torch.where(wanted_PV, logits_PV, 0.0).sum(dim=-1)
        likelihood_P = torch.where(real_P, chosen_P - logits_PV.logsumexp(dim=-1), 0.0)
        return -likelihood_P.sum() / real_P.sum()


class _Predict(_Loss):
    def forward(self, x_RTD: Tensor, predicting_P: Tensor) -> Tensor:  # pyrefly: ignore
        return self.logits(x_RTD, predicting_P, None).argmax(dim=-1)
