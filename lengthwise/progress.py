"""A progress bar for a study: where it is, how fast, how long still; plain lines where nobody watches."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from lengthwise.executors.executor import Watch
from lengthwise.runtime import Listener
from lengthwise.training.plan import FleetPlan


@contextmanager
def watching(console: Console) -> Iterator[Watch]:
    """Gives a watcher for `run_study` that draws on `console`."""
    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

    def watch(number: int, fleets: int, plan: FleetPlan) -> Listener:
        title = f"[{number + 1}/{fleets}] {plan.name}"
        if not console.is_terminal:
            console.print(title, markup=False, highlight=False)
        bar = bars.add_task(title.replace("[", "\\["), total=plan.runs[0].training.steps, speed="")
        first: list[tuple[float, int]] = []

        def step(done: int, steps: int) -> None:
            first[:] = first or [(time.monotonic(), done)]
            elapsed = time.monotonic() - first[0][0]
            speed = f"{(done - first[0][1]) / elapsed:.1f} steps/s" if elapsed > 0.5 else ""
            bars.update(bar, completed=done, speed=speed)

        return Listener(
            step=step,
            note=lambda text: console.print(text, style="yellow", markup=False),
            done=lambda: bars.remove_task(bar),
        )

    with bars:
        yield watch
