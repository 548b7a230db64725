"""The reference: `python docs/pages/reference.py` writes docs/reference.md and docs/commands.md from the code itself.

Functions are what `import lengthwise as lw` exports, classes what these take and return. Signatures are shown as the
code writes them. Commands are read from the command line's own parser.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from writing import write_changed

import lengthwise
from lengthwise.cli.main import app

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "lengthwise"
ELEMENTS = {"Run": "lengthwise.study", "RunResult": "lengthwise.records.run_result"}
"""Classes that no function returns itself: the parts of a Study and of Results."""
HEAD = """# Python reference

`import lengthwise as lw` gives {count} functions. It does not import torch; the first call that needs it does. This
page is made from the code by `make pages`. A mistake in what you give raises `lengthwise.errors.UserError`,
whose message is one line that says what to change.
"""
CLASSES_HEAD = """
What the functions take and return. How to write a subclass: [an encoding](adding-an-encoding.md),
[a task](adding-a-task.md), [an extension](adding-an-extension.md).
"""
COMMANDS_HEAD = """# Command line reference

Every command, as `--help` shows it. This page is made from the code by `make pages`. A mistake is answered with one
line that says what to change, and nothing is written.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def tree_of(module: str) -> ast.Module:
    return ast.parse(module_file(module).read_text())


def functions() -> dict[str, Function]:
    """What the package exports, in the order of its file."""
    found = {node.name: node for node in tree_of("lengthwise").body if isinstance(node, Function)}
    return {name: node for name, node in found.items() if name in lengthwise.__all__}


def classes() -> dict[str, str]:
    """Class -> module: what the exported functions take and return, and the parts of these."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree_of("lengthwise")):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            # Not what other libraries define.
            lines = [
                line
                for line in node.body
                if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("lengthwise.")
            ]
            imported |= {alias.name: line.module or "" for line in lines for alias in line.names}
    return dict(sorted({**imported, **ELEMENTS}.items()))


def class_node(name: str, module: str) -> ast.ClassDef:
    (node,) = [each for each in tree_of(module).body if isinstance(each, ast.ClassDef) and each.name == name]
    return node


def words_of(annotation: ast.expr) -> str:
    """A type as the code writes it, without the quotes of a name that is imported later."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def signature(node: Function, prefix: str = "", bound: bool = False) -> str:
    """`bound`: without the first argument, which whoever calls a method does not write."""
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg) and each.annotation is not None:
            each.annotation = ast.Name(words_of(each.annotation))
    written = re.sub(r"(?<=[\w\]])=(?=\S)", " = ", ast.unparse(node.args))
    if bound:
        written = written.partition(", ")[2]
    result = f" -> {words_of(node.returns)}" if node.returns is not None else ""
    return f"{prefix}{node.name}({written}){result}"


def members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """What is public in a class, as it is written, with its documentation."""
    for index, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            after = node.body[index + 1] if index + 1 < len(node.body) else None
            told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and after.value.value
            default = (
                f" = {ast.unparse(each.value)}" if each.value is not None and "field(" not in ast.unparse(each) else ""
            )
            annotation = words_of(each.annotation).removeprefix("ClassVar[")
            annotation = annotation[:-1] if annotation != words_of(each.annotation) else annotation
            yield f"{each.target.id}: {annotation}{default}", inspect.cleandoc(str(told)) if told else ""
        elif isinstance(each, Function) and not each.name.startswith("_"):
            marks = {ast.unparse(mark) for mark in each.decorator_list}
            told = ast.get_docstring(each) or ""
            if marks & {"property", "cached_property"}:
                assert each.returns is not None
                yield f"{each.name}: {words_of(each.returns)}", told
            else:
                yield signature(each, bound="staticmethod" not in marks), told


def indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def class_section(name: str, module: str) -> str:
    node = class_node(name, module)
    link = module_file(module).relative_to(ROOT).as_posix()
    bases = [ast.unparse(base) for base in node.bases]
    kind = f"A subclass of `{', '.join(bases)}`. " if bases else ""
    parts = [f"### {name}", ast.get_docstring(node) or "", f"{kind}Defined in [`{module}`](../{link})."]
    for written, told in members(node):
        parts.append(f"- `{written}`" + (f"\n\n{indented(told)}" if told else ""))
    return "\n\n".join(parts)


def function_section(node: Function) -> str:
    short = signature(node, "lw.")
    return f"### lw.{node.name}\n\n```python\n{short}\n```\n\n{ast.get_docstring(node)}"


def reference_page() -> str:
    found = functions()
    parts = [HEAD.format(count=len(found)), "## Functions", *map(function_section, found.values())]
    parts += ["## Classes", CLASSES_HEAD]
    parts += [class_section(name, module) for name, module in classes().items()]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def commands(command: Any, name: str = "lengthwise") -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it."""
    for word, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {word}")
    if not hasattr(command, "commands") and not command.hidden:
        yield name, command


def in_table(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def parameter_row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.name if parameter.required else f"[{parameter.name}]"
    else:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
    told = in_table(parameter.help or "")
    default = parameter.default
    if default not in (None, "", [], ()) and not isinstance(default, bool) and not callable(default):
        told += f" Default: `{default}`."
    return f"| `{name}` | {told}{' Can be repeated.' if parameter.multiple else ''} |"


def command_section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words = [each.name.upper() if each.required else f"[{each.name.upper()}]" for each in arguments]
    shown = [each for each in command.params if each.name != "help" and not each.hidden]
    rows = [parameter_row(each) for each in shown]
    table = "\n".join(["| argument or option | what it is |", "|---|---|", *rows]) if rows else ""
    return f"## {name}\n\n```text\n{' '.join([name, *words])}\n```\n\n{inspect.cleandoc(command.help or '')}\n\n{table}"


def commands_page() -> str:
    parts = [command_section(name, each) for name, each in commands(typer.main.get_command(app))]
    return "\n\n".join(part.strip() for part in (COMMANDS_HEAD, *parts)) + "\n"


def contents() -> dict[Path, str]:
    """Each page, and what it must hold."""
    return {ROOT / "docs/reference.md": reference_page(), ROOT / "docs/commands.md": commands_page()}


if __name__ == "__main__":
    write_changed(contents(), ROOT)
