"""The pages of docs/: every command parses, every example of the adding-* pages runs, every link leads somewhere."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from conftest import slow

from lengthwise import registry, words
from lengthwise.cli.main import app
from lengthwise.encodings.card import CardKind
from lengthwise.encodings.choice import read_encoding
from lengthwise.encodings.contribution import Contribution, Scores
from lengthwise.encodings.encoding import AttentionLayout, Encoding
from lengthwise.equation import problem
from lengthwise.extensions.extension import Extension
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.backend import explain
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.presets import PRESETS
from lengthwise.records.equivalence import LEVEL, MARGIN, NEAR
from lengthwise.records.outcomes import AT_CHANCE, AT_CHANCE_ERRORS, LEARNED, SATURATED
from lengthwise.records.statistics import SEEDS_OF_A_TASK
from lengthwise.report.model.length_curves import FEW
from lengthwise.study import load_study, study_from

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
ADDING = [page for page in PAGES if page.name.startswith("adding-")]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    """The lines of its shell blocks that call us."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("lengthwise ")]


def parse(line: str) -> None:
    """Parses a command without doing it; raises where a subcommand, an option or a value is not there."""
    words = shlex.split(re.split(r"\s(?:\||2?>)", line)[0], comments=True)[1:]  # up to a pipe
    command: Any = typer.main.get_command(app)
    if words[0].startswith("-"):  # of the program itself
        command.make_context("lengthwise", words, resilient_parsing=True)
        return
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, f"{line}: there is no {name}"
        command = command.commands[name]
    command.make_context(command.name, words)


def file_of(block: str) -> str | None:
    """The file that a block is the content of: its first line says so, in a comment."""
    named = re.match(r"# (\S+\.(?:py|toml))\n", block)
    return named.group(1) if named else None


def heading_links(page: Path) -> set[str]:
    """What GitHub calls the headings of a page in links."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "line"), [(page.name, line) for page in PAGES for line in commands(page)])
def test_every_command_parses(page: str, line: str) -> None:
    parse(line)


def test_results_that_commands_name_are_there() -> None:
    """But for what a command writes."""
    named = {word for page in PAGES for line in commands(page) for word in shlex.split(line.split(" --out ")[0])}
    found = {word for word in named if word.startswith("results/")}
    assert len(found) > 3 and [word for word in sorted(found) if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("line", ["lengthwise runs quickstart", "lengthwise run quickstart --onyl task=addition"])
def test_a_wrong_command_does_not_parse(line: str) -> None:
    with pytest.raises(Exception, match=r"no runs|onyl"):
        parse(line)


def write_files(page: Path, folder: Path) -> None:
    """Blocks that name a file become that file."""
    for block in (*blocks(page, "toml"), *blocks(page, "python")):
        if name := file_of(block):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block)


def execute(program: str, folder: Path) -> None:
    """In a process of its own: what has been found in LENGTHWISE_PATH is found once."""
    environment = {**os.environ, "LENGTHWISE_PATH": "my_folder" if (folder / "my_folder").exists() else ""}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", ADDING, ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """Files first, then the other blocks beside them, in the order of the page; at last every study expands."""
    write_files(page, tmp_path)
    studies = [file.name for file in tmp_path.glob("*.toml")]
    programs = [block for block in blocks(page, "python") if not file_of(block)]
    assert studies and programs
    programs += [f"import lengthwise as lw\nassert lw.load_study({name!r}).runs()" for name in studies]
    execute("\n".join(programs), tmp_path)


def test_the_documented_study_of_lines_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lengthwise.context_extension.extension_study import load_extension_study, parts

    write_files(ROOT / "docs/context-extension.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    studies = load_extension_study("mine.toml")
    names = ["rotary", "yarn", "yarn for 2x, trained", "yarn for 4x, trained"]
    assert [[line.name for line in study.all_lines] for study in studies] == [names, names]
    folders = [part.folder.as_posix() for part in parts(studies, Path("out"))]
    assert folders == [f"out/width={width}/seed-{seed}" for width in (64, 128) for seed in (1, 2)]


def test_the_second_solution_solves_the_documented_task(tmp_path: Path) -> None:
    write_files(ROOT / "docs/adding-a-task.md", tmp_path)
    program = """
