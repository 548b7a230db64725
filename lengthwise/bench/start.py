"""Start-up in a fresh process: from nothing, and again with the compiled kernels that the first one left.

Run as a program it is that process: it reads a workload as JSON, begins, and writes the seconds as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lengthwise.bench.workload import Workload
from lengthwise.errors import RunError

CACHES = {"TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda"}


@dataclass(frozen=True)
class StartTimes:
    """One process."""

    cache: str
    """`cold` or `warm`."""
    process_seconds: float
    """From the start of the process to its end after the first step: Python, imports, device and all."""
    start_up_seconds: float
    """From the settings to the end of the first step."""
    note: str


def time_start(workload: Workload, device: str) -> Iterator[StartTimes]:
    """Two processes, one after the other, that share a cache which was empty before the first."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: str(Path(folder) / sub) for name, sub in CACHES.items()}
        for cache in ("cold", "warm"):
            start = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "lengthwise.bench.start"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **caches},
            )
            request = json.dumps({"workload": asdict(workload), "device": device})
            out, error = process.communicate(request)
            seconds = time.perf_counter() - start
            if process.returncode:
                raise RunError(f"the process that was timed failed: {error.strip().splitlines()[-1:]}")
            told: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
            yield StartTimes(cache, seconds, told["start_up_seconds"], told["note"])


def main() -> None:
    import torch

    from lengthwise.bench.training import session

    request = json.loads(sys.stdin.read())
    with session(Workload(**request["workload"]), torch.device(request["device"])) as fleet:
        fleet.first_step()
        answer = {"start_up_seconds": fleet.start_up_seconds, "note": "; ".join(fleet.notes)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
