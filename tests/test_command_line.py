"""The command line as a person meets it: what it prints, and what bad input gets."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import small_table

from lengthwise import __version__, registry
from lengthwise.cli import main
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.files import write_json
from lengthwise.records.results import Results
from lengthwise.study import load_study
from lengthwise.training.plan import FleetPlan

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lengthwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path) -> Call:
    """Runs a command in an empty folder: exit code, output, messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lengthwise", *map(str, words)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def toml(table: dict) -> str:
    """Enough TOML for the tables of these tests."""

    def value(v: object) -> str:
        if isinstance(v, dict):
            return "{ " + ", ".join(f"{k} = {value(x)}" for k, x in v.items()) + " }"
        return "[" + ", ".join(map(value, v)) + "]" if isinstance(v, list) else json.dumps(v)

    return "\n".join(f"{key} = {value(v)}" for key, v in table.items() if key != "name")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(toml(small_table()))
    return file


BAD_SETTINGS = {
    "unknown task": ("tasks=['copy.word']", r"unknown task 'copy.word'; did you mean 'copy.words'"),
    "unknown encoding": ("encodings=['rotari']", r"unknown encoding 'rotari'; did you mean 'rotary'"),
    "unknown encoding setting": ("encodings=[{name='rotary', fractoin=1.0}]", r"did you mean 'fraction'"),
    "unknown task setting": ("tasks=[{name='copy.words', symbol=3}]", r"did you mean 'symbols'"),
    "unknown section": ("trainig.steps=3", r"unknown setting 'trainig'; did you mean 'training'"),
    "unknown setting": ("training.step=3", r"unknown setting 'training.step'; did you mean 'steps'"),
    "text for a number": ("training.steps=many", r"training.steps must be a whole number, not the text \"many\""),
    "fraction for a count": ("training.batch=2.5", r"training.batch must be a whole number"),
    "not a number": ("training.learning_rate=nan", r"training.learning_rate must be a finite number"),
    "negative length": ("data.train_lengths=[-2, 4]", r"train_lengths: lengths must be 1 <= first <= last"),
    "lengths backwards": ("data.test_lengths=[9, 5]", r"test_lengths: lengths must be 1 <= first <= last, not 9 to 5"),
    "seen test lengths": ("data.test_lengths=[3, 6]", r"test_lengths must begin above the last of train_lengths \(4\)"),
    "no steps": ("training.steps=0", r"steps must be above 0"),
    "zero batch": ("training.batch=0", r"batch must be above 0"),
    "dropout of one": ("model.dropout=1.0", r"dropout must be at least 0 and below 1"),
    "heads that do not divide": ("model.heads=3", r"width 16 cannot be divided among 3 heads"),
    "unknown size": ("model.size=huge", r"model.size cannot be 'huge'"),
    "unknown style": ("model.style=gpt", r"model.style cannot be the text \"gpt\""),
    "odd rotation": ("encodings=[{name='rotary', fraction=0.4}]", r"no even number of entries"),
    "short table": (
        "encodings=[{name='learned', rows=9}]",
        r"ends at position 8, but .* has 15 tokens",
    ),
    "no tasks": ("tasks=[]", r"tasks must name at least one"),
    "a task twice": (
        "tasks=['copy.words', {name='copy.words', symbols=9}]",
        r"tasks names something twice",
    ),
    "a seed twice": ("seeds=[1, 1]", r"seeds names something twice"),
    "negative seed": ("seeds=[-1]", r"seeds must be 0 or more"),
    "scratchpad without steps": ("data.scratchpad=full", r"copy.repeat has no steps"),
    "unknown scratchpad": ("data.scratchpad=ful", r"unknown scratchpad 'ful'; did you mean 'full'"),
    "malformed override": ("training.steps", r"must look like name=value"),
    "too few symbols": ("tasks=[{name='copy.repeat', symbols=1}]", r"symbols must be 2 to 6400"),
}


@pytest.mark.parametrize("kind", BAD_SETTINGS)
def test_bad_settings_are_one_clear_line_and_write_nothing(lengthwise: Call, study: Path, kind: str) -> None:
    import re

    setting, message = BAD_SETTINGS[kind]
    code, out, error = lengthwise("run", study, "--set", setting, "--device", "cpu")
    assert code == 2
    assert error.startswith("error: ") and error.count("\n") == 1
    assert re.search(message, error), error
    assert out == "" and not Path("runs").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"tasks = [", "is not valid TOML"),
        (b"\xff\xfe\x00rubbish", "is no text in UTF-8"),
        (b"summary = 'x'", "missing setting"),
    ],
)
def test_bad_study_files(lengthwise: Call, content: bytes | None, message: str) -> None:
    if content is not None:
        Path("bad.toml").write_bytes(content)
    code, _, error = lengthwise("run", "bad.toml")
    assert code == 2 and message in error and not Path("runs").exists()


