"""Losses of training, thinned for a page: means of what was logged, whatever else is in the log."""

import json
import shutil
from pathlib import Path

import pytest

from lengthwise.records.directory import StudyDirectory
from lengthwise.records.losses import PLACES, READ, losses
from lengthwise.records.results import Results
from lengthwise.records.rows import collect
from lengthwise.report.html.page import content


def write_log(folder: Path, steps: int, loss: float | None = None) -> Path:
    """Of one run, whose loss at step n is 1000 / n unless said."""
    run = folder / "task/none/seed-1-0123456789ab"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    rows = [{"step": step, "learning_rate": 0.1, "loss": loss or 1000 / step} for step in range(1, steps + 1)]
    (run / "training.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run / "training.jsonl"


def test_a_short_log_is_read_whole(tmp_path: Path) -> None:
    write_log(tmp_path, 3)
    assert losses([tmp_path]) == {"0123456789ab": [(1, 1000.0), (2, 500.0), (3, 333.3333)]}


def test_losses_of_neighbours_are_means(tmp_path: Path) -> None:
    write_log(tmp_path, 100)
    (points,) = losses([tmp_path]).values()
    assert [step for step, _ in points] == [*range(3, 100, 3), 100]
    assert points[0] == (3, pytest.approx((1000 + 500 + 1000 / 3) / 3, abs=1e-4))


def test_a_long_log_is_read_in_places_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    log = write_log(tmp_path, 20_000)
    assert log.stat().st_size > 2 * PLACES * READ
    (points,) = losses([tmp_path]).values()
    steps = [step for step, _ in points]
    assert len(points) == PLACES and steps == sorted(set(steps)) and steps[0] < 60 and steps[-1] == 20_000
    for step, loss in points[1:]:
        assert 1000 / step <= loss < 1000 / (step - 60), "a mean of the steps just before"


def test_what_is_no_loss_is_left_out(tmp_path: Path) -> None:
    log = write_log(tmp_path, 2, loss=2.0)
    with log.open("a") as file:
        file.write('{"step": 2, "validation_exact_match": 0.5}\nrubbish\n[1]\n{"step": "3", "loss": 1.0}\n')
        file.write('{"step": 4, "loss": NaN}\n{"step": -1, "loss": 1.0}\n' + "[" * 5000 + '\n{"step": 5, "lo')
    assert losses([tmp_path, tmp_path / "nowhere"]) == {"0123456789ab": [(1, 2.0), (2, 2.0)]}
    log.unlink()
    assert losses([tmp_path]) == {}


def test_the_page_has_those_of_every_run_that_has_a_log(finished: tuple[Path, Results], tmp_path: Path) -> None:
    folder, results = finished
    shown = content(results, 1000)
    logs = {each.path.name.rpartition("-")[2]: each.training for each in StudyDirectory(folder).runs()}
    assert len(shown["losses"]) == len(shown["descriptions"]) == len(results.runs) > 1
    for points, description in zip(shown["losses"], shown["descriptions"], strict=True):
        rows = [json.loads(line) for line in logs[description["fingerprint"]].read_text().splitlines()]
        assert points == [(row["step"], round(row["loss"], 4)) for row in rows if "loss" in row]
    collect(results, tmp_path / "shared")
    from lengthwise.records.rows import load_results

    assert not any(content(load_results(tmp_path / "shared"), 1000)["losses"])
    shutil.rmtree(tmp_path / "shared")
