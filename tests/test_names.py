"""Names as parts of paths: nothing is written outside the folder, nothing meets, what was there earlier is found."""

from itertools import combinations
from pathlib import Path

import pytest
from conftest import small_table
from test_command_line import Call, lengthwise, toml  # noqa: F401 (a fixture)

from lengthwise.errors import UserError
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.files import write_json
from lengthwise.records.names import LONGEST_PART, OURS, path_part, places, plain, refuse_unfit

PLAIN = ["copy.repeat", "none", "t5(initial=0,rate=0.01)", "rotary+ssmax,none", "a_b", "A-b=2"]
ODD = ["..", ".", "", "...", "../up", "/etc", "a/b", "a\\b", "a b", "a\nb", "a\0b", "a\x1b[31m", "\u202eabc", "α", "β"]
ODD += ["x" * 101, "x" * 102, "x" * 5000, "lock", "Lock", "study.json", "fleets", "analysis", "~a", "\ud800", "\ud801"]
ODD += [".hidden", "copy.repeat (1 + 1 tokens)", "a*b", "a:b", "con ", " con"]


def test_plain_names_stay_as_they_are() -> None:
    assert [path_part(name) for name in PLAIN] == PLAIN == [plain(name) for name in PLAIN]


@pytest.mark.parametrize("name", ODD)
def test_a_part_leads_nowhere_else(name: str) -> None:
    part = path_part(name)
    assert part not in OURS and not part.startswith((".", "/")) and part.isascii() and part.isprintable()
    assert "/" not in part and "\\" not in part and len(part) <= LONGEST_PART + 13
    assert (Path("/out") / part).resolve().parent == Path("/out")


def test_no_two_names_become_the_same_part() -> None:
    names = [*PLAIN, *ODD, *(path_part(name) for name in ODD)]
    for one, other in combinations(dict.fromkeys(names), 2):
        assert path_part(one) != path_part(other) or other == path_part(one) == one


def test_runs_under_their_earlier_names_are_found(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path)
    title = "copy.repeat (1 + 1 tokens)"
    assert directory.run(title, "none", 1, "f").path.parent.parent.name == path_part(title)
    earlier = tmp_path / "copy.repeat_(1_+_1_tokens)" / "none" / "seed-1-f"
    earlier.mkdir(parents=True)
    directory = StudyDirectory(tmp_path)
    assert directory.run(title, "none", 1, "f").path == earlier
    assert directory.run(title, "none", 2, "g").path.parent.parent.name == path_part(title)


def test_runs_that_shared_a_folder_earlier_are_no_doubles(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path)
    for label, fingerprint in (("α", "a"), ("β", "b")):
        folder = tmp_path / "copy.repeat" / "_" / f"seed-1-{fingerprint}"
        folder.mkdir(parents=True)
        write_json(folder / "run.json", {"name": f"copy.repeat/{label}/seed-1"})
    directory.refuse_doubles({("copy.repeat", "α", 1, ""): directory.run("copy.repeat", "α", 1, "a")})
    with pytest.raises(UserError, match=r"already holds copy.repeat/β/seed-1 with other settings"):
        directory.refuse_doubles({("copy.repeat", "β", 1, ""): directory.run("copy.repeat", "β", 1, "c")})


def test_places_never_leave_the_folder() -> None:
    for name in ODD:
        for place in places(Path("/out"), name, name):
            assert place.resolve().parent.parent == Path("/out"), place


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", ".a", "a/b", "a\nb", "a\tb", "a\0", "\x1b[31ma", "\u202ea", "\ufeffa"]
)
def test_names_that_nobody_can_read_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"a label (must be a plain word|has the letter U)"):
        refuse_unfit(name, "a label")
    with pytest.raises(UserError, match="at most 200 letters, not 201"):
        refuse_unfit("a" * 201, "a label")


QUICK = {"seeds": [1], "training__steps": 2, "training__validate_every": 2}


def test_labels_of_other_alphabets_go_on(lengthwise: Call, tmp_path: Path) -> None:  # noqa: F811
    labels = ["α", "β", "a b", "a_b"]
    encodings = [{"name": "alibi" if i % 2 else "none", "label": label} for i, label in enumerate(labels)]
    encodings[2:] = [{"name": "rotary", "label": "a b"}, {"name": "sinusoidal", "label": "a_b"}]
    (tmp_path / "toy.toml").write_text(toml(small_table(encodings=encodings, **QUICK)))
    for said in ("Finished", "Nothing left to do"):
        code, out, error = lengthwise("run", "toy.toml", "--device", "cpu", "--workers", "1", "--out", "a[/b]")
        assert code == 0 and out.startswith(said) and "a[/b]" in out, error
    assert len({file.parent.parent for file in (tmp_path / "a[/b]").glob("*/*/seed-*/finished.json")}) == 4


@pytest.mark.parametrize("name", ["lock", "study.json", "fleets", "analysis"])
def test_tasks_named_as_our_files_are_beside_them(lengthwise: Call, tmp_path: Path, name: str) -> None:  # noqa: F811
    lines = [f'{{"prompt": "a {" b" * n}", "target": "{"b " * n}", "length": {n}}}\n' for n in range(1, 9)]
    (tmp_path / f"{name}.jsonl").write_text("".join(lines * 30))
    table = small_table(tasks=[f"{name}.jsonl"], encodings=["none"], **QUICK)
    table["data"] |= {"train_lengths": [1, 4], "test_lengths": [5, 8], "validation": 4, "test_per_length": 2}
    (tmp_path / "toy.toml").write_text(toml(table))
    for said in ("Finished", "Nothing left to do"):
        code, out, error = lengthwise("run", "toy.toml", "--device", "cpu", "--out", "out")
        assert code == 0 and out.startswith(said), error
    assert len(list((tmp_path / "out").glob(f"{name}~*/none/seed-1-*/finished.json"))) == 1


def test_a_task_file_of_dots_writes_nothing(lengthwise: Call, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "...jsonl").write_text('{"prompt": "a", "target": "a", "length": 1}\n' * 9)
    (tmp_path / "toy.toml").write_text(toml(small_table(tasks=["...jsonl"])))
    before = sorted(tmp_path.iterdir())
    code, out, error = lengthwise("run", "toy.toml", "--out", "out/in", "--device", "cpu")
    assert code == 2 and not out and error.count("\n") == 1 and sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("out", ["", " ", "a\nb", "\x1b[31m"])
def test_no_folder_is_refused(lengthwise: Call, tmp_path: Path, out: str) -> None:  # noqa: F811
    code, _, error = lengthwise("run", "quickstart", "--out", out)
    assert code == 2 and "names no folder" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