def test_unknown_study_suggests_a_name(lengthwise: Call) -> None:
    code, _, error = lengthwise("run", "quickstrat")
    assert code == 2 and "did you mean 'quickstart'" in error


@pytest.mark.slow
def test_places_that_cannot_be_written(lengthwise: Call, study: Path, finished: tuple[Path, Results]) -> None:
    Path("file").write_text("mine")
    for out in ("file/runs", "/proc/nowhere/runs"):
        code, _, error = lengthwise("run", study, "--out", out, "--device", "cpu")
        assert code == 2 and "cannot make the folder" in error
    code, _, error = lengthwise("report", finished[0], "--out", "absent/report.html")
    assert code == 1 and "cannot write" in error
    assert Path("file").read_text() == "mine"


def test_devices_that_are_not_there(lengthwise: Call, study: Path) -> None:
    import torch

    code, _, error = lengthwise("run", study, "--device", "tpu")
    assert code == 2 and "unknown device 'tpu'" in error
    if not torch.cuda.is_available():
        code, _, error = lengthwise("run", study, "--device", "cuda")
        assert code == 2 and "use --device cpu" in error
    code, _, error = lengthwise("run", study, "--device", "cpu:abc")
    assert code == 2 and "unknown device" in error
    assert not Path("runs").exists()


def test_bad_words_for_sample_show_and_report(lengthwise: Call, finished: tuple[Path, Results]) -> None:
    for words, message in [
        (["sample", "copy.words", "--length", "-3"], "Invalid value for '--length'"),
        (["sample", "copy.words", "--count", "x"], "Invalid value for '--count'"),
        (["sample", "copy.wrods"], "did you mean 'copy.words'"),
        (["sample", "copy.words", "--scratchpad", "full"], "has no steps"),
        (["sample", "copy.words", "--set", "symbols=many"], "must be a whole number"),
        (["show", "absent"], "no such folder"),
        (["show", "."], "holds no runs"),
        (["report", str(finished[0]), "--out", "page.pdf"], "must end in .html, .svg or .png"),
        (["list", "things"], "is not one of"),
        (["nonsense"], "No such command"),
    ]:
        code, _, error = lengthwise(*words)
        assert code == 2 and message in error.replace("\n", " "), (words, error)
        assert "Traceback" not in error


@pytest.mark.slow
def test_damaged_results_are_named(lengthwise: Call, study: Path) -> None:
    assert lengthwise("run", study, "--device", "cpu")[0] == 0
    run = next(Path("runs/mine").glob("*/*/*/run.json"))
    whole = run.read_text()
    run.write_text(whole[:100])
    code, _, error = lengthwise("show", "runs/mine")
    assert code == 1 and f"{run} is no JSON" in error
    run.write_text(whole)
    rows = run.with_name("rows.jsonl")
    rows.write_text("rubbish\n" + rows.read_text())
    code, _, error = lengthwise("show", "runs/mine")
    assert code == 1 and "rows.jsonl:1" in error


def test_from_study_to_tables(lengthwise: Call, study: Path) -> None:
    code, out, error = lengthwise("run", study, "--device", "cpu")
    assert code == 0 and "Finished: runs/mine" in out
    assert "[1/2] none on copy.repeat, 2 seeds" in error and "Next: lengthwise show runs/mine\n" in error
    code, out, _ = lengthwise("run", study, "--device", "cpu")
    assert code == 0 and "Nothing left to do" in out
    code, out, _ = lengthwise("show", "runs/mine")
    assert code == 0 and "none" in out and "alibi" in out and "reciprocal" in out
    for name in ("report.html", "curves.svg", "curves.png"):
        assert lengthwise("report", "runs/mine", "--out", name)[0] == 0
        assert Path(name).stat().st_size > 1000


