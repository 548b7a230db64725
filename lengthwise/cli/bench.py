"""The `lengthwise bench` commands: parses and calls; imports nothing heavy before a command runs."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lengthwise.cli import completion
from lengthwise.cli.app import App
from lengthwise.cli.names import require_encodings, require_sizes, require_task
from lengthwise.cli.printing import console, messages
from lengthwise.errors import UserError

if TYPE_CHECKING:
    from lengthwise.bench.measurements import Bench

bench_app = App(help="Measure how fast things are.")

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", autocompletion=completion.devices)]
Out = Annotated[Path | None, typer.Option(help="A .json file for the numbers.")]
Sizes = Annotated[
    list[str],
    typer.Option("--size", help="tiny, small or base; may be repeated.", autocompletion=completion.sizes),
]
Tokens = Annotated[str, typer.Option(help="symbols, published (T5's pieces, 32,100 rows) or a tokenizer's file.")]
Encodings = Annotated[
    list[str],
    typer.Option("--encoding", help="May be repeated; `all` for all.", autocompletion=completion.encodings),
]
Encoding = Annotated[str, typer.Option(help="An encoding.", autocompletion=completion.encodings)]
TaskName = Annotated[str, typer.Option(help="A task, e.g. copy.repeat.", autocompletion=completion.tasks)]
DropoutRate = Annotated[float | None, typer.Option(help="By default 0.1, and 0 in the quickstart (size tiny).")]
TimedSteps = Annotated[int, typer.Option(min=1, help="Steps that are timed, after a warm-up.")]


@bench_app.command("all")
def bench_all_command(device: Device = "auto", out: Out = None) -> None:
    """Training, Trainer, evaluation, growth, start-up, language: minutes on a CPU, the most of an hour on a GPU."""
    _bench(device, out).everything()


@bench_app.command("data")
def bench_data_command(
    count: Annotated[int, typer.Option(min=1, help="Training examples of each task.")] = 100_000,
    tokens: Tokens = "symbols",
    out: Out = None,
) -> None:
    """Time how long training examples take, tokenised and ready to train."""
    from lengthwise.bench.data import report_data
    from lengthwise.bench.report import Report

    report_data(count, Report(console, messages, out), tokens)


@bench_app.command("train")
def bench_train_command(
    device: Device = "auto",
    size: Sizes = [],  # noqa: B006
    encoding: Encodings = [],  # noqa: B006
    fleet: Annotated[
        list[int], typer.Option(min=1, help="Size of a fleet: models trained as one batched program; may be repeated.")
    ] = [],  # noqa: B006
    task: Annotated[
        str, typer.Option(help="A task; by default copy.repeat, or a study's first.", autocompletion=completion.tasks)
    ] = "",
    dropout: DropoutRate = None,
    steps: TimedSteps = 256,
    tokens: Tokens = "symbols",
    study: Annotated[
        str,
        typer.Option(help="Time a study's methods, in its model and recipe.", autocompletion=completion.studies),
    ] = "",
    out: Out = None,
) -> None:
    """Time training: by default the base size on a GPU, the quickstart on a CPU."""
    if not study:
        _bench(device, out, size, encoding, task or "copy.repeat").train(
            size, encoding, fleet, task or "copy.repeat", dropout, steps, tokens
        )
        return
    if size or dropout is not None or tokens != "symbols":
        raise UserError("--study says which models are trained: leave out --size, --dropout and --tokens")
    _bench(device, out).train((), encoding, fleet, task, None, steps, study=study)


@bench_app.command("trainer")
def bench_trainer_command(
    device: Device = "auto",
    size: Sizes = [],  # noqa: B006
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="By default both on a GPU, not on a CPU.")
    ] = None,
    task: TaskName = "copy.repeat",
    dropout: DropoutRate = None,
    steps: TimedSteps = 256,
    vocabulary: Annotated[
        int, typer.Option(min=0, help="Embedding rows; 0 for ours. The published models had 32100.")
    ] = 0,
    out: Out = None,
) -> None:
    """Time Hugging Face's Trainer with a GPT-2 of the same size on the same examples."""
    _bench(device, out, size, task=task).trainer(size, compiled, task, dropout, steps, vocabulary)


