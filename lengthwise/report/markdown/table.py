"""Tables and words in Markdown."""

from collections.abc import Iterable


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """First column to the left, the others to the right."""
    names = [plain(name) for name in headings]
    lines = [names, [":--", *["--:"] * (len(names) - 1)], *([plain(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(words: str) -> str:
    """Words in which nothing is markup."""
    escaped = "".join(f"\\{letter}" if letter in "|<>`[]\\" else letter for letter in words)
    return escaped.replace("_", "\\_")
