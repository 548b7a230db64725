"""Several worker processes, each training one fleet after the other; the parent hands them out and watches.

Parent and worker speak in lines of JSON. A worker whose parent is gone, however it went, reads the end of its input
and leaves at once, so that a killed command never leaves anyone behind who still writes.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

from lengthwise import configuration
from lengthwise.door import visible
from lengthwise.errors import RunError, UserError
from lengthwise.executors.claims import Claims
from lengthwise.runtime import Listener
from lengthwise.study import Study
from lengthwise.training.interrupts import noticing_interrupts
from lengthwise.training.plan import FleetPlan

Watch = Callable[[int, int, FleetPlan], Listener]
"""Given the number of a fleet, the number of fleets and its plan: who watches its training."""


def run_in_workers(
    study: Study,
    claims: Claims,
    devices: Sequence[str],
    save_every: float,
    workers: int,
    watch: Watch | None,
    deterministic: bool = False,
) -> None:
    """Trains all fleets; the first error of any worker stops the others and is raised here.

    Workers take turns on the devices: the first is on the first one, and so on.

    Asked to stop, it lets the workers save what they have reached, then raises KeyboardInterrupt.
    """
    total = claims.left()
    errors: Queue[Exception] = Queue()
    stopping = threading.Event()
    setting = {
        "study": configuration.table(study),
        "folder": str(claims.directory.path),
        "save_every": save_every,
        "deterministic": deterministic,
    }
    processes = [_start() for _ in range(workers)]
    greeted: set[int] = set()
    """Workers that were told what they work on."""

    def work(number: int, fleet: FleetPlan, listener: Listener) -> None:
        """In worker `number`; one that dies is replaced, once for each fleet."""
        message = {"runs": [run.fingerprint for run in fleet.runs]}
        for again in (False, True):
            try:
                if number not in greeted:
                    greeted.add(number)
                    _send(processes[number], {**setting, "device": devices[number % len(devices)]})
                _send(processes[number], message)
                _follow(processes[number], listener)
                return
            except WorkerDied as error:
                if again or stopping.is_set() or not errors.empty():
                    raise
                listener.note(f"{error}; trying {fleet.name} once more in a new process")
                greeted.discard(number)
                processes[number] = _start()

    def serve(number: int) -> None:
        try:
            while errors.empty() and not stopping.is_set():
                with claims.next() as fleet:
                    if fleet is None:
                        return
                    listener = watch(claims.worked - 1, max(total, claims.worked), fleet) if watch else Listener()
                    work(number, fleet, listener)
                    listener.done()
        except Exception as error:
            if stopping.is_set():
                return  # it ended because it was asked to
            errors.put(error)
            for other in processes:
                other.kill()

    threads = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(workers)]
    try:
        for thread in threads:
            thread.start()
        # What is noted is what the workers say when they are asked.
        with noticing_interrupts(lambda text: None) as asked_to_stop:
            for thread in threads:
                while thread.is_alive() and not asked_to_stop():  # with a time limit, so that signals are heard
                    thread.join(timeout=0.2)
        if asked_to_stop():
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        stopping.set()
        _ask_to_stop(processes)
        raise
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if not errors.empty():
        raise errors.get()


def _ask_to_stop(processes: list[subprocess.Popen[str]]) -> None:
    """Lets workers save what they have reached, unless there is another Ctrl-C."""
    # SIGTERM, for it also ends, without a traceback, one that has nothing to save yet. Workers ignore what is ignored
    # here; then it was the other signal that asked.
    ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    for process in processes:
        process.send_signal(signal.SIGINT if ignored else signal.SIGTERM)
    for process in processes:
        process.wait()


def _start() -> subprocess.Popen[str]:
    environment = dict(os.environ)
    package = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    words = [sys.executable, "-m", "lengthwise.executors.worker"]
    # A session of its own: Ctrl-C is the parent's to handle.
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True)


def _send(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
    except OSError:  # a pipe without an end; elsewhere that would be taken for a closed terminal
        raise _died(process) from None


def _follow(process: subprocess.Popen[str], listener: Listener) -> None:
    """Passes on what a worker says, until its fleet is finished."""
    assert process.stdout is not None
    for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:  # cut off in the middle of a line
            break
        match message["kind"]:
            case "step":
                listener.step(message["step"], message["steps"])
            case "rows":
                listener.rows(message["run"], message["rows"])
            case "note":
                listener.note(message["text"])
            case "finished":
                return
            case "error":
                raise (RunError if message["exit_code"] == 1 else UserError)(message["text"])
            case "died":
                raise _died(process, message["text"])
    raise _died(process)


class WorkerDied(RunError):
    """A worker ended without being asked to."""


def _died(process: subprocess.Popen[str], reason: str = "") -> WorkerDied:
    try:
        code = process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if not reason:
        reason = f"exit code {code}"
        with suppress(ValueError):
            reason = f"killed by {signal.Signals(-code).name}" if code < 0 else reason
        reason += ", perhaps for want of memory" * (code == -signal.SIGKILL)
    told = "run the same command again to resume, with --workers 1 to see more"
    return WorkerDied(f"a worker process ended unexpectedly ({visible(reason, 500)}); {told}")
