"""The command `extend merge`: extensions as part of a model's weights and config."""

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli.extend_options import AtPositions, Device, Extensions, Fit, Model, Positions, Trained, watching
from lengthwise.cli.names import require_extensions
from lengthwise.cli.next_steps import after_export
from lengthwise.cli.options import Dtype
from lengthwise.cli.paths import named_path
from lengthwise.cli.printing import messages, say


def merge_command(
    model: Model,
    out: Annotated[Path, typer.Option(parser=named_path, metavar="DIR", help="A new folder.")],
    extension: Extensions = [],  # noqa: B006
    fit: Fit = None,
    positions: AtPositions = Positions.auto,
    trained: Trained = 0,
    dtype: Annotated[
        Dtype, typer.Option(help="Of the weights; auto: as they were saved, or fp32 where rounding would show.")
    ] = Dtype.auto,
    device: Device = "auto",
) -> None:
    """Write a model with its extensions in weights and config, for Transformers without lengthwise."""
    require_extensions(extension)
    from lengthwise.context_extension.merging import merge_folder

    with watching() as listener:
        done = merge_folder(model, out, extension, fit, positions.value, trained, device, dtype.value, listener)
    told = f"Wrote {done.folder}: {done.architecture}, logits within {done.difference:.1g} (relative) of the extended"
    say(f"{told} model's")
    for line in done.told:
        say(f"  {line}")
    after_export(messages, done.folder, native=True)
