"""Runs the tests of our kernels in Triton's interpreter, on the CPU.

It must be asked for before Triton is imported, so each file of tests runs in a process of its own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import INTERPRETED

TESTS = Path(__file__).parent
FILES = [
    *(
        "test_kernel",
        "test_kernel_biases",
        "test_kernel_normalizers",
        "test_kernel_parts",
        "test_head_network",
        "test_short_convolution",
        "test_kernel_declarations",
        "test_kernel_fleet",
        "test_capture",
    ),
    *("test_norm_kernel", "test_embedding_kernel", "test_loss_kernel", "test_decoding_kernels"),
    *("test_optimizer_kernel", "test_feed_forward_kernel", "test_running_sums_kernel", "test_gates_kernel"),
]


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a minute, but on a busy machine
@pytest.mark.skipif(INTERPRETED, reason="this is such a process")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("file", FILES)
def test_kernels_in_a_process_of_their_own(file: str) -> None:
    environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", str(TESTS / f"{file}.py")]
    done = subprocess.run(
        command,
        env=environment | {"TRITON_INTERPRET": "1"},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
