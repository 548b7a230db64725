"""A model divided among the processes (FSDP2), for those that do not fit: slower, and a fraction of the memory.

What a block computes is forgotten and computed again in the backward pass (gradient checkpointing).
"""

import shutil
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from lengthwise.errors import UserError
from lengthwise.kernels.ops import Stream
from lengthwise.language.learner import Learner, summed_loss
from lengthwise.language.processes import ProcessGroup
from lengthwise.language.settings import LanguageSettings
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.layer import LayerPass
from lengthwise.records.directory import make_folder
from lengthwise.records.extension_schema import SHARDED
from lengthwise.records.files import read_json, write_json
from lengthwise.training.fleet import Batch
from lengthwise.training.state import load_tensors, save_tensors
from lengthwise.training.update import Measured, Steps

NEWEST = "sharded.json"
"""Says which folder holds the newest complete state."""


class ShardedLearner(Learner):
    def __init__(
        self,
        model: Decoder,
        settings: LanguageSettings,
        processes: ProcessGroup,
        device: torch.device,
        first: Mapping[str, Tensor] = {},
    ) -> None:
        """`first`: weights to begin with, by the decoder's names; the others have their initial values."""
        recipe = settings.training.recipe
        super().__init__(model, device)
        self.processes, self.clip = processes, recipe.clip
        self.drops = settings.model.dropout > 0
        # It is one, and nobody changes it in place.
        warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
        self.own_group = not dist.is_initialized()
        if self.own_group:  # a process alone is a group of one
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        initialize(model, settings.seed)
        model.load_state_dict(first, strict=False)
        model.to(device)
        self.mesh = init_device_mesh(device.type, (processes.count,))
        half = recipe.precision_on(device.type) == "bf16"
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else MixedPrecisionPolicy()
        for block in model.blocks:
            block.forward = _forgetting(block.forward)
            fully_shard(block, mesh=self.mesh, mp_policy=policy)
        fully_shard(model, mesh=self.mesh, mp_policy=policy)
        self.named = dict(model.named_parameters())
        # As everywhere: weight decay neither on norms nor on anything of the encoding.
        decays = {name: weight.ndim > 1 and not name.startswith("encodings.") for name, weight in self.named.items()}
        groups = [
            {"params": [self.named[name] for name in decays if decays[name] == wanted], "weight_decay": decay}
            for wanted, decay in ((True, recipe.weight_decay), (False, 0.0))
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], betas=(recipe.beta1, recipe.beta2), eps=recipe.epsilon
        )
        for weight in self.named.values():
            self.optimizer.state[weight] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }

    def run(self, steps: Steps) -> Measured:
        return Measured(torch.stack([self._update(steps, index) for index in range(len(steps))]))

    def _update(self, steps: Steps, index: int) -> Tensor:
        batch = Batch.of(steps.batches, index, self.device)
        targets_RT = batch.targets_NP.view(batch.tokens_NRT.shape[1:])
        seed = torch.tensor(steps.seeds_KN[index, 0], device=self.device) if self.drops else None
        logits_RTV = self.model(batch.tokens_NRT[0], segments_BT=batch.segments_NRT[0], dropout_seed=seed)
        loss = summed_loss(logits_RTV, targets_RT)
        totals_2 = torch.stack([(targets_RT >= 0).sum().float(), loss.detach()])
        self.processes.add_up(totals_2)
        # Gradients are averaged over processes; what counts is the mean over all targets.
        (loss * (self.processes.count / totals_2[0])).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.named.values(), self.clip)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        for group in self.optimizer.param_groups:
            group["lr"] = float(steps.rates_KN[index, 0])
        if bool(norm.isfinite()):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack([totals_2[1] / totals_2[0], norm])[:, None].cpu()

    def logits(self, tokens_RT: Tensor, segments_RT: Tensor) -> Tensor:
        return self.model(tokens_RT, segments_BT=segments_RT)

    def weights(self) -> dict[str, Tensor]:
        return {name: _full(weight.detach()).to("cpu", copy=True) for name, weight in self.named.items()}

    def save(self, folder: Path) -> None:
        """Each process its own part, in a folder for each step; then the first one says that all is there."""
        place = folder / f"sharded-{self.step}"
        make_folder(place)
        parts = {name: part.to("cpu", copy=True).contiguous() for name, part in self._parts().items()}
        save_tensors(place / self._file, parts, {"step": self.step})
        self.processes.wait()
        if self.processes.is_first:
            newest = {"step": self.step, "seconds": self.seconds, "processes": self.processes.count}
            write_json(folder / NEWEST, newest)
            for other in folder.glob("sharded-*"):
                if other != place:
                    shutil.rmtree(other)

    def restore(self, folder: Path) -> str | None:
        if not (folder / NEWEST).exists():
            return None
        newest = read_json(folder / NEWEST, SHARDED)
        if newest["processes"] != self.processes.count:
            raise UserError(
                f"{folder} was begun with {newest['processes']} processes, which each hold a part of the model; "
                f"resume with as many, not with {self.processes.count}"
            )
        tensors, _ = load_tensors(folder / f"sharded-{newest['step']}" / self._file)
        with torch.no_grad():
            for name, part in self._parts().items():
                part.copy_(tensors[name])
        self.step, self.seconds = newest["step"], newest["seconds"]
        return None

    def forget(self, folder: Path) -> None:
        self.processes.wait()
        if self.processes.is_first:
            (folder / NEWEST).unlink(missing_ok=True)
            for place in folder.glob("sharded-*"):
                shutil.rmtree(place)

    def close(self) -> None:
        # Caches of DTensor keep the mesh for good, and it would keep the groups and their threads (see `together`).
        getattr(self.mesh, "_pg_registry", {}).clear()
        if self.own_group:
            dist.destroy_process_group()

    @property
    def _file(self) -> str:
        return f"part-{self.processes.number}.safetensors"

    def _parts(self) -> dict[str, Tensor]:
        """What this process holds of weights and moments, to be read or overwritten."""
        found = {f"weight.{name}": _local(weight.detach()) for name, weight in self.named.items()}
        for name, weight in self.named.items():
            found |= {f"{kind}.{name}": _local(value) for kind, value in self.optimizer.state[weight].items()}
        return found


def _forgetting(forward: Callable[..., Stream]) -> Callable[..., Stream]:
    """A block's forward pass that keeps only what it is given."""

    def pass_of_its_own(stream: Stream, here: LayerPass) -> Stream:
        return forward(stream, replace(here, ops=copy(here.ops)))  # which counts the places that drop

    return partial(checkpoint, pass_of_its_own, use_reentrant=False)


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _full(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value
