"""Finding things by name: a thing called `a` or `a.b` lives in the file `a.py` of its folder, `a-b` in `a_b.py`.

Every class of that file with a `name` is found; nothing has to be registered. Folders named in the environment
variable LENGTHWISE_PATH are searched too: `DIR/encodings/mine.py` adds the encoding `mine` from outside the package.
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from lengthwise import words
from lengthwise.door import SMALL, read_bytes, read_text, visible
from lengthwise.errors import UserError, guesses, nearest, similar
from lengthwise.presets import PRESETS
from lengthwise.words import spelled

VARIABLE = "LENGTHWISE_PATH"
_CHECKSUMS: dict[str, str] = {}
"""Of files from outside the package, by the names of their modules: what is on the disk may change after the import."""


@dataclass(frozen=True)
class Entry:
    """What a folder says about one of its things, read from the source without importing it."""

    name: str
    class_name: str
    file: Path
    summary: str
    settings: dict[str, str]
    """Field of the class's Config -> its default, as written."""
    kind: str = "position"
    """What an encoding acts on, where it is not position: `scale`, `normalizer` or `output`."""
    card: dict[str, str] = field(default_factory=dict)
    """What it says about itself, see `encodings.card`; empty where it has no card."""


class Registry:
    """The named classes in one folder, for example all encodings."""

    def __init__(self, kind: str, folder: str, aliases: Mapping[str, str] | None = None) -> None:
        """`aliases`: other names that people know things by, in lower case."""
        self.kind = kind
        self.folder = folder
        self.aliases = dict(aliases or {})

    @cached_property
    def entries(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for directory in self._directories():
            for file in sorted(directory.glob("*.py")):
                for entry in _read_entries(file):
                    stem = entry.name.split(".")[0].replace("-", "_")
                    if stem != file.stem:
                        raise UserError(f"{file}: {self.kind} {entry.name!r} belongs in a file named {stem}.py")
                    if entry.name in found:
                        raise UserError(
                            f"{file}: the {self.kind} {entry.name!r} exists already in {found[entry.name].file}; "
                            "rename yours"
                        )
                    if file.parent != self._shipped and (taken := self._taken(entry.name)):
                        raise UserError(f"{file}: {entry.name!r} is {taken}; rename yours")
                    found[entry.name] = entry
        return found

    def _taken(self, name: str) -> str:
        """What else this name means where such a thing is named; empty where it is free."""
        if meant := spelled(name, self.aliases):
            return f"another name of the {self.kind} {self.aliases[meant]!r}"
        if self.kind not in ("encoding", "mixer"):
            return ""
        # A study names all three in the same place.
        if preset := spelled(name, PRESETS):
            return f"the name of a preset, {first_sentence(PRESETS[preset].summary)!r}"
        other = encodings if self.kind == "mixer" else mixers
        shipped = [entry.name for file in sorted(other._shipped.glob("*.py")) for entry in _read_entries(file)]
        if meant := spelled(name, shipped):
            return f"the name of the {other.kind} {meant!r}"
        return ""

    def names(self) -> list[str]:
        return list(self.entries)

    def canonical(self, name: str) -> str:
        """The name that results carry: `RoPE` is `rotary`. A name that nobody knows stays as it is."""
        if name in self.entries:
            return name
        return self._by_spelling.get(words.plain(name), name)

    @cached_property
    def _by_spelling(self) -> dict[str, str]:
        """Names and aliases without case and separators -> the name. Where two names are alike, neither is meant."""
        found = {words.plain(alias): name for alias, name in self.aliases.items()}
        plain = [words.plain(name) for name in self.entries]
        return found | {each: name for each, name in zip(plain, self.entries, strict=True) if plain.count(each) == 1}

    def entry(self, name: str, also: Mapping[str, str] | None = None) -> Entry:
        """What is known of `name`. `also`: other names that may stand there, with what they are, for the hint."""
        found = self.entries.get(self.canonical(name))
        if found is None:
            _, *searched = map(str, self._directories())
            where = f"{VARIABLE}: searched {', '.join(searched)}" if searched else f"{VARIABLE} is not set"
            known = {*self.entries, *self.aliases, *(also or {})}
            if elsewhere := _of_another_kind(name, self):
                raise UserError(f"unknown {self.kind} {name!r}; {elsewhere} ({where})")
            if guesses(name, known):
                hint = nearest(name, known, lambda each: self.about(each) or (also or {}).get(each, ""))
                raise UserError(f"unknown {self.kind} {name!r}; {hint} ({where})")
            # Most likely one of the user's own: the cause stands before a long list.
            raise UserError(f"unknown {self.kind} {name!r} ({where}); {nearest(name, {*self.entries, *(also or {})})}")
        return found

    def about(self, name: str) -> str:
        """What `name` is, in a clause; empty where it is not known."""
        entry = self.entries.get(self.canonical(name))
        if entry is None:
            return ""
        said = first_sentence(entry.summary)
        return said if entry.name == name else f"{entry.name}: {said}"

    def get(self, name: str) -> Any:
        """The class called `name`; imports its file."""
        entry = self.entry(name)
        return getattr(self._load(entry.file), entry.class_name)

    def outside(self, name: str) -> dict[str, str]:
        """`encodings/mine.py` -> its sha256 when it was imported; empty for what comes with the package."""
        module = self._load(self.entry(name).file)
        found = _CHECKSUMS.get(module.__name__)
        return {f"{self.folder}/{self.entry(name).file.name}": found} if found else {}

    @property
    def _shipped(self) -> Path:
        """The folder of what comes with the package."""
        return Path(__file__).parent / self.folder

    def _directories(self) -> Iterator[Path]:
        yield self._shipped
        for root in os.environ.get(VARIABLE, "").split(os.pathsep):
            if root:
                _refuse_other_folders(Path(root))
                yield Path(root) / self.folder

    def _load(self, file: Path) -> ModuleType:
        if file.parent == self._shipped:
            return importlib.import_module(f"lengthwise.{self.folder}.{file.stem}")
        name = f"lengthwise_path_{self.folder}_{file.stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            _CHECKSUMS[name] = hashlib.sha256(read_bytes(file, SMALL, UserError)).hexdigest()
            try:
                with _limited(PATIENCE):
                    spec.loader.exec_module(module)
            except _TooLong:
                del sys.modules[name]
                raise UserError(f"{file} could not be imported: it takes more than {PATIENCE:g} seconds") from None
            except (Exception, _Ended) as error:
                del sys.modules[name]
                said = visible(" ".join(f"{_kind(error)}: {error}".split()), 500)
                raise UserError(f"{file} could not be imported: {said}") from error
            except BaseException:
                del sys.modules[name]
                raise
        return sys.modules[name]


def first_sentence(text: str) -> str:
    """Without its full stop."""
    return re.split(r"\.\s+(?=[A-Z])", text)[0].removesuffix(".")


def _of_another_kind(name: str, asked: Registry) -> str:
    """Where a name is known that is not known here: `yarn` is an extension, not an encoding."""
    for registry, how in USED_AS.items():
        if registry.kind == asked.kind:
            continue
        with suppress(UserError):  # in files of the user's that were not asked for
            if (found := registry.canonical(name)) in registry.entries:
                article = "an" if registry.kind[0] in "aeiou" else "a"
                said = f"{name!r} is {article} {registry.kind}, {first_sentence(registry.entries[found].summary)!r}"
                return f"{said}: {how.format(found)}"
    return ""


def _read_entries(file: Path) -> Iterator[Entry]:
    """Reads the source instead of importing it, so that `lengthwise list` does not wait for torch."""
    try:
        module = ast.parse(read_text(file, SMALL, UserError), filename=str(file))
    except SyntaxError as error:
        raise UserError(f"{file}:{error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # what a parser of Python says to what is none
        raise UserError(f"{file} is no Python: {error}") from error
    for node in module.body:
        if not isinstance(node, ast.ClassDef):
            continue
        name, settings, kind, said = None, {}, Entry.kind, None
        for statement in node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant(value=str(value))):
                    name = value
                case ast.Assign(targets=[ast.Name(id="kind")], value=ast.Constant(value=str(value))):
                    kind = value
                case ast.Assign(targets=[ast.Name(id="card")], value=value):
                    said = value
                case ast.AnnAssign(target=ast.Name(id="card"), value=value):
                    said = value
                case ast.ClassDef(name="Config"):
                    settings = {
                        field.target.id: ast.unparse(field.value) if field.value else "required"
                        for field in statement.body
                        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                    }
        if name is not None:
            text = ast.get_docstring(node) or ast.get_docstring(module) or ""
            summary = text.split("\n\n")[0].replace("\n", " ")
            yield Entry(name, node.name, file, summary, settings, kind, _read_card(said, file))


def _read_card(said: ast.expr | None, file: Path) -> dict[str, str]:
    """Field -> text, of a card as it is written."""
    if said is None or (isinstance(said, ast.Constant) and said.value is None):
        return {}
    read = "a card is read without importing its file"
    if not isinstance(said, ast.Call) or said.args or not all(word.arg for word in said.keywords):
        raise UserError(f'{file}:{said.lineno}: {read}: write card = Card(kind="bias", equation="b(d) = -d")')
    found: dict[str, str] = {}
    for word in said.keywords:
        if not isinstance(word.value, ast.Constant) or not isinstance(word.value.value, str):
            raise UserError(f"{file}:{word.lineno}: card.{word.arg} must be a text in quotes: {read}")
        found[str(word.arg)] = word.value.value
    return found


def _refuse_other_folders(root: Path) -> None:
    """A folder in which nothing can be found is a mistake, most often one level too deep."""
    if not root.is_dir():
        raise UserError(f"{VARIABLE} names {str(root)!r}, which is not a folder")
    folders = [registry.folder for registry in (tasks, encodings, placements, extensions, mixers, executors, trackers)]
    if not any((root / folder).is_dir() for folder in folders):
        hint = f"; did you mean {str(root.parent)!r}?" if root.name in folders else ""
        told = f"{', '.join(folders[:-1])} or {folders[-1]}"
        raise UserError(f"{VARIABLE} names {str(root)!r}, which holds no folder named {told}{hint}")


PATIENCE = 20.0
"""Seconds that a hook may take when it is asked for a few things; those of files that are read for a study may more."""


class _TooLong(BaseException):
    """Not an Exception: hooks may catch those."""


@contextmanager
def asking(what: str, cls: type, hook: str, but: type[Exception] = UserError) -> Iterator[None]:
    """Around a call of code that others wrote: what fails there is one line with the file, the line and the hook.

    `what`: for example `task alternate`. Errors of the kind `but` go through, and those that are for users anyhow.
    Code that ends the program, or that does not end itself, fails as well.
    """
    reads = hook in ("Config", "__init__") and cls.__module__.startswith("lengthwise.")  # a user's examples, say
    try:
        with _limited(None if reads else PATIENCE):
            yield
    except (UserError, but):
        raise
    except _TooLong:
        raise UserError(f"{written_in(what, cls)}: {hook} takes more than {PATIENCE:g} seconds") from None
    except (Exception, _Ended) as error:
        places = [place.lineno for place in traceback.extract_tb(error.__traceback__) if place.filename == file_of(cls)]
        said = visible(" ".join(f"{_kind(error)}: {error}".split()).removesuffix(":"), 500)
        raise UserError(f"{written_in(what, cls, *places[-1:])}: {hook} fails: {said}{_meant(error)}") from error


def _meant(error: BaseException) -> str:
    """What a misspelled part of one of our classes was probably meant as: `distance_bais` of a `Contribution`."""
    wrong, known = "", []
    if isinstance(error, AttributeError) and error.obj is not None and type(error.obj).__module__.startswith(OURS):
        wrong, known = error.name, [name for name in dir(error.obj) if not name.startswith("_")]
    elif found := re.match(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error)):
        modules = [module for name, module in sys.modules.items() if name.startswith(OURS)]
        made = next((vars(module)[found[1]] for module in modules if found[1] in vars(module)), None)
        wrong, known = found[2], list(getattr(made, "__dataclass_fields__", {}))
    close = similar(wrong, known) if wrong else []
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


