"""A worker process: reads which fleets to train, trains them, says how it goes. Started by `processes`."""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

import torch

from lengthwise.errors import UserError
from lengthwise.executors.local import be_deterministic, train_fleet
from lengthwise.records.directory import StudyDirectory
from lengthwise.runtime import Listener, Row
from lengthwise.study import study_from
from lengthwise.training.plan import FleetPlan

SAY_EVERY = 0.2
"""Seconds between two messages about steps."""


def main() -> None:
    say = _Speaker()
    requests = _requests()
    try:
        work(say, requests)
    except UserError as error:
        say.line({"kind": "error", "text": str(error), "exit_code": error.exit_code})
    except Exception as error:  # of a device, or ours: this process may be beyond repair, the next one need not be
        said = " ".join(f"{type(error).__name__}: {error}".split())
        say.line({"kind": "died", "text": said})


def work(say: "_Speaker", requests: "Queue[dict[str, Any]]") -> None:
    """Trains whatever it is told to, one fleet after the other."""
    setting = requests.get()
    if setting["deterministic"]:
        be_deterministic()
    study = study_from(setting["study"])
    by_fingerprint = {run.fingerprint: run for run in study.runs()}
    directory, device = StudyDirectory(Path(setting["folder"])), torch.device(setting["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)  # our kernels are launched where PyTorch is
    listener = Listener(step=say.step, note=say.note, rows=say.rows)
    while True:
        fleet = FleetPlan(tuple(by_fingerprint[fingerprint] for fingerprint in requests.get()["runs"]))
        train_fleet(fleet, directory, device, listener, setting["save_every"])
        say.line({"kind": "finished"})


class _Speaker:
    """Writes messages for the parent; steps not too often."""

    def __init__(self) -> None:
        self.last = 0.0
        self.out = sys.stdout
        sys.stdout = sys.stderr  # what anyone else prints must not disturb the messages

    def line(self, message: dict[str, Any]) -> None:
        self.out.write(json.dumps(message) + "\n")
        self.out.flush()

    def step(self, step: int, steps: int) -> None:
        if time.monotonic() - self.last > SAY_EVERY or step == steps:
            self.last = time.monotonic()
            self.line({"kind": "step", "step": step, "steps": steps})

    def rows(self, run: str, rows: list[Row]) -> None:
        self.line({"kind": "rows", "run": run, "rows": rows})

    def note(self, text: str) -> None:
        self.line({"kind": "note", "text": text})


def _requests() -> "Queue[dict[str, Any]]":
    """The parent's messages; when its end of the pipe closes, this process leaves at once."""
    queue: Queue[dict[str, Any]] = Queue()

    def read() -> None:
        for line in sys.stdin:
            queue.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return queue


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # the parent's, passed on: it says all there is to say
        main()
