"""Models of equal shape side by side: one set of stacked weights, one program.

The decoder is written for one model; `torch.func.vmap` runs it for all. Weights live in one matrix, a row per model,
so that clipping, optimizer and checkpoints are row operations.
Shape letters: N models, W weights of one model, R rows, T tokens, P predicted tokens, V vocabulary rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from lengthwise.engine.batches import Batch
from lengthwise.model.build import initialize
from lengthwise.model.decoder import Decoder

Tensors = dict[str, Any]
"""Tensors, or None, by name."""


def to_device(batch: Batch, device: torch.device) -> Tensors:
    """The arrays of a batch as tensors under their names; what it leaves out stays None."""
    arrays = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: None if array is None else torch.from_numpy(array).to(device) for name, array in arrays.items()}


class Fleet:
    """N models that share `model`'s architecture; `model` itself lends only its code."""

    def __init__(self, model: Decoder, count: int, device: torch.device, precision: str = "fp32") -> None:
        self.model = model.to(device)
        self.count = count
        self.device = device
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        # The fused kernel has no rule for stacked models; a lone model takes it.
        model.fused = count == 1
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        self.matrix_NW = torch.zeros(count, sum(shape.numel() for shape in self.shapes.values()), device=device)
        self.leaves = {name: leaf.requires_grad_() for name, leaf in self.unflatten(self.matrix_NW).items()}

    def unflatten(self, matrix_NW: Tensor) -> Tensors:
        """Views of the rows under the names of the decoder's weights, each (N, *shape)."""
        parts = matrix_NW.detach().split([shape.numel() for shape in self.shapes.values()], dim=1)
        return {name: part.unflatten(1, shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def initialize(self, seeds: Sequence[int]) -> None:
        with torch.no_grad():
            for row, seed in enumerate(seeds):
                initialize(self.model, seed)
                values = [dict(self.model.named_parameters())[name].reshape(-1) for name in self.shapes]
                self.matrix_NW[row] = torch.cat(values)

    def decays(self) -> Tensor:
        """(W,): 1 where weight decay applies. As published: not to norms, nor to anything of the encoding."""
        parts = [
            torch.full((shape.numel(),), float(len(shape) > 1 and not name.startswith("encodings.")))
            for name, shape in self.shapes.items()
        ]
        return torch.cat(parts).to(self.device)

    def row(self, matrix_NW: Tensor, index: int) -> Tensors:
        """One model's weights, copied to the CPU, for a checkpoint of its own."""
        return {name: value[0].cpu().clone() for name, value in self.unflatten(matrix_NW[index : index + 1]).items()}

    def gradients(self, batch: Tensors, dropout_seeds_N: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean loss of each model on its own examples (N,) and its gradient (N, W)."""
        losses = self._each(self._loss, self.leaves, batch, dropout_seeds_N)
        # The models are independent, so the gradient of the sum holds every model's own gradient.
        gradients = torch.autograd.grad(losses.sum(), list(self.leaves.values()))
        return losses.detach(), torch.cat([g.flatten(1) for g in gradients], dim=1)

    def predictions(self, matrix_NW: Tensor, batch: Tensors) -> Tensor:
        """The most likely token (N, P) at every predicted place."""
        with torch.no_grad():
            return self._each(self._predict, self.unflatten(matrix_NW), batch, None)

    def _each(
        self, function: Callable[..., Tensor], weights: Tensors, batch: Tensors, dropout_seeds_N: Tensor | None
    ) -> Tensor:
        """`function(weights, batch, seed)` for every model."""
        arguments = (weights, batch, {"seed": dropout_seeds_N})
        if self.count > 1:
            given = tuple({name: 0 if value is not None else None for name, value in a.items()} for a in arguments)
            return vmap(function, in_dims=given)(*arguments)
        alone = [{name: None if value is None else value[0] for name, value in a.items()} for a in arguments]
        return function(*alone)[None]

    def _logits(self, weights: Tensors, batch: Tensors, dropout_seed: Tensor | None) -> Tensor:
        cast = {f"model.{name}": value.to(self.dtype) for name, value in weights.items()}
        tokens, segments, positions = batch["tokens_NRT"], batch["segments_NRT"], batch["positions_NRT"]
        arguments = (tokens, segments, positions, batch["predicting_NP"], dropout_seed)
        return functional_call(_Predict(self.model), cast, arguments)

    def _loss(self, weights: Tensors, batch: Tensors, seed: dict[str, Tensor | None]) -> Tensor:
        logits_PV = self._logits(weights, batch, seed["seed"])
        targets_P, weights_P = batch["targets_NP"], batch["weights_NP"]
        likelihood_P = logits_PV.gather(1, targets_P[:, None])[:, 0] - logits_PV.logsumexp(dim=-1)
        return -(likelihood_P * weights_P).sum() / weights_P.sum()

    def _predict(self, weights: Tensors, batch: Tensors, seed: dict[str, Tensor | None]) -> Tensor:
        return self._logits(weights, batch, None).argmax(dim=-1)


class _Predict(torch.nn.Module):
    """The decoder, with only the chosen states sent through the output layer."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens_RT: Tensor,
        segments_RT: Tensor | None,
        positions_RT: Tensor | None,
        predicting_P: Tensor,
        dropout_seed: Tensor | None,
    ) -> Tensor:
        places = self.model.places(tokens_RT, positions_RT, segments_RT)
        hidden = self.model.hidden(tokens_RT, places, dropout_seed=dropout_seed)
        return self.model.unembed(hidden.flatten(0, 1)[predicting_P])
