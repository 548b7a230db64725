"""Rules of the project that can be tests: import direction, the README's tree and commands, names."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from functools import cache
from pathlib import Path

import pytest
from drawings import assert_same_drawing

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PACKAGE = ROOT / "lengthwise"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_dependencies_point_down() -> None:
    done = subprocess.run([Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_module_has_its_place_among_the_dependencies() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    named = {name.strip() for layer in layers for name in layer.split(":")}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__init__":
            assert named & {".".join(parts[:count]) for count in range(2, len(parts) + 1)}, path


def test_readme_tree_is_the_real_tree() -> None:
    (tree,) = blocks("text")
    named = {line.split()[0].rstrip("/") for line in tree.splitlines()[1:]}
    real = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("_") and path.name != "py.typed"}
    assert named == real


def test_readme_names_files_that_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_readme_commands_run(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        return
    assert words[0] == "lengthwise"
    if words[1] == "run":  # the same command, only short
        words += ["--set", "training.steps=2", "--set", "seeds=[1]", "--set", "encodings=['none']"]
    else:
        for folder in {"runs/quickstart", *re.findall(r"\bruns/\w+", command)}:  # as commands before it left them
            shutil.copytree(ROOT / "results/quickstart", tmp_path / folder)
    done = subprocess.run(
        [sys.executable, "-c", "from lengthwise.cli import main; main()", *words[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
def test_readme_python_runs(tmp_path: Path) -> None:
    first = blocks("python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-c", first], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "('copy.repeat', 'none')" in done.stdout


def test_readme_study_is_valid() -> None:
    from lengthwise.study import study_from

    (text,) = blocks("toml")
    study = study_from({"name": "readme", **tomllib.loads(text)})
    assert len(study.runs()) == 2 * 3 * 3


def test_readme_encoding_is_the_tested_one() -> None:
    from test_one_file import ENCODING

    body = blocks("python")[1].split("class Squared")[1]
    assert body.strip() == ENCODING.split("class Squared")[1].strip()


def test_quickstart_results_say_what_the_readme_says() -> None:
    """The claims of the first page, on the committed rows: learned in distribution, and who generalizes."""
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/quickstart")
    assert len(results.runs) == 30 and len(results.encodings) == 5 and len(results.tasks) == 3
    assert min(run.accuracy("last", seen=True) for run in results.runs) >= 0.95
    mean = {e: sum(v.values()) / len(v) for (t, e), v in results.accuracies().items() if t == "copy.repeat"}
    assert mean["none"] >= 0.8
    assert mean["sinusoidal"] <= 0.2 and mean["rotary"] <= 0.2


@pytest.mark.slow
def test_battery_results_are_whole_and_say_who_is_first_and_last() -> None:
    from lengthwise.records.comparison import compare
    from lengthwise.records.rows import load_results

    for name in ("battery-small", "battery-small-symbols"):
        results = load_results(ROOT / "results" / name)
        assert len(results.runs) == 17 * 5 * 3
        for checkpoint in ("last", "best"):
            order = sorted(compare(results, checkpoint).order, key=lambda place: -(place.ours or 0))
            names = [place.encoding for place in order]
            assert names[0] == "none" and names[3:] == ["rotary", "sinusoidal"], (name, checkpoint)


def test_a_slower_table_of_t5_generalizes_better_as_its_page_says() -> None:
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/t5-rate")
    means = {key: sum(seeds.values()) / len(seeds) for key, seeds in results.accuracies().items()}
    for task in results.tasks:
        for begins in ("", "initial=0,"):
            rates = [f"t5({begins}rate={rate})" for rate in ("0.1", "0.01")]
            falling = [f"t5({begins[:-1]})" if begins else "t5", *rates]
            slower = [means[task, encoding] for encoding in falling]
            assert slower == sorted(slower)
        assert means[task, "t5(initial=0,rate=0.01)"] > means[task, "none"] - 0.05
    assert min(run.accuracy("last", seen=True) for run in results.runs) >= 0.98


def test_t5_is_reproduced_with_the_published_tokens_as_its_page_says() -> None:
    from lengthwise.records.comparison import compare
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/nope-paper")
    assert min(run.accuracy("best", seen=True) for run in results.runs) >= 0.995
    found = compare(results, "best")
    assert found.departures[0].startswith("training: precision bf16")
    (t5,) = [cell for cell in found.shared if (cell.task, cell.encoding) == ("copy.repeat", "t5")]
    assert t5.ours and t5.ours.seeds == 3 and t5.verdict == "equivalent" and abs(t5.difference or 1) <= 0.1


def test_fewer_distances_are_better_where_all_buckets_are_trained() -> None:
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/t5-reach")
    means = {key: sum(seeds.values()) / len(seeds) for key, seeds in results.accuracies().items()}
    for task in results.tasks:
        fewer = [means[task, f"t5(buckets={n},max_distance={m})"] for n, m in ((16, 12), (8, 6), (4, 3))]
        assert fewer == sorted(fewer) and means[task, "none"] > fewer[0] + 0.5


def test_buckets_that_training_never_reaches_begin_where_the_page_says() -> None:
    """At length 23 of copy.repeat, which is where T5 fails."""
    from lengthwise.encodings.t5 import bucket_of_distance

    def buckets(length: int) -> set[int]:
        tokens = 2 * length + 3  # the task's name, the symbols, a separator, the answer, its end
        return set(bucket_of_distance(32, 128)[: tokens - 1])

    assert buckets(22) == buckets(20) and buckets(23) - buckets(20) == {24}


def test_the_extended_pair_does_what_its_page_says(tmp_path: Path) -> None:
    from lengthwise.report.context_extension_export import write_extension_report
    from lengthwise.report.model.context_extension import load_extension_rows
    from lengthwise.report.model.phrases import ratio as ratio_words

    folder = ROOT / "results/headscale-small"
    rows = load_extension_rows(folder)
    page = (ROOT / "docs/context-extension.md").read_text()
    names = {
        "uniform scale 1.21, best for 2x": "uniform-scale for 2x",
        "head scales for 4x": "head-scale for 4x",
        "head scales for 8x": "head-scale for 8x",
        "dynamic NTK": "dynamic-ntk",
        "YaRN": "yarn",
    }
    first = page[: page.index("passkey accuracy, 10 depths")]
    for name, line in names.items():
        (cells,) = re.findall(rf"^\| {re.escape(name)} \| (.+) \|$", first, flags=re.MULTILINE)
        for times, cell in zip((1, 2, 4, 8), cells.split(" | "), strict=False):
            ratio = rows.ratio(line, times)
            assert ratio is not None
            assert cell.split()[0].replace(",", "") in (ratio_words(ratio), f"{ratio:.0f}"), (name, times)
    write_extension_report([folder], tmp_path / "context-extension.svg")
    assert_same_drawing(
        (tmp_path / "context-extension.svg").read_text(), (ROOT / "docs/pictures/context-extension.svg").read_text()
    )


PLUG_INS = ("tasks", "encodings", "placements", "extensions", "mixers", "executors", "trackers")
"""Rooms in which a class goes by the name that studies and commands give it."""


def test_a_name_means_one_class() -> None:
    """So that a reader who looks for a name finds the thing."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and room not in PLUG_INS:
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    tiles = found.pop("Tiles")  # how a kernel cuts its work: of each kernel its own
    assert all(path.startswith("kernels/") for path in tiles)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_nobody_asks_what_a_class_overrides_or_changes_it() -> None:
    """What a component does is in what it declares: no methods compared, no class exchanged or made while running."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("__class__", "__bases__", "__func__"), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type":
                assert len(node.args) == 1, f"{path}:{node.lineno} makes a class"
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
                for side in (node.left, *node.comparators):
                    made = isinstance(side, ast.Attribute) and isinstance(side.value, ast.Call)
                    assert not (made and getattr(side.value.func, "id", "") == "type"), f"{path}:{node.lineno}"


def test_every_table_is_the_one_table() -> None:
    """What is shown is built once and drawn by the renderers: nobody else makes tables for a terminal."""
    users = [path for path in PACKAGE.rglob("*.py") if "rich.table" in path.read_text()]
    assert users == [PACKAGE / "report/terminal/table.py"]


def test_every_module_says_what_it_is() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        documentation = ast.get_docstring(ast.parse(text))
        assert documentation and documentation[0].isupper(), path
        assert path.stem not in ("utils", "common", "helpers", "misc"), path
        if (lines := len(text.splitlines())) > 350:
            warnings.warn(f"{path.relative_to(PACKAGE)} has {lines} lines: is it still one concept?", stacklevel=1)
