"""What validations say: swings computed here by hand, the mark exactly where its rule says, the figure over steps."""

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

import pytest
from hand_made import Key, made
from rich.console import Console

from lengthwise.records.comparison import compare
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.records.run_result import RunResult
from lengthwise.records.validations import exceeds, mean_swing, swing, validations
from lengthwise.report.figures import gallery
from lengthwise.report.figures.drawing import Scale
from lengthwise.report.figures.panels import BOTTOM, LEFT, RIGHT, TOP
from lengthwise.report.figures.step_curves import spoken, steps_figure, steps_panel
from lengthwise.report.model import summaries, swings
from lengthwise.report.model.accuracy_tables import pair_table, pair_tables, shown_accuracies
from lengthwise.report.model.length_tables import validation_values
from lengthwise.report.model.published_tables import cell_table, comparison_table
from lengthwise.report.model.step_curves import RULES, best_rules, steps_of
from lengthwise.report.terminal.table import to_terminal

RESULTS = Path(__file__).parent.parent / "results"


def watched(*unseen: float, start: int = 100) -> list[dict[str, float]]:
    """Validations every `start` steps, all right in distribution."""
    return [{"step": start * i, "validation": 1.0, "unseen": value} for i, value in enumerate(unseen, start=1)]


def run(*unseen: float) -> RunResult:
    return RunResult({}, {"validations": watched(*unseen)}, [])


def test_a_swing_is_the_range_of_the_last_five_validations() -> None:
    assert swing(run(0.0, 1.0, 0.5, 0.75, 0.5, 0.625, 0.5)) == 0.25, "the first two are older than that"
    assert swing(run(0.25, 0.875, 0.5)) == 0.625, "fewer than five: all there are"
    assert swing(run(0.3, 0.3)) == 0.0
    assert swing(run(0.3)) is None
    assert swing(RunResult({}, {}, [])) is None, "results of earlier versions"
    unordered = RunResult({}, {"validations": watched(0.0, 0.5, 0.5, 0.5, 0.5, 0.75)[::-1]}, [])
    assert swing(unordered) == 0.25, "the last are those of the highest steps"


def test_validations_that_did_not_look_at_unseen_lengths_are_passed_over() -> None:
    rows = [{"step": 1, "validation": 0.5}, *watched(0.25, 0.5)]
    looked = RunResult({}, {"validations": rows}, [])
    assert [each.unseen for each in validations(looked)] == [None, 0.25, 0.5]
    assert swing(looked) == 0.25
    assert swing(RunResult({}, {"validations": rows[:2]}, [])) is None


def test_the_swing_of_a_cell_is_the_mean_over_its_seeds() -> None:
    assert mean_swing([run(0.0, 0.5), run(0.25, 0.5)]) == 0.375
    assert mean_swing([run(0.0, 0.5), run(0.25)]) == 0.5, "a seed without one is left out"
    assert mean_swing([run(0.25), RunResult({}, {}, [])]) is None and mean_swing([]) is None


def test_what_exceeds_an_interval() -> None:
    assert exceeds(0.21, (0.4, 0.6)) and not exceeds(0.19, (0.4, 0.6))
    assert 0.7 - 0.5 < 0.2 and not exceeds(0.2, (0.5, 0.7)), "as wide, but for the last bit"
    assert exceeds(0.051, None) and not exceeds(0.05, None)
    assert exceeds(0.051, (0.4, 0.41)) and not exceeds(0.05, (0.4, 0.41)), "a narrow interval does not make it larger"
    assert not exceeds(None, None) and not exceeds(None, (0.4, 0.4))


def three_seeds(task: str, accuracies: Iterable[float]) -> dict[Key, float]:
    return {(task, "t5", seed): value for seed, value in enumerate(accuracies, start=1)}


