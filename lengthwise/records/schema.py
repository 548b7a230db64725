"""What the files of runs and collections may hold, field by field: docs/rows.md is about these tables.

Fields that are not named here may be there, since later versions write more: they are kept, and no number is made of
them.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lengthwise.door import COUNT, SHARE, WHOLE, List, Number, Object, Schema, Text, Truth, visible
from lengthwise.errors import RunError

VERSION = 1
"""Of all this; `version` in study.json says which a folder is of, and without it, it is 1."""

MOST_AXES = 100
"""Of a grid."""

CHECKPOINTS = ("last", "best")
ERROR_KINDS = ("wrong_symbol", "stopped_early", "ran_on")
"""First errors: with `correct`, every example is in exactly one of these."""


@dataclass(frozen=True)
class Checked(Schema):
    """What fits another schema, with something that must hold between its parts."""

    base: Schema = field(default_factory=Schema)
    between: Callable[[Any], str | None] = lambda value: None
    """What is wrong, or None."""

    def checked(self, value: Any, where: str) -> Any:
        self.base.checked(value, where)
        if value is not None and (problem := self.between(value)) is not None:
            raise RunError(f"{where} {problem}; restore the file, or make it again")
        return value


@dataclass(frozen=True)
class TableOf(Schema):
    """A table of any names, with values of one kind."""

    of: Schema = field(default_factory=Schema)
    most: int = 10_000

    def checked(self, value: Any, where: str) -> Any:
        Object().checked(value, where)
        if len(value) > self.most:
            raise RunError(f"{where} must have at most {self.most:,} fields, not {len(value):,}; restore the file")
        for name, each in value.items():
            self.of.checked(each, f"{where}: {visible(name, 60)}")
        return value


@dataclass(frozen=True)
class Name(Text):
    """A text that is not empty."""

    most: int = 300

    def problem(self, value: Any) -> str | None:
        return "must not be empty" if value == "" else super().problem(value)


@dataclass(frozen=True)
class SettingValue(Schema):
    """A value of a setting that a grid varies: a text, a number, true or false, or a list of whole numbers."""

    def checked(self, value: Any, where: str) -> Any:
        if isinstance(value, list):
            return List(SEED, most=10_000).checked(value, where)
        kind = Name(most=1000) if isinstance(value, str) else Truth() if isinstance(value, bool) else Number()
        return kind.checked(value, where)


NAME, WORDS, TRUTH = Name(), Text(most=100_000), Truth()
SEED = Number(least=0, most=WHOLE, whole=True)
LENGTH = Number(least=1, most=10**9, whole=True)
FEW = Number(least=0, most=10**6, whole=True)
"""Layers, heads, tokens of a separator."""
EXAMPLES = Number(least=1, most=10**12, whole=True)
COUNTED = Number(least=0, most=10**12, whole=True)
SOME_COUNT = Number(least=0, most=10**12, whole=True, nullable=True)
NUMBER, SOME_NUMBER = Number(), Number(nullable=True)
AMOUNT = Number(least=0)


def _is_span(found: list[int]) -> str | None:
    return None if len(found) == 2 and found[0] <= found[1] else "must be the first and the last length"


SPAN = Checked(List(LENGTH, most=2), _is_span)
SOME_SPAN = Checked(List(LENGTH, most=2, nullable=True), _is_span)


# Rows


def _row_between(row: Mapping[str, Any]) -> str | None:
    n, judged = row["n"], row["correct"] + sum(row[kind] for kind in ERROR_KINDS)
    if row["correct"] > n:
        return f"has {row['correct']:,} correct of {n:,} examples"
    if judged != n:
        return f"has {judged:,} examples in correct, {', '.join(ERROR_KINDS)}, but n is {n:,}"
    if "answers" in row and "right" not in row["answers"]:
        return "has no 'right' in answers"
    if "answers" in row and sum(row["answers"].values()) > n:
        return f"has {sum(row['answers'].values()):,} examples in answers, but n is {n:,}"
    return None


ROW_FIELDS: dict[str, Schema] = {
    "run": NAME,
    "task": NAME,
    "encoding": NAME,
    "seed": SEED,
    "checkpoint": Text(choices=CHECKPOINTS),
    "length": LENGTH,
    "seen": TRUTH,
    "n": EXAMPLES,
    "correct": COUNTED,
    **dict.fromkeys(ERROR_KINDS, COUNTED),
}
FURTHER_ROW_FIELDS: dict[str, Schema] = {
    "chance": SHARE,
    "bucket": COUNT,
    "step": COUNTED,
    "tokens": COUNTED,
    "right_tokens": COUNTED,
    "sequence_tokens": AMOUNT,
    "answers": TableOf(COUNTED, most=100),
}
ROW = Checked(Object(ROW_FIELDS, FURTHER_ROW_FIELDS), _row_between)
"""A row of rows.jsonl: what a run got right at one length, at one checkpoint."""


def surely_rows(columns: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether rows of the same fields, given as columns, fit ROW: asked of whole columns, which is quick.

    False also where that cannot say: ROW then decides, row by row.
    """
    if not ROW_FIELDS.keys() <= columns.keys() or "answers" in columns:
        return False
    return all(_surely(name, column) for name, column in columns.items()) and _surely_between(columns)


