"""Executes a study in this process, one fleet after the other."""

from collections.abc import Callable
from pathlib import Path

import torch

from lengthwise.engine.plan import FleetPlan, plan
from lengthwise.engine.training import Progress, Trainer, choose_device
from lengthwise.records.directory import StudyDirectory
from lengthwise.study import Study

Watch = Callable[[int, int, FleetPlan], Progress]
"""Given the number of a fleet, the number of fleets and its plan: who watches its training."""

LARGEST_FLEET = {"cpu": 10, "cuda": 64}


def run_study(
    study: Study, out: Path, device: str = "auto", watch: Watch | None = None, save_every: float = 30.0
) -> int:
    """Trains and evaluates what is not finished yet; returns the number of fleets that it worked on.

    Everything that can be wrong with the settings is found before anything is written.
    """
    chosen = choose_device(device)
    directory = StudyDirectory(out)
    fleets = plan(study.runs(), directory, LARGEST_FLEET[chosen.type])
    with directory.lock():
        directory.agree(study.description())
        # Again under the lock: another process may have finished some of them in the meantime.
        fleets = plan(study.runs(), directory, LARGEST_FLEET[chosen.type])
        for number, fleet in enumerate(fleets):
            progress = watch(number, len(fleets), fleet) if watch else Progress()
            Trainer(fleet, directory, chosen, progress, save_every).run()
            if chosen.type == "cuda":
                torch.cuda.empty_cache()
    return len(fleets)
