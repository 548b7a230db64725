"""Hostile fits and tables of extended models, made from a good one by a seeded generator; see `hostile_folders`."""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from hostile_folders import (
    GONE,
    RAW,
    VALUES,
    Case,
    change,
    change_raw,
    check,
    cut,
    encode,
    first,
    not_plain,
    paths,
    rewrite,
    scramble,
    text,
)

from lengthwise.context_extension.tables import extension_markdown, extension_tables
from lengthwise.report.html.context_extension import write_extension_page
from lengthwise.report.model.context_extension import load_extension_tables
from lengthwise.report.terminal.table import to_terminal

SOURCE = Path(__file__).parents[1] / "results" / "headscale-small" / "table"
FIT = "fits/head-scale_for_4x"
FILES = ("perplexity.jsonl", "passkey.jsonl", "entropy.jsonl", "long.jsonl", "uniform.json", "table.json")
READ = (*FILES, f"{FIT}/fit.json")
MEANINGLESS = (
    ("perplexity.jsonl", "perplexity", -1.0),
    ("perplexity.jsonl", "times", 0),
    ("perplexity.jsonl", "tokens", 0),
    ("passkey.jsonl", "correct", 11),
    ("passkey.jsonl", "depth", 1.5),
    ("passkey.jsonl", "n", 0),
    ("entropy.jsonl", "bits", -1.0),
    ("uniform.json", "best.1024", "1.2"),
    (f"{FIT}/fit.json", "losses", []),
    (f"{FIT}/fit.json", "trained_numbers", -1),
)


@cache
def good() -> Path:
    """A table of which the longest file has 200 rows, and one fit."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-extension-")) / "table"
    shutil.copytree(SOURCE, folder)
    for other in (folder / "fits").iterdir():
        if other.name != Path(FIT).name:
            shutil.rmtree(other)
    rewrite(folder / "entropy.jsonl", "".join(text(folder / "entropy.jsonl").splitlines(keepends=True)[:200]))
    return folder


def _page(folder: Path, out: Path) -> None:
    groups = load_extension_tables([folder])
    out.mkdir()
    write_extension_page(groups, out / "page.html")


def _table(folder: Path, out: Path) -> None:
    groups = load_extension_tables([folder])
    extension_markdown(groups)
    for table in extension_tables(groups):
        to_terminal(table)


COMMANDS = {"report": _page, "table": _table}


def of_table(changed: Callable[[Path], object], accepted: bool | None = None) -> None:
    check(good(), COMMANDS, changed, accepted)


def cases(seed: int = 0) -> Iterator[Case]:
    generator = random.Random(seed)
    yield "extension: a good table", lambda: of_table(lambda folder: None, accepted=True)
    for file, field, value in MEANINGLESS:
        yield (
            f"extension: {file} {field}={value!r}",
            lambda f=file, p=field, v=value: of_table(lambda folder: change(folder / f, p, v), False),
        )
    for file in READ:
        for path in paths(first(good() / file)):
            for value in (GONE, *generator.sample(VALUES, 2)):
                name = f"extension: {file} {path}={'nothing' if value is GONE else str(value)[:20]!r}"
                yield name, lambda f=file, p=path, v=value: of_table(lambda folder: change(folder / f, p, v))
            raw = generator.choice(RAW)
            name = f"extension: {file} {path}={raw[:20]}"
            yield name, lambda f=file, p=path, v=raw: of_table(lambda folder: change_raw(folder / f, p, v))
        for number in range(3):
            drawn, share = generator.randrange(2**32), generator.random()
            yield f"extension: {file} bytes {number}", lambda f=file, s=drawn: of_table(lambda c: scramble(c / f, s))
            yield f"extension: {file} cut {number}", lambda f=file, s=share: of_table(lambda c: cut(c / f, s))
        yield f"extension: {file} of UTF-16", lambda f=file: of_table(lambda c: encode(c / f, "utf-16"), False)
    learned = f"{FIT}/learned.safetensors"
    for number in range(6):
        drawn, share = generator.randrange(2**32), generator.random()
        yield f"extension: {learned} bytes {number}", lambda s=drawn: of_table(lambda c: scramble(c / learned, s))
        yield f"extension: {learned} cut {number}", lambda s=share: of_table(lambda c: cut(c / learned, s))
    for file in (*READ, learned):
        for name, replaced in not_plain(file):
            yield f"extension: {name}", lambda r=replaced: of_table(r)
