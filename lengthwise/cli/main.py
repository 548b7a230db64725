"""The command line: parses and calls; the work is done elsewhere."""

import dataclasses
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lengthwise import registry
from lengthwise.cli.analyze import analyze_app
from lengthwise.cli.bench import bench_app
from lengthwise.cli.extend import extend_app
from lengthwise.cli.language import language_app
from lengthwise.cli.theory import theory_app
from lengthwise.door import is_odd, shown, visible
from lengthwise.errors import UserError
from lengthwise.listing import component_rows, encoding_rows, study_rows, task_rows

if TYPE_CHECKING:
    from lengthwise.records.rows import Results

app = typer.Typer(
    help="Length generalization of Transformers: train on short sequences, test on longer ones, find out why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console()
messages = Console(stderr=True)
app.add_typer(analyze_app, name="analyze")
app.add_typer(bench_app, name="bench")
app.add_typer(extend_app, name="extend")
app.add_typer(language_app, name="language")
app.add_typer(theory_app, name="theory")


def named_path(text: str) -> Path:
    """Of `--out` and `--to`: nothing is no path, though Python takes it for the current folder."""
    if not text.strip() or any(map(is_odd, text)):
        raise UserError(f"{text!r} names no folder or file; write . for the current folder")
    return Path(text)


class Listed(StrEnum):
    tasks = "tasks"
    encodings = "encodings"
    placements = "placements"
    mixers = "mixers"
    extensions = "extensions"
    studies = "studies"


class Checkpoint(StrEnum):
    last = "last"
    best = "best"


class Reference(StrEnum):
    published = "published"
    claim = "claim"


Runs = Annotated[Path, typer.Argument(help="A study's folder, e.g. runs/quickstart.")]
AtCheckpoint = Annotated[Checkpoint, typer.Option(help="The last checkpoint, or the one that is best in validation.")]


class ReportFormat(StrEnum):
    html = "html"
    markdown = "markdown"
    csv = "csv"
    svg = "svg"
    png = "png"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, e.g. training.steps=2000.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from lengthwise import __version__

        console.print(f"lengthwise {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _lengthwise(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None: ...


@app.command("list")
def list_command(what: Listed, as_json: AsJson = False) -> None:
    """List the tasks, encodings, placements, mixers, extensions or studies there are."""
    rows = {
        "tasks": task_rows,
        "encodings": encoding_rows,
        "placements": lambda: component_rows(registry.placements),
        "mixers": lambda: component_rows(registry.mixers),
        "extensions": lambda: component_rows(registry.extensions),
        "studies": study_rows,
    }[what.value]()
    if as_json:
        console.print_json(json.dumps(rows))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    shown = [key for key in ("name", "train", "test", "runs", "summary") if rows and key in rows[0]]
    for key in shown:
        table.add_column(key, no_wrap=key != "summary", overflow="fold")
    for row in rows:
        *cells, summary = (_plain(str(row[key])) for key in shown)
        table.add_row(*cells, summary + "".join(f" [dim]({_plain(note)})[/dim]" for note in _notes(row)))
    console.print(table)
    if any(row.get("steps") for row in rows):
        console.print("\n(steps): with `--scratchpad full`, `minimal` or parts such as `input+output`", style="dim")


@app.command()
def sample(
    task: Annotated[str, typer.Argument(help="A task, e.g. copy.words.")],
    length: Annotated[int, typer.Option(min=1, max=100_000, help="What the task calls length.")] = 5,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 3,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    scratchpad: Annotated[str, typer.Option(help="A scratchpad format: full, minimal, input+output ...")] = "none",
    tokens: Annotated[
        str, typer.Option(help="Show tokens: symbols, published (T5's pieces) or the file of a tokenizer.")
    ] = "",
    settings: Settings = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Print examples of a task, as text or as the tokens that a model reads."""
    from lengthwise import configuration
    from lengthwise.data.estimate import refuse_too_many
    from lengthwise.data.scratchpad import Scratchpad
    from lengthwise.data.sequences import pieces_of
    from lengthwise.tasks.choosing import make_task
    from lengthwise.training.recipe import DataConfig

    chosen = make_task(configuration.override({"name": task}, settings))
    data = configuration.read(DataConfig, {"tokens": tokens, "scratchpad": scratchpad} if tokens else {}, "data")
    refuse_too_many(chosen, length, count)
    drawn = chosen.formatted(chosen.drawn(length, count, seed), Scratchpad(scratchpad))
    rows: list[dict[str, Any]] = [
        {"task": task, "length": length, "prompt": prompt, "target": target}
        for prompt, target in (chosen.text(drawn, i) for i in range(count))
    ]
    pieces = pieces_of(drawn, data.make_tokens(chosen)) if tokens else []
    for row, (before, after) in zip(rows, pieces, strict=bool(tokens)):
        row |= {"pieces": [*before, *after], "tokens": len(before) + len(after)}
    if as_json:
        console.print_json(json.dumps(rows))
        return
    for i, row in enumerate(rows):
        prompt, target = (" ".join(each) for each in pieces[i]) if tokens else (row["prompt"], row["target"])
        told = f" [dim]({row['tokens']} tokens)[/dim]" if tokens else ""
        shown = f"[bold]{_plain(prompt)}[/bold] [dim]->[/dim] {_plain(target)}{told}"
        console.print(shown, highlight=False, soft_wrap=True)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A study's name (see `list studies`) or a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(parser=named_path, metavar="PATH", help="Folder for the runs; by default runs/STUDY.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    settings: Settings = [],  # noqa: B006
    workers: Annotated[
        int, typer.Option(min=0, help="Processes side by side; 0: one per core on a CPU, one per GPU.")
    ] = 0,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between saved states.")] = 30.0,
    only: Annotated[str, typer.Option(help="A part of it, e.g. task=addition,encoding=none.")] = "",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Bitwise reproducible on a GPU.")] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would take: runs, parameters, time, memory.")
    ] = False,
) -> None:
    """Train and evaluate a study; resumes an interrupted one by itself."""
    from lengthwise.records.names import study_folder
    from lengthwise.study import load_study

    chosen = load_study(study, settings)
    folder = out if out is not None else study_folder(chosen.name)
    if dry:
        from lengthwise.bench.estimate import estimate, lines
        from lengthwise.executors.local import prepare

        for line in lines(estimate(prepare(chosen, folder, device, workers, only))):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return
    from lengthwise.executors.local import outdated_runs, run_study, unfinished_runs
    from lengthwise.progress import watching

    try:
        with watching(messages) as watch:
            worked = run_study(chosen, folder, device, watch, save_every, workers, deterministic, only)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes from the last saved state.")
        raise typer.Exit(130) from None
    for line in outdated_runs(chosen, folder, only):
        messages.print(f"warning: {line}", style="yellow", markup=False, soft_wrap=True)
    others = unfinished_runs(chosen, folder, only)
    if others:
        trained = "1 run is" if others == 1 else f"{others} runs are"
        done = "Finished what was left to take" if worked else "Nothing left to take"
        console.print(
            f"{done}; {trained} being trained by others: {folder}", highlight=False, markup=False, soft_wrap=True
        )
        return
    done = "Finished" if worked else "Nothing left to do"
    console.print(f"{done}: {folder}", highlight=False, markup=False, soft_wrap=True)
    if worked:
        following = f"Next: lengthwise show {folder}, or lengthwise report {folder} --out report.html"
        messages.print(following, highlight=False, markup=False, soft_wrap=True, style="dim")


@app.command()
def show(runs: Runs, checkpoint: AtCheckpoint = Checkpoint.last) -> None:
    """Show accuracy, ranking, differences, budgets and accuracy by length in the terminal."""
    from lengthwise.records.rows import collector_paused
    from lengthwise.report.terminal.show import show_tables

    with collector_paused():
        _print_each(*show_tables(_finished(runs), checkpoint))


@app.command("compare")
def compare_command(
    runs: Runs,
    reference: Annotated[
        Reference,
        typer.Option("--with", help="The published table of encodings, or the claim that the study's file holds."),
    ] = Reference.published,
    checkpoint: Annotated[
        Checkpoint, typer.Option(help="The last checkpoint, or the one that is best in validation, as published.")
    ] = Checkpoint.best,
    study: Annotated[
        Path | None, typer.Option(help="The study's file, for a claim of a study that is not shipped.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare results with published ones, number by number."""
    from lengthwise.records.rows import collector_paused
    from lengthwise.report.model.displayed import displayed

    if reference is Reference.claim:
        _compare_with_claim(runs, study, checkpoint, as_json)
        return
    from lengthwise.records.comparison import compare
    from lengthwise.report.terminal.comparison import comparison_tables

    with collector_paused():
        comparison = compare(displayed(_finished(runs)), checkpoint)
    if as_json:
        console.print_json(json.dumps({"with": reference, **dataclasses.asdict(comparison)}))
        return
    _print_each(*comparison_tables(comparison))


def _compare_with_claim(runs: Path, study: Path | None, checkpoint: str, as_json: bool) -> None:
    from lengthwise.records.claims import judge_claim
    from lengthwise.report.model.claim_tables import claim_table
    from lengthwise.report.terminal.table import to_terminal
    from lengthwise.study import claim_of, shipped_studies

    results = _finished(runs)
    name = results.study["name"]
    file = study or shipped_studies().get(name)
    if file is None:
        raise UserError(f"{name} is no study that is shipped; say which file it is: --study {name}.toml")
    claim = claim_of(file)
    if claim is None:
        raise UserError(f"{file} has no table [claim]; see docs/adding-a-study.md")
    judged = judge_claim(claim, results, checkpoint)
    if as_json:
        console.print_json(json.dumps({"with": "claim", "outcome": judged.outcome.value, **dataclasses.asdict(judged)}))
        return
    _print_each(Text(claim.says), to_terminal(claim_table(judged)))


@app.command()
def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="PATH",
            help="A .html page (report.html), a .md file, the curves alone as .svg or .png, or a folder.",
        ),
    ] = None,
    kind: Annotated[
        ReportFormat | None,
        typer.Option("--format", help="csv: a folder of tables; svg, png: a folder of figures."),
    ] = None,
) -> None:
    """Write a self-contained page of a study's results, or its tables and figures for a paper."""
    from lengthwise.records.findings import load_analysis
    from lengthwise.records.rows import collector_paused, load_results
    from lengthwise.report.export import write_report

    with collector_paused():
        written = write_report(load_results(runs), out, kind.value if kind else None, load_analysis(runs / "analysis"))
    console.print(f"Wrote {written}", highlight=False, markup=False)


