"""Names of runs, labels, titles and studies: what they may be, and how they become parts of a path."""

import hashlib
import re
from pathlib import Path

from lengthwise.door import is_odd, visible
from lengthwise.errors import UserError

LONGEST = 200
"""Letters of a name."""
LONGEST_PART = 100
"""Letters of a part of a path, which file systems limit to 255 bytes; a checksum and an ending are added to some."""
OURS = frozenset(("lock", "study.json", "runs.jsonl", "rows.jsonl.gz", "failures.jsonl.gz", "fleets", "analysis"))
"""What else is in a study's folder."""


def path_part(name: str) -> str:
    """A name as one part of a path: nothing in it leads elsewhere, and no two names become the same.

    A name of plain letters stays as it is. Any other gets a checksum of what it was.
    """
    kept = plain(name)
    if kept == name and name[:1] not in ("", ".") and len(name) <= LONGEST_PART and name.lower() not in OURS:
        return name
    checksum = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{re.sub('^[.]+', '_', kept)[:LONGEST_PART]}~{checksum}"


def plain(name: str) -> str:
    """A name with `_` for what is not plain. Different names may become the same; see `path_part`."""
    return re.sub(r"[^A-Za-z0-9._=,()+-]", "_", name)


def earlier_path_part(name: str) -> str | None:
    """What `path_part` was before it had checksums, where that differs and was safe: runs of then are still there."""
    part = plain(name)
    return part if part != path_part(name) and part.strip(".") and len(part) < 256 and part not in OURS else None


def places(folder: Path, *names: str) -> list[Path]:
    """Where something of these names is within a folder: as it is named now, then as it was named earlier."""
    now = folder.joinpath(*map(path_part, names))
    earlier = folder.joinpath(*(earlier_path_part(name) or path_part(name) for name in names))
    return list(dict.fromkeys((now, earlier)))


def refuse_unfit(name: object, what: str) -> str:
    """The name, if it can be shown in a table and be part of a path; `what` says whose name it is."""
    if not isinstance(name, str) or not name.strip() or "/" in name or name.startswith("."):
        own = isinstance(name, str) and name.endswith(".py")
        hint = "; a file of your own goes by its name alone, in a folder that LENGTHWISE_PATH leads to" if own else ""
        raise UserError(f"{what} must be a plain word, not {visible(repr(name), 60)}{hint}")
    if len(name) > LONGEST:
        raise UserError(f"{what} must have at most {LONGEST} letters, not {len(name):,}: {visible(name, 40)}")
    for letter in name:
        if is_odd(letter):
            raise UserError(f"{what} has the letter U+{ord(letter):04X}, which cannot be seen; leave it out")
    return name


def study_folder(name: str) -> Path:
    """Where a study's runs are if nobody says where."""
    earlier = Path("runs") / name
    return earlier if earlier.is_dir() else Path("runs") / path_part(name)
