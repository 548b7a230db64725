"""Results as they may be shown: names with letters that nobody sees, and that may steer a terminal, are written out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lengthwise.door import is_odd, visible
from lengthwise.errors import UserError
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.results import Results
from lengthwise.records.row_table import Row
from lengthwise.records.run_result import RunResult

LONGEST = 10**7
IN_TEXTS = "\n\t"
"""Letters that prompts and answers have, and names have not."""


def displayed(results: Results) -> Results:
    """The same where no name needs it; prompts and answers are looked at when they are read."""
    known: Known = {}
    study = {key: _written(value, _name) for key, value in results.study.items()}
    study["summary"] = " ".join(_text(str(results.study.get("summary", ""))).split())
    described = [_written(run.description, _name, known) for run in results.runs]
    for key in ("task", "encoding", "name"):
        _refuse_merged(results, described, key)
    runs = [
        RunResult(description, _written(run.finished, _name, known), run.rows, _texts(run.failures))
        for run, description in zip(results.runs, described, strict=True)
    ]
    unfinished = [_name(name) for name in results.unfinished]
    return replace(results, runs=runs, study=study, unfinished=unfinished, baseline=_name(results.baseline))


def displayed_findings(analysis: AnalysisRows) -> AnalysisRows:
    kinds = analysis.distances, analysis.heads, analysis.probes, analysis.failures, analysis.maps
    return AnalysisRows(*([_written(row, _name) for row in rows] for rows in kinds))


def displayed_table(value: dict[str, Any]) -> dict[str, Any]:
    """A row or a table of facts with every name in it as it may be shown."""
    return _written(value, _name)


def _texts(failures: Sequence[Row]) -> "_Texts":
    """What is displayed already is not written out a second time."""
    return failures if isinstance(failures, _Texts) else _Texts(failures)


class _Texts(Sequence[Row]):
    """Failures whose texts are written out when somebody looks at them."""

    def __init__(self, failures: Sequence[Row]) -> None:
        self._failures = failures

    def __len__(self) -> int:
        return len(self._failures)

    def __getitem__(self, index: Any) -> Any:
        return _written(self._failures[index], _text)

    def __iter__(self) -> Iterator[Row]:
        return (_written(failure, _text) for failure in self._failures)


def _refuse_merged(results: Results, described: Iterable[Row], key: str) -> None:
    """Two names must not look the same: their numbers would be taken together."""
    looks: dict[str, str] = {}
    for run, shown in zip(results.runs, described, strict=True):
        if looks.setdefault(shown[key], run.description[key]) != run.description[key]:
            raise UserError(f"two runs have a {key} that looks like {shown[key]!r}; give one of them another name")


Known = dict[int, tuple[Any, Any]]
"""Identity of a table or list -> itself, which keeps it that, and how it is written."""


def _written(value: Any, write: Callable[[str], str], known: Known | None = None) -> Any:
    """With every text in it as it may be shown; itself where nothing changes, so that what is shared stays so.

    `known`: what is shared by many is written once.
    """
    if isinstance(value, str):
        return write(value)
    if not isinstance(value, dict | list):
        return value
    if known is None:
        return _with_parts_written(value, write, None)
    if id(value) not in known:
        known[id(value)] = value, _with_parts_written(value, write, known)
    return known[id(value)][1]


def _with_parts_written(value: dict[str, Any] | list[Any], write: Callable[[str], str], known: Known | None) -> Any:
    if isinstance(value, dict):
        if _all_plain([*value, *(each for each in value.values() if isinstance(each, str))]):
            parts = {name: each for name, each in value.items() if isinstance(each, dict | list)}
            written = {name: _written(each, write, known) for name, each in parts.items()}
            return value if all(written[name] is each for name, each in parts.items()) else {**value, **written}
        found = {write(name): _written(each, write, known) for name, each in value.items()}
        same = all(new is old for new, old in zip(found.values(), value.values(), strict=False))
        return value if same and found.keys() == value.keys() else found
    if _all_plain(value):
        return value
    items = [_written(each, write, known) for each in value]
    return value if all(new is old for new, old in zip(items, value, strict=True)) else items


def _all_plain(value: list[Any]) -> bool:
    """Whether all in it are texts that are shown as they are; asked of all at once, since answers are long."""
    try:
        text = "".join(value)
    except TypeError:
        return False
    return text.isascii() and text.isprintable()


def _name(text: str) -> str:
    return text if (text.isprintable() and text.isascii()) or not any(map(is_odd, text)) else visible(text, LONGEST)


def _text(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter in IN_TEXTS or not is_odd(letter) else visible(letter) for letter in text)