import runpy, lengthwise as lw
solution = runpy.run_path("tests/solutions_alternate.py")["SOLUTIONS"]["alternate"]
pairs = [pair for length in (3, 4, 11) for pair in lw.task("alternate").sample(length, count=5)]
assert all(solution(prompt) == target for prompt, target in pairs)
"""
    execute(program, tmp_path)


def test_the_documented_study_has_as_many_runs_as_it_says() -> None:
    mine, grid, _ = blocks(ROOT / "docs/adding-a-study.md", "toml")
    said = (ROOT / "docs/adding-a-study.md").read_text()
    assert "These are 2 x 3 x 3 = 18 runs" in said and "These are 3 x 2 x 2 x 2 = 24 runs" in said
    assert len(study_from({"name": "mine", **tomllib.loads(mine)}).runs()) == 18
    assert len(study_from({"name": "grid", **tomllib.loads(grid)}).runs()) == 24


def test_every_documented_entry_of_encodings_can_be_read() -> None:
    text = (ROOT / "docs/adding-a-study.md").read_text().split("\n## Schedules")[1].split("\n## ")[0]
    entries = re.findall(r"^\| `(.*?)` \| ", text, flags=re.MULTILINE)
    choices = [read_encoding(tomllib.loads(f"entry = {entry}")["entry"]).resolved() for entry in entries]
    assert len(choices) == 9 and f"fifth `{choices[4].label}` unless" in text
    assert choices[7].label == "mixed" and choices[7].layers == choices[4].layers
    assert choices[8].label == "smollm3" and all(f"`{name}`" in text for name in PRESETS if name != "smollm3")


@pytest.mark.slow
def test_the_documented_axes_have_as_many_runs_as_they_say(tmp_path: Path) -> None:
    page = ROOT / "docs/adding-a-study.md"
    (line,) = [line for line in commands(page) if "normalizers=" in line]
    words = shlex.split(line)
    changes = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    text = " ".join(page.read_text().split())
    assert "These are 3 x 8 x 2 = 48 runs: `rotary`, `rotary+entmax`, `rotary+ssmax`, `rotary+ssmax+entmax`" in text
    program = f"""
