"""Mistakes in one's own task or encoding, or in where it is looked for: one line, before anything is written."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import small_table
from test_command_line import Call, lengthwise, toml  # noqa: F401 (a fixture)
from test_one_file import ENCODING, TASK

from lengthwise import registry, study
from lengthwise.encodings.check import check as check_encoding
from lengthwise.encodings.encoding import Geometry
from lengthwise.errors import UserError
from lengthwise.model import build
from lengthwise.tasks import check as task_check
from lengthwise.tasks.task import Task

Write = Callable[[str, str], Path]


def forget() -> None:
    """What has been found, imported and checked so far."""
    for found in (registry.tasks, registry.encodings, registry.placements, registry.extensions, registry.mixers):
        found.__dict__.pop("entries", None)
    for name in [name for name in sys.modules if name.startswith("lengthwise_path_")]:
        del sys.modules[name]
    study._check_task.cache_clear()
    build._check.cache_clear()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file into a folder of LENGTHWISE_PATH."""
    root = tmp_path / "mine"
    root.mkdir()
    monkeypatch.setenv("LENGTHWISE_PATH", str(root))
    forget()

    def file(name: str, content: str) -> Path:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content)
        return root / name

    yield file
    monkeypatch.undo()
    forget()


def refusal(call: Call, tmp_path: Path, **changes: object) -> str:
    """What `run` says to a study that it refuses: one line, and nothing is written."""
    (tmp_path / "toy.toml").write_text(toml(small_table(**changes)))
    code, out, error = call("run", "toy.toml", "--device", "cpu")
    assert code == 2 and not out and not Path("runs").exists()
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error.removeprefix("error: ").strip()


CHANCE = TASK[TASK.index("    def chance") :]
DRAWN = "generator.integers(8, size=(count, length))"

BAD_TASKS = {
    "no chance": ("", CHANCE, "{}: chance is missing"),
    "chance fails": ("return 1 / (length - length)", "return 1 / 8", "{:LINE}: chance fails: ZeroDivisionError: "),
    "chance above one": ("return 8", "return 1 / 8", r"{}: chance\(2\) must be 0 to 1, not 8"),
    "axes turned round": (
        "generator.integers(8, size=(length, count))",
        DRAWN,
        r"{}: draw\(4, count=2\) must return arrays of \(count, tokens\) or \(tokens\): column 1 \(PROMPT\) has the "
        r"shape \(4, 2\)",
    ),
    "an unknown id": ("9 + " + DRAWN, DRAWN, r"{}: draw\(\d, count=2\) must return ids of symbols, 0 to 10, or -1: "),
    "fractions": ("1.0 * " + DRAWN, DRAWN, r"{}: draw\(2, count=2\) must return arrays of whole numbers: column 1 "),
    "no answer": (", (Part.PROMPT, source[:, -1:])", ", (Part.ANSWER, source[:, -1:])", "{}: .*column of Part.ANSWER"),
    "no prompt": (
        "[(Part.PROMPT, source[:, :0])",
        '[(Part.ANCHOR, self.fixed("Last:")), (Part.PROMPT, source)',
        r"{}: draw\(2, count=2\) must return at least one token of a prompt",
    ),
    "an unknown word": (
        '"Lost:")), (',
        '"Last:")), (',
        "{:LINE}: draw fails: ValueError: not in the vocabulary: 'Lost:'",
    ),
    "no parts": (
        "return [source]  # ",
        "return [(",
        r"{}: draw\(2, count=2\) must return a list of \(part, ids\), not of ndarray",
    ),
    "symbols twice": ('*"aabcdefgh"', '*"abcdefgh"', "{}: symbols fails: ValueError: symbols declared twice"),
    "settings that are no dataclass": (
        '    name = "last"\n\n    class Config:\n        symbols: int = 3\n',
        '    name = "last"\n',
        "{}: Config fails: TypeError: ",
    ),
}


def place(pattern: str, what: str, file: Path) -> str:
    """`{}` is the thing and its file, `{:LINE}` with the line."""
    return pattern.replace("{}", rf"{what} \({file}\)").replace("{:LINE}", rf"{what} \({file}:\d+\)")


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD_TASKS)
def test_a_wrong_task_is_refused_before_training(lengthwise: Call, write: Write, tmp_path: Path, kind: str) -> None:  # noqa: F811
    wrong, right, message = BAD_TASKS[kind]
    assert right in TASK
    file = write("tasks/last.py", TASK.replace(right, wrong))
    said = refusal(lengthwise, tmp_path, tasks=["last"])
    assert re.fullmatch(place(message, "task last", file) + ".*", said), said


