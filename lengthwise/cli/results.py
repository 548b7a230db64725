"""The commands `show`, `compare`, `report`, `leaderboard` and `collect`: what is read from finished runs."""

import dataclasses
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from lengthwise.cli import completion
from lengthwise.cli.next_steps import after_report, after_run
from lengthwise.cli.options import AsJson, AtCheckpoint, Baseline, Checkpoint, Folders, Part
from lengthwise.cli.paths import named_path
from lengthwise.cli.printing import console, messages, print_each, say, warn
from lengthwise.door import visible
from lengthwise.errors import UserError

if TYPE_CHECKING:
    from lengthwise.records.results import Results


class Reference(StrEnum):
    published = "published"
    claim = "claim"


class ReportFormat(StrEnum):
    html = "html"
    markdown = "markdown"
    csv = "csv"
    svg = "svg"
    png = "png"


def show(
    runs: Folders,
    checkpoint: AtCheckpoint = Checkpoint.last,
    only: Part = "",
    baseline: Baseline = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print accuracies as CSV for programs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show accuracy, ranking, differences, budgets and accuracy by length in the terminal."""
    from lengthwise.records.rows import collector_paused
    from lengthwise.report.model.table_csv import to_csv
    from lengthwise.report.terminal.show import show_tables, show_values

    if as_csv and as_json:
        raise UserError("--csv and --json cannot go together; leave one out")

    with collector_paused():
        results = _finished(runs, only).against(baseline)
        if as_csv or as_json:
            found = show_values(results, checkpoint)
            print(to_csv(found) if as_csv else json.dumps(found.records, indent=2), end="" if as_csv else "\n")
            return
        print_each(*show_tables(results, checkpoint))


def compare_command(
    runs: Folders,
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
    only: Part = "",
    as_json: AsJson = False,
) -> None:
    """Compare results with published ones, number by number."""
    from lengthwise.records.rows import collector_paused

    if reference is Reference.claim:
        _compare_with_claim(runs, study, checkpoint, only, as_json)
        return
    from lengthwise.records.comparison import compare
    from lengthwise.records.facets import faceted
    from lengthwise.report.model.displayed import displayed
    from lengthwise.report.terminal.comparison import comparison_tables

    with collector_paused():
        results = faceted(displayed(_finished(runs, only)))
        comparison = compare(results, checkpoint)
    if as_json:
        points = {title: {"task": facet.task, **facet.values} for title, facet in results.facets.items()}
        told = {"points": points} if points else {}
        console.print_json(json.dumps({"with": reference, **dataclasses.asdict(comparison), **told}))
        return
    print_each(*comparison_tables(comparison, results))


def _compare_with_claim(folders: list[Path], study: Path | None, checkpoint: str, only: str, as_json: bool) -> None:
    from lengthwise.records.claims import judge_claim
    from lengthwise.report.model.claim_tables import claim_table
    from lengthwise.report.terminal.table import to_terminal
    from lengthwise.study import claim_of, shipped_studies

    results = _finished(folders, only)
    if results.studies:
        raise UserError(f"a claim is of one study, not of {' and '.join(results.studies)}; give the folders of one")
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
    print_each(Text(claim.says), to_terminal(claim_table(judged)))


def report(
    runs: Folders,
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
    only: Part = "",
    baseline: Baseline = "",
) -> None:
    """Write a self-contained page of results, or their tables and figures for a paper."""
    from lengthwise.records.asked import asked
    from lengthwise.records.findings import joined_analysis
    from lengthwise.records.merging import load_together
    from lengthwise.records.rows import collector_paused
    from lengthwise.report.export import write_report

    with collector_paused():
        analysis = joined_analysis([folder / "analysis" for folder in runs])
        results = load_together(runs).only(only).against(baseline)
        written = write_report(results, out, kind.value if kind else None, analysis)
    say(f"Wrote {written}")
    if not asked(results):
        after_report(messages, runs)


def leaderboard_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs or of collected results; the first sets the terms.", autocompletion=completion.runs
        ),
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
    say(f"Wrote {written}")


def collect_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of a study's runs, or of results collected before.", autocompletion=completion.runs
        ),
    ],
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
        warn(f"unfinished, only their names go along: {names}")
    say(f"Wrote {out}")
    after_run(messages, out)


def _finished(folders: list[Path], only: str = "") -> "Results":
    """The results in folders that have some; unfinished runs are named."""
    from lengthwise.records.merging import load_together

    results = load_together(folders)
    for name in results.unfinished:
        warn(f"unfinished: {visible(name)}")
    if not results.runs:
        named = " and ".join(map(str, folders))
        raise UserError(f"no run in {named} is finished yet; `lengthwise run` resumes it")
    return results.only(only)
