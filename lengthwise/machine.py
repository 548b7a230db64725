"""What this machine has, so that what it cannot hold is refused before it is asked for."""

import os
from functools import cache
from pathlib import Path

from lengthwise.errors import UserError

GROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much a container may take."""


@cache
def memory() -> int:
    """Bytes that a process here can have at most."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in GROUPS:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found = min(found, int(text))
    return found


def require_memory(needed: float, what: str, advice: str) -> None:
    """`needed`: about how many bytes `what` takes at the least."""
    if needed > memory():
        raise UserError(f"{what} needs {_shown(needed)} of memory, and this machine has {_shown(memory())}; {advice}")


def _shown(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size < 2**60 else "more than 2^60 bytes"