def test_everything_that_a_task_lacks_is_named(write: Write) -> None:
    lacking = re.sub(r"    length_means.*\n", "", TASK[: TASK.index("    def draw")])
    write("tasks/last.py", lacking)
    with pytest.raises(UserError, match=r"length_means and draw and chance are missing$"):
        study.make_task("last")


def test_the_line_that_fails_is_named(write: Write) -> None:
    file = write("tasks/last.py", TASK.replace("return 1 / 8", "return 1 / (length - length)"))
    number = file.read_text().splitlines().index("        return 1 / (length - length)") + 1
    with pytest.raises(UserError, match=rf"last\.py:{number}\): chance fails"):
        study.study_from(small_table(tasks=["last"]))


def test_list_refuses_a_task_without_chance_in_a_line(lengthwise: Call, write: Write) -> None:  # noqa: F811
    write("tasks/last.py", TASK.replace(CHANCE, ""))
    code, out, error = lengthwise("list", "tasks")
    assert code == 2 and not out and error.endswith("chance is missing\n") and error.count("\n") == 1


def test_a_task_is_asked_for_a_few_examples_only(monkeypatch: pytest.MonkeyPatch) -> None:
    task = study.make_task("copy.words")
    asked: list[tuple[int, int]] = []
    draw = task.draw

    def counted(bucket: int, count: int, generator: np.random.Generator) -> list:
        asked.append((bucket, count))
        return draw(bucket, count, generator)

    monkeypatch.setattr(task, "draw", counted)
    task_check.check(task, task.train_lengths, task.test_lengths)
    assert asked == [(length, task_check.COUNT) for length in (2, 20, 21, 40) for _ in range(2)]


def test_what_is_shipped_passes() -> None:
    for name in registry.tasks.names():
        if name != "file":
            task = study.make_task(name)
            task_check.check(task, task.train_lengths, task.test_lengths)
    for name in registry.encodings.names():
        for geometry in (Geometry.of(16, 2), Geometry.of(64, 4, context=1), Geometry.of(96, 3, context=2)):
            check_encoding(build.make_encoding({"name": name}, geometry))


HOOKS = {
    "embed": ("x, positions", "x[:1]", r"\(B, T, width\) = \(2, 3, 16\), not \(1, 3, 16\)"),
    "token_numbers": ("x", "x.sum(-1)", r"\(B, T, numbers\) = \(2, 5, any\) or None, not \(2, 5\)"),
    "gates": (
        *("", "Gates(torch.zeros(3, 16), torch.zeros(2))"),
        r"Gates of \(gates, width\) = \(any, 16\) and \(gates,\), or None, not Gates\(.*",
    ),
    "contribute": ("layout", "{'scale': 2.0}", r"a Contribution, not {'scale': 2\.0}"),
    "resolved": ("", "[1, 2]", r"a table, not \[1, 2\]"),
}
ONE_PAIR = "lambda positions: positions[..., None].float()"
PAIRS = ("positions", "positions.float()", r"\(B, T, pairs\) = \(2, 3, 4 or fewer\), not \(2, 3\)")
FUNCTIONS = {
    "rotation.angles": ("rotation=Rotation(self.asked)", *PAIRS),
    **{
        f"rotation.{part}": (f"rotation=Rotation({ONE_PAIR}, {part}=self.asked)", *PAIRS)
        for part in ("key_angles", "query_magnitude", "key_magnitude")
    },
    "queries": (
        *("queries=self.asked", "x, positions", "x.transpose(1, 2)"),
        r"\(B, heads, T, any width\) = \(2, 2, 3, 'any'\), not \(2, 3, 2, 8\)",
    ),
    "keys": (
        *("keys=self.asked", "x, positions", "x.transpose(1, 2)"),
        r"\(B, heads, T, any width\) = \(2, 2, 5, 'any'\), not \(2, 5, 2, 8\)",
    ),
    "distance_bias": (
        *("distance_bias=self.asked", "distance", "-distance.float()"),
        r"\(heads, \*shape\) = \(2, 5\), not \(5,\)",
    ),
    "score": (
        *("score=self.asked", "scores", "scores.k_BHSK.sum(-1)"),
        r"\(B, heads, T, S\) = \(2, 2, 3, 5\), not \(2, 2, 5\)",
    ),
    "normalizer": (
        *("normalizer=self.asked", "logits, layout", "logits.softmax(-1).sum(-1)"),
        r"\(B, heads, T, S\) = \(2, 2, 3, 5\), not \(2, 2, 3\)",
    ),
    "output": (
        *("output=self.asked", "x, layout", "x.flatten(2)"),
        r"\(B, heads, T, head width\) = \(2, 2, 3, 8\), not \(2, 2, 24\)",
    ),
}
"""Parts of a contribution that are functions: how one is declared, its parameters, a wrong answer, what is said."""
VALUES = {
    "scale": (
        "scale=layout.query_positions_BT.float()",
        r"a number or what broadcasts to \(B, heads, T, 1\) = \(2, 2, 3, 1\), not \(2, 3\)",
    ),
    "row_column_bias": (
        "row_column_bias=RowColumnBias(torch.zeros(2, 2, 5), torch.zeros(2, 2, 5))",
        r"RowColumnBias of .* = \(2, 2, 3\) and .* = \(2, 2, 5\), not RowColumnBias\(.*",
    ),
    "window": ("window=(4, 0)", r"a whole number from 1 up, or 2 of them, not \(4, 0\)"),
    "queries and keys": ("queries=lambda x, positions: x[..., :4]", r"equally wide, not \[4, 8\]"),
}
EMPTY = """import torch

from lengthwise.encodings.contribution import Rotation, RowColumnBias
from lengthwise.encodings.encoding import Contribution, Encoding
from lengthwise.encodings.gates import Gates


class Mine(Encoding):
    name = 'mine'

"""