@bench_app.command("evaluate")
def bench_evaluate_command(
    device: Device = "auto",
    size: Sizes = [],  # noqa: B006
    encoding: Encoding = "none",
    task: TaskName = "copy.repeat",
    examples: Annotated[int, typer.Option(min=1, help="Test examples.")] = 10_000,
    sample: Annotated[
        int, typer.Option(min=1, help="Examples that are generated where all would take over a minute.")
    ] = 320,
    batch: Annotated[
        int, typer.Option(min=1, help="Examples that are generated at a time where a method does not choose.")
    ] = 32,
    out: Out = None,
) -> None:
    """Time exact match in one pass against generating the answers."""
    _bench(device, out, size, [encoding], task).evaluate(size, encoding, task, examples, sample, batch)


class Growing(StrEnum):
    length = "length"
    width = "width"
    fleet = "fleet"


@bench_app.command("growth")
def bench_growth_command(
    device: Device = "auto",
    what: Annotated[list[Growing], typer.Option(help="May be repeated; by default all.")] = [],  # noqa: B006
    encoding: Encoding = "none",
    steps: TimedSteps = 64,
    out: Out = None,
) -> None:
    """Time steps as rows get longer, models wider, fleets larger."""
    _bench(device, out, encodings=[encoding]).growth([each.value for each in what], encoding, steps)


class RowKind(StrEnum):
    windows = "windows"
    documents = "documents"


@bench_app.command("language")
def bench_language_command(
    device: Device = "auto",
    size: Annotated[
        list[str], typer.Option(help="lm-small, lm-60m or tiny; by default lm-small, on a CPU tiny. May be repeated.")
    ] = [],  # noqa: B006
    encoding: Annotated[
        list[str],
        typer.Option(help="none or rotary; by default both. May be repeated.", autocompletion=completion.encodings),
    ] = [],  # noqa: B006
    context: Annotated[
        list[int], typer.Option(min=2, help="Tokens of a row; by default 512 and 2048, on a CPU 64. May be repeated.")
    ] = [],  # noqa: B006
    rows: Annotated[
        list[RowKind],
        typer.Option(help="Windows of long documents, or short documents that share rows; by default both."),
    ] = [],  # noqa: B006
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of a round, of which there are five; by default 128, on a CPU 8.")
    ] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="The plain loop; by default on a GPU.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, help="No line is begun that would take longer.")] = 8.0,
    out: Out = None,
) -> None:
    """Time language models beside a plain training loop of PyTorch on the same rows, in turn."""
    from lengthwise.bench.language_workload import refuse_unknown

    refuse_unknown(size, [])
    bench = _bench(device, out, encodings=encoding)
    bench.language(size, encoding, context, [each.value for each in rows], steps, compiled, minutes)


@bench_app.command("profile")
def bench_profile_command(
    device: Device = "auto",
    size: Annotated[str, typer.Option(help="tiny, small or base.", autocompletion=completion.sizes)] = "",
    encoding: Encoding = "none",
    fleet: Annotated[int, typer.Option(min=1, help="Size of a fleet: models trained as one batched program.")] = 1,
    task: TaskName = "copy.repeat",
    longest: Annotated[int, typer.Option(min=1, help="Kernels that are shown.")] = 30,
    out: Out = None,
) -> None:
    """Show where the time of a training step goes, kernel by kernel."""
    _bench(device, out, [size] if size else [], [encoding], task).profile(size, encoding, fleet, task, longest)


@bench_app.command("start")
def bench_start_command(
    device: Device = "auto",
    size: Sizes = [],  # noqa: B006
    encoding: Encodings = [],  # noqa: B006
    out: Out = None,
) -> None:
    """Time a fresh process up to its first step, without and with compiled kernels in the cache."""
    _bench(device, out, size, encoding).start(size, encoding)


def _bench(
    device: str,
    out: Path | None,
    sizes: Sequence[str] = (),
    encodings: Sequence[str] = (),
    task: str = "copy.repeat",
) -> "Bench":
    require_sizes(sizes)
    require_encodings(encodings)
    require_task(task)
    from lengthwise.bench.measurements import Bench

    return Bench(device, console, messages, out)
