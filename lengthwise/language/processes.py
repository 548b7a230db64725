"""Processes that train one model together: one for each GPU, started by torchrun; or just this one."""

import atexit
import datetime
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from lengthwise.errors import RunError, UserError
from lengthwise.runtime import choose_device

PATIENCE = datetime.timedelta(hours=3)
"""How long processes wait for each other: one of them may be encoding a corpus."""


@dataclass(frozen=True)
class ProcessGroup:
    number: int = 0
    """Of this process, from 0; the first one writes."""
    count: int = 1

    @property
    def is_first(self) -> bool:
        return self.number == 0

    def part(self, rows: int) -> range:
        """Those of a step's rows that this process reads."""
        if rows % self.count:
            raise UserError(
                f"the {rows} rows of a step (batch_tokens / context) cannot be divided among {self.count} processes"
            )
        share = rows // self.count
        return range(self.number * share, (self.number + 1) * share)

    def add_up(self, value: Tensor) -> Tensor:
        """Over all processes, in place."""
        if self.count > 1:
            dist.all_reduce(value)
        return value

    def wait(self) -> None:
        """Until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def agree(self, wanted: bool, device: torch.device) -> bool:
        """What the first process wants."""
        if self.count == 1:
            return wanted
        flag = torch.tensor([float(wanted and self.is_first)], device=device)
        return bool(self.add_up(flag) > 0)


@contextmanager
def together(device: str) -> Iterator[tuple[ProcessGroup, torch.device]]:
    """Joins the processes that torchrun has started, each with a GPU of its own; alone where it has started none."""
    # Threads of a process group that live when Python ends may wait for it, and then the whole process is aborted
    # (SIGABRT): after a complete run, one time in a hundred. What holds groups, a sharded model or an exception with
    # all its frames, is garbage in a circle by then.
    atexit.unregister(gc.collect)
    atexit.register(gc.collect)
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ProcessGroup(), choose_device(device)
        return
    local = int(os.environ["LOCAL_RANK"])
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = choose_device(f"cuda:{local}" if device == "cuda" else device)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    # gloo too: it carries what lies on the CPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield ProcessGroup(dist.get_rank(), dist.get_world_size()), chosen
    except RuntimeError as error:
        if "by peer" not in str(error):  # gloo's "Connection closed by peer", or reset
            raise
        raise RunError(f"process {local} stops because another one did, which says why") from error
    finally:
        dist.destroy_process_group()