@pytest.mark.slow
def test_unfinished_runs_are_said_to_be_unfinished(lengthwise: Call, study: Path) -> None:
    assert lengthwise("run", study, "--device", "cpu")[0] == 0
    for file in Path("runs/mine").glob("*/alibi/*/finished.json"):
        file.unlink()
    code, out, error = lengthwise("show", "runs/mine")
    assert code == 0 and "unfinished: copy.repeat/alibi/seed-1" in error
    said, _, tables = out.partition("\n")
    assert said == "2 of 4 runs of this study; missing: encoding alibi" and "alibi" not in tables
    code, _, error = lengthwise("collect", "runs/mine", "--out", "collected")
    names = "copy.repeat/alibi/seed-1, copy.repeat/alibi/seed-2"
    assert code == 0 and error.startswith(f"unfinished, only their names go along: {names}\nNext: ")
    code, out, error = lengthwise("show", "collected")
    assert code == 0 and "unfinished: copy.repeat/alibi/seed-1" in error
    assert "alibi" not in out.partition("\n")[2]


@pytest.mark.slow
def test_runs_that_others_train_are_said_to_be(lengthwise: Call, study: Path) -> None:
    assert lengthwise("run", study, "--device", "cpu", "--only", "encoding=none")[0] == 0
    run = Path("runs/mine/copy.repeat/alibi")
    runs = [each for each in load_study(str(study)).runs() if each.encoding.label == "alibi"]
    fleet = FleetPlan(tuple(runs))
    claim = StudyDirectory(Path("runs/mine")).claim(fleet.id)
    assert claim is not None
    write_json(Path("runs/mine/fleets") / fleet.id / "fleet.json", {"runs": [each.fingerprint for each in runs]})
    code, out, _ = lengthwise("run", study, "--device", "cpu")
    assert code == 0 and out == "Nothing left to take; 2 runs are being trained by others: runs/mine\n"
    code, out, _ = lengthwise("run", study, "--device", "cpu", "--only", "encoding=none")
    assert code == 0 and out == "Nothing left to do: runs/mine\n" and not run.exists()
    claim.give_up()
    code, out, _ = lengthwise("run", study, "--device", "cpu", "--only", "encoding=alibi,seed=1")
    assert code == 0 and out == "Finished: runs/mine\n"


def test_runs_and_collections_stay_apart(lengthwise: Call, study: Path, finished: tuple[Path, Results]) -> None:
    for words, message in [
        (["collect", finished[0], "--out", finished[0]], "is the folder of a study"),
        (["run", study, "--device", "cpu", "--out", "collected"], "holds collected results"),
    ]:
        assert lengthwise("collect", finished[0], "--out", "collected")[0] == 0
        code, out, error = lengthwise(*words)
        assert code == 2 and message in error and error.count("\n") == 1 and not out


def test_results_without_rows_are_one_clear_line(lengthwise: Call, finished: tuple[Path, Results]) -> None:
    for name in ("rows.jsonl", "study.json"):
        assert lengthwise("collect", finished[0], "--out", name)[0] == 0
        (Path(name) / name).unlink()
        for command in (["show", name], ["report", name], ["compare", name], ["collect", name, "--out", "other"]):
            code, out, error = lengthwise(*command)
            assert code == 1 and f"{name}/{name} is missing" in error and error.count("\n") == 1 and not out
    Path("nothing").mkdir()
    for file in ("rows.jsonl", "runs.jsonl"):
        Path("nothing", file).write_text("")
    Path("nothing/study.json").write_text("{}")
    for command in ("show", "report", "compare"):
        code, out, error = lengthwise(command, "nothing")
        assert code in (1, 2) and error.count("\n") == 1 and "nothing" in error, (command, error)


@pytest.mark.slow
def test_lists_are_complete_and_machine_readable(lengthwise: Call) -> None:
    code, out, _ = lengthwise("list", "tasks", "--json")
    tasks = {row["name"]: row for row in json.loads(out)}
    assert code == 0 and list(tasks) == registry.tasks.names()
    assert tasks["copy.repeat"]["chance"]["2"] == 1 / 6052
    assert len(tasks["copy.words"]["symbols"]) == 105
    encodings = json.loads(lengthwise("list", "encodings", "--json")[1])
    assert {row["name"] for row in encodings} >= {"none", "sinusoidal", "learned", "t5", "alibi", "rotary"}
    assert {row["name"]: row["settings"] for row in encodings}["rotary"]["fraction"] == "0.25"
    assert tasks["addition"]["steps"] == ["input", "computation", "output", "variables", "remaining"]
    assert tasks["lego"]["steps"] == ["input", "computation", "output", "remaining"] and not tasks["scan"]["steps"]
    for what in ("tasks", "encodings", "studies"):
        code, out, _ = lengthwise("list", what)
        assert code == 0 and all(row["name"] in out for row in json.loads(lengthwise("list", what, "--json")[1]))


