"""All hostile inputs of tests/fuzz_*.py, each in a process of its own: nothing may break, hang, swell or be written.

Each of those files has `cases(seed)`, which yields names and functions; a function raises AssertionError where the
promise is broken. `python tests/fuzz.py [--seed N] [--only WORD]`
"""

import argparse
import importlib
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

SECONDS, MEMORY = 20, 2**30
"""For a case, from outside; cases themselves allow less time."""
TOO_MUCH = f"memory: more than {MEMORY / 2**30:g} GB"


def verdict(case: Callable[[], None]) -> str:
    """What became of a case: empty where all is well."""
    reads, writes = os.pipe()
    taken = _resident(os.getpid())
    child = os.fork()
    if child == 0:
        _judge(case, reads, writes)
    os.close(writes)
    began, broken = time.monotonic(), ""
    while not (ended := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() - began > SECONDS:
            broken = f"hang: more than {SECONDS} seconds"
        if _resident(child) - taken > MEMORY:
            broken = TOO_MUCH
        if broken:
            os.kill(child, signal.SIGKILL)
            ended = os.wait4(child, 0)
            break
        time.sleep(0.002)
    with os.fdopen(reads) as pipe:
        said = pipe.read()
    if ended[2].ru_maxrss * 1024 - taken > MEMORY:
        broken = broken or TOO_MUCH
    return broken or ("" if said == "well" else said or "death: the process ended without a word")


def _resident(process: int) -> int:
    """Bytes of memory that it holds; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _judge(case: Callable[[], None], reads: int, writes: int) -> None:
    """In the child; never returns."""
    os.close(reads)
    said = "well"
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        case()
    except AssertionError as error:
        said = f"broken: {error}"
    except BaseException as error:
        said = f"traceback: {type(error).__name__}: {error}"
    os.write(writes, said[:4000].encode(errors="replace"))
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    chosen = parser.parse_args()
    here = Path(__file__).parent
    sys.path.insert(0, str(here))
    total, bad = 0, 0
    for file in sorted(here.glob("fuzz_*.py")):
        counts: Counter[str] = Counter()
        began = time.monotonic()
        for name, case in importlib.import_module(file.stem).cases(chosen.seed):
            if chosen.only not in name:
                continue
            said = verdict(case)
            counts[said.split(":")[0] or "well"] += 1
            if said:
                print(f"{file.stem}: {name}\n    {said[:400]}", flush=True)
        told = ", ".join(f"{kind} {count:,}" for kind, count in counts.most_common())
        print(f"{file.stem}: {counts.total():,} cases in {time.monotonic() - began:.0f} s: {told}", flush=True)
        total, bad = total + counts.total(), bad + counts.total() - counts["well"]
    print(f"{total:,} hostile inputs, {bad:,} got through")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
