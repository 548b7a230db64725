"""Settings: strict about names and types, clear about what is wrong."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from conftest import small_study, small_table

from lengthwise import configuration
from lengthwise.data.splits import Split, draw
from lengthwise.encodings.choice import read_encoding
from lengthwise.errors import UserError
from lengthwise.extensions.extended import make_extension
from lengthwise.study import load_study, shipped_studies, study_from
from lengthwise.tasks.choosing import make_task


@dataclass(frozen=True)
class Inner:
    count: int = 3


@dataclass(frozen=True)
class Outer:
    name: str
    rate: float = 0.5
    on: bool = False
    kind: Literal["a", "b"] = "a"
    span: tuple[int, int] | None = None
    many: tuple[str, ...] = ()
    inner: Inner = Inner()


def test_read_is_the_inverse_of_table() -> None:
    value = Outer("x", 2.0, True, "b", (1, 2), ("p", "q"), Inner(7))
    assert configuration.read(Outer, configuration.table(value), "") == value


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "missing setting 'here.name'"),
        ({"name": "x", "rat": 1}, "unknown setting 'here.rat'; did you mean 'rate'"),
        ({"name": 3}, "here.name must be a text, not the number 3"),
        ({"name": "x", "rate": "fast"}, 'here.rate must be a number, not the text "fast"'),
        ({"name": "x", "rate": True}, "here.rate must be a number, not the truth value true"),
        ({"name": "x", "on": 1}, "here.on must be true or false, not the number 1"),
        ({"name": "x", "kind": "c"}, 'here.kind cannot be the text "c"'),
        ({"name": "x", "span": [1]}, "here.span must have 2 entries"),
        ({"name": "x", "span": [1, 2.5]}, r"here.span\[1\] must be a whole number, not the number 2.5"),
        ({"name": "x", "many": "pq"}, "here.many must be a list"),
        ({"name": "x", "inner": {"cuont": 1}}, "unknown setting 'here.inner.cuont'; did you mean 'count'"),
        ({"name": "x", "inner": 4}, "here.inner must be a table"),
    ],
)
def test_what_is_wrong_is_said(table: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        configuration.read(Outer, table, "here")


def test_a_whole_number_is_a_number() -> None:
    assert configuration.read(Outer, {"name": "x", "rate": 2}, "").rate == 2.0


def test_overrides_are_toml_or_text() -> None:
    table = {"a": {"b": 1}, "c": "x"}
    changed = configuration.override(table, ["a.b=2", "a.d=[1, 2]", "c=plain words", "e.f=true", "g='1'"])
    assert changed == {"a": {"b": 2, "d": [1, 2]}, "c": "plain words", "e": {"f": True}, "g": "1"}
    assert table == {"a": {"b": 1}, "c": "x"}
    for wrong in ("a.b", "=3", "a..b=1"):
        with pytest.raises(UserError, match="must look like name=value"):
            configuration.override(table, [wrong])
    with pytest.raises(UserError, match="'c' is not a table"):
        configuration.override(table, ["c.d=1"])


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("encodings=[none, rotary]", r"put words in quotes, \['none', 'rotary'\]"),
        ("tasks=[{name=copy.words, symbols=20}]", r"put words in quotes, \[{name='copy.words', symbols=20}\]"),
        ("grid.model.layers=[1, two]", r"put words in quotes, \[1, 'two'\]"),
        ("encodings=['none'", "is no value of TOML, such as"),
        ("encodings=['none',, 'rotary']", "is no value of TOML, such as"),
    ],
)
def test_a_list_that_is_almost_one_is_told_its_cure(assignment: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        configuration.override({}, [assignment])
    assert configuration.override({}, ["summary=[a] text", "x=[true, 'none']"]) == {
        "summary": "[a] text",
        "x": [True, "none"],
    }


def test_several_values_of_a_setting_are_a_grid() -> None:
    with pytest.raises(UserError, match=r"model.layers must be a whole number, .*; a grid of values is grid.model"):
        small_study(model__layers=[1, 2])


@pytest.mark.parametrize(
    ("written", "as_table"),
    [
        ("rotary(fraction=0.5)", {"name": "rotary", "fraction": 0.5}),
        ("t5(buckets=16, max_distance=32)", {"name": "t5", "buckets": 16, "max_distance": 32}),
        ("rotary()", "rotary"),
    ],
)
def test_settings_in_brackets_are_those_of_a_table(written: str, as_table: object) -> None:
    """As tables of results write them."""
    assert read_encoding(written) == read_encoding(as_table)
    assert read_encoding(read_encoding(written).label) == read_encoding(as_table)


def test_tasks_are_read_with_settings_in_brackets() -> None:
    task = make_task("copy.words(symbols=20,distinct=True)")
    assert (task.name, task.config) == ("copy.words", type(task).Config(symbols=20, distinct=True))


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("rotary(0.5)", r"settings of an encoding look like rotary\(fraction=0.5\)"),
        ("rotary(fraction=0.5}\n[evil]\n)", "settings of an encoding look like"),
        ("rotary(fraction=0.5, fraction=0.25)", "settings of an encoding look like"),
        ("rotary(name='t5')", "the name stands before the brackets"),
        ("rotary(fraction=2020-01-01)", "fraction cannot be the date"),
        ("rotary(fraction=" + "[" * 5000 + ")", "settings of an encoding look like"),
    ],
)
def test_wrong_brackets_are_one_line(written: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        read_encoding(written)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", shipped_studies())
def test_every_shipped_study_expands(name: str) -> None:
    runs = load_study(name).runs()
    assert len({run.fingerprint for run in runs}) == len({run.name for run in runs}) == len(runs)


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_studies())
def test_every_shipped_study_has_examples_for_all_splits_of_its_lengths(name: str) -> None:
    """Of two words there are eight sequences of length three: a study that asked for them could not be run."""
    asked = {(json.dumps(run.task), run.data): run for run in load_study(name).runs()}
    for run in asked.values():
        task, data = run.make_task(), run.data
        train, _ = data.spans(task)
        division = data.division(task)
        for split in Split:
            few = 2 * len(task.training_buckets(train))
            assert len(draw(task, split, train, few, 0, division=division, again=True)) == few
        assert len(draw(task, Split.TEST, train, 8, 0, apart=False, buckets=data.unseen(task)[:4])) == 8


def test_every_setting_changes_the_fingerprint() -> None:
    base = small_study().runs()[0].fingerprint
    changes = [
        {"seeds": [3]}, {"encodings": ["t5"]}, {"tasks": ["copy.words"]}, {"model__width": 32}, {"model__dropout": 0.1},
        {"model__style": "llama"}, {"data__examples": 10}, {"data__validation": 31}, {"data__anchor": False},
        {"training__steps": 31}, {"training__clip": 2.0}, {"training__precision": "bf16"},
        {"tasks": [{"name": "copy.repeat", "symbols": 21}]}, {"data__test_lengths": [5, 7]},
    ]  # fmt: skip
    prints = [small_study(**change).runs()[0].fingerprint for change in changes]
    assert len({base, *prints}) == len(prints) + 1


def test_writing_out_a_default_does_not_change_the_fingerprint() -> None:
    plain = small_study(encodings=["rotary"], tasks=["copy.words"], model__width=32)
    written = small_study(
        encodings=[{"name": "rotary", "fraction": 0.25}],
        tasks=[{"name": "copy.words", "symbols": 100}],
        model__width=32,
        training__clip=1.0,
    )
    assert [r.fingerprint for r in plain.runs()] == [r.fingerprint for r in written.runs()]


def test_encodings_are_names_tables_or_schedules() -> None:
    assert read_encoding("none").label == "none"
    assert read_encoding({"name": "rotary", "fraction": 0.5}).label == "rotary(fraction=0.5)"
    assert read_encoding({"name": "rotary", "label": "mine"}).label == "mine"
    schedule = read_encoding(["rotary", "rotary", "none"])
    assert schedule.label == "rotary,rotary,none"
    assert [layer["name"] for layer in schedule.layers] == ["rotary", "rotary", "none"]
    for wrong in ([], 3, {"fraction": 0.5}, {"name": "rotary", "label": "a/b"}):
        with pytest.raises(UserError):
            read_encoding(wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_schedule_trains(tmp_path: Path) -> None:
    import json

    import lengthwise as lw

    table = small_table(encodings=[["none", "alibi"], {"name": "t5", "label": "t5 twice", "shared": False}])
    table["model"]["layers"] = 3
    results = lw.run(study_from(table), tmp_path / "s", "cpu")
    assert results.encodings == ["none,alibi", "t5 twice"]
    described = json.loads(next((tmp_path / "s").glob("*/none,alibi/*/run.json")).read_text())
    assert described["encoding_of_each_layer"] == ["none", "alibi", "none"]


def test_equal_settings_under_two_labels_are_refused() -> None:
    study = small_study(encodings=["rotary", {"name": "rotary", "fraction": 0.25}], model__width=32)
    with pytest.raises(UserError, match="have the same settings"):
        study.runs()


def test_lengths_that_a_task_does_not_have_are_refused() -> None:
    with pytest.raises(UserError, match="lego has no examples of length 40"):
        small_study(tasks=[{"name": "lego", "train_lengths": [2, 4], "test_lengths": [9, 40]}])


def test_a_task_may_have_lengths_of_its_own() -> None:
    study = small_study(tasks=["copy.words", {"name": "addition", "train_lengths": [1, 2], "test_lengths": [3, 3]}])
    spans = {run.title: run.data.train_lengths for run in study.runs()}
    assert spans == {"copy.words": (2, 4), "addition": (1, 2)}


def test_a_file_of_examples_is_found_beside_its_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    lines = [
        f'{{"prompt": "P: {a} {b}", "target": "{b}", "length": {n}}}\n'
        for n in (1, 2)
        for a in "abcde"
        for b in "abcde"
    ]
    (folder / "mine.jsonl").write_text("".join(lines))
    (folder / "s.toml").write_text('summary = "x"\ntasks = ["mine.jsonl"]\nencodings = ["none"]\nseeds = [1]\n')
    monkeypatch.chdir(tmp_path)
    (run,) = load_study("sub/s.toml").runs()
    assert run.title == "mine"
    monkeypatch.chdir(folder)
    (same,) = load_study("s.toml").runs()
    assert same.fingerprint == run.fingerprint


# Names that people know things by


@pytest.mark.parametrize(
    ("said", "meant"), [("rope", "rotary"), ("RoPE", "rotary"), ("NoPE", "none"), ("APE", "sinusoidal"), ("T5", "t5"),
                        ("ALiBi", "alibi"), ("Gated-Recurrence", "gated-recurrence")]
)  # fmt: skip
def test_an_encoding_may_be_called_as_in_the_field(said: str, meant: str) -> None:
    choice = read_encoding(said)
    assert choice == read_encoding(meant) and choice.label == meant


@pytest.mark.parametrize("said", ["pi", "linear", "Linear", "position-interpolation"])
def test_an_extension_may_be_called_as_in_the_field(said: str) -> None:
    assert make_extension({"name": said, "factor": 2.0}).name == "position-interpolation"


def test_rope_is_never_answered_with_none() -> None:
    with pytest.raises(UserError, match="did you mean") as refused:
        read_encoding("ropee")
    assert "'rope'" in str(refused.value)


def test_lr_is_the_learning_rate() -> None:
    for name in ("lr", "LR", "Lr"):
        assert load_study("quickstart", [f"training.{name}=0.5"]).training.learning_rate == 0.5
    choice = read_encoding("t5(lr_multiplier=0.1)")
    assert choice.label == "t5(rate=0.1)" and choice.layers == ({"name": "t5", "rate": 0.1},)
    with pytest.raises(UserError, match=r"training.lr and training.learning_rate are the same setting"):
        study_from({**small_table(), "training": {"lr": 1.0, "learning_rate": 2.0}})
    task = {"name": "copy.repeat", "lr": 0.25}
    (run,) = study_from({**small_table(), "tasks": [task], "encodings": ["none"], "seeds": [1]}).runs()
    assert run.training.learning_rate == 0.25 and run.title == "copy.repeat (rate 0.25)"
