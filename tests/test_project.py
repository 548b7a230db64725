"""Rules of the project that can be tests: import direction, the README's tree and commands, names."""

import csv
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PACKAGE = ROOT / "lengthwise"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_dependencies_point_down() -> None:
    done = subprocess.run([Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_readme_tree_is_the_real_tree() -> None:
    (tree,) = blocks("text")
    named = {line.split()[0].rstrip("/") for line in tree.splitlines()[1:]}
    real = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("_") and path.name != "py.typed"}
    assert named == real


def test_readme_names_files_that_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("command", commands())
def test_readme_commands_run(command: str, tmp_path: Path) -> None:
    words = command.split()
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        return
    assert words[0] == "lengthwise"
    if words[1] == "run":  # the same command, only short
        words += ["--set", "training.steps=2", "--set", "seeds=[1]", "--set", "encodings=['none']"]
    else:
        shutil.copytree(ROOT / "results/quickstart", tmp_path / "runs/quickstart")
    done = subprocess.run(
        [sys.executable, "-c", "from lengthwise.cli import main; main()", *words[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


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


def test_readme_picture_is_of_the_committed_results(tmp_path: Path) -> None:
    from lengthwise.records.rows import load_results
    from lengthwise.report.picture import write_picture

    write_picture(load_results(ROOT / "results/quickstart"), tmp_path / "q.svg")
    assert (tmp_path / "q.svg").read_text() == (ROOT / "docs/pictures/quickstart.svg").read_text()


def test_quickstart_results_say_what_the_readme_says() -> None:
    """The claims of the first page, on the committed rows: learned in distribution, and who generalizes."""
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/quickstart")
    assert len(results.runs) == 30 and len(results.encodings) == 5 and len(results.tasks) == 3
    assert min(run.accuracy("last", seen=True) for run in results.runs) >= 0.95
    mean = {e: sum(v.values()) / len(v) for (t, e), v in results.accuracies().items() if t == "copy.repeat"}
    assert mean["none"] >= 0.8
    assert mean["sinusoidal"] <= 0.2 and mean["rotary"] <= 0.2


def test_battery_results_say_what_their_page_says(tmp_path: Path) -> None:
    from lengthwise.records.comparison import compare
    from lengthwise.records.rows import load_results
    from lengthwise.report.gallery import figures
    from lengthwise.report.picture import write_figure

    results = load_results(ROOT / "results/battery-small")
    assert len(results.runs) == 17 * 5 * 3
    found = compare(results)
    ours = sorted(found.order, key=lambda place: -(place.ours or 0))
    assert [place.encoding for place in ours] == ["none", "t5", "alibi", "rotary", "sinusoidal"]
    page = (ROOT / "docs/results.md").read_text()
    assert f"our 85 cells with the published ones is {found.correlations.plain:.2f}" in page
    (drawn,) = [figure for figure in figures(results) if figure.name == "heat-map"]
    write_figure(drawn, tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text() == (ROOT / "docs/pictures/battery-heat-map.svg").read_text()


def test_the_smaller_the_bias_of_t5_the_better_as_its_page_says() -> None:
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/t5-rate")
    accuracies = results.accuracies()
    means = {key: sum(seeds.values()) / len(seeds) for key, seeds in accuracies.items()}
    rows = re.findall(r"^\| `(none|t5.*?)` \| (0[.\d]*) \| (0\.\d\d) \| (0\.\d\d) \| (0\.\d\d) \|$",
                      (ROOT / "docs/results.md").read_text(), flags=re.MULTILINE)  # fmt: skip
    assert {encoding for encoding, *_ in rows} == set(results.encodings)
    with (ROOT / "results/t5-rate/bias.csv").open() as file:
        biases: dict[str, list[float]] = {"none": [0.0]}
        for row in csv.DictReader(file):
            biases.setdefault(row["encoding"], []).append(float(row["bias"]))
    for encoding, bias, *said in rows:
        assert float(bias) == round(sum(biases[encoding]) / len(biases[encoding]), 2)
        assert said == [f"{means[task, encoding]:.2f}" for task in results.tasks], encoding
    for task in results.tasks:
        for begins in ("", "initial=0,"):
            rates = [f"t5({begins}rate={rate})" for rate in ("0.1", "0.01")]
            falling = [f"t5({begins[:-1]})" if begins else "t5", *rates]
            slower = [means[task, encoding] for encoding in falling]
            assert slower == sorted(slower)
        assert means[task, "t5(initial=0,rate=0.01)"] > means[task, "none"] - 0.05
    assert min(run.accuracy("last", seen=True) for run in results.runs) >= 0.98


def test_the_published_protocol_gave_what_its_page_says() -> None:
    from lengthwise.records.comparison import compare
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/nope-paper")
    page = (ROOT / "docs/results.md").read_text()
    assert min(run.accuracy("last", seen=True) for run in results.runs) >= 0.995
    said = dict(re.findall(r"^\| `(\w+)` \| (\d\.\d\d) \| \d\.\d\d ± \d\.\d\d \|", page, flags=re.MULTILINE))
    found = {encoding: f"{accuracy[1]:.2f}" for (_, encoding), accuracy in results.accuracies().items()}
    assert said == found and len(said) == 5
    counts = compare(results).counts
    assert counts is not None and counts.close_of_all == 4
    (t5,) = [run for run in results.runs if run.description["encoding"] == "t5"]
    by_length = {length: right / n for length, (right, n) in t5.counts_by_length("last").items()}
    assert "1.00 at length 22, 0.74 at 23, 0.16 at 24 and 0.01 at 25" in " ".join(page.split())
    assert [round(by_length[length], 2) for length in (22, 23, 24, 25)] == [1.0, 0.74, 0.16, 0.01]


def test_t5_at_the_published_size_is_what_its_page_says() -> None:
    from lengthwise.records.rows import load_results

    page = (ROOT / "docs/results.md").read_text()
    section = page[page.index("### At the published size, too") :]
    lengths = [21, 22, 23, 24, 25, 26, 28, 30, 32, 34, 36, 38, 40]
    said = {
        (encoding, int(seed)): cells.split(" | ")
        for encoding, seed, cells in re.findall(r"^\| `(t5.*?)` \| (\d) \| (.+) \|$", section, re.MULTILINE)
    }
    found = {}
    for run in [*load_results(ROOT / "results/nope-paper").runs, *load_results(ROOT / "results/t5-base").runs]:
        if run.description["encoding"].startswith("t5"):
            right = {length: right / n for length, (right, n) in run.counts_by_length("last").items()}
            cells = [*(right[length] for length in lengths), run.accuracy("last", seen=False)]
            key = run.description["encoding"], run.description["seed"]
            found[key] = [f"{cell:.2f}" for cell in cells]
    assert said == found and len(found) == 3


def test_the_fewer_distances_t5_tells_apart_the_better_as_its_page_says() -> None:
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/t5-reach")
    page = (ROOT / "docs/results.md").read_text()
    section = page[page.index("## The fewer distances") :]
    rows = re.findall(r"^\| `(.+?)` \| .+? \| (\d\.\d\d) \| (\d\.\d\d) \| (\d\.\d\d) \|$", section, re.MULTILINE)
    means = {key: sum(seeds.values()) / len(seeds) for key, seeds in results.accuracies().items()}
    assert {encoding: said for encoding, *said in rows} == {
        encoding: [f"{means[task, encoding]:.2f}" for task in results.tasks] for encoding in results.encodings
    }
    fewer = [f"t5(buckets={n},max_distance={m})" for n, m in ((16, 12), (8, 6), (4, 3))]
    for task in results.tasks:
        assert means[task, fewer[0]] < means[task, fewer[1]] < means[task, fewer[2]]
        assert means[task, fewer[0]] <= means[task, "t5"], "all of its numbers are trained, and it does not help"
    assert min(run.accuracy("last", seen=True) for run in results.runs) >= 0.955


def test_buckets_that_training_never_reaches_begin_where_the_page_says() -> None:
    """At length 23 of copy.repeat, which is where T5 fails."""
    from lengthwise.encodings.t5 import bucket_of_distance

    def buckets(length: int) -> set[int]:
        tokens = 2 * length + 3  # the task's name, the symbols, a separator, the answer, its end
        return set(bucket_of_distance(32, 128)[: tokens - 1])

    assert buckets(22) == buckets(20) and buckets(23) - buckets(20) == {24}


def test_stretched_twins_do_what_their_page_says(tmp_path: Path) -> None:
    from lengthwise.report.stretching_export import write_stretching_report
    from lengthwise.report.stretching_rows import load_stretch_rows
    from lengthwise.stretching.showing import ratio_words

    folder = ROOT / "results/headscale-small"
    rows = load_stretch_rows(folder)
    page = (ROOT / "docs/stretching.md").read_text()
    names = {
        "uniform scale 1.21, best for 2x": "uniform-scale for 2x",
        "head scales for 4x": "head-scale for 4x",
        "head scales for 8x": "head-scale for 8x",
        "dynamic NTK": "dynamic-ntk",
        "YaRN": "yarn",
    }
    first = page[: page.index("keys found, 10 depths")]
    for name, line in names.items():
        (cells,) = re.findall(rf"^\| {re.escape(name)} \| (.+) \|$", first, flags=re.MULTILINE)
        for times, cell in zip((1, 2, 4, 8), cells.split(" | "), strict=False):
            ratio = rows.ratio(line, times)
            assert ratio is not None
            assert cell.split()[0].replace(",", "") in (ratio_words(ratio), f"{ratio:.0f}"), (name, times)
    write_stretching_report(folder, tmp_path / "stretching.svg")
    assert (tmp_path / "stretching.svg").read_text() == (ROOT / "docs/pictures/stretching.svg").read_text()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path: Path) -> None:
    import ast

    text = path.read_text()
    documentation = ast.get_docstring(ast.parse(text))
    assert documentation and documentation[0].isupper()
    assert path.stem not in ("utils", "common", "helpers", "misc")
    assert len(text.splitlines()) <= 350, "is this still one concept?"
