"""Where the time of a step goes, kernel by kernel."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiled

from lengthwise.bench.training import session
from lengthwise.bench.workload import Workload

STEPS = 8
"""That are looked at; the figures are their means."""


@dataclass(frozen=True)
class KernelTimes:
    """One kind of kernel (an operation of PyTorch on a CPU) in a step."""

    kernel: str
    calls: float
    microseconds: float
    share: float
    """Of the sum over all kernels. Streams run side by side, so a step takes less than the sum."""


def profile_step(workload: Workload, device: torch.device) -> Iterator[KernelTimes]:
    """Steps launched kernel by kernel, the longest kernels first: graphs would replay the same ones."""
    with session(workload, device) as fleet:
        for first in range(0, 2 * STEPS, STEPS):
            fleet.do(fleet.source.steps(first, first + STEPS))
        fleet.updater.launch_only()
        steps = fleet.source.steps(2 * STEPS, 3 * STEPS)
        fleet.do(steps)
        kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
        with profiled(activities=[kind], acc_events=True) as seen:
            fleet.do(steps)
        times = []
        for event in seen.key_averages():
            spent = event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total
            if spent > 0:
                times.append((spent / STEPS, event.count / STEPS, event.key))
        total = sum(spent for spent, _, _ in times)
        for spent, calls, name in sorted(times, reverse=True):
            yield KernelTimes(name, calls, spent, spent / total)
