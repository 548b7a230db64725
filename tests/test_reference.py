"""The reference pages are what the code says, and say something about everything that is exported."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from conftest import load_script

import lengthwise

ROOT = Path(__file__).parent.parent
REFERENCE = load_script("docs/pages/reference.py")


@pytest.mark.parametrize(("page", "text"), REFERENCE.contents().items(), ids=lambda each: getattr(each, "name", ""))
def test_reference_pages_are_what_the_code_makes_them(page: Path, text: str) -> None:
    assert page.read_text() == text, "make pages"


def test_all_that_the_package_exports_is_there() -> None:
    public = {name for name, value in vars(lengthwise).items() if inspect.isfunction(value) and name[0] != "_"}
    assert public == {*lengthwise.__all__} == {*REFERENCE.functions()}


def test_every_class_of_a_signature_is_there() -> None:
    written = " ".join(
        f"{ast.unparse(node.args)} {ast.unparse(node.returns)}" for node in REFERENCE.functions().values()
    )
    ours = {name for name in re.findall(r"\b[A-Z]\w+", written)} - {
        "Any",
        "False",
        "Iterable",
        "Iterator",
        "None",
        "Path",
        "PreTrainedModel",
        "Sequence",
    }
    assert len(ours) == 9 and ours <= {*REFERENCE.classes()}


@pytest.mark.parametrize(("name", "module"), REFERENCE.classes().items())
def test_every_public_method_says_what_it_returns(name: str, module: str) -> None:
    node = REFERENCE.class_node(name, module)
    assert ast.get_docstring(node)
    silent = [written for written, told in REFERENCE.members(node) if "(" in written.split(":")[0] and not told]
    assert silent == []


def test_every_command_and_option_says_what_it_does() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    assert page.count("\n## lengthwise ") > 20 and "|  |" not in page
