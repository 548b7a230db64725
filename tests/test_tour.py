"""The tour of the code shows what the code does."""

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "docs/tour.md"


def test_what_the_tour_shows_is_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # it reads results/
    failed, tried = doctest.testfile(str(TOUR), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 20 and failed == 0


def test_the_tour_has_at_most_twelve_stops_and_links_to_files_that_are_there() -> None:
    text = TOUR.read_text()
    assert 8 <= len(re.findall(r"^## \d+\.", text, flags=re.MULTILINE)) <= 12
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (TOUR.parent / link).exists(), link


ENTERED = """
import json, os, sys, threading
from pathlib import Path
import torch
import lengthwise
from lengthwise.executors.local import run_study
from lengthwise.study import load_study
from lengthwise.training.update import Updater

FUNCTION = 1  # of the flags of code: not the body of a class or a module
package, entered = os.path.dirname(lengthwise.__file__) + os.sep, set()

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package) and code.co_flags & FUNCTION and code.co_name[0] != "<":
        entered.add((code.co_filename.removeprefix(package), code.co_qualname))

def first(*given, step=Updater.step):
    step(*given)
    sys.setprofile(None)
    print(json.dumps(sorted(entered)), flush=True)
    os._exit(0)

Updater.step = first
threading.setprofile(note)
sys.setprofile(note)
repeat = "tasks=[{name='copy.repeat', symbols=500}]"
run_study(load_study("quickstart", [repeat, "encodings=['alibi']", "seeds=[1]"]), Path("run"), "cpu")
"""


@pytest.mark.slow
def test_the_tour_says_how_many_functions_there_are_to_follow(tmp_path: Path) -> None:
    """Give or take a twentieth, so that not every change of the code is one of the page."""
    done = subprocess.run([sys.executable, "-c", ENTERED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    entered = json.loads(done.stdout.splitlines()[-1])
    rooms = [file.split("/")[0] for file, _ in entered]
    text = " ".join(TOUR.read_text().split())
    said = re.search(r"enters (\d+) functions of the package in (\d+) files", text)
    assert said and int(said[1]) == pytest.approx(len(entered), rel=0.05), len(entered)
    assert int(said[2]) == pytest.approx(len({file for file, _ in entered}), rel=0.05), len({f for f, _ in entered})
    told = re.findall(r"(\d+) (?:of them )?in `(\w+)/`", text)
    assert len(told) == 5
    for number, room in told:
        assert int(number) == pytest.approx(rooms.count(room), rel=0.1), (room, rooms.count(room))