def _surely(name: str, column: tuple[Any, ...]) -> bool:
    kinds = set(map(type, column))
    schema = ROW_FIELDS.get(name) or FURTHER_ROW_FIELDS.get(name)
    match schema:
        case Number():
            allowed = {int} if schema.whole else {int, float}
            return kinds <= allowed and schema.least <= min(column) <= max(column) <= schema.most
        case Text():
            return kinds == {str} and all(schema.problem(value) is None for value in set(column))
        case Truth():
            return kinds == {bool}
    if kinds <= {int, float}:  # of a later version
        return -WHOLE <= min(column) <= max(column) < WHOLE
    return kinds <= {str, bool, type(None)}


def surely_value(name: str, value: Any) -> bool:
    """Whether a field of a row may have this value; False also where ROW must decide."""
    return name != "answers" and _surely(name, (value,))


def _surely_between(columns: Mapping[str, tuple[Any, ...]]) -> bool:
    judged = (columns["correct"], *(columns[kind] for kind in ERROR_KINDS))
    return tuple(map(sum, zip(*judged, strict=True))) == columns["n"]


# Descriptions of runs


@dataclass(frozen=True)
class MethodsOfLayer(Schema):
    """The table of an encoding, or several of them as `methods`."""

    def checked(self, value: Any, where: str) -> Any:
        several = isinstance(value, dict) and "methods" in value
        schema = Object({"methods": List(_METHOD, most=100)}) if several else _METHOD
        return schema.checked(value, where)


_METHOD = Object({"name": NAME})
SETTINGS = Object(
    {
        "task": Object({"name": NAME}),
        "encoding": List(MethodsOfLayer(), most=10_000),
        "model": Object(
            {},
            {
                "size": NAME,
                "style": NAME,
                "width": FEW,
                "layers": FEW,
                "heads": FEW,
                "key_value_heads": FEW,
                "feed_forward": FEW,
                "dropout": SHARE,
            },
        ),
        "data": Object(
            {},
            {
                "train_lengths": SOME_SPAN,
                "test_lengths": SOME_SPAN,
                "test_at": List(LENGTH, nullable=True),
                "placement": NAME,
                "examples": SOME_COUNT,
                "validation": SOME_COUNT,
                "test_per_length": SOME_COUNT,
                "scratchpad": NAME,
                "tokens": NAME,
                "held_out": NAME,
                "anchor": TRUTH,
                "trimmed": TRUTH,
                "rows": COUNTED,
                "prefix_tokens": FEW,
                "separator_tokens": FEW,
                "watched": COUNTED,
            },
        ),
        "training": Object(
            {},
            {"steps": COUNTED, "batch": COUNTED, "learning_rate": AMOUNT, "precision": NAME, "best": NAME},
        ),
    },
    {"numerics": FEW, "seed": SEED},
)

ABOUT: dict[str, Schema] = {"fingerprint": NAME, "name": Name(most=1000), "task": NAME, "encoding": NAME, "seed": SEED}
"""Which run it is."""

