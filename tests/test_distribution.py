"""What is uploaded: the wheel has every file of the package and works where the repository is not."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST = 5_000_000
"""Bytes of a distribution; with results/ it would be several times as many."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def package_files() -> set[str]:
    files = (file for file in (ROOT / "lengthwise").rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(ROOT).as_posix() for file in files}


@pytest.mark.slow
def test_both_have_every_file_of_the_package_and_no_results(built: tuple[Path, Path]) -> None:
    wheel, source = built
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == package_files()
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() <= names and {"pyproject.toml", "README.md", "tests/conftest.py", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("results", "build", "runs"))]
    assert max(wheel.stat().st_size, source.stat().st_size) < MOST


@pytest.mark.slow
def test_an_installed_wheel_trains_and_reports(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In a fresh environment; what lengthwise depends on is taken from this one, so that nothing is downloaded."""
    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    packages = next(home.glob("lib/python*/site-packages"))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(home / "bin/python"),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, str(built[0])], check=True)
    # Appended after the environment's own packages: the installed lengthwise is found first.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def lengthwise(*words: str) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "LENGTHWISE_PATH": ""}
        command = [str(home / "bin/lengthwise"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [str(home / "bin/python"), "-c", "import lengthwise; print(lengthwise.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(home)
    assert lengthwise("--version").startswith("lengthwise ")
    short = ("training.steps=2", "seeds=[1]", "encodings=['none']", "tasks=['copy.repeat']", "data.test_per_length=5")
    changes = [word for change in short for word in ("--set", change)]
    lengthwise("run", "quickstart", "--device", "cpu", "--workers", "1", *changes)
    assert "copy.repeat" in lengthwise("show", "runs/quickstart")
    lengthwise("report", "runs/quickstart", "--out", "report.html")
    assert "copy.repeat" in (tmp_path / "report.html").read_text()
