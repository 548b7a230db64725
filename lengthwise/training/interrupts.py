"""Being asked to stop: what was reached is saved first."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ASKING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def noticing_interrupts(note: Callable[[str], None], until: float = math.inf) -> Iterator[Callable[[], bool]]:
    """Within, the first Ctrl-C (or SIGTERM) is a question; the second one does what it always does.

    Yields a function that says whether it was asked, or the time is up (`until`, in seconds of `time.monotonic`); it
    may be called afterwards too, so that no question is lost. Whoever heeds it raises KeyboardInterrupt when all is
    saved. Only the main thread of a program hears of signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: time.monotonic() >= until
        return
    handlers = {number: signal.getsignal(number) for number in ASKING}
    # A shell without job control starts `command &` with SIGINT ignored: the Ctrl-C of whatever runs in the foreground
    # reaches the whole group, and is not meant for it. nohup does the same with SIGHUP. So what was ignored stays
    # ignored; such a command is asked to stop with SIGTERM, which is what `kill` sends.
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    asked = threading.Event()

    def hear(_number: int, _frame: FrameType | None) -> None:
        _restore(before)
        asked.set()
        note("stopping as soon as these steps are done and saved; Ctrl-C again stops at once")

    for number in before:
        signal.signal(number, hear)
    try:
        yield lambda: asked.is_set() or time.monotonic() >= until
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