def method(name: str, parameters: str, answer: str) -> str:
    return f"    def {name}({', '.join(filter(None, ('self', parameters)))}):\n        return {answer}\n\n"


def file_with(hook: str, answer: str) -> str:
    """An encoding that gives `answer` where it is asked this."""
    if hook in HOOKS:
        return EMPTY + method(hook, HOOKS[hook][0], answer)
    declared, parameters, *_ = FUNCTIONS[hook]
    return EMPTY + method("contribute", "layout", f"Contribution({declared})") + method("asked", parameters, answer)


@pytest.mark.slow
@pytest.mark.parametrize("hook", [*HOOKS, *FUNCTIONS])
def test_a_wrong_answer_is_refused_before_training(lengthwise: Call, write: Write, tmp_path: Path, hook: str) -> None:  # noqa: F811
    wrong, message = (HOOKS | FUNCTIONS)[hook][-2:]
    file = write("encodings/mine.py", file_with(hook, wrong))
    said = refusal(lengthwise, tmp_path, encodings=["none", "mine"])
    verb = "return" if hook in HOOKS else "be"
    assert re.fullmatch(rf"encoding mine \({file}\): {hook} must {verb} {message}", said), said


@pytest.mark.parametrize("hook", VALUES)
def test_a_wrong_value_is_refused(write: Write, hook: str) -> None:
    declared, message = VALUES[hook]
    file = write("encodings/mine.py", EMPTY + method("contribute", "layout", f"Contribution({declared})"))
    with pytest.raises(UserError, match=rf"(?s)^encoding mine \({file}\): {hook} must be {message}$"):
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))


@pytest.mark.parametrize("hook", [*HOOKS, *FUNCTIONS])
def test_what_fails_is_named(write: Write, hook: str) -> None:
    content = file_with(hook, "self.absent")
    line = content.splitlines().index("        return self.absent") + 1
    file = write("encodings/mine.py", content)
    with pytest.raises(UserError, match=rf"^encoding mine \({file}:{line}\): {hook} fails: AttributeError: .*absent"):
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("Contribution(distance_bais=None)", "'distance_bias'"),
        ("Contribution(rotation=Rotation(None, key_angle=None))", "'key_angles'"),
        ("layout.query_position_BT", "'query_positions_BT'"),
        ("self.geometry.head_with", "'head_width'"),
    ],
)
def test_a_misspelled_part_is_guessed(write: Write, wrong: str, meant: str) -> None:
    write("encodings/mine.py", EMPTY + method("contribute", "layout", wrong))
    with pytest.raises(UserError, match=rf"contribute fails: \w+Error: .*; did you mean {meant}( or .*)?\?$"):
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))


@pytest.mark.parametrize("part", ["layer_input_BTD", "token_numbers_BSC"])
def test_a_layer_that_was_not_asked_for_is_missed_before_training(write: Write, part: str) -> None:
    """The check shows an encoding what a model will show it: without `reads_layer`, no layer."""
    reads = method("token_numbers", "x", "x[..., :1]")
    reads += method("contribute", "layout", f"Contribution(scale=layout.{part}.mean().exp())")
    write("encodings/mine.py", EMPTY + reads)
    with pytest.raises(UserError, match="contribute fails: AttributeError: 'NoneType' object has no attribute 'mean'"):
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))
    forget()
    write("encodings/mine.py", EMPTY + "    reads_layer = True\n\n" + reads)
    check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))


