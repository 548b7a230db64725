"""Where a number comes from: code, versions, hardware."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def provenance(device: str) -> dict[str, Any]:
    """Recorded with every run before its first step. `device`: its name, for example `NVIDIA H200`."""
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {
            "python": platform.python_version(),
            **{name: installed_version(name) for name in ("lengthwise", "torch", "numpy", "safetensors")},
        },
        "hardware": {"device": device, "processors": os.cpu_count(), "machine": platform.machine()},
    }


def installed_version(package: str) -> str:
    """Its version, or `not installed`."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit of this code, `+changes` where files differ from it, or `unknown` outside a checkout."""
    here = Path(__file__).parents[1]  # the package

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
