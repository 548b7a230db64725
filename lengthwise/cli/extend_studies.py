"""The `lengthwise extend` commands that measure many lines: compare, study, report."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lengthwise.cli import completion
from lengthwise.cli.extend_options import (
    AtPositions,
    Contexts,
    Corpus,
    Device,
    ExtensionReportFormat,
    Model,
    Positions,
    Scored,
    Store,
    Trained,
    Weights,
    Windows,
    watching,
)
from lengthwise.cli.names import require_extension_study, require_extensions
from lengthwise.cli.next_steps import say_next
from lengthwise.cli.options import AsJson, Dtype
from lengthwise.cli.printing import messages, print_tables, say
from lengthwise.errors import UserError

Depths = Annotated[int, typer.Option(min=1, help="Depths of the passkey, from 0 to 100 %.")]
Trials = Annotated[int, typer.Option(min=0, help="Keys at each length and depth; 0 for no passkey test.")]


def compare_command(
    model: Model,
    extension: Annotated[
        list[str],
        typer.Option(
            help="A line, e.g. yarn:factor=auto; a:x=1+b for two that act together. Repeated: more lines.",
            autocompletion=completion.extensions,
        ),
    ] = [],  # noqa: B006
    fit: Annotated[list[Path], typer.Option(help="A folder that `extend fit` has written: one more line.")] = [],  # noqa: B006
    context: Contexts = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for rows, by default runs/compare-MODEL; the same command resumes, others add lines."
        ),
    ] = None,
    corpus: Corpus = None,
    windows: Windows = 256,
    scored: Scored = 0,
    depths: Depths = 10,
    trials: Trials = 10,
    heads: Annotated[int, typer.Option(min=0, help="Windows over which heads are watched; 0 for none.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of the keys.")] = 0,
    store: Store = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    dtype: Weights = Dtype.auto,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare extensions of one model on one set of targets: perplexity, passkey, entropy, where heads look."""
    from lengthwise.context_extension.comparing import AND

    require_extensions([part for text in extension for part in AND.split(text)])
    from lengthwise.context_extension.comparing import compare, comparison
    from lengthwise.context_extension.extending import read_lengths
    from lengthwise.context_extension.fitting_rows import usual_scored
    from lengthwise.context_extension.loaded_model import open_model
    from lengthwise.context_extension.table import MeasureSettings
    from lengthwise.records.names import path_part
    from lengthwise.runtime import choose_device

    asked = read_lengths(context)
    try:
        with watching() as listener:
            loaded = open_model(model, choose_device(device), store, positions.value, trained, dtype.value)
            listener.note(loaded.described())
            contexts = sorted({loaded.trained, *asked}) if asked else [k * loaded.trained for k in (1, 2, 4, 8)]
            if contexts[0] < loaded.trained:
                raise UserError(f"contexts must be {loaded.trained:,} tokens or more, the trained length")
            try:
                settings = MeasureSettings(
                    times=tuple(each / loaded.trained for each in contexts), windows=windows,
                    scored=usual_scored(scored, contexts[0]),
                    depths=depths, trials=trials, heads=heads, seed=seed,
                )  # fmt: skip
            except ValueError as error:
                raise UserError(str(error)) from error
            folder = out or Path("runs") / f"compare-{path_part(loaded.name)}"
            compare(loaded, comparison(loaded, extension, fit), settings, corpus, folder, listener)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes with the lines that are left.")
        raise typer.Exit(130) from None
    _show([folder], folder, as_json)


def study_command(
    study: Annotated[
        str, typer.Argument(help="headscale-small, or a .toml file.", autocompletion=completion.extension_studies)
    ],
    out: Annotated[Path, typer.Option(help="Folder for models and tables; the same command resumes them.")],
    corpus: Annotated[
        Path | None, typer.Option(help="A folder of texts to train on, or what `language prepare` made of it.")
    ] = None,
    models: Annotated[
        list[str],
        typer.Option("--model", metavar="NAME=FOLDER", help="A model that is there already, in place of training one."),
    ] = [],  # noqa: B006
    settings: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, e.g. training.tokens=1000000.")
    ] = [],  # noqa: B006
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between saved states.")] = 20.0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train the models of a study on a corpus, extend them in every way that its lines say, and measure each."""
    require_extension_study(study)
    from lengthwise.context_extension.extension_study import load_extension_study, run_extension_study

    given = {}
    for text in models:
        name, equals, folder = text.partition("=")
        if not (name and equals and folder):
            raise UserError(f"--model {text!r} must look like rotary=runs/rope")
        given[name] = Path(folder)
    chosen = [each.given(given) for each in load_extension_study(study, settings)]
    try:
        with watching() as listener:
            tables = run_extension_study(chosen, corpus, out, device, save_every, listener)
    except KeyboardInterrupt:
        messages.print("Stopped. The same command resumes.")
        raise typer.Exit(130) from None
    _show(tables, out, as_json)


def report_command(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `extend compare` or `extend study` has written.")],
    out: Annotated[
        Path | None,
        typer.Option(help="A .html page (context-extension.html), perplexity by context as .svg or .png, or a folder."),
    ] = None,
    kind: Annotated[
        ExtensionReportFormat | None,
        typer.Option("--format", help="csv: a folder of tables; svg, png: a folder of figures."),
    ] = None,
) -> None:
    """Write a page about extended models, beside the published table, or its tables and figures."""
    from lengthwise.report.context_extension_export import write_extension_report

    written = write_extension_report(folders, out, kind)
    say(f"Wrote {written}")


def _show(tables: list[Path], out: Path, as_json: bool) -> None:
    """Prints the tables, and leaves them as Markdown beside the rows."""
    from lengthwise.context_extension.tables import extension_markdown, extension_tables
    from lengthwise.records.files import write_text
    from lengthwise.report.model.context_extension import load_extension_tables

    groups = load_extension_tables(tables)
    write_text(out / "table.md", extension_markdown(groups))
    rows: list[dict[str, Any]] = [
        {"study": group.title, "kind": kind, **row}
        for group in groups
        for kind in ("perplexity", "passkey", "heads")
        for row in getattr(group, kind)
    ]
    print_tables(extension_tables(groups), rows, as_json)
    if not as_json:
        say(f"Rows in {out}")
        say_next(messages, ["lengthwise", "extend", "report", out])
