"""Where commands print: results to stdout, what is said besides to stderr."""

from rich.console import Console, RenderableType

console = Console()
messages = Console(stderr=True)


def say(text: str) -> None:
    """A line of the result, unfolded, nothing in it markup."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    messages.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


def plain(text: str) -> str:
    """Text in which nothing is markup."""
    return text.replace("[", "\\[")


def print_each(*things: RenderableType) -> None:
    for thing in things:
        console.print(thing)
        console.print()