OURS = "lengthwise."


class _Ended(BaseException):
    """SystemExit or KeyboardInterrupt that code raised itself."""


def _kind(error: BaseException) -> str:
    return type(error.__cause__ if isinstance(error, _Ended) else error).__name__


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Within, code that takes longer is stopped, and what would end the program is an error, but for Ctrl-C.

    Only the main thread hears of signals; elsewhere nothing is limited. A timer of others that would ring earlier is
    left alone, any other goes on afterwards.
    """
    main = threading.current_thread() is threading.main_thread()
    began, others = time.monotonic(), signal.getitimer(signal.ITIMER_REAL)[0] if main else 0.0
    times = main and seconds is not None and not 0 < others <= seconds
    hears = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    deaf = main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # in the background: nobody can press Ctrl-C
    pressed = False

    def late(_number: int, _frame: FrameType | None) -> None:
        raise _TooLong

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, late) if times else None
    if hears:
        signal.signal(signal.SIGINT, press)
    try:
        if times and seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except SystemExit as error:
        raise _Ended("it ends the program") from error
    except KeyboardInterrupt as error:
        if pressed or not (hears or deaf):
            raise
        raise _Ended("it ends the program") from error
    finally:
        if times:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
            if others:
                signal.setitimer(signal.ITIMER_REAL, max(0.001, others - (time.monotonic() - began)))
        if hears:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def written_in(what: str, cls: type, line: int | None = None) -> str:
    """`task alternate (my_folder/tasks/alternate.py:41)`."""
    return f"{what} ({file_of(cls)}{f':{line}' if line else ''})"


def file_of(cls: type) -> str:
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__


tasks = Registry("task", "tasks", words.TASKS)
encodings = Registry("encoding", "encodings", words.ENCODINGS)
extensions = Registry("extension", "extensions", words.EXTENSIONS)
placements = Registry("placement", "placements")
mixers = Registry("mixer", "mixers", words.MIXERS)
executors = Registry("executor", "executors")
trackers = Registry("tracker", "trackers")

USED_AS = {
    tasks: "name it among the tasks, --set \"tasks=['{}']\"",
    encodings: "name it among the encodings, --set \"encodings=['{}']\"",
    extensions: "it is for trained models, lengthwise extend perplexity RUN --extension {}",
    placements: "--set data.placement={}",
    mixers: "name it among the encodings, --set \"encodings=['{}']\"",
}
"""How a thing is named, for people who name it elsewhere."""
