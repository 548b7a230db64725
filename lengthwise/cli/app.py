"""What all commands have in common: examples in their help, and an answer to a wrong command or option."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from lengthwise import words
from lengthwise.cli.examples import EXAMPLES
from lengthwise.errors import guesses
from lengthwise.registry import first_sentence

EXIT_CODES = {
    0: "done",
    1: "work had begun and could not continue; nothing that was written is lost",
    2: "a wrong command, option, name, setting or file; nothing was begun",
    130: "interrupted (Ctrl-C); the same command resumes",
}


class Command(TyperCommand):
    """A command with its examples below its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        _print_examples(_path(ctx))

    def make_context(self, *given: Any, **others: Any) -> Any:
        try:
            return super().make_context(*given, **others)
        except typer.BadParameter:
            raise
        except Exception as error:  # of the parser, whose classes Typer keeps to itself
            _explain_option(error)
            raise


class Group(TyperGroup):
    """Commands below one word; a wrong word is answered with what it may mean."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        _print_examples(_path(ctx))
        if not _path(ctx):
            typer.echo("Exit codes:")
            for code, meaning in EXIT_CODES.items():
                typer.echo(f"  {code:<4} {meaning}")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.get_command(ctx, args[0]) if args else None
        if known is None and args and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}; {_meant_command(ctx, args[0])}")
        return super().resolve_command(ctx, args)


class App(typer.Typer):
    """A Typer whose commands have examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=Group, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Any:
        return super().command(name, cls=Command, **settings)


def _path(ctx: Any) -> str:
    """`extend fit`; empty for the program itself."""
    names = []
    while ctx.parent is not None:
        names.append(ctx.info_name)
        ctx = ctx.parent
    return " ".join(reversed(names))


def _print_examples(path: str) -> None:
    """One a line, as they are: a line that is folded cannot be copied."""
    typer.echo(f"Example{'s' if len(EXAMPLES.get(path, ())) > 1 else ''}:")
    for line in EXAMPLES.get(path, ()):
        typer.echo(f"  {line}")
    typer.echo("")


def commands_of(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command and group below one, by its path: `extend`, `extend fit`."""
    for name, each in getattr(command, "commands", {}).items():
        below = f"{path} {name}".strip()
        yield below, each
        yield from commands_of(each, below)


def _meant_command(ctx: Any, word: str) -> str:
    known = dict(commands_of(ctx.find_root().command))
    here = _path(ctx)
    asked = f"{here} {word}".strip().lower()
    found = [each for each in words.COMMANDS.get(asked, ()) if each in known or each.startswith("--")]
    if not found:
        below = {path.removeprefix(here).strip(): path for path in known if path != here and path.startswith(here)}
        near = guesses(word.lower(), [each for each in below if " " not in each])
        elsewhere = [path for path in known if path.split()[-1] == word.lower()]
        found = [*(below[each] for each in near), *elsewhere] or [each for each in below.values() if each != here]
        if not near and not elsewhere:
            return f"there are: {', '.join(each.removeprefix(here).strip() for each in found if _is_child(each, here))}"
    told = [f"`lengthwise {each}`{_about(known.get(each))}" for each in dict.fromkeys(found)]
    return f"did you mean {' or '.join(told)}?"


def _is_child(path: str, here: str) -> bool:
    return path.count(" ") == (here.count(" ") + 1 if here else 0)


def _about(command: Any) -> str:
    return f" ({first_sentence(' '.join(command.help.split()))})" if command is not None and command.help else ""


def _explain_option(error: Exception) -> None:
    """Where an option is unknown: names those that its word may mean, before those whose letters are like it."""
    name, ctx = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or ctx is None or not hasattr(error, "possibilities"):
        return
    known = {option for each in ctx.command.params for option in each.opts}
    word = name.lstrip("-").lower().replace("_", "-")
    found = [each for each in words.OPTIONS.get(word, ()) if each.split()[0] in known]
    spelled = words.spelled(name, known)
    near = [spelled] if spelled else [f"--{each}" for each in guesses(word, [option.lstrip("-") for option in known])]
    chosen = found or [each for each in near if each in known]
    error.possibilities = []  # type: ignore[attr-defined]
    here = f"lengthwise {_path(ctx)}".strip()  # whatever the program was started as
    hint = f"did you mean {' or '.join(chosen)}?" if chosen else f"see `{here} --help`"
    error.message = f"No such option {name}; {hint}"  # type: ignore[attr-defined]