import lengthwise as lw
study = lw.load_study("quickstart", {changes!r})
assert len(study.runs()) == 48
assert study.labels[4:] == ["rotary", "rotary+entmax", "rotary+ssmax", "rotary+ssmax+entmax"]
"""
    execute(program, tmp_path)


def test_the_page_of_studies_names_every_alias() -> None:
    text = (ROOT / "docs/adding-a-study.md").read_text().split("\n## Other names")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \| `(.*?)`", text, flags=re.MULTILINE)
    said = {alias: name for aliases, name in rows for alias in re.findall(r"`(.*?)`", aliases)}
    assert said == {**words.ENCODINGS, **words.EXTENSIONS, **words.TASKS, **words.MIXERS, **words.SETTINGS}


def test_the_page_of_studies_names_every_scratchpad_and_every_task_with_steps() -> None:
    from lengthwise.data.examples import STEP_PARTS
    from lengthwise.data.scratchpad import MARKERS, PUBLISHED

    text = (ROOT / "docs/adding-a-study.md").read_text().split("## Scratchpads")[1].split("\n## ")[0]
    stepped = {name for name in registry.tasks.names() if registry.tasks.get(name).step_parts}
    assert len(stepped) == 8 and "Eight tasks have steps" in text
    for name in (*PUBLISHED, *stepped, *(part.name.lower() for part in STEP_PARTS)):
        assert f"`{name}`" in text, name
    without = {name for name in stepped if len(registry.tasks.get(name).step_parts) < len(STEP_PARTS)}
    assert without == {"sort.symbols", "sort.numbers", "lego"}
    cells = re.findall(r"^\| `\w+` \| .* \| `(.*)` \|$", text, flags=re.MULTILINE)
    assert [cell.split()[0] for cell in cells] == [MARKERS[part][0] for part in STEP_PARTS]
    target = registry.tasks.get("addition")().sample(2, 1, 0, "full")[0][1]
    assert target.startswith(f"Thinking step by step: {' '.join(cells)} # ")
    (whole,) = re.findall(r"^```text\n(.*?)\n```", text, flags=re.MULTILINE | re.DOTALL)
    assert " ".join(whole.split()) == target


def test_the_page_of_studies_names_every_column_of_the_rows(finished: tuple[Path, Any]) -> None:
    text = (ROOT / "docs/adding-a-study.md").read_text().split("## Its rows")[1].split("\n## ")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?`) \|", text, flags=re.MULTILINE)))
    assert sorted(named) == sorted((*finished[1].rows[0], "answers"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, heading = target.partition("#")
        if "://" in path:
            continue
        found = (page.parent / path) if path else page
        assert found.exists(), target
        assert not heading or heading in heading_links(found), target


def cells_of(page: str, heading: str) -> list[str]:
    """What the first column of the tables under a heading names in backquotes."""
    text = (ROOT / "docs" / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)", cell)]


def test_the_page_of_encodings_names_all_that_there_is() -> None:
    parts = [field.name for field in fields(Contribution)]
    assert cells_of("adding-an-encoding.md", "What it may contribute") == parts
    positions = torch.arange(3)[None]
    layout = AttentionLayout(positions, positions)
    given = cells_of("adding-an-encoding.md", "What a change of scores is given")
    assert {*given} == {*(field.name for field in fields(Scores)), "visible_BTS"}
    known = cells_of("adding-an-encoding.md", "What it may know")
    assert len(known) > 8 and all(hasattr(layout, name) for name in known)
    said = cells_of("adding-an-encoding.md", "More that an encoding may say")
    own = {name for name in vars(Encoding) if not name.startswith("_")} - {"embed", "contribute", "name", "Config"}
    assert {*said} - {"Config"} == own


def test_the_page_of_encodings_says_how_a_card_is_written() -> None:
    section = (ROOT / "docs/adding-an-encoding.md").read_text().split("\n## The card\n")[1].split("\n## ")[0]
    (kinds,) = re.findall(r"^`kind` says .*?\n\n", section, flags=re.MULTILINE | re.DOTALL)
    assert {*re.findall(r"`(\w+)`", kinds)} - {"kind"} == {*typing.get_args(CardKind)}
    examples = [
        found for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for found in cell.split("`")[1::2]
    ]
    assert len(examples) > 10 and [each for each in examples if problem(each)] == []


def test_the_documented_encodings_join_the_shipped_results() -> None:
    (text,) = [block for block in blocks(ROOT / "docs/adding-an-encoding.md", "toml") if "penalties" in block]
    study = study_from({"name": "penalties", **tomllib.loads(text), "encodings": ["none", "alibi"]})
    assert {run.fingerprint for run in study.runs()} < {run.fingerprint for run in load_study("quickstart").runs()}


def test_the_page_of_extensions_names_what_there_is() -> None:
    said = cells_of("adding-an-extension.md", "More that an extension may say")
    own = {name for name in vars(Extension) if not name.startswith("_")} - {"name", "extend", "Config"}
    assert {*said} - {"Config"} == own


def test_the_page_of_mixers_names_what_there_is() -> None:
    said = cells_of("adding-a-mixer.md", "More that a mixer may say")
    own = {name for name in vars(Mixer) if not name.startswith("_")} - {"forward", "name"}
    assert {*said} == own


@pytest.mark.slow
def test_the_documented_error_of_a_mixer_is_what_is_said(tmp_path: Path) -> None:
    page = ROOT / "docs/adding-a-mixer.md"
    write_files(page, tmp_path)
    file = tmp_path / "my_folder/mixers/token_shift.py"
    assert len(file.read_text().splitlines()) <= 40
    file.write_text(file.read_text().replace("previous_BTD * continues_BT1", "previous_BTD"))
    (said,) = re.findall(r"^error: (mixer .*)$", page.read_text(), flags=re.MULTILINE)
    refused(said, "shift.toml", ["encodings=['token-shift']"], tmp_path)


@pytest.mark.slow
def test_the_documented_error_of_a_placement_is_what_is_said(tmp_path: Path) -> None:
    page = ROOT / "docs/adding-a-placement.md"
    write_files(page, tmp_path)
    assert len((tmp_path / "my_folder/placements/random_stride.py").read_text().splitlines()) <= 40
    (said,) = re.findall(r"^error: (.*)$", page.read_text(), flags=re.MULTILINE)
    refused(said, "stride.toml", ["data.placement='random-stride(largset=3)'"], tmp_path)


def refused(said: str, study: str, changes: list[str], folder: Path) -> None:
    """A study with these changes is refused in these words, before its first step."""
    program = f"""
import os
import lengthwise as lw
from lengthwise.training.plan import FleetPlan
try:
    FleetPlan((lw.load_study({study!r}, {changes!r}).runs()[0],)).build()
except Exception as error:
    assert str(error).replace(os.getcwd() + os.sep, "") == {said!r}, error