@pytest.fixture
def marked() -> Results:
    """Seeds 0.2 apart: task `more` swings by 0.3 on average, `less` by 0.1; `old` has no record, `pair` two seeds."""
    unseen = three_seeds("more", (0.5, 0.6, 0.7)) | three_seeds("less", (0.5, 0.6, 0.7))
    unseen |= three_seeds("old", (0.5, 0.6, 0.7)) | three_seeds("pair", (0.5, 0.9)) | three_seeds("calm", (0.5, 0.9))
    seen = {
        ("more", "t5", 1): watched(0.1, 0.1, 0.6),
        ("more", "t5", 2): watched(0.5, 0.8),
        ("more", "t5", 3): watched(0.9, 0.1, 0.5, 0.5, 0.5, 0.5, 0.6),
        **{("less", "t5", seed): watched(0.5, 0.6) for seed in (1, 2, 3)},
        **{("pair", "t5", seed): watched(0.5, 0.5625) for seed in (1, 2)},
        **{("calm", "t5", seed): watched(0.5, 0.53125) for seed in (1, 2)},
    }
    return made(unseen, ["t5"], validations=seen)


def test_a_number_is_marked_exactly_where_it_swings_more_than_the_seeds(marked: Results) -> None:
    cells = {task: summaries.accuracy(marked, task, "t5", seen=False) for task in marked.tasks}
    found = {task: (round(cell.swing, 6) if cell.swing is not None else None, cell.swings)
             for task, cell in cells.items() if cell}  # fmt: skip
    assert found == {
        "more": (0.3, True),  # (0.5 + 0.3 + 0.1) / 3, seeds 0.2 apart
        "less": (0.1, False),
        "old": (None, False),
        "pair": (0.0625, True),  # two seeds have no interval: 0.05 is the limit
        "calm": (0.03125, False),
    }
    trained = summaries.accuracy(marked, "more", "t5", seen=True)
    assert trained and trained.swing is None, "training lengths have no swing"


def test_the_terminal_marks_and_says_what_the_mark_means(marked: Results) -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(to_terminal(pair_tables(marked)[0]))
    text = " ".join(capture.get().split())
    assert dict(re.findall(r"(\w+) 1\.00→(\S+)", text)) == {
        "more": "0.60~", "less": "0.60", "old": "0.60", "pair": "0.70~", "calm": "0.70",
    }  # fmt: skip
    limits = "more than 0.05 and than the interval over seeds is wide"
    assert f"~ swings between validations by {limits}. Largest swings " in text
    assert text.endswith("(range over the last 5 validations, mean over seeds): t5 on more 0.30, t5 on pair 0.06")
    # A column of numbers: the mark stands behind it.
    ends = {line.index("→") for line in capture.get().splitlines() if "1.00→" in line}
    assert len(ends) == 1


def test_numbers_beside_the_published_ones_are_marked_as_well() -> None:
    """In the list of `compare` and in the table of reports: `t5` swings by 0.5, `none` not at all."""
    unseen = {("copy.repeat", name, seed): 0.5 for name in ("t5", "none") for seed in (1, 2, 3)}
    moves = {"t5": 0.75, "none": 0.25}
    found = made(unseen, ["t5", "none"], validations={key: watched(0.25, moves[key[1]]) for key in unseen})
    compared = compare(found)
    said = "Largest swings (range over the last 5 validations, mean over seeds): t5 on copy.repeat 0.50"
    below = cell_table(found, compared)
    ours = {row.cells[0].text.strip(): row.cells[1].text for row in below.rows if len(row.cells) > 1}
    assert ours == {"t5": "0.50 ± 0.00~", "none": "0.50 ± 0.00"}
    beside = comparison_table(found, compared)
    (row,) = [row for row in beside.rows if row.cells[0].text == "copy.repeat"]
    assert [cell.text.split(" / ")[0] for cell in row.cells[1:]] == ["0.50~", "0.50"]
    assert all(said in " ".join(table.notes) for table in (below, beside))


def test_programs_are_given_the_swing(marked: Results) -> None:
    table = shown_accuracies(marked)
    place = [column.heading for column in table.columns].index("swing")
    assert {row[0]: row[place] for row in table.values} == {
        "more": pytest.approx(0.3), "less": pytest.approx(0.1), "old": None, "pair": 0.0625, "calm": 0.0312,
    }  # fmt: skip


