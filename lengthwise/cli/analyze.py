"""The `lengthwise analyze` commands: parses and calls; imports nothing heavy before a command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli import completion
from lengthwise.cli.app import App
from lengthwise.cli.names import require_parts
from lengthwise.cli.options import AsJson, AtCheckpoint, Checkpoint
from lengthwise.cli.printing import messages, print_tables

if TYPE_CHECKING:
    from lengthwise.analysis.analyses import Analysis
    from lengthwise.report.model.table import Table

analyze_app = App(help="Analyze trained models: attention, probes of position, failures.")


Runs = Annotated[
    Path,
    typer.Argument(
        help="A study's folder, e.g. runs/quickstart, or a Hugging Face model's.", autocompletion=completion.runs
    ),
]
StudyRuns = Annotated[
    Path, typer.Argument(help="A study's folder, e.g. runs/quickstart.", autocompletion=completion.runs)
]
Only = Annotated[
    str,
    typer.Option(help="A part of it, e.g. task=scan,encoding=none,encoding=t5.", autocompletion=completion.parts),
]
Lengths = Annotated[str, typer.Option(help="E.g. 5,10,20-24; by default all of the study.")]
Count = Annotated[int, typer.Option(min=0, help="Examples of each length; 0 for the usual number.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", autocompletion=completion.devices)]
Out = Annotated[Path | None, typer.Option(help="Folder for the rows; by default RUNS/analysis.")]
ReferenceLabel = Annotated[
    str,
    typer.Option(help="The encoding that the others are compared with.", autocompletion=completion.encodings),
]
PublishedVariant = Annotated[
    bool, typer.Option("--published-variant", help="The published divergence and pairs of heads, for comparison.")
]
AcrossSeeds = Annotated[
    bool, typer.Option("--across-seeds", help="Compare with another seed, which has other initial parameters.")
]
Text = Annotated[Path | None, typer.Option(help="A text for a Hugging Face model; else random tokens, repeated.")]
Trained = Annotated[int, typer.Option(min=0, help="Training length of a Hugging Face model, in tokens.")]


@analyze_app.command("distance")
def distance_command(
    runs: Runs,
    published_variant: PublishedVariant = False,
    across_seeds: AcrossSeeds = False,
    reference: ReferenceLabel = "none",
    only: Only = "",
    lengths: Lengths = "",
    count: Count = 0,
    device: Device = "auto",
    checkpoint: AtCheckpoint = Checkpoint.last,
    other: Annotated[Path | None, typer.Option("--with", help="A second Hugging Face model.")] = None,
    text: Text = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Distance between the attention of two models, layer by layer."""
    analysis = _analysis(
        runs=runs, only=only, lengths=lengths, count=count, device=device, checkpoint=checkpoint.value, out=out,
        reference=reference, as_published=published_variant, across_seeds=across_seeds, other=other, text=text,
    )  # fmt: skip
    _show(analysis, analysis.distance(), as_json)


@analyze_app.command("heads")
def heads_command(
    runs: Runs,
    only: Only = "",
    lengths: Lengths = "",
    count: Count = 0,
    device: Device = "auto",
    checkpoint: AtCheckpoint = Checkpoint.last,
    text: Text = None,
    trained: Trained = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Attention of every head: distance, entropy, and share on the first token, the previous one, induction."""
    analysis = _analysis(
        runs=runs, only=only, lengths=lengths, count=count, device=device, checkpoint=checkpoint.value, out=out,
        text=text, trained=trained,
    )  # fmt: skip
    _show(analysis, analysis.each_run(["heads"]), as_json)


@analyze_app.command("probes")
def probes_command(
    runs: Runs,
    only: Only = "",
    lengths: Lengths = "",
    count: Count = 0,
    device: Device = "auto",
    checkpoint: AtCheckpoint = Checkpoint.last,
    text: Text = None,
    trained: Trained = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Probe the residual stream for position, within the training length and beyond."""
    analysis = _analysis(
        runs=runs, only=only, lengths=lengths, count=count, device=device, checkpoint=checkpoint.value, out=out,
        text=text, trained=trained,
    )  # fmt: skip
    _show(analysis, analysis.each_run(["probes"]), as_json)


@analyze_app.command("failures")
def failures_command(
    runs: StudyRuns,
    only: Only = "",
    lengths: Lengths = "",
    count: Count = 0,
    device: Device = "auto",
    checkpoint: AtCheckpoint = Checkpoint.last,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Where in the target the first error falls, and of which kind it is."""
    analysis = _analysis(
        runs=runs, only=only, lengths=lengths, count=count, device=device, checkpoint=checkpoint.value, out=out
    )
    _show(analysis, analysis.each_run(["failures"]), as_json)


@analyze_app.command("separator")
def separator_command(
    runs: StudyRuns,
    only: Only = "",
    lengths: Lengths = "",
    count: Count = 0,
    device: Device = "auto",
    checkpoint: AtCheckpoint = Checkpoint.last,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """What the separator is for: attention to it, probes at it, and interventions on it."""
    from lengthwise.records.findings import SEPARATOR_KINDS

    analysis = _analysis(
        runs=runs, only=only, lengths=lengths, count=count, device=device, checkpoint=checkpoint.value, out=out
    )
    _show(analysis, analysis.each_run(SEPARATOR_KINDS), as_json)


@analyze_app.command("all")
def all_command(
    runs: StudyRuns,
    reference: ReferenceLabel = "none",
    only: Only = "",
    lengths: Lengths = "",
    count: Count = 0,
    device: Device = "auto",
    checkpoint: AtCheckpoint = Checkpoint.last,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run distance, heads, probes and failures."""
    analysis = _analysis(
        runs=runs, only=only, lengths=lengths, count=count, device=device, checkpoint=checkpoint.value, out=out,
        reference=reference,
    )  # fmt: skip
    _show(analysis, [*analysis.distance(), *analysis.each_run(["heads", "probes", "failures"])], as_json)


def _analysis(**wanted: Any) -> "Analysis":
    runs: Path = wanted["runs"]
    if not (runs / "config.json").exists():  # which a Hugging Face model has
        require_parts(runs, wanted["only"], wanted.get("reference", ""))
    from lengthwise.analysis.analyses import Analysis, AnalysisRequest

    return Analysis(AnalysisRequest(**wanted), messages)


def _show(analysis: "Analysis", tables: "list[Table]", as_json: bool) -> None:
    print_tables(tables, analysis.rows, as_json)