else:
    raise AssertionError("nothing was said")
"""
    execute(program, folder)


ERRORS = {
    "a wrong shape": ("return -slope.view(-1, *[1] * distance.ndim) * ", "return -slope[0] * "),
    "no number far away": ("torch.log1p(distance.float())", "torch.sqrt(20.0 - distance.float())"),
    "later tokens": (
        "distance_bias=self.penalty",
        "distance_bias=self.penalty, output=lambda x, layout: x + layout.own_values().roll(-1, 2)",
    ),
}


@pytest.mark.parametrize("kind", [kind if kind == "later tokens" else slow(kind) for kind in ERRORS])
def test_the_documented_errors_are_what_is_said(tmp_path: Path, kind: str) -> None:
    page = ROOT / "docs/adding-an-encoding.md"
    write_files(page, tmp_path)
    file = tmp_path / "my_folder/encodings/logarithm.py"
    text = file.read_text()
    right, wrong = ERRORS[kind]
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    said = re.findall(r"^error: (encoding logarithm .*)$", page.read_text(), flags=re.MULTILINE)
    assert len(said) == len(ERRORS)
    refused(said[list(ERRORS).index(kind)], "penalties.toml", ["encodings=['logarithm']"], tmp_path)


def test_the_limits_are_those_of_the_code() -> None:
    text = (ROOT / "docs/reading-the-report.md").read_text()
    assert AT_CHANCE_ERRORS == 3
    dead = f"by more than {AT_CHANCE:g} and by more than three standard errors"
    for phrase in (f"a run below {LEARNED:g} on", f"at {SATURATED:g} or above on", dead, "from six seeds up"):
        assert phrase in text
    assert SEEDS_OF_A_TASK == 6
    assert f"fewer than {FEW} test examples" in text
    assert f"the interval is inside ±{MARGIN:.2f}" in text and f"its {100 * LEVEL:.0f} % interval" in text
    floor, ceiling = f"at most {NEAR:g}, or within {NEAR:g} of a higher chance", f"both are at least {1 - NEAR:g}"
    assert floor in text and ceiling in text


def test_length_generalization_says_what_the_rows_say() -> None:
    """The first table and the sentence about tokens, computed again from the committed rows."""
    from lengthwise.records.rows import load_results

    results = load_results(ROOT / "results/quickstart")
    page = (ROOT / "docs/length-generalization.md").read_text()
    for encoding in ("none", "alibi", "rotary"):
        found = results.by_length("copy.repeat", encoding)
        cells = (f"{sum(found[length]) / len(found[length]):.3f}" for length in (6, 7, 8, 9, 10, 12))
        assert f"| `{encoding}` | {' | '.join(cells)} |" in page
    (run,) = [run for run in results.of("copy.repeat", "rotary") if run.description["seed"] == 1]
    (row,) = [row for row in run.rows if row["length"] == 9 and row["checkpoint"] == "last"]
    assert row["stopped_early"] == row["n"]
    right = f"{row['right_tokens']} of {row['tokens']:,} tokens right and {row['correct']} of {row['n']} examples"
    assert right in " ".join(page.split())


def test_the_page_of_methods_names_all_and_says_how_they_run() -> None:
    text = (ROOT / "docs/methods.md").read_text()
    config = ModelConfig(layers=2, width=64, heads=4)
    for name in registry.encodings.names():
        (line,) = [line for line in text.splitlines() if f"[`{name}`](" in line]
        if name in ("sinusoidal", "learned", "none"):
            continue
        encoding = build(config, 24, [{"name": name}], Lengths(64, 64)).encoding_at(0)
        assert explain(encoding, config).split(":")[0] in line.split(" | ")[-2], line
    assert all(f"`{name}`" in text for name in PRESETS)


HOME_MADE = (
    "stretched model", "keys found", "key-recall", "as perplexed", "told apart", "said twice", "unfamiliar length",
    "dead task", "goes on where it was", "interval holds 0", "without start", "without floor", "turned pairs", "twins",
    "attention written out", "asked to stop",
)  # fmt: skip
"""Words of a private language, for which the field has others."""


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES], ids=lambda page: page.name)
def test_pages_say_it_as_the_field_says_it(page: Path) -> None:
    """The pages of commands and of the Python reference among them: these are made of help texts and docstrings."""
    text = " ".join(page.read_text().lower().split())
    assert [words for words in HOME_MADE if words in text] == []
