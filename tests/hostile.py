"""Collections with hostile names in every field that can hold one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthetic import write_battery
from synthetic_analysis import write_analysis

from lengthwise.records.files import read_json
from lengthwise.records.findings import load_analysis
from lengthwise.records.packed import write_packed
from lengthwise.records.rows import load_results

NAMES = (
    "two\nlines\n# heading\n| a | b |",
    "<script>window.hacked = 1</script>",
    "constructor",
    "__proto__",
    "\x1b[31mred\x1b]0;title\x07",
    "safe\u202egnp.exe\u2066",
    '"><img src=x onerror="window.hacked = 1">',
    "</script><script>window.hacked = 1</script>",
    "toString",
    '=HYPERLINK("http://x")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "[bold red]markup[/]",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; ]]> -->",
    "a|b`c`[d](http://x)",
    "\u0000nul\ufeff",
    "../../etc/passwd",
)
"""The first ones become the names of the study, of tasks and of encodings."""
KEPT = {"last", "best", "none", "seen", "unseen", "distance", "distance-published"}
"""Words that mean something to the reader of the files."""
KEPT_FIELDS = {"run", "fingerprint", "reference_run", "weights", "checkpoint", "group", "variant", "style", "best"}


def write_hostile(folder: Path, analysis: bool = True) -> Path:
    """A collection in which every text is hostile, and every number as it should be."""
    write_battery(folder / "plain", ["copy.repeat", "parity"], ("none", "t5", "rotary"), (1, 2, 3), failures=1, words=4)
    if analysis:
        write_analysis(folder / "plain", layers=2, heads=2, tokens=8)
    made = _Hostile()
    out = folder / "hostile"
    out.mkdir()
    results = load_results(folder / "plain")
    study = read_json(folder / "plain/study.json")
    (out / "study.json").write_text(json.dumps(made.of(study) | {"unfinished": list(NAMES)}))
    _lines(out / "runs.jsonl", [made.of({"description": r.description, "finished": r.finished}) for r in results.runs])
    _lines(out / "rows.jsonl", [made.of(row) for row in results.rows])
    _lines(out / "failures.jsonl", [made.of(row) for run in results.runs for row in run.failures])
    if analysis:
        found = load_analysis(folder / "plain/analysis")
        (out / "analysis").mkdir()
        for kind in ("heads", "probes", "failures", "maps"):
            write_packed(out / "analysis" / f"{kind}.jsonl.gz", [made.of(row) for row in getattr(found, kind)])
        write_packed(out / "analysis/distance.jsonl.gz", [made.of(row) for row in found.distances])
    return out


def _lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class _Hostile:
    """The same text becomes the same hostile one everywhere, different ones become different ones."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def of(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.of(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.of(each, field) for each in value]
        if not isinstance(value, str) or value in KEPT or field in KEPT_FIELDS:
            return value
        if value not in self.known:
            number = len(self.known)
            turn, place = divmod(number, len(NAMES))
            self.known[value] = NAMES[place] + (str(turn) if turn else "")
        return self.known[value]


def texts(value: Any, found: Callable[[str], None]) -> None:
    """Calls `found` with every text in a value."""
    if isinstance(value, str):
        found(value)
    elif isinstance(value, dict):
        for name, each in value.items():
            found(name)
            texts(each, found)
    elif isinstance(value, list | tuple):
        for each in value:
            texts(each, found)
