"""What a shell completes: names of things and folders of runs. Reads sources and folders, and imports no torch."""

import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lengthwise.errors import UserError

Offered = list[tuple[str, str]]
"""What may stand there, and what it is."""

MOST_FOLDERS = 200
WIDEST = 60
"""Letters of what is said about a name: shells read a line for each."""
MARKS = ("study.json", "runs.jsonl")
"""Files by which a folder of runs or of collected results is known."""


def tasks(incomplete: str) -> Offered:
    from lengthwise import registry

    return _beginning(incomplete, lambda: ((name, registry.tasks.about(name)) for name in registry.tasks.entries))


def encodings(incomplete: str) -> Offered:
    """Encodings, mixers, and published choices of them."""
    from lengthwise import registry
    from lengthwise.presets import PRESETS

    def known() -> Iterator[tuple[str, str]]:
        for each in (registry.encodings, registry.mixers):
            yield from ((name, each.about(name)) for name in each.entries)
        yield from ((name, preset.summary) for name, preset in PRESETS.items())

    return _beginning(incomplete, known)


def extensions(incomplete: str) -> Offered:
    """Names first, then their settings: `yarn:factor=`."""
    from lengthwise import registry

    def known() -> Iterator[tuple[str, str]]:
        for name, entry in registry.extensions.entries.items():
            yield name, registry.extensions.about(name)
            if incomplete.startswith(f"{name}:"):
                before = incomplete.rpartition("," if "," in incomplete else ":")
                yield from ((f"{before[0]}{before[1]}{setting}=", "") for setting in entry.settings)

    return _beginning(incomplete, known)


def studies(incomplete: str) -> Offered:
    """Those that are shipped, and files."""
    folder = Path(__file__).parent.parent / "studies"
    return [*_beginning(incomplete, lambda: _summaries(folder)), *_files(incomplete, ".toml")]


def extension_studies(incomplete: str) -> Offered:
    folder = Path(__file__).parent.parent / "context_extension"
    return [*_beginning(incomplete, lambda: _summaries(folder)), *_files(incomplete, ".toml")]


def runs(incomplete: str) -> Offered:
    """Folders of a study's runs or of collected results, however deep; then any folder, on the way to one."""
    begun = Path(incomplete)
    parent = begun if incomplete.endswith("/") else begun.parent
    found: Offered = []
    for folder in _folders(parent):
        if str(folder).startswith(incomplete) and any((folder / mark).exists() for mark in MARKS):
            found.append((str(folder), "results"))
    return found or [(f"{each}/", "") for each in _folders(parent, depth=1) if str(each).startswith(incomplete)]


def devices(incomplete: str) -> Offered:
    known = {"auto": "a GPU where there is one", "cpu": "", "cuda": "all GPUs", "cuda:0": "the first GPU"}
    return _beginning(incomplete, known.items)


def sizes(incomplete: str) -> Offered:
    from lengthwise.model.config import SIZES

    def known() -> Iterator[tuple[str, str]]:
        for name, shape in SIZES.items():
            yield name, f"{shape['layers']} layers, width {shape['width']}"

    return _beginning(incomplete, known)


def parts(ctx: Any, incomplete: str) -> Offered:
    """Of `--only`: `task=`, then the tasks of the study or of the folder that the line names already."""
    given = _word_with_parts(ctx)
    before, comma, last = incomplete.rpartition(",")
    key, equals, _ = last.partition("=")
    if not equals:
        return _beginning(
            incomplete, lambda: ((f"{before}{comma}{each}=", "") for each in ("task", "encoding", "seed"))
        )
    values = _values(str(given), key)
    return _beginning(incomplete, lambda: ((f"{before}{comma}{key}={value}", "") for value in values))


def _word_with_parts(ctx: Any) -> str:
    """The study or the folder on the line: where it ends in an option without its value, nothing is parsed."""
    given = ctx.params.get("study") or ctx.params.get("runs")
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    below = line.split()[len(ctx.command_path.split()) :]
    return str(given or next((word for word in below if not word.startswith("-")), ""))


def _values(given: str, key: str) -> list[str]:
    """Of tasks, encodings or seeds, as a study's file or folder has them."""
    folder = Path(given)
    if given and folder.is_dir():
        found = [file.parent.parts for file in folder.glob("*/*/*/run.json")]
        at = {"task": -3, "encoding": -2, "seed": -1}.get(key, -1)
        return sorted({part[at].split("-")[1] if key == "seed" else part[at] for part in found})
    from lengthwise import configuration

    file = folder if folder.suffix == ".toml" else Path(__file__).parent.parent / "studies" / f"{given}.toml"
    with suppress(UserError, OSError):
        table = configuration.load(file).get(f"{key}s", [])
        named = (each.get("label") or each.get("name") if isinstance(each, dict) else each for each in table)
        return [str(each) for each in named if isinstance(each, str | int)]
    return []


def _beginning(incomplete: str, known: Callable[[], Iterable[tuple[str, str]]]) -> Offered:
    """Those that begin as the word does; nothing where they cannot be read: a shell has no place for an error."""
    with suppress(UserError, OSError):
        found = [each for each in known() if each[0].lower().startswith(incomplete.lower())]
        return [(name, textwrap.shorten(said, WIDEST, placeholder=" ...")) for name, said in found]
    return []


def _summaries(folder: Path) -> Iterator[tuple[str, str]]:
    from lengthwise import configuration

    for file in sorted(folder.glob("*.toml")):
        yield file.stem, str(configuration.load(file).get("summary", ""))


def _files(incomplete: str, ending: str) -> Offered:
    begun = Path(incomplete)
    parent = begun if incomplete.endswith("/") else begun.parent
    with suppress(OSError):
        return [(str(each), "") for each in sorted(parent.glob(f"*{ending}")) if str(each).startswith(incomplete)]
    return []


def _folders(parent: Path, depth: int = 2) -> list[Path]:
    """Visible folders below one, up to a depth; a few hundred at most, since a shell waits."""
    found: list[Path] = []
    level = [parent]
    for _ in range(depth):
        below: list[Path] = []
        for each in level:
            with suppress(OSError):
                below += [path for path in sorted(each.iterdir()) if path.name[0] != "." and path.is_dir()]
        level = below[:MOST_FOLDERS]
        found += level
    return found[:MOST_FOLDERS]
