"""Extensions as the command line names them. Imports no torch, so that a wrong name is refused at once."""

import re
from pathlib import Path
from typing import Any

from lengthwise import configuration, registry
from lengthwise.errors import UserError, nearest

BETWEEN = re.compile(r",(?![^\[]*\])")
"""A comma between settings; those within a list are of the list."""


def extension_table(text: str) -> dict[str, Any]:
    """`yarn:factor=4,ramp=turns` as a table of a name and settings; `factor=auto` follows the context.

    The extension exists; where it comes with the package, so do settings of these names. Its name is the one that
    results carry: `pi` is `position-interpolation`.
    """
    name, _, settings = text.partition(":")
    if not name.strip():
        raise UserError(f"{text!r} names no extension; write for example yarn:factor=4")
    entry = registry.extensions.entry(name.strip())
    try:
        table = configuration.override({"name": entry.name}, [each for each in BETWEEN.split(settings) if each])
    except UserError:
        raise UserError(f"{text!r} must look like yarn:factor=4 or yarn:factor=4,ramp=turns") from None
    shipped = entry.file.parent == Path(__file__).parent  # settings of others may be inherited: not read, but asked
    for setting in table if shipped else ():
        if setting != "name" and setting not in entry.settings:
            hint = nearest(setting, entry.settings) if entry.settings else "it has no settings"
            raise UserError(f"unknown setting 'extension {entry.name}.{setting}'; {hint}")
    return table
