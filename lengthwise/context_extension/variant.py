"""What is done to a model before it is measured: nothing, extensions, or what was fitted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.context_extension.fit_files import SavedFit, load_fit
from lengthwise.context_extension.loaded_model import LoadedModel, at_context
from lengthwise.context_extension.reader import Reader
from lengthwise.extensions.extended import make_extension
from lengthwise.extensions.naming import extension_table


@dataclass(frozen=True)
class Variant:
    loaded: LoadedModel
    extensions: list[dict[str, Any]] = field(default_factory=list)
    """After those of the fit, where there is one."""
    fitted: SavedFit | None = None

    def __call__(self, context: int) -> Reader:
        """The model as it reads so many tokens."""
        if self.fitted is None:
            return self.loaded.extended(self.extensions, context)
        model = self.fitted.extended(self.loaded, context)
        chosen = [make_extension(at_context(table, context, self.loaded.trained)) for table in self.extensions]
        return model.extended(chosen, context) if chosen else model

    @property
    def label(self) -> str:
        if self.fitted is not None:
            settings = self.fitted.settings
            own = [{"name": "head-scale"}] if settings.scales == "head" else [{"name": "layer-scale"}]
            tables = own if settings.head_scale else settings.extensions
            how = " by entropy" if settings.method == "entropy" else ""
            fitted = f"{label_of(tables)}, fitted at {settings.length}{how}"
            return " + ".join([fitted, *map(_one, self.extensions)])
        return label_of(self.extensions) or "as trained"


def variant(loaded: LoadedModel, extensions: Sequence[str] = (), fit: Path | None = None) -> Variant:
    """From what the command line says."""
    return Variant(
        loaded,
        [extension_table(text) for text in extensions],
        None if fit is None else load_fit(fit, loaded),
    )


def label_of(tables: Sequence[dict[str, Any]]) -> str:
    return " + ".join(map(_one, tables))


def _one(table: dict[str, Any]) -> str:
    settings = ",".join(f"{name}={value}" for name, value in table.items() if name != "name")
    return f"{table['name']}:{settings}" if settings else table["name"]
