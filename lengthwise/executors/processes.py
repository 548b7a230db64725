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
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

from lengthwise.door import visible
from lengthwise.errors import RunError, UserError
from lengthwise.executors.executor import Executor, Work
from lengthwise.runtime import Listener
from lengthwise.training.interrupts import noticing_interrupts
from lengthwise.training.plan import FleetPlan


class Processes(Executor):
    """In worker processes on this machine, each training one fleet after the other."""

    name = "processes"

    def execute(self, work: Work) -> None:
        run_in_workers(work, max(1, min(work.claims.left(), work.job.workers)))


def run_in_workers(work: Work, workers: int) -> None:
    """Trains all fleets; the first error of any worker stops the others and is raised here.

    Workers take turns on the devices: the first is on the first one, and so on.

    Asked to stop, it lets the workers save what they have reached, then raises KeyboardInterrupt.
    """
    claims, devices = work.claims, [str(each) for each in work.job.devices]
    total = claims.left()
    errors: Queue[Exception] = Queue()
    stopping = threading.Event()
    setting = {
        "study": work.study.table(),
        "folder": str(claims.directory.path),
        "save_every": work.save_every,
        "deterministic": work.deterministic,
    }
    processes = [_start() for _ in range(workers)]
    greeted: set[int] = set()
    """Workers that were told what they work on."""

    def train(number: int, fleet: FleetPlan, listener: Listener) -> None:
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
                with claims.next() as (place, fleet):
                    if fleet is None:
                        return
                    listener = work.listener(place, total, fleet)
                    train(number, fleet, listener)
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
        with noticing_interrupts(lambda text: None) as interrupted:
            for thread in threads:
                # With a time limit, so that signals are heard.
                while thread.is_alive() and not interrupted() and not claims.limit.is_over:
                    thread.join(timeout=0.2)
        if interrupted() or claims.limit.is_over:
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
