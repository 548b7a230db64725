"""Lengths as people write them: `5,10,20-24`."""

import re

from lengthwise.door import visible
from lengthwise.errors import UserError

LONGEST, MOST_LENGTHS = 100_000, 10_000
"""Of what `--lengths` may name."""


def read_lengths(text: str, option: str = "--lengths") -> list[int]:
    """`5,10,20-24` -> 5, 10, 20, 21, 22, 23, 24, each once and in ascending order; an empty text has none."""
    found: set[int] = set()
    for part in text.split(",") if text.strip() else []:
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (match[1], match[2] or match[1]) if match else ("0", "0")
        if max(len(first), len(last)) > 9 or int(last) > LONGEST:
            raise UserError(f"{option} {visible(part.strip(), 40)!r}: lengths go up to {LONGEST:,}")
        if match is None:
            raise UserError(f"{option} {visible(text, 100)!r} must look like 5,10,20-24")
        if int(first) < 1:
            raise UserError(f"{option} {visible(part.strip(), 40)!r}: lengths begin at 1")
        if int(first) > int(last):
            raise UserError(
                f"{option} {visible(part.strip(), 40)!r}: write the smaller first, {int(last)}-{int(first)}"
            )
        found.update(range(int(first), int(last) + 1))
    if len(found) > MOST_LENGTHS:
        raise UserError(f"{option} names {len(found):,} lengths; at most {MOST_LENGTHS:,} are looked at in a call")
    return sorted(found)