DESCRIPTION = Object(
    {
        **ABOUT,
        "settings": SETTINGS,
        "train_lengths": SPAN,
        "test_lengths": SPAN,
        "encoding_of_each_layer": List(NAME, most=10_000),
        "encoding_resolved": TableOf(Object()),
        "attention_scale": NUMBER,
        "parameters": COUNTED,
        "parameters_of_encoding": COUNTED,
        "started": NAME,
        "commit": NAME,
        "versions": TableOf(WORDS),
        "hardware": Object({"device": NAME, "processors": SOME_COUNT, "machine": WORDS}),
    },
    {
        "lengths_with_shared_examples": List(LENGTH),
        "precision": NAME,
        "examples": TableOf(SOME_COUNT),
        "sessions": List(Object()),
        "outside": TableOf(NAME),
        "grid": TableOf(SettingValue(), most=MOST_AXES),
    },
)
"""run.json, and `description` in runs.jsonl."""

FINISHED = Object(
    {"trained_together": EXAMPLES, "seconds_together": AMOUNT},
    {
        "steps": COUNTED,
        "best_step": SOME_COUNT,
        "best_validation": Number(least=-1, most=1, nullable=True),
        "diverged_at": SOME_COUNT,
        "validations": List(
            Object({"step": COUNTED, "validation": SHARE}, {"unseen": Number(least=0, most=1, nullable=True)})
        ),
    },
)
"""finished.json, and `finished` in runs.jsonl."""

RUN = Object({"description": DESCRIPTION, "finished": FINISHED})

STUDY = Object(
    {},
    {
        "name": NAME,
        "version": Number(least=1, most=WHOLE, whole=True),
        "summary": WORDS,
        "tasks": List(most=100_000),
        "encodings": List(most=100_000),
        "seeds": List(SEED, most=100_000),
        "task_order": List(NAME, most=100_000),
        "encoding_order": List(NAME, most=100_000),
        "unfinished": List(Name(most=1000)),
        "model": Object(),
        "data": Object(),
        "training": Object(),
        "grid": TableOf(List(SettingValue(), most=100_000), most=MOST_AXES),
    },
)
"""study.json."""

FAILURE = Object(
    {
        "run": NAME,
        "length": LENGTH,
        "prompt": Text(most=10**7),
        "target": Text(most=10**7),
        "predicted": List(WORDS),
        "first_error": COUNTED,
        "kind": NAME,
    },
    {"right_text": Text(most=10**7)},
)
"""A row of failures.jsonl."""


# What analyses found

FINDING = Object(
    {"run": NAME},
    {
        "reference_run": NAME,
        "task": NAME,
        "encoding": NAME,
        "seed": SEED,
        "checkpoint": Text(choices=CHECKPOINTS),
        "layer": FEW,
        "head": FEW,
    },
)
"""Of any kind: rows of kinds that are not named below."""

_ABOUT: dict[str, Schema] = {
    "run": NAME,
    "task": NAME,
    "encoding": NAME,
    "seed": SEED,
    "checkpoint": Text(choices=CHECKPOINTS),
}
_SCORE = Object({"r2": SOME_NUMBER, "error": SOME_NUMBER, "slope": SOME_NUMBER}, {"n": COUNTED})
_SOME_SHARE = Number(least=0, most=1 + 1e-6, nullable=True)
LAYER = Number(least=1, most=10**4, whole=True)


def _same_lengths(*names: str) -> Callable[[Mapping[str, Any]], str | None]:
    def found(row: Mapping[str, Any]) -> str | None:
        alike = len({len(row[name]) for name in names}) == 1
        return None if alike else f"has lists of different lengths: {', '.join(names)}"

    return found


def _holds(row: Mapping[str, Any]) -> str | None:
    for name in ("holds_until", "by_position"):
        if not row["control"] and row.get(name) is None:
            return f"has no {name!r}"
    return None


def _parts(row: Mapping[str, Any]) -> str | None:
    if len(row["first_error_part"]) != 10:
        return f"has {len(row['first_error_part'])} parts in first_error_part, not 10"
    if row["n"] > row["correct"] and row["first_error_share"] is None:
        return "has wrong answers and no first_error_share"
    return _row_between(row)