@app.command("leaderboard")
def leaderboard_command(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs or of collected results; the first sets the terms.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(parser=named_path, metavar="PATH", help="A .html page (leaderboard.html), .md, .csv or .json."),
    ] = None,
    cost: Annotated[
        Path | None, typer.Option(help="What a step costs: the file of `bench train --out`, with `none` in it.")
    ] = None,
) -> None:
    """Write methods by tasks as one page, from any folders of results, with a card for each method."""
    from lengthwise.cards.leaderboard import write_leaderboard
    from lengthwise.records.rows import collector_paused

    with collector_paused():
        written = write_leaderboard(runs, out, cost)
    console.print(f"Wrote {written}", highlight=False, markup=False, soft_wrap=True)


@app.command("collect")
def collect_command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of a study's runs, or of results collected before.")],
    out: Annotated[Path, typer.Option(parser=named_path, metavar="PATH", help="Folder for a few small files.")],
    failures: Annotated[
        int | None, typer.Option(min=0, help="Wrong answers to keep of each run and length; by default all.")
    ] = None,
) -> None:
    """Gather the results of a study, without checkpoints, into a small folder for sharing.

    Several folders become one, so `collect shared runs/quickstart --out shared` adds what is new.
    """
    from lengthwise.records.merging import merge
    from lengthwise.records.rows import collect, collector_paused, load_results

    with collector_paused():
        results = merge([load_results(folder) for folder in runs])
        collect(results, out, failures)
    if results.unfinished:
        names = ", ".join(map(visible, results.unfinished))
        told = f"unfinished, only their names go along: {names}"
        messages.print(told, style="yellow", markup=False, soft_wrap=True)
    console.print(f"Wrote {out}", highlight=False, markup=False, soft_wrap=True)


