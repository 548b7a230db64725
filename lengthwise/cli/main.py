"""The command line: parses and calls; the work is done elsewhere."""

import sys
from typing import Annotated

import typer

from lengthwise.cli.analyze import analyze_app
from lengthwise.cli.app import App
from lengthwise.cli.bench import bench_app
from lengthwise.cli.data import dataset, list_command, sample
from lengthwise.cli.evaluate import evaluate_command, lm_eval_command
from lengthwise.cli.export import export_command
from lengthwise.cli.extend import extend_app
from lengthwise.cli.language import language_app
from lengthwise.cli.printing import console, messages, plain
from lengthwise.cli.results import collect_command, compare_command, leaderboard_command, report, show
from lengthwise.cli.run import run, track_command
from lengthwise.cli.theory import theory_app
from lengthwise.door import shown
from lengthwise.errors import UserError

app = App(
    help="Length generalization of Transformers: train on short sequences, test on longer ones, find out why.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which the help lists them.
for name, command in {
    "list": list_command,
    "sample": sample,
    "run": run,
    "show": show,
    "report": report,
    "compare": compare_command,
    "leaderboard": leaderboard_command,
    "collect": collect_command,
    "track": track_command,
    "evaluate": evaluate_command,
    "lm-eval": lm_eval_command,
    "export": export_command,
    "dataset": dataset,
}.items():
    app.command(name)(command)
for name, group in {
    "analyze": analyze_app,
    "extend": extend_app,
    "language": language_app,
    "theory": theory_app,
    "bench": bench_app,
}.items():
    app.add_typer(group, name=name)


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


def main() -> None:
    try:
        app()
    except UserError as error:
        messages.print(f"[bold red]error:[/bold red] {plain(shown(str(error)))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