def _map(example: Mapping[str, Any]) -> str | None:
    """The weights are bytes, as many as layers x heads x pairs of a token with itself or one before it."""
    try:
        bytes_of = len(base64.b64decode(example["weights"], validate=True))
    except (binascii.Error, ValueError):
        return "has weights that are no bytes in base 64"
    tokens = len(example["tokens"])
    if bytes_of != example["layers"] * example["heads"] * tokens * (tokens + 1) // 2:
        return f"has {bytes_of:,} weights for {tokens:,} tokens"
    return None if example["prompt_tokens"] <= tokens else "has more prompt_tokens than tokens"


DISTANCE = Object(
    {
        **_ABOUT,
        "reference": NAME,
        "reference_run": NAME,
        "variant": Text(choices=("distance", "distance-published")),
        "layer": LAYER,
        "layers": LAYER,
        "length": LENGTH,
        "seen": TRUTH,
        "n": EXAMPLES,
        "distance": AMOUNT,
    },
    {"reference_seed": SEED},
)
FINDINGS: dict[str, Schema] = {
    "distance": DISTANCE,
    "distance-published": DISTANCE,
    "heads": Checked(
        Object(
            {
                **_ABOUT,
                "group": Text(choices=("seen", "unseen")),
                "layer": LAYER,
                "head": LAYER,
                "n": EXAMPLES,
                "tokens_back": Number(least=0, nullable=True),
                "entropy_share": _SOME_SHARE,
                **dict.fromkeys(("first", "previous", "diagonal", "induction"), _SOME_SHARE),
                "even": Object(
                    dict.fromkeys(("previous", "diagonal", "induction"), SOME_NUMBER),
                    {"tokens_back": SOME_NUMBER, "first": SOME_NUMBER},
                ),
                "distance_up_to": List(COUNTED, most=100_000),
                "distance_share": List(NUMBER, most=100_000),
                "entropy_by_position": List(NUMBER, most=10**6),
                "entropy_bound": List(NUMBER, most=10**6),
                "first_by_position": List(NUMBER, most=10**6),
            }
        ),
        _same_lengths("distance_up_to", "distance_share"),
    ),
    "probes": Checked(
        Object(
            {
                **_ABOUT,
                "target": NAME,
                "probe": NAME,
                "layer": FEW,
                "control": TRUTH,
                "within": _SCORE,
                "beyond": _SCORE,
                "trained_tokens": COUNTED,
            },
            {
                "holds_until": SOME_COUNT,
                "accuracy_holds_until": Object({"tokens": COUNTED}, nullable=True),
                "by_position": Checked(
                    Object({"position": List(COUNTED, most=10**6), "error": List(NUMBER, most=10**6)}),
                    _same_lengths("position", "error"),
                ),
            },
        ),
        _holds,
    ),
    "failures": Checked(
        Object(
            {
                **_ABOUT,
                "length": LENGTH,
                "seen": TRUTH,
                "n": EXAMPLES,
                "correct": COUNTED,
                **dict.fromkeys(ERROR_KINDS, COUNTED),
                "first_error_part": List(COUNTED, most=10),
                "first_error_share": Number(least=0, most=1, nullable=True),
                "beyond_trained": COUNTED,
            }
        ),
        _parts,
    ),
    "maps": Object(
        {
            **_ABOUT,
            "examples": List(
                Checked(
                    Object(
                        {
                            "length": LENGTH,
                            "seen": TRUTH,
                            "prompt_tokens": COUNTED,
                            "tokens": List(WORDS, most=10**5),
                            "layers": LAYER,
                            "heads": LAYER,
                            "weights": Text(most=2**26),
                        }
                    ),
                    _map,
                ),
                most=10_000,
            ),
        }
    ),
}
"""Kind -> its rows."""


def finding(kind: str) -> Schema:
    return FINDINGS.get(kind, FINDING)


def refuse_newer(found: Mapping[str, Any], where: str) -> None:
    """Refuses a folder that a later version wrote."""
    if (version := found.get("version", VERSION)) > VERSION:
        raise RunError(f"{where} is of version {version:,}; this one reads up to {VERSION}: install a later lengthwise")
