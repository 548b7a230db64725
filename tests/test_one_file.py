"""Adding an encoding or a task is one new file: list, run, contract tests and report pick it up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import small_table

ENCODING = '''
"""A toy: the bias of every key is its distance, squared, times a factor."""

from dataclasses import dataclass

from torch import Tensor

from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Squared(Encoding):
    """A penalty that grows with the square of the distance."""

    name = "squared"

    @dataclass(frozen=True)
    class Config:
        factor: float = 0.01

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.penalty)

    def penalty(self, distance: Tensor) -> Tensor:
        return (-self.config.factor * distance.float() ** 2).expand(self.geometry.heads, *distance.shape)
'''

TASK = '''
"""A toy: the target is the last symbol of the prompt."""

import numpy as np

from lengthwise.data.examples import Column, Part
from lengthwise.tasks.task import Span, Task


class Last(Task):
    """The target is the last symbol.

    Examples:
        Last: a b -> b
    Length: number of symbols.
    """

    name = "last"
    train_lengths = Span(2, 8)
    test_lengths = Span(9, 16)
    length_means = "number of symbols"

    def symbols(self) -> list[str]:
        return ["Last:", *"abcdefgh"]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        source = self.vocabulary.id("a") + generator.integers(8, size=(count, length))
        return [(Part.ANCHOR, self.fixed("Last:")), (Part.PROMPT, source), (Part.ANSWER, source[:, -1:])]

    def chance(self, length: int) -> float:
        return 1 / 8
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for room, content in (("encodings/squared.py", ENCODING), ("tasks/last.py", TASK)):
        (tmp_path / room).parent.mkdir()
        (tmp_path / room).write_text(content)
    return tmp_path


def call(folder: Path, *words: str, fails: bool = False) -> str:
    environment = {**os.environ, "LENGTHWISE_PATH": str(folder), "COLUMNS": "120"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, cwd=folder)
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


COMMAND = ("-c", "from lengthwise.cli import main; main()")


@pytest.mark.slow
def test_list_sample_run_show_and_report_find_them(folder: Path) -> None:
    from test_command_line import toml

    assert "grows with the square" in call(folder, *COMMAND, "list", "encodings")
    assert "The target is the last symbol." in call(folder, *COMMAND, "list", "tasks")
    prompt, target = call(folder, *COMMAND, "sample", "last", "--count", "1", "--length", "6").strip().split(" -> ")
    assert prompt.split()[-1] == target
    (folder / "toy.toml").write_text(
        toml(small_table(tasks=["last"], encodings=["none", {"name": "squared", "factor": 0.1}]))
    )
    call(folder, *COMMAND, "run", "toy.toml", "--device", "cpu")
    assert "squared(factor=0.1)" in call(folder, *COMMAND, "show", "runs/toy")
    call(folder, *COMMAND, "report", "runs/toy", "--out", "toy.html")
    assert "squared(factor=0.1)" in (folder / "toy.html").read_text()


@pytest.mark.slow
def test_contract_tests_cover_them(folder: Path) -> None:
    tests = Path(__file__).parent
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-k", "squared", str(tests / "test_encoding_contract.py"))
    out = call(folder, *words, "-c", str(tests.parent / "pyproject.toml"), "--rootdir", str(tests.parent))
    assert int(out.split(" passed")[0].split()[-1]) >= 10


@pytest.mark.slow
def test_contract_tests_catch_a_broken_one(folder: Path) -> None:
    """An encoding that looks at the tensor's index instead of the positions."""
    broken = (
        ENCODING
        + """
    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(score=self.by_index)

    def by_index(self, scores) -> Tensor:
        import torch
        index = torch.arange(scores.k_BHSK.shape[2])
        return scores.logits_BHTS + self.penalty((index[-scores.q_BHTK.shape[2] :, None] - index).clamp(min=0))[None]
"""
    )
    (folder / "encodings/squared.py").write_text(broken)
    tests = Path(__file__).parent
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-k", "squared", str(tests / "test_encoding_contract.py"))
    out = call(folder, *words, "-c", str(tests.parent / "pyproject.toml"), "--rootdir", str(tests.parent), fails=True)
    assert " failed" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("class Broken(", "squared.py:1"),
        ("import absent_package\n" + ENCODING, "could not be imported: ModuleNotFoundError"),
        (ENCODING.replace('name = "squared"', 'name = "cubed"'), "belongs in a file named cubed.py"),
    ],
)
def test_a_broken_file_is_named(folder: Path, content: str, message: str) -> None:
    (folder / "encodings/squared.py").write_text(content)
    program = "import lengthwise as lw\nfrom lengthwise.errors import UserError\n"
    program += "try:\n    lw.encoding('squared')\nexcept UserError as error:\n    print(error)"
    assert message in call(folder, "-c", program)


def test_a_name_that_exists_is_refused(folder: Path) -> None:
    (folder / "encodings/alibi.py").write_text(ENCODING.replace('"squared"', '"alibi"'))
    assert "exists already" in call(folder, *COMMAND, "list", "encodings", fails=True)


def test_a_path_that_is_no_folder_is_refused(folder: Path) -> None:
    environment = {**os.environ, "LENGTHWISE_PATH": str(folder / "absent")}
    done = subprocess.run([sys.executable, *COMMAND, "list", "tasks"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "is not a folder" in done.stderr
