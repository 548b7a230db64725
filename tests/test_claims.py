"""Published claims beside made-up results whose answer is known; what a study's file may say; the command."""

import json
from pathlib import Path
from typing import Any

import pytest
from hand_made import made
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import UserError
from lengthwise.records.claims import Direction, Outcome, judge_claim, read_claim
from lengthwise.records.equivalence import Verdict
from lengthwise.records.rows import load_results
from lengthwise.study import claim_of, load_study, shipped_studies

ABOUT = {"title": "t", "source": "s", "says": "w"}
SEEDS = (1, 2, 3)
# Task a: first 0.80, 0.82, 0.84, second 0.50; task b: 0.40 and 0.60.
RESULTS = made(
    {
        **{("a", "first", seed): 0.78 + 0.02 * seed for seed in SEEDS},
        **{("a", "second", seed): 0.5 for seed in SEEDS},
        **{("b", "first", seed): 0.4 for seed in SEEDS},
        **{("b", "second", seed): 0.6 for seed in SEEDS},
    },
    ["first", "second"],
    seen={("a", "first", 2): 0.5},
)


def judged(*numbers: dict[str, Any]):
    claim = read_claim({**ABOUT, "numbers": [{"says": "n", "encoding": "first", **number} for number in numbers]})
    return judge_claim(claim, RESULTS, "last")


def test_a_mean_with_its_interval_by_hand() -> None:
    (found,) = judged({"tasks": ["a"], "published": 0.8}).numbers
    assert found.ours and found.interval
    assert found.ours.mean == pytest.approx(0.82) and found.ours.deviation == pytest.approx(0.02)
    half = 2.919986 * 0.02 / 3**0.5  # Student's t, two degrees of freedom, 0.95
    assert found.interval == pytest.approx((0.82 - half, 0.82 + half), abs=1e-6)
    assert found.verdict is Verdict.equivalent and found.direction is None


def test_several_tasks_are_averaged_within_a_seed() -> None:
    (found,) = judged({"tasks": ["a", "b"], "published": 0.61}).numbers
    assert found.ours and found.ours.mean == pytest.approx((0.82 + 0.4) / 2)


def test_differences_are_taken_within_a_seed() -> None:
    minus = {"tasks": ["a"], "encoding": "second"}
    (found,) = judged({"tasks": ["a"], "published": 0.3, "minus": minus}).numbers
    assert found.ours and found.ours.mean == pytest.approx(0.32)
    assert (found.verdict, found.direction) == (Verdict.equivalent, Direction.same)


@pytest.mark.parametrize(
    ("number", "outcome"),
    [
        ({"tasks": ["a"], "published": 0.8}, Outcome.reproduced),
        ({"tasks": ["a"], "published": 0.5}, Outcome.failed),
        ({"tasks": ["a"], "published": 0.93}, Outcome.undecided),
        ({"tasks": ["a"], "at_least": 0.7}, Outcome.reproduced),
        ({"tasks": ["a"], "at_least": 0.9}, Outcome.failed),
        ({"tasks": ["a"], "at_least": 0.82}, Outcome.undecided),
        ({"tasks": ["a"], "at_most": 0.9}, Outcome.reproduced),
        ({"tasks": ["a"], "at_most": 0.7}, Outcome.failed),
        ({"tasks": ["a"], "published": 0.9, "minus": {"tasks": ["a"], "encoding": "second"}}, Outcome.direction),
        ({"tasks": ["b"], "published": 0.2, "minus": {"tasks": ["b"], "encoding": "second"}}, Outcome.contradicted),
        ({"tasks": ["b"], "at_most": 0.0, "minus": {"tasks": ["b"], "encoding": "second"}}, Outcome.reproduced),
    ],
)
def test_outcomes(number: dict[str, Any], outcome: Outcome) -> None:
    assert judged(number).outcome is outcome


def test_seeds_that_did_not_learn_may_be_left_out() -> None:
    (found,) = judged({"tasks": ["a"], "published": 0.8, "fitted": True}).numbers
    assert found.left_out == (2,) and found.ours and found.ours.seeds == 2 and found.ours.mean == pytest.approx(0.82)


def test_lengths_and_other_quantities() -> None:
    (seen,) = judged({"tasks": ["b"], "published": 1.0, "lengths": [4, 4]}).numbers
    assert seen.ours and seen.ours.mean == 1.0
    with pytest.raises(UserError, match="were not tested at the lengths 100 to 200"):
        judged({"tasks": ["b"], "published": 1.0, "lengths": [100, 200]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"numbers": []}, "at least one number"),
        ({"numbers": [{"says": "n", "tasks": ["a"], "encoding": "e"}]}, "one of published, at_least and at_most"),
        (
            {"numbers": [{"says": "n", "tasks": ["a"], "encoding": "e", "published": 1.0, "at_most": 1.0}]},
            "one of published, at_least and at_most",
        ),
        ({"numbers": [{"says": "n", "tasks": "a", "encoding": "e", "published": 1.0}]}, "must be a list"),
        ({"nombers": []}, "did you mean 'numbers'"),
    ],
)
def test_what_a_file_may_not_say(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_claim({**ABOUT, "numbers": [{"says": "n", "tasks": ["a"], "encoding": "e", "published": 1.0}], **change})


def test_a_claim_about_what_the_study_does_not_measure_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (shipped_studies()["claim-ssmax"]).read_text()
    file.write_text(text.replace('encoding = "none+ssmax"', 'encoding = "none+smax"'))
    with pytest.raises(UserError, match=r"no encoding 'none\+smax'; did you mean 'none\+ssmax'"):
        load_study(str(file))


@pytest.mark.slow
def test_ten_claims_are_shipped_and_every_one_can_be_measured() -> None:
    found = {name: claim_of(file) for name, file in shipped_studies().items()}
    claims = {name: claim for name, claim in found.items() if claim}
    assert len(claims) >= 10 and all(name.startswith("claim-") for name in claims)
    for name, claim in claims.items():
        study = load_study(name)
        claim.refuse_unknown(study.titles, study.labels)
        tested = study.data.test_at
        for measured in (each for number in claim.numbers for each in number.measured):
            if tested and measured.lengths:
                first, last = measured.lengths
                assert any(first <= length <= last for length in tested), (name, measured)


def test_the_command_judges_committed_results() -> None:
    """Answers that run on, counted by hand from the rows."""
    study = shipped_studies()["claim-running-on"]
    folder = Path(__file__).parents[1] / "results/battery-small"
    words = ["compare", str(folder), "--with", "claim", "--study", str(study), "--json"]
    found = json.loads(CliRunner().invoke(app, words).stdout)
    results, means = load_results(folder), {}
    for encoding in ("none", "rotary"):
        shares = []
        for task in ("copy.words", "reverse.words", "sort.symbols", "addition", "scan"):
            for run in results.of(task, encoding):
                rows = [row for row in run.rows if row["checkpoint"] == "best" and not row["seen"]]
                shares.append(sum(row["ran_on"] for row in rows) / sum(row["n"] for row in rows))
        means[encoding] = sum(shares) / len(shares)
    assert found["numbers"][0]["ours"]["mean"] == pytest.approx(means["none"] - means["rotary"])
    assert found["outcome"] == "not reproduced"