def test_a_table_without_swings_is_as_it_was() -> None:
    old = made(three_seeds("a", (0.5, 0.6, 0.7)), ["t5"])
    table = pair_table(old, "Exact match")
    assert table.notes == ("means over seeds",)
    assert [row.cells[1].text for row in table.rows] == ["1.00→0.60"]
    assert steps_of(old) == [] and steps_figure(old) is None and validation_values(old).values == []


def test_the_note_names_the_largest_swings_first() -> None:
    unseen = {("a", name, seed): 0.5 for name in "vwxyz" for seed in (1, 2, 3)}
    moves = dict(zip("vwxyz", (0.125, 0.5, 0.25, 0.0, 0.375), strict=True))
    seen = {key: watched(0.25, 0.25 + moves[key[1]]) for key in unseen}
    found = made(unseen, list("vwxyz"), validations=seen)
    note = swings.note({("a", name): summaries.accuracy(found, "a", name, seen=False) for name in "vwxyz"})
    assert note.endswith(": w on a 0.50, z on a 0.38, x on a 0.25; 1 more"), "y does not move at all"


def test_final_answers_are_not_marked_by_what_whole_texts_do() -> None:
    unseen = three_seeds("a", (0.5, 0.5, 0.5))
    found = made(unseen, ["t5"], validations={key: watched(0.1, 0.9) for key in unseen})
    for each in found.rows:
        each["answers"] = {"right": each["correct"]}
    answers, texts = (summaries.accuracy(found, "a", "t5", False, measure=kind) for kind in ("answer", "text"))
    assert answers and texts and (answers.swings, texts.swings) == (False, True)


def read_back(places: str, last: int) -> list[tuple[int, float]]:
    """Steps and accuracies of places in a panel whose last step is `last`."""
    across, up = Scale((0, last), (LEFT, RIGHT)), Scale((0, 1), (BOTTOM, TOP))
    found = [tuple(map(float, place.split(","))) for place in re.findall(r"[\d.]+,[\d.]+", places)]
    return [
        (round(last * (x - across(0)) / (across(last) - across(0))), round((y - up(0)) / (up(1) - up(0)), 2))
        for x, y in found
    ]


def test_lines_over_steps_are_where_the_accuracies_are() -> None:
    """Read back from where the axes of a panel are: step 0 to the last one across, accuracy 0 to 1 upwards."""
    unseen = {("a", "none", 1): 0.5, ("a", "none", 2): 0.5}
    seen = {
        ("a", "none", 1): [
            {"step": 100, "validation": 0.5, "unseen": 0.0},
            {"step": 200, "validation": 1.0, "unseen": 0.25},
        ],
        ("a", "none", 2): [
            {"step": 100, "validation": 0.5, "unseen": 0.5},
            {"step": 200, "validation": 1.0, "unseen": 0.75},
        ],
    }
    found = made(unseen, ["none"], validations=seen)
    (steps,) = steps_of(found)
    body = steps_panel(steps, ["none"]).body
    drawn = re.findall(r'<g data-encoding="none"><path d="([^"]*)"([^>]*)/>', body)
    kinds = [re.findall(r'class="(\w+)"', attributes) for _, attributes in drawn]
    assert [(read_back(places, 200), *(kind or [""])) for (places, _), kind in zip(drawn, kinds, strict=True)] == [
        ([(100, 0.5), (200, 1.0)], "validation"),
        ([(100, 0.0), (200, 0.25)], "seeds"),
        ([(100, 0.5), (200, 0.75)], "seeds"),
        ([(100, 0.25), (200, 0.5)], ""),
    ]
    shapes = " ".join(re.findall(r"translate\(([\d.,]+)\)scale\(3\)", body))
    assert read_back(shapes, 200) == [(100, 0.25), (200, 0.5)], "a shape at each mean"
    dashed, *others = re.findall(r"<g data-encoding.*?</g>", body)
    assert "stroke-dasharray" in dashed and not any("stroke-dasharray" in each for each in others)
    assert spoken(steps) == (
        "Exact match on a over training steps, at the end on unseen lengths: "
        "none 0.50 (swing over the last 5 validations 0.25), in distribution 1.00."
    )


