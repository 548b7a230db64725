"""Nothing that is read can bring code along: no pickle in the package, none at work (see also `killing`)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import killing
import pytest

PACKAGE = Path(__file__).parents[1] / "lengthwise"
FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
NEEDED = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        yield file, ast.parse(file.read_text())


@pytest.mark.slow
def test_no_module_imports_what_unpickles() -> None:
    for file, tree in sources():
        for node in ast.walk(tree):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & FORBIDDEN, f"{file} imports {names}"


@pytest.mark.slow
def test_arrays_and_weights_are_loaded_without_pickle() -> None:
    seen = 0
    for file, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in NEEDED:
                name, value = NEEDED[called]
                given = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
                assert given.get(name) is value, f"{file}:{node.lineno} {called} without {name}={value}"
                seen += 1
            if isinstance(node, ast.keyword):
                asked = node.arg == "trust_remote_code" and getattr(node.value, "value", None)
                assert not asked, f"{file} trusts code from outside"
    assert seen >= 2, "else nothing was looked at"


def test_the_hook_of_killed_commands_sees_foreign_code(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"unpickles os\.system"):
        killing.refuse_foreign_code("pickle.find_class", ("os", "system"))
    foreign = compile("1", str(tmp_path / "evil.py"), "exec")
    with pytest.raises(RuntimeError, match=r"it runs .*evil\.py"):
        killing.refuse_foreign_code("exec", (foreign,))
    killing.refuse_foreign_code("exec", (compile("1", killing.__file__, "exec"),))
    killing.refuse_foreign_code("exec", (compile("1", "<string>", "exec"),))