class ExportedAs(StrEnum):
    auto = "auto"
    native = "native"
    lengthwise = "lengthwise"


@app.command("export")
def export_command(
    run: Annotated[Path, typer.Argument(help="A run's folder, of a study or of `language train`.")],
    to: Annotated[Path, typer.Option(parser=named_path, metavar="DIR", help="A new folder.")],
    checkpoint: Annotated[
        Checkpoint | None, typer.Option(help="Of a study's run: the last, or the one that is best in validation.")
    ] = None,
    kind: Annotated[
        ExportedAs,
        typer.Option(
            "--as",
            help="native: a Llama or SmolLM3, which loads without lengthwise; lengthwise: our model, which loads after "
            "`import lengthwise.hub`; auto: native for a language model that is one.",
        ),
    ] = ExportedAs.auto,
) -> None:
    """Write a trained model as a folder for Hugging Face's Transformers: config, safetensors, tokenizer."""
    from lengthwise.hub.export import export

    done = export(run, to, kind.value, checkpoint.value if checkpoint else "")
    told = f"Wrote {done.folder}: {done.architecture}, logits within {done.difference:.1g} of the run's"
    console.print(told, highlight=False, markup=False, soft_wrap=True)


@app.command()
def dataset(
    task: Annotated[str, typer.Argument(help="A task, e.g. addition.")],
    out: Annotated[
        Path,
        typer.Option(
            parser=named_path,
            metavar="PATH",
            help="Folder for train, validation and test as JSON lines, and a manifest.",
        ),
    ],
    seed: Annotated[int, typer.Option(min=0)] = 0,
    scratchpad: Annotated[str, typer.Option(help="A scratchpad format: full, minimal, input+output ...")] = "none",
    everything: Annotated[bool, typer.Option("--all", help="Every example there is, each once.")] = False,
    imported: Annotated[
        Path | None,
        typer.Option("--import", help="pcfg: a folder of original .src and .tgt files."),
    ] = None,
    settings: Settings = [],  # noqa: B006
) -> None:
    """Write a task's examples to files, with the published counts."""
    from lengthwise import configuration
    from lengthwise.data.dataset import import_pcfg, write_all, write_dataset
    from lengthwise.data.scratchpad import Scratchpad
    from lengthwise.tasks.choosing import make_task

    if imported is not None:
        if task != "pcfg":
            raise UserError("--import reads the files of PCFG SET: lengthwise dataset pcfg --import DIR --out DIR")
        written = import_pcfg(imported, out)
    else:
        chosen = make_task(configuration.override({"name": task}, settings) if settings else task)
        chosen_format = Scratchpad(scratchpad)
        written = (
            write_all(chosen, out, chosen_format) if everything else write_dataset(chosen, out, seed, chosen_format)
        )
    counts = ", ".join(f"{name} {count:,}" for name, count in written.items())
    console.print(f"Wrote {out}: {counts}", highlight=False, markup=False)


def main() -> None:
    try:
        app()
    except UserError as error:
        messages.print(f"[bold red]error:[/bold red] {_plain(shown(str(error)))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)


def _finished(runs: Path) -> "Results":
    """The results in a folder that has some; unfinished runs are named."""
    from lengthwise.records.rows import load_results

    results = load_results(runs)
    for name in results.unfinished:
        messages.print(f"unfinished: {visible(name)}", style="yellow", markup=False)
    if not results.runs:
        raise UserError(f"no run in {runs} is finished yet; `lengthwise run` resumes it")
    return results


def _print_each(*things: RenderableType) -> None:
    for thing in things:
        console.print(thing)
        console.print()


def _notes(row: dict[str, Any]) -> list[str]:
    """What stands behind the summary of a listed thing."""
    settings = ", ".join(f"{name}={value}" for name, value in row.get("settings", {}).items())
    command = f"run by `lengthwise {row['command']}`" if row.get("command", "run") != "run" else ""
    return [note for note in (settings, "steps" if row.get("steps") else "", command) if note]


def _plain(text: str) -> str:
    """Text in which nothing is markup."""
    return text.replace("[", "\\[")
