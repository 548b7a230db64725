"""The command `export`: a trained model as a folder for Transformers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli.next_steps import after_export
from lengthwise.cli.options import Checkpoint
from lengthwise.cli.paths import named_path
from lengthwise.cli.printing import messages, say


class ExportedAs(StrEnum):
    auto = "auto"
    native = "native"
    lengthwise = "lengthwise"


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
    say(told)
    after_export(messages, done.folder, not done.architecture.startswith("Lengthwise"), done.asked)
