"""A SLURM array whose tasks all give the same command on the same folder; claims share the work among them."""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lengthwise import registry
from lengthwise.door import is_odd, visible
from lengthwise.errors import RunError, UserError
from lengthwise.executors.executor import Executor, Work
from lengthwise.records.directory import make_folder
from lengthwise.records.files import write_text

MOST_TASKS = 16
"""Array tasks where nobody says how many: one for each fleet, at most so many."""
TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<numbers>\d+(?::\d+){0,2})")
SAVING = 2.0
"""Minutes of the time limit that are kept for the start of the task and for saving, or a tenth, where that is less."""


class Slurm(Executor):
    """As tasks of a SLURM array; writes the script into the study's folder and submits it with sbatch."""

    name = "slurm"
    elsewhere = True
    hands_over = True

    @dataclass(frozen=True)
    class Config:
        partition: str = ""
        time: str = ""
        """Limit of an array task as SLURM writes it: 90 (minutes), 4:00:00, 1-12; it saves before that is over."""
        gpus: int = 0
        """Of an array task."""
        cpus: int = 1
        """Of an array task; without GPUs as many fleets are trained side by side."""
        tasks: int = 0
        """Of the array; 0 for one for each fleet, at most 16."""
        lines: tuple[str, ...] = ()
        """Further options of sbatch, such as --account=abc or --mem=16G."""
        setup: tuple[str, ...] = ()
        """Lines of bash before the command, such as module load cuda."""
        print: bool = False
        """Print the script; write and submit nothing."""

    def device(self, wanted: str) -> str:
        if wanted.startswith("cuda:"):
            raise UserError(f"SLURM chooses the GPUs of each task; use --device cuda instead of {wanted}")
        if wanted == "cuda" and not self.config.gpus:
            raise UserError("--device cuda needs GPUs: add --executor-set gpus=1")
        return wanted if wanted != "auto" else "cuda" if self.config.gpus else "cpu"

    def execute(self, work: Work) -> None:
        if not work.command:
            raise UserError("SLURM runs commands: use `lengthwise run STUDY --executor slurm`")
        text = self.script(work)
        if self.config.print:
            work.say(text.rstrip("\n"))
            return
        if not work.job.fleets:
            work.say(f"Nothing left to do: {work.job.directory.path}")
            return
        file = work.job.directory.path.resolve() / "slurm" / "run.sh"
        make_folder(file.parent)
        write_text(file, text)
        work.say(f"Wrote {file}")
        sbatch = shutil.which("sbatch")
        if sbatch is None:
            work.say(f"sbatch is not on this machine. Where it is, submit the script: sbatch {shlex.quote(str(file))}")
            return
        done = subprocess.run([sbatch, str(file)], capture_output=True, text=True)
        if done.returncode:
            said = visible(" ".join(done.stderr.split()), 500) or f"exit code {done.returncode}"
            raise RunError(f"sbatch refused {file}: {said}")
        work.say(visible(done.stdout.strip(), 500))
        work.say(
            f"Output of its tasks: {file.parent}/*.log. The same command submits what is left when they have ended."
        )

    def script(self, work: Work) -> str:
        """What sbatch is given: an array whose tasks need not know of each other."""
        config, folder = self.config, work.job.directory.path.resolve() / "slurm"
        self._refuse()
        options = [
            f"--job-name=lengthwise-{re.sub(r'[^A-Za-z0-9._-]', '_', work.study.name)}",
            f"--array=0-{(config.tasks or max(1, min(len(work.job.fleets), MOST_TASKS))) - 1}",
            "--requeue",
            "--open-mode=append",
            # %A: the job, %a: the task; a % in the folder's own name is written twice.
            f'--output="{str(folder).replace("%", "%%")}/%A_%a.log"',
            f"--cpus-per-task={config.cpus}",
            *([f"--gpus-per-task={config.gpus}", "--ntasks=1"] if config.gpus else []),
            *([f"--partition={config.partition}"] if config.partition else []),
            # SIGTERM goes to the command itself: it saves and ends.
            *([f"--time={config.time}", "--signal=B:TERM@60"] if config.time else []),
            *config.lines,
        ]
        device = work.job.device.type
        words = [*program(), *work.command, "--device", device]
        words += ["--workers", str(config.gpus if device == "cuda" else config.cpus)]
        minutes = work.claims.limit.minutes
        if config.time:
            whole = minutes_of(config.time)
            minutes = min(minutes, whole - min(SAVING, whole / 10))
        words += ["--minutes", f"{minutes:g}"] if math.isfinite(minutes) else []
        plugins = os.environ.get(registry.VARIABLE, "")
        return "\n".join(
            [
                "#!/bin/bash",
                *(f"#SBATCH {option}" for option in options),
                "# Any number of tasks may give this command at once: each takes what nobody works on.",
                *config.setup,
                f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
                *([f"export {registry.VARIABLE}={shlex.quote(plugins)}"] if plugins else []),
                f"exec {shlex.join(words)}",
                "",
            ]
        )

    def _refuse(self) -> None:
        config = self.config
        for name in ("gpus", "tasks"):
            if getattr(config, name) < 0:
                raise UserError(f"--executor-set {name}={getattr(config, name)} must be 0 or more")
        if config.cpus < 1:
            raise UserError(f"--executor-set cpus={config.cpus} must be 1 or more")
        for text in (config.partition, config.time, *config.lines, *config.setup):
            if any(map(is_odd, text)):
                raise UserError(f"{text!r} must be one line of the script")
        for line in config.lines:
            if not line.startswith("-"):
                raise UserError(f"lines are options of sbatch, such as --account=abc, not {line!r}")


def program() -> list[str]:
    """How this program is called from anywhere."""
    script = Path(sys.executable).with_name("lengthwise")
    return [str(script)] if script.exists() else [sys.executable, "-c", "from lengthwise.cli import main; main()"]


def minutes_of(time: str) -> float:
    """Of a limit as SLURM writes it: 90 (minutes), 90:00, 1:30:00, or days-hours with :minutes and :seconds."""
    found = TIME.fullmatch(time)
    if found is None:
        raise UserError(f"{time!r} is no time of SLURM; write 90 (minutes), 4:00:00 or 1-12 (days-hours)")
    numbers = [int(number) for number in found["numbers"].split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        hours += 24 * int(found["days"])
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    total = 60 * hours + minutes + seconds / 60
    if not total:
        raise UserError("a time of 0 is no limit in SLURM; leave it out")
    return total
