"""What is done to a subject before it is measured: nothing, extensions, or what was fitted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise import configuration
from lengthwise.context_extension.fit_files import SavedFit, load_fit
from lengthwise.context_extension.loaded_model import LoadedModel, at_context
from lengthwise.errors import UserError
from lengthwise.extensions.extended import Extended, extended, make_extension


@dataclass(frozen=True)
class Variant:
    subject: LoadedModel
    extensions: list[dict[str, Any]] = field(default_factory=list)
    """After those of the fit, where there is one."""
    fitted: SavedFit | None = None

    def __call__(self, context: int) -> Extended:
        """The model as it reads so many tokens."""
        if self.fitted is None:
            return self.subject.extended(self.extensions, context)
        model = self.fitted.extended(self.subject, context)
        chosen = [make_extension(at_context(table, context, self.subject.trained)) for table in self.extensions]
        return extended(model, chosen, context) if chosen else model

    @property
    def label(self) -> str:
        if self.fitted is not None:
            settings = self.fitted.settings
            tables = [{"name": "head-scale"}] if settings.head_scale else settings.extensions
            how = " by entropy" if settings.method == "entropy" else ""
            fitted = f"{_label(tables)}, fitted at {settings.length}{how}"
            return " + ".join([fitted, *map(_one, self.extensions)])
        return _label(self.extensions) or "as trained"


BETWEEN = re.compile(r",(?![^\[]*\])")
"""A comma between settings; those within a list are of the list."""


def variant(subject: LoadedModel, extensions: Sequence[str] = (), fit: Path | None = None) -> Variant:
    """From what the command line says."""
    return Variant(
        subject,
        [extension_table(text) for text in extensions],
        None if fit is None else load_fit(fit, subject),
    )


def extension_table(text: str) -> dict[str, Any]:
    """`yarn:factor=4,ramp=turns` as a table of a name and settings; `factor=auto` follows the context."""
    name, _, settings = text.partition(":")
    if not name:
        raise UserError(f"{text!r} names no extension; write for example yarn:factor=4")
    try:
        return configuration.override({"name": name.strip()}, [each for each in BETWEEN.split(settings) if each])
    except UserError:
        raise UserError(f"{text!r} must look like yarn:factor=4 or yarn:factor=4,ramp=turns") from None


def _label(tables: Sequence[dict[str, Any]]) -> str:
    return " + ".join(map(_one, tables))


def _one(table: dict[str, Any]) -> str:
    settings = ",".join(f"{name}={value}" for name, value in table.items() if name != "name")
    return f"{table['name']}:{settings}" if settings else table["name"]
