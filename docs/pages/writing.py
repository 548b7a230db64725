"""Pages that are made are written where they have changed."""

from collections.abc import Mapping
from pathlib import Path


def write_changed(contents: Mapping[Path, str], root: Path) -> None:
    """`contents`: of each file what it must hold. Says what was written."""
    changed = {file: text for file, text in contents.items() if not file.exists() or file.read_text() != text}
    for file, text in changed.items():
        file.write_text(text)
    print("\n".join(f"wrote {file.relative_to(root)}" for file in changed) or "nothing changed")
