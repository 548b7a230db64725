"""The lines of an extension study: a model, and what is done to it. A line may be repeated for several lengths."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lengthwise import configuration, registry
from lengthwise.context_extension.fitting import FitSettings
from lengthwise.context_extension.fitting_entropy import HALVINGS
from lengthwise.errors import UserError
from lengthwise.extensions.extended import make_extension
from lengthwise.extensions.naming import AUTO
from lengthwise.records.names import refuse_unfit

BEST = "best"
"""As a scale: the best uniform one, searched; as `slope`: how it grows with position."""
TIMES = "times"
"""As a setting of an extension: the multiple that the line is for."""
AS_TRAINED = "as trained"
"""As the `passkey_share` of a fit: that of the rows that the model was trained on; 0 where nobody knows."""
AS_MEASURED = "as measured"
"""As `scored` of a fit: as many tokens at the end of a window as are measured."""


@dataclass(frozen=True)
class LineSettings:
    """What a study's file says under `[[lines]]`."""

    name: str
    """With `{times}` in it where there are several."""
    model: str
    times: tuple[float, ...] = ()
    """The line is repeated for each of these multiples of the trained length."""
    extensions: tuple[Any, ...] = ()
    """Tables of a name and settings, the first one next to the encoding."""
    fit: Any = None
    """Settings of a fit, but for its length, which is `times`."""


@dataclass(frozen=True)
class Line:
    name: str
    model: str
    times: float | None
    extensions: tuple[dict[str, Any], ...]
    fit: dict[str, Any] | None = None
    fitted: Path | None = None
    """The folder of a fit that is there already."""

    def table(self) -> dict[str, Any]:
        """What it is, for a file."""
        return {
            "model": self.model,
            "times": self.times,
            "extensions": [dict(each) for each in self.extensions],
            "fit": self.fit,
            **({} if self.fitted is None else {"fitted": str(self.fitted)}),
        }

    @property
    def searches(self) -> bool:
        """Whether it needs the best uniform scale of its model at the length that it is for."""
        constants = [value for table in self.extensions for name, value in table.items() if name != "slope"]
        return BEST in constants or (self.fit or {}).get("initial") == BEST

    @property
    def searches_growth(self) -> bool:
        return any(table.get("slope") == BEST for table in self.extensions)


def read_lines(
    tables: Iterable[Any], models: Iterable[str], fit: Mapping[str, Any] = MappingProxyType({})
) -> list[Line]:
    """Refuses what cannot be, each with the name of its line. `fit`: settings of all fits, which a line may change."""
    known, found = list(models), []
    for number, table in enumerate(tables, start=1):
        where = f"lines[{number}]"
        settings = configuration.read(LineSettings, table, where)
        if settings.model not in known:
            raise UserError(f"{where}.model: no model is called {settings.model!r}; there are {', '.join(known)}")
        found += _expanded(settings, fit, where)
    names = [line.name for line in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two lines are called {twice[0]!r}; give one another name")
    return found


def _expanded(settings: LineSettings, common: Mapping[str, Any], where: str) -> list[Line]:
    refuse_unfit(settings.name, f"{where}.name")
    if any(each <= 0 for each in settings.times):
        raise UserError(f"{where}.times must be above 0, not {list(settings.times)}")
    if len(settings.times) > 1 and "{times}" not in settings.name:
        raise UserError(f"{where}.name must have {{times}} in it, since the line is repeated for {len(settings.times)}")
    found = []
    for times in settings.times or (None,):
        name = settings.name if times is None else settings.name.replace("{times}", f"{times:g}")
        extensions = tuple(_put(each, times, where) for each in settings.extensions)
        fit = None if settings.fit is None else _fit(settings.fit, common, times, where)
        line = Line(name, settings.model, times, extensions, fit)
        if times is None and (line.searches or fit is not None):
            raise UserError(f"{where} ({name}) must say with times for which lengths it is fitted or searched")
        found.append(line)
    return found


def _put(table: Any, times: float | None, where: str) -> dict[str, Any]:
    """The table with `times` put in; its extension exists and takes such settings."""
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise UserError(f'{where}.extensions must be tables like {{ name = "yarn", factor = "auto" }}, not {table!r}')
    found = {**table, "name": registry.extensions.entry(table["name"]).name}
    if TIMES in found.values():
        if times is None:
            raise UserError(f"{where}: an extension is for {TIMES!r}, so the line must say with times for which")
        found = {name: times if value == TIMES else value for name, value in found.items()}
    make_extension({name: 2.0 if value in (BEST, AUTO) else value for name, value in found.items()})  # refuses
    return found


def _fit(table: Any, common: Mapping[str, Any], times: float | None, where: str) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise UserError(f"{where}.fit must be a table of settings, not {table!r}")
    if "length" in table:
        raise UserError(f"{where}.fit.length is {TIMES!r} of the line; leave it out")
    found = {**common, **table}
    if "extensions" in found:
        found["extensions"] = [_put(each, times, where) for each in found["extensions"]]
    sample = {**found, "length": 2**30}
    sample |= {"initial": 2.0} if found.get("initial") == BEST else {}
    sample |= {"passkey_share": 0.0} if found.get("passkey_share") == AS_TRAINED else {}
    sample |= {"scored": 0} if found.get("scored") == AS_MEASURED else {}
    configuration.read(FitSettings, sample, f"{where}.fit")  # refuses now what would be refused after training
    return found


def fit_settings(
    line: Line, trained: int, seed: int, best: Callable[[int], float], key_rows: float | None = None, scored: int = 0
) -> FitSettings:
    """`best`: context -> best uniform scale. `key_rows`: share of training rows that held passkey documents.

    `scored`: tokens of a window that are measured.
    """
    assert line.fit is not None and line.times is not None
    length = round(line.times * trained)
    table = {"seed": seed, **line.fit, "length": length}
    if table.get("method") == "entropy":
        table.setdefault("steps", HALVINGS)
    floor = table.get("floor", 1.0)
    if table.get("initial") == BEST:
        table["initial"] = max(best(length), floor)
    if table.get("passkey_share") == AS_TRAINED:
        table["passkey_share"] = key_rows or 0.0
    if table.get("scored") == AS_MEASURED:
        table["scored"] = scored
    return configuration.read(FitSettings, table, f"the fit of {line.name}")


def extension_tables(
    line: Line, trained: int, best: Callable[[int], float], slope: Callable[[], float]
) -> list[dict[str, Any]]:
    """With what was searched put in; `auto` stays, since it is of the context."""
    found = []
    for table in line.extensions:
        values = dict(table)
        for name, value in table.items():
            if value == BEST:
                values[name] = max(0.0, slope()) if name == "slope" else best(round((line.times or 1) * trained))
        found.append(values)
    return found