def test_lists_mark_tasks_with_steps_and_studies_of_another_command(lengthwise: Call) -> None:
    *lines, hint = lengthwise("list", "tasks")[1].strip().splitlines()
    assert sum(line.rstrip().endswith("(steps)") for line in lines) == 8
    assert hint.startswith("(steps): with `--scratchpad full`")
    commands = {row["name"]: row["command"] for row in json.loads(lengthwise("list", "studies", "--json")[1])}
    assert commands["quickstart"] == "run" and commands["headscale-small"] == "extend study"
    assert " ".join(lengthwise("list", "studies")[1].split()).count("(run by `lengthwise extend study`)") == 2
    code, _, error = lengthwise("run", "headscale-small")
    assert code == 2 and "lengthwise extend study headscale-small --corpus TEXTS --out OUT" in error


def test_sample_is_what_python_gives(lengthwise: Call) -> None:
    import lengthwise as lw

    rows = json.loads(lengthwise("sample", "copy.words", "--length", "7", "--seed", "3", "--count", "2", "--json")[1])
    assert [(row["prompt"], row["target"]) for row in rows] == lw.task("copy.words").sample(7, 2, 3)
    assert rows[0]["target"] in lengthwise("sample", "copy.words", "--length", "7", "--seed", "3")[1]


def test_sample_shows_the_pieces_of_prompt_and_target(lengthwise: Call) -> None:
    words = ("sample", "copy.repeat", "--length", "2", "--count", "1", "--tokens", "published")
    (row,) = json.loads(lengthwise(*words, "--json")[1])
    symbol = "\u2581" + row["target"].split()[0]
    expected = ["\u2581Copy", ":", symbol, symbol, "\u2581[", "S", "EP", "]", symbol, symbol, "</s>"]
    assert row["pieces"] == expected and row["tokens"] == 11
    assert " ".join(expected[:8]) + " -> " + " ".join(expected[8:]) + " (11 tokens)" in lengthwise(*words)[1]
    plain = json.loads(lengthwise("sample", "copy.repeat", "--length", "2", "--count", "1", "--json")[1])[0]
    assert (plain["prompt"], plain["target"]) == (row["prompt"], row["target"]) and "pieces" not in plain


def test_dataset_writes_what_it_says(lengthwise: Call) -> None:
    code, out, _ = lengthwise("dataset", "scan", "--out", "data")
    assert code == 0 and "test 3,136" in out
    manifest = json.loads(Path("data/manifest.json").read_text())
    assert manifest["files"]["test"]["examples"] == 3136
    for words, message in [
        (["dataset", "scan", "--import", ".", "--out", "x"], "--import reads the files of PCFG SET"),
        (["dataset", "pcfg", "--import", ".", "--out", "x"], "has no .src files"),
        (["dataset", "copy.words", "--all", "--out", "x"], "too many examples to list"),
        (["dataset", "copy.words", "--scratchpad", "full", "--out", "x"], "has no steps"),
        (["dataset", "absent.jsonl", "--out", "x"], "cannot read absent.jsonl"),
    ]:
        code, _, error = lengthwise(*words)
        assert code == 2 and message in error, error
        assert not Path("x").exists(), words


@pytest.mark.slow
def test_bench_data_prints_and_writes_a_table(lengthwise: Call) -> None:
    code, out, _ = lengthwise("bench", "data", "--count", "300", "--out", "bench.json")
    rows = json.loads(Path("bench.json").read_text())["rows"]
    assert code == 0 and len(rows) == len(registry.tasks.names()) - 1 + 8
    assert all(row["seconds"] > 0 and row["tokens"] > 300 for row in rows)
    assert all(row["task"] in out for row in rows)


def test_help_and_list_do_not_wait_for_torch() -> None:
    for words in (["--help"], ["list", "encodings"], ["list", "tasks"], ["sample", "copy.words"]):
        program = f"import sys; sys.argv = ['lengthwise', *{words!r}]\nfrom lengthwise.cli import main\n"
        program += "try:\n    main()\nexcept SystemExit:\n    pass\nassert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_version_is_that_of_the_package(lengthwise: Call) -> None:
    code, out, _ = lengthwise("--version")
    assert code == 0 and out == f"lengthwise {__version__}\n"


def test_a_dry_run_says_what_it_takes_and_writes_nothing(lengthwise: Call, study: Path) -> None:
    code, out, _ = lengthwise("run", study, "--dry-run", "--device", "cpu")
    assert code == 0 and out.startswith("runs ") and "Nothing was written" in out and not Path("runs").exists()