def test_numbers_that_are_not_the_declared_gates_are_refused(write: Write) -> None:
    """A backend computes the gates, another one the numbers."""
    declared = method("gates", "", "Gates(torch.ones(2, 16), torch.zeros(2))")
    write("encodings/mine.py", EMPTY + declared)
    check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))
    forget()
    write("encodings/mine.py", EMPTY + declared + method("token_numbers", "x", "x[..., :2]"))
    with pytest.raises(UserError, match="token_numbers must return what its gates are"):
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))


def test_initial_values_fit_their_parameter_and_facts_are_plain(write: Write) -> None:
    parameter = EMPTY + "    def __init__(self, config, geometry):\n        super().__init__(config, geometry)\n"
    parameter += "        self.slope = torch.nn.Parameter(torch.zeros(3))\n\n"
    for answer, told in (("'small'", "'small'"), ("torch.zeros(2)", r"\(2,\)")):
        write("encodings/mine.py", parameter + method("initial", "name, generator", answer))
        message = rf"initial must return a number, a tensor of \(3,\) or None for 'slope', not {told}"
        with pytest.raises(UserError, match=message):
            check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))
        forget()
    for answer in ("0.1", "torch.ones(3)", "None"):
        write("encodings/mine.py", parameter + method("initial", "name, generator", answer))
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))
        forget()
    write("encodings/mine.py", parameter + method("resolved", "", "{'slope': self.slope}"))
    with pytest.raises(UserError, match="resolved fails: TypeError: Object of type Parameter is not JSON serializable"):
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2)))


def test_a_constructor_that_fails_is_named(write: Write) -> None:
    file = write("encodings/mine.py", EMPTY + "    def __init__(self, config):\n        pass\n")
    with pytest.raises(UserError, match=rf"^encoding mine \({file}\): __init__ fails: TypeError: "):
        build.make_encoding({"name": "mine"}, Geometry.of(16, 2))


def test_hooks_are_asked_where_there_are_numbers(write: Write) -> None:
    """A model is planned on no device; an encoding may look at its positions all the same."""
    import torch

    looks = method("contribute", "layout", "Contribution(scale=1.0 + float(layout.query_positions_BT.max()))")
    write("encodings/mine.py", EMPTY + looks)
    config = study.study_from(small_table()).model
    with torch.device("meta"):
        model = build.build(config, 64, [{"name": "mine"}], build.Lengths(8, 16))
    assert model.embedding.weight.is_meta


def test_a_good_pair_passes(write: Write) -> None:
    write("tasks/last.py", TASK)
    write("encodings/squared.py", ENCODING)
    made = study.study_from(small_table(tasks=["last"], encodings=["squared"]))
    (run, _) = made.runs()
    assert isinstance(run.make_task(), Task)
    build.build(run.model, 64, run.encoding.layers, build.Lengths(8, 16))


