"""The commands `run` and `track`: a study is trained, and shown in a tracker."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lengthwise import registry
from lengthwise.cli import completion
from lengthwise.cli.next_steps import after_run
from lengthwise.cli.options import Part, Runs, Settings
from lengthwise.cli.paths import named_path
from lengthwise.cli.printing import messages, say, warn
from lengthwise.errors import UserError

if TYPE_CHECKING:
    from lengthwise.runtime import Listener


def run(
    study: Annotated[
        str,
        typer.Argument(help="A study's name (see `list studies`) or a TOML file.", autocompletion=completion.studies),
    ],
    out: Annotated[
        Path | None, typer.Option(parser=named_path, metavar="PATH", help="Folder for the runs; by default runs/STUDY.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", autocompletion=completion.devices)] = "auto",
    settings: Settings = [],  # noqa: B006
    workers: Annotated[
        int, typer.Option(min=0, help="Processes side by side; 0: one per core on a CPU, one per GPU.")
    ] = 0,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between saved states.")] = 30.0,
    only: Part = "",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Bitwise reproducible on a GPU.")] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0, help="Save and stop after so many minutes; begin only what can be finished by then, as far as known."
        ),
    ] = None,
    finished_in: Annotated[
        list[Path],
        typer.Option(
            metavar="FOLDER", help="Results whose runs are not to be trained again.", autocompletion=completion.runs
        ),
    ] = [],  # noqa: B006
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would take: runs, parameters, time, memory.")
    ] = False,
    executor: Annotated[
        str, typer.Option(help="local, processes, ray or slurm; by default this process, or --workers of them.")
    ] = "",
    executor_settings: Annotated[
        list[str],
        typer.Option("--executor-set", metavar="NAME=VALUE", help="A setting of the executor, e.g. partition=gpu."),
    ] = [],  # noqa: B006
    address: Annotated[str, typer.Option(help="Of a Ray cluster: auto, or HOST:PORT.")] = "",
    log: Annotated[str, typer.Option(help="Show the runs in a tracker: wandb, tensorboard, trackio or mlflow.")] = "",
    print_only: Annotated[bool, typer.Option("--print", help="slurm: print the script, submit nothing.")] = False,
) -> None:
    """Train and evaluate a study; resumes an interrupted one by itself."""
    from lengthwise.records.names import study_folder
    from lengthwise.selection import refuse_unknown, values_of
    from lengthwise.study import load_study

    chosen = load_study(study, settings)
    folder = out if out is not None else study_folder(chosen.name)
    refuse_unknown(only, values_of(chosen))  # a wrong name is refused before torch is imported
    for name, value in (("address", address), ("print", "true" if print_only else "")):
        if value and not executor:
            raise UserError(f"--{name} is for an executor; add --executor {'ray' if name == 'address' else 'slurm'}")
        executor_settings = [*executor_settings, f"{name}={value}"] if value else executor_settings
    if executor_settings and not executor:
        raise UserError(f"--executor-set {executor_settings[0]} needs --executor; there are {_executors()}")
    if dry:
        from lengthwise.bench.estimate import estimate, lines
        from lengthwise.executors.local import prepare

        for line in lines(estimate(prepare(chosen, folder, device, workers, only, finished_in))):
            say(line)
        return
    from lengthwise.bench.estimate import cpu_warning
    from lengthwise.executors.executor import Job, make_executor
    from lengthwise.executors.local import outdated_runs, run_study, unfinished_runs
    from lengthwise.progress import watching
    from lengthwise.runtime import together

    def warn_of_a_cpu(job: Job) -> None:
        if told := cpu_warning(job):
            warn(f"warning: {told}")

    trains = make_executor(executor, executor_settings) if executor else None
    command = _same_command(study, folder, settings, save_every, only, deterministic, finished_in)
    try:
        with watching(messages) as bars, _logging(log, folder, chosen.name) as logs:
            worked = run_study(
                chosen,
                folder,
                device,
                lambda number, fleets, plan: together([bars(number, fleets, plan), *logs]),
                save_every,
                workers,
                deterministic,
                only,
                finished_in,
                minutes=math.inf if minutes is None else minutes,
                prepared=warn_of_a_cpu,
                executor=trains,
                command=command,
                say=say,
            )
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes from the last saved state.")
        raise typer.Exit(130) from None
    if trains is not None and trains.hands_over:
        return
    for line in outdated_runs(chosen, folder, only):
        warn(f"warning: {line}")
    others = unfinished_runs(chosen, folder, only, finished_in)
    if others and minutes is not None:
        left = "1 run is" if others == 1 else f"{others} runs are"
        say(f"No time for more: {left} left. The same command resumes: {folder}")
        return
    if others:
        trained = "1 run is" if others == 1 else f"{others} runs are"
        done = "Finished what was left to take" if worked else "Nothing left to take"
        say(f"{done}; {trained} being trained by others: {folder}")
        return
    done = "Finished" if worked else "Nothing left to do"
    say(f"{done}: {folder}")
    after_run(messages, folder)


@contextmanager
def _logging(tracker: str, folder: Path, project: str) -> Iterator["list[Listener]"]:
    """Listeners that show runs in a tracker while they are trained; none where nobody asked."""
    if not tracker:
        yield []
        return
    from lengthwise.trackers.following import following
    from lengthwise.trackers.tracker import make_tracker

    made, failed = make_tracker(tracker, folder, project), list[str]()

    def tell(text: str) -> None:
        failed.append(text)
        warn(f"warning: {text}")

    with following(folder, made, tell) as listener:
        yield [listener]
    if not failed:
        messages.print(f"The runs are in {tracker}: {made.where()}", highlight=False, markup=False, soft_wrap=True)


def _executors() -> str:
    return ", ".join(registry.executors.names())


def _same_command(
    study: str,
    folder: Path,
    settings: list[str],
    save_every: float,
    only: str,
    deterministic: bool,
    finished_in: list[Path],
) -> list[str]:
    """The words after `lengthwise` that do a part of the same study from the same current folder."""
    words = ["run", study, "--out", str(folder.resolve()), "--save-every", f"{save_every:g}"]
    for setting in settings:
        words += ["--set", setting]
    words += ["--only", only] if only else []
    words += ["--deterministic"] if deterministic else []
    for other in finished_in:
        words += ["--finished-in", str(other)]
    return words


def track_command(
    runs: Runs,
    to: Annotated[str, typer.Option(help="wandb (offline), tensorboard, trackio or mlflow.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on until all its runs are finished.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", parser=named_path, metavar="PATH", help="Where the tracker writes; by default RUNS."),
    ] = None,
) -> None:
    """Show runs in a tracker: settings, losses and validations by step, accuracy by length. Never twice."""
    from lengthwise.records.rows import load_results
    from lengthwise.trackers.following import project_of, track
    from lengthwise.trackers.tracker import make_tracker

    if not runs.is_dir():
        load_results(runs)  # says what is wrong
    tracker = make_tracker(to, folder or runs, project_of(runs))
    try:
        complete, before = track(runs, tracker, follow)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes.")
        raise typer.Exit(130) from None
    said = f"{complete} finished runs are in {to}" + (f", {before} of them were before" if before else "")
    say(f"{said}: {tracker.where()}")