def test_many_validations_have_fewer_shapes() -> None:
    unseen = {("a", "none", 1): 0.5}
    (steps,) = steps_of(made(unseen, ["none"], validations={("a", "none", 1): watched(*[0.5] * 40)}))
    shapes = " ".join(re.findall(r"translate\(([\d.,]+)\)scale", steps_panel(steps, ["none"]).body))
    places = read_back(shapes, 4000)
    assert {accuracy for _, accuracy in places} == {0.5}
    assert [step for step, _ in places] == list(range(400, 4001, 400)), "every fourth, and the last"


def test_a_seed_that_ends_early_does_not_move_the_mean() -> None:
    unseen = {("a", "none", 1): 0.5, ("a", "none", 2): 0.5, ("a", "none", 3): 0.5, ("a", "t5", 1): 0.5}
    seen = {("a", "none", 1): watched(0.0, 1.0, 1.0), ("a", "none", 2): watched(0.5), ("a", "t5", 1): watched(0.25)}
    (steps,) = steps_of(made(unseen, ["none", "t5"], validations=seen))
    first, second = steps.curves
    assert first.unseen == [(100, 0.25)] and first.by_seed[1] == [(100, 0.0), (200, 1.0), (300, 1.0)]
    assert set(first.by_seed) == {1, 2}, "seed 3 has no record"
    assert second.unseen == [(100, 0.25)] and steps.steps == [100, 200, 300]
    body = steps_panel(steps, ["none", "t5"]).body
    assert body.count('class="seeds"') == 2, "a single seed is its own mean"


def test_runs_that_watched_nothing_have_no_figure() -> None:
    rows = [{"step": 100, "validation": 0.5}, {"step": 200, "validation": 1.0}]
    found = made({("a", "none", 1): 0.5}, ["none"], validations={("a", "none", 1): rows})
    assert steps_figure(found) is None
    assert validation_values(found).values == [["a", "none", 1, 100, 0.5, None], ["a", "none", 1, 200, 1.0, None]]


def test_the_rule_of_the_best_checkpoint_is_said() -> None:
    unseen = {("a", "none", 1): 0.5}
    for name, words in RULES.items():
        assert best_rules(made(unseen, ["none"], settings={"training": {"best": name}})) == [words]
    unknown = made(unseen, ["none"], settings={"training": {}})
    assert best_rules(unknown) == ["the one with the highest exact match in distribution"]


@pytest.mark.slow
def test_the_committed_results_swing_as_they_say() -> None:
    """T5 at base size, and every cell of the battery: swings from the rows themselves, the figure of every task."""
    one = load_results(RESULTS / "nope-paper")
    cell = summaries.accuracy(one, "copy.repeat", "t5", seen=False)
    ranges = []
    for each in one.of("copy.repeat", "t5"):
        *_, a, b, c, d, e = (row["unseen"] for row in each.finished["validations"])
        ranges.append(max(a, b, c, d, e) - min(a, b, c, d, e))
        assert min(row["validation"] for row in each.finished["validations"][-5:]) > 0.998, "yet all is right"
    assert cell and cell.swing == pytest.approx(mean(ranges)) and cell.swing > 0.2 and cell.swings
    battery = load_results(RESULTS / "battery-small")
    assert len(validation_values(battery).values) == 255 * 10
    (figure,) = [each for each in gallery.figures(battery) if each.name == "accuracy-over-steps"]
    for task in battery.tasks:
        assert f">{task}<" in figure.body
    assert figure.body.count('class="seeds"') == 255 + 1, "and the legend"
    assert "never used to choose" in figure.description
