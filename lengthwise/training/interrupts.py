"""Being asked to stop: what was reached is saved first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ASKING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def noticing_interrupts(note: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Within, the first Ctrl-C (or SIGTERM) is a question; the second one does what it always does.

    Yields a function that says whether it was asked; it may be called afterwards too, so that no question is lost.
    Whoever heeds it raises KeyboardInterrupt when all is saved. Only the main thread of a program hears of signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
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
        yield asked.is_set
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
