"""Extensions as the command line names them. Imports no torch, so that a wrong name is refused at once."""

import math
import re
from pathlib import Path
from typing import Any

from lengthwise import configuration, registry
from lengthwise.door import visible
from lengthwise.errors import UserError, nearest

AUTO = "auto"
"""As a factor: how many times longer the context at hand is than the trained one."""
BETWEEN = re.compile(r",(?![^\[]*\])")
"""A comma between settings; those within a list are of the list."""


def extension_table(text: str) -> dict[str, Any]:
    """`yarn:factor=4,ramp=rotations` as a table of a name and settings; `factor=auto` follows the context.

    The extension exists; where it comes with the package, so do settings of these names. Its name is the one that
    results carry: `pi` is `position-interpolation`.
    """
    name, _, settings = text.partition(":")
    if not name.strip():
        raise UserError(f"{text!r} names no extension; write for example yarn:factor=4")
    if "=" in name:
        raise UserError(f"{text!r}: settings stand behind a colon, such as yarn:factor=4")
    entry = registry.extensions.entry(name.strip())
    try:
        table = configuration.override({"name": entry.name}, [each for each in BETWEEN.split(settings) if each])
    except UserError:
        raise UserError(f"{text!r} must look like yarn:factor=4 or yarn:factor=4,ramp=rotations") from None
    shipped = entry.file.parent == Path(__file__).parent  # settings of others may be inherited: not read, but asked
    for setting in table if shipped else ():
        if setting != "name" and setting not in entry.settings:
            hint = nearest(setting, entry.settings) if entry.settings else "it has no settings"
            if ":" in setting:
                hint = "name another extension with another --extension"
            raise UserError(f"unknown setting 'extension {entry.name}.{setting}'; {hint}")
    for setting, default in entry.settings.items() if shipped else ():
        if default == "required" and setting not in table:
            example = "4, or factor=auto, which follows the context" if setting == "factor" else "VALUE"
            raise UserError(f"{entry.name} needs {setting}; write {entry.name}:{setting}={example}")
    _refuse_factor(entry.name, table.get("factor", 1))
    return table


def _refuse_factor(name: str, factor: Any) -> None:
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if factor != AUTO and not (is_number and 1 <= factor < math.inf):
        told = visible(str(factor), 60)
        raise UserError(f"{name}: factor must be a number from 1 up, or auto, which follows the context, not {told!r}")
