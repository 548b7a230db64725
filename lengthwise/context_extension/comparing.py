"""One model under several extensions and fits: the lines of a comparison, measured on one set of targets."""

import re
from collections.abc import Sequence
from pathlib import Path

from lengthwise.context_extension.extension_study import DocumentsOfModels
from lengthwise.context_extension.fit_files import load_fit
from lengthwise.context_extension.lines import Line
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.table import LineTable, MeasureSettings
from lengthwise.context_extension.variant import Variant, label_of
from lengthwise.errors import UserError
from lengthwise.extensions.naming import extension_table
from lengthwise.runtime import Listener

AND = re.compile(r"\+(?=[A-Za-z])")
"""Between extensions that act together; a number such as 1e+3 has the sign, too."""
AS_TRAINED = "as trained"


def comparison(loaded: LoadedModel, extensions: Sequence[str], fits: Sequence[Path]) -> list[Line]:
    """As trained, then a line for each of `extensions` (`a:x=1+b` for two together), then for each of `fits`."""
    lines = [Line(AS_TRAINED, loaded.name, None, ())]
    for text in extensions:
        tables = tuple(extension_table(part) for part in AND.split(text))
        lines.append(Line(label_of(tables), loaded.name, None, tables))
    for folder in fits:
        label = Variant(loaded, [], load_fit(folder, loaded)).label
        same = [line for line in lines if line.name == label]
        lines.append(Line(f"{label} ({folder.name})" if same else label, loaded.name, None, (), fitted=folder))
    names = [line.name for line in lines]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} is to be compared with itself; leave one out")
    if len(lines) == 1:
        raise UserError("say with --extension or --fit what to compare with the model as trained")
    return lines


def compare(
    loaded: LoadedModel,
    lines: Sequence[Line],
    settings: MeasureSettings,
    corpus: Path | None,
    out: Path,
    listener: Listener,
) -> None:
    LineTable({loaded.name: loaded}, lines, settings, out, DocumentsOfModels(corpus, listener.note), listener).run()