def test_a_folder_in_which_nothing_can_be_found_is_refused(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("encodings/squared.py", ENCODING)
    monkeypatch.setenv("LENGTHWISE_PATH", str(file.parent))
    none = "which holds no folder named tasks, encodings, placements, extensions, mixers, executors or trackers"
    told = rf"LENGTHWISE_PATH names '{file.parent}', {none}; "
    for found in (registry.tasks, registry.encodings, registry.placements, registry.extensions, registry.mixers):
        with pytest.raises(UserError, match=told + rf"did you mean '{tmp_path / 'mine'}'\?$"):
            found.names()
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("LENGTHWISE_PATH", f"{tmp_path / 'mine'}:{tmp_path / 'empty'}")
    with pytest.raises(UserError, match=rf"empty', {none}$"):
        registry.tasks.names()


@pytest.mark.parametrize(
    ("folder", "name", "taken"),
    [
        ("encodings", "rope", "another name of the encoding 'rotary'"),
        ("encodings", "SmolLM3", "the name of a preset, 'Rotary positions, and none in every fourth layer .*'"),
        ("encodings", "lstm", "the name of the mixer 'lstm'"),
        ("mixers", "alibi", "the name of the encoding 'alibi'"),
        ("tasks", "niah", "another name of the task 'needle'"),
    ],
)
def test_a_name_that_means_something_else_is_refused(write: Write, folder: str, name: str, taken: str) -> None:
    """It would be taken for the other, or hide it."""
    file = write(f"{folder}/{name}.py", EMPTY.replace("mine", name))
    found = {"encodings": registry.encodings, "mixers": registry.mixers, "tasks": registry.tasks}[folder]
    with pytest.raises(UserError, match=rf"^{file}: '{name}' is {taken}; rename yours$"):
        found.names()


FORESIGHT = {
    "a change of the output": (
        "output=lambda x, own: x + own.own_values().roll(-1, 2)",
        "later tokens",
    ),
    "a scale from the mean of what the layer reads": (
        "scale=layout.layer_input_BTD.mean((1, 2)).exp()[:, None, None, None]",
        "later tokens",
    ),
    "a normaliser that forgets what is hidden": (
        "normalizer=lambda logits, layout: logits.nan_to_num(neginf=0.0).softmax(-1)",
        "later tokens",
    ),
    "numbers summed over all sequences": (
        "row_column_bias=RowColumnBias.difference("
        "layout.token_numbers_BSC.cumsum(1).sin().mT.expand(-1, 2, -1), layout)",
        "other sequences of its row",
    ),
    "a score that counts earlier keys": (
        "score=lambda scores: scores.logits_BHTS * (1 + scores.k_BHSK.cumsum(2).mean(-1)[:, :, None])",
        "other sequences of its row",
    ),
}


@pytest.mark.parametrize("leak", FORESIGHT)
def test_what_knows_hidden_tokens_is_refused_before_training(write: Write, leak: str) -> None:
    declared, hidden = FORESIGHT[leak]
    content = EMPTY + "    reads_layer = True\n\n" + method("token_numbers", "x", "x[..., :1]")
    file = write("encodings/mine.py", content + method("contribute", "layout", f"Contribution({declared})"))
    with pytest.raises(UserError, match=rf"^encoding mine \({file}\): a token must not know {hidden}; see "):
        build.build(study.study_from(small_table()).model, 64, [{"name": "mine"}], build.Lengths(8, 16))


def test_foresight_is_seen_where_training_begins_with_zeros(write: Write) -> None:
    content = EMPTY + "    def __init__(self, config, geometry):\n        super().__init__(config, geometry)\n"
    content += "        self.taken = torch.nn.Parameter(torch.zeros(1))\n\n"
    leak = "Contribution(output=lambda x, own: x + self.taken * own.own_values().roll(-1, 2))"
    write("encodings/mine.py", content + "    reads_layer = True\n\n" + method("contribute", "layout", leak))
    with pytest.raises(UserError, match="must not know later tokens"):
        build.build(study.study_from(small_table()).model, 64, [{"name": "mine"}], build.Lengths(8, 16))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            "distance_bias=lambda d: -(20.0 - d).sqrt().expand(2, *d.shape)",
            "distance_bias must be finite, not nan at distance 21",
        ),
        (
            "rotation=Rotation(lambda p: (90.0 - p).log()[..., None])",
            "rotation.angles must be finite, not -inf at positions up to 90",
        ),
        (
            "scale=(80.0 - layout.query_positions_BT).sqrt()[:, None, :, None]",
            "scale must be finite, not nan at positions up to 90",
        ),
    ],
)
def test_what_is_not_finite_far_away_is_refused_before_training(write: Write, declared: str, message: str) -> None:
    write("encodings/mine.py", EMPTY + method("contribute", "layout", f"Contribution({declared})"))
    with pytest.raises(UserError, match=f"{message}$"):
        check_encoding(build.make_encoding({"name": "mine"}, Geometry.of(16, 2, context=91)))


def test_an_unknown_name_says_where_it_was_looked_for(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("tasks/last.py", TASK)
    with pytest.raises(UserError, match=rf"unknown task 'lost'; .* \(LENGTHWISE_PATH: searched {file.parent}\)$"):
        study.make_task("lost")
    monkeypatch.delenv("LENGTHWISE_PATH")
    forget()
    with pytest.raises(UserError, match=r"unknown task 'last' \(LENGTHWISE_PATH is not set\); known: addition, "):
        study.make_task("last")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("wave", []), ("mine", []), ("rotari", ["rotary"]), ("alibbi", ["alibi"]), ("sinusoid", ["sinusoidal"])],
)
def test_a_name_is_guessed_only_where_most_letters_agree(name: str, meant: list[str]) -> None:
    said = f"unknown encoding '{name}'" + (f"; did you mean '{meant[0]}'" if meant else r" \(LENGTHWISE_PATH")
    with pytest.raises(UserError, match=said):
        registry.encodings.entry(name)
