"""Names are checked before anything heavy is imported or written: a wrong one is refused in under a second."""

from collections.abc import Sequence
from pathlib import Path

from lengthwise.errors import UserError, nearest

ALL = "all"
"""What `--encoding` may say in `bench`."""


def require_encodings(names: Sequence[str]) -> None:
    from lengthwise.encodings.choice import read_encoding

    for name in names:
        if name != ALL:
            read_encoding(name)


def require_task(name: str) -> str:
    """The name that results carry."""
    from lengthwise import registry

    return name if name.endswith(".jsonl") else registry.tasks.entry(name).name


def require_sizes(names: Sequence[str]) -> None:
    from lengthwise.model.config import SIZES

    for name in names:
        if name not in SIZES:
            raise UserError(f"unknown size {name!r}; {nearest(name, SIZES)}")


def require_extensions(texts: Sequence[str]) -> None:
    from lengthwise.extensions.naming import extension_table

    for text in texts:
        extension_table(text)


def require_extension_study(name: str) -> None:
    from lengthwise.study import shipped_extension_studies, summary_of
    from lengthwise.words import spelled

    known = shipped_extension_studies()
    if not spelled(name, known) and Path(name).suffix != ".toml":
        raise UserError(f"unknown study {name!r}; {nearest(name, known, summary_of)} (a file must end in .toml)")


def require_parts(runs: Path, only: str, reference: str = "") -> None:
    """Of a study's folder: `only` names parts of it, `reference` one of its encodings."""
    from lengthwise.records.choosing import named
    from lengthwise.records.finished import finished_names
    from lengthwise.selection import refuse_unknown

    known = finished_names(runs)
    refuse_unknown(only, known)
    labels = known["encoding"]
    if reference and named(reference, "encoding", labels) not in labels and len(labels) > 1:
        hint = nearest(reference, labels)
        raise UserError(f"no run has the encoding {reference!r} to compare with; {hint} (--reference)")
