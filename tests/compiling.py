"""Compiles kernels for a GPU that is not there: what Triton's interpreter forgives, its compiler does not."""

import importlib.util
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from conftest import INTERPRETED

compiles = pytest.mark.skipif(
    INTERPRETED or importlib.util.find_spec("triton") is None, reason="needs Triton, and not its interpreter"
)


def made(
    function: Any,
    kinds: Mapping[str, str],
    numbers: Mapping[str, Any],
    absent: Collection[str] = (),
    aligned: Collection[str] = (),
    **options: int,
) -> Any:
    """What becomes of a kernel on an H200, by the name of the language: `ttgir`, `ptx` and others.

    `kinds`: types of its parameters, `i32` where nothing is said; `numbers`: those that are known when it is compiled;
    `absent`: those that are None; `aligned`: those that 16 divides. `options` are the compiler's, such as `num_warps`.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    names = list(inspect.signature(function.fn).parameters)
    fixed = {(place,): numbers.get(name) for place, name in enumerate(names) if name in numbers or name in absent}
    signature = {name: "constexpr" if (place,) in fixed else kinds.get(name, "i32") for place, name in enumerate(names)}
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(names)
        if name in aligned and (place,) not in fixed
    }
    source = ASTSource(function, signature, constexprs=fixed, attrs=attributes)
    return compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm


def in_another_process(function: Callable[[], None]) -> None:
    """Calls a function of a file of tests: a compiler that breaks down takes its process with it."""
    code = f"from {function.__module__} import {function.__name__} as call; call()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
