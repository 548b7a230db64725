"""What the files of context extension may hold, field by field: fits, tables of extended models, their rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lengthwise.door import SHARE, WHOLE, List, Number, Object, Schema
from lengthwise.records.schema import (
    AMOUNT,
    COUNTED,
    EXAMPLES,
    FEW,
    LENGTH,
    NAME,
    NUMBER,
    SOME_COUNT,
    SOME_NUMBER,
    TRUTH,
    WORDS,
    Checked,
    TableOf,
)

CHECKSUM = Number(least=0, most=WHOLE, whole=True)
TIMES = Number(least=1, most=10**6)
SCALE = Number(least=0, most=10**6)
BITS = Number(least=0, most=64)
CORRELATION = Number(least=-1 - 1e-6, most=1 + 1e-6, nullable=True)

FIT = Object(
    {
        "settings": Object({"length": LENGTH, "head_scale": TRUTH, "steps": COUNTED}),
        "model": Object({"name": WORDS, "checksum": CHECKSUM, "trained": LENGTH}),
        "trained_numbers": COUNTED,
        "losses": Checked(List(NUMBER), lambda losses: None if losses else "must not be empty"),
        "seconds": AMOUNT,
        "hardware": Object({"device": NAME}, {"processors": SOME_COUNT, "machine": WORDS}),
    }
)
"""fit.json."""


def _by_context(found: Mapping[str, Any]) -> str | None:
    for context in found:
        if not re.fullmatch("[1-9][0-9]{0,8}", context):
            return "must have contexts, in tokens, for its fields"
    return None


def _both(found: Mapping[str, Any]) -> str | None:
    if found["best"].keys() != found["losses"].keys():
        return "must have the same contexts in best and losses"
    untried = [
        each for each, best in found["best"].items() if best not in [scale for scale, _ in found["losses"][each]]
    ]
    return f"has a best scale for {untried[0]} that was not tried" if untried else None


def _two(pair: list[float]) -> str | None:
    return None if len(pair) == 2 else "must be a scale and its loss"


_TRIED = List(Checked(List(NUMBER, most=2), _two))
_UNIFORM = Object(
    {
        "best": Checked(TableOf(SCALE), _by_context),
        "losses": Checked(TableOf(_TRIED), _by_context),
        "slope": NUMBER,
        "determination": SOME_NUMBER,
    },
    {"trained": LENGTH},
)
UNIFORM = Checked(_UNIFORM, _both)
"""uniform.json: the search of one scale for all heads."""


class _Trained(Schema):
    """A length, or one for each model."""

    def checked(self, value: Any, where: str) -> Any:
        return (TableOf(LENGTH, most=100) if isinstance(value, dict) else LENGTH).checked(value, where)


_ABOUT = Object({}, {"study": WORDS, "summary": WORDS, "grid": TableOf(Schema(), most=100), "seed": SOME_COUNT})
TABLE = Object(
    {"settings": Object(), "models": TableOf(CHECKSUM)},
    {
        "folders": TableOf(Object(), most=100),
        "targets": TableOf(NAME, most=100),
        "lines": TableOf(Object(), most=1000),
        "about": _ABOUT,
        "trained": _Trained(),
    },
)
"""table.json."""

_LINE: dict[str, Schema] = {"line": NAME, "family": NAME}
_OF: dict[str, Schema] = {"targets": NAME}
_LOSS: dict[str, Schema] = {
    "context": LENGTH,
    "tokens": EXAMPLES,
    "loss": NUMBER,
    "standard_error": Number(least=0, nullable=True),
    "perplexity": AMOUNT,
}
PERPLEXITY = Object({**_LINE, "times": TIMES, **_LOSS}, _OF)


def _keys_between(row: Mapping[str, Any]) -> str | None:
    return f"has {row['correct']:,} correct of {row['n']:,}" if row["correct"] > row["n"] else None


PASSKEY = Checked(
    Object({**_LINE, "length": LENGTH, "depth": SHARE, "n": EXAMPLES, "correct": COUNTED}, _OF), _keys_between
)
HEADS = Object(
    {
        **_LINE,
        **_OF,
        "times": TIMES,
        "context": LENGTH,
        "layer": FEW,
        "head": FEW,
        "n": EXAMPLES,
        "bits": BITS,
        "distance": AMOUNT,
        **dict.fromkeys(("first", "near", "far", "beyond"), Number(least=0, most=1 + 1e-3)),
    }
)


@dataclass(frozen=True)
class ByKind(Schema):
    """Rows of several kinds in one file."""

    kinds: Mapping[str, Schema] = field(default_factory=dict)
    other: Schema = field(default_factory=Object)
    """Of rows of another kind, or of none."""

    def checked(self, value: Any, where: str) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        schema = self.kinds.get(kind, self.other) if isinstance(kind, str) else self.other
        return schema.checked(value, where)


_HEAD = Object(
    {
        "model": NAME,
        "variant": NAME,
        "layer": FEW,
        "head": FEW,
        "position": COUNTED,
        "n": EXAMPLES,
        "bits": BITS,
        "bound": BITS,
    }
)
_CORRELATIONS = Object(
    {"model": NAME, "overall": CORRELATION, "within_layers": CORRELATION, "by_layer": List(CORRELATION, most=10_000)}
)
ENTROPY = ByKind({"correlation": _CORRELATIONS}, _HEAD)
LONG = ByKind(
    {"perplexity": Object({"model": NAME, "variant": NAME, **_LOSS}, {"memory_bytes": SOME_COUNT})},
    Object({"kind": NAME}),
)

SHARDED = Object({"step": COUNTED, "seconds": AMOUNT, "processes": Number(least=1, most=10**6, whole=True)})
"""Which sharded state is the newest."""
