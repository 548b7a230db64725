"""The tutorial: `python docs/pages/tutorial.py` runs docs/tutorial.md and writes what its commands print into it.

Blocks are run in the order of the page, in an empty folder. A `sh` or `python` block is run; one whose first line names
a file in a comment becomes that file. A `text` block holds what the block before it prints. Two lines are not done as
written: nothing is installed, and the quickstart's committed results stand for minutes of training.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/tutorial.md"
PICTURES = {"penalties.svg": ROOT / "docs/pictures/tutorial.svg"}
"""File that the tutorial writes -> where the page shows it."""
BLOCK = re.compile(r"^```(sh|python|toml|text)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
TRAINED = "lengthwise run quickstart"
NUMBER = re.compile(r"[+−-]?\d+(?:\.\d+)?")
NEAR = 0.2
"""How far a number that a trained model led to may be from the page's: another processor rounds otherwise. Counts of
runs, which follow from such numbers, may differ by one."""


def file_of(block: str) -> str | None:
    named = re.match(r"# (\S+\.(?:py|toml))\n", block)
    return named[1] if named else None


def executed(page: str, folder: Path) -> str:
    """The page with what its blocks print when they are run in `folder`."""
    environment = {**os.environ, "COLUMNS": "80", "LENGTHWISE_PATH": "", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = ""

    def run(match: re.Match[str]) -> str:
        nonlocal printed
        language, block = match.groups()
        if language == "text":
            return f"```text\n{printed}```"
        if name := file_of(block):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block)
        elif language == "python":
            printed = _output([sys.executable, "-c", block], folder, environment)
        elif language == "sh":
            for variable, value in re.findall(r"^export (\w+)=(\S+)$", block, flags=re.MULTILINE):
                environment[variable] = value
            if TRAINED in block.splitlines():
                shutil.copytree(ROOT / "results/quickstart", folder / "runs/quickstart")
            lines = [line for line in block.splitlines() if line != TRAINED and not line.startswith("pip install ")]
            printed = _output(["bash", "-e", "-c", "\n".join(lines)], folder, environment)
        return match[0]

    return BLOCK.sub(run, page)


def _output(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What it prints, without what `run` says of its progress: that is not for reading afterwards."""
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"error: {words[-1]}\n{done.stdout}{done.stderr}")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    kept = [line for line in lines if not re.match(r"\[\d+/\d+\] |Finished: |Next: ", line)]
    return "\n".join(kept).strip("\n") + "\n" if any(kept) else ""


def same(one: str, other: str) -> bool:
    """Whether two pages say the same: the same words, and numbers that are near each other."""
    if NUMBER.sub("0", one).split() != NUMBER.sub("0", other).split():
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(_near(a, b) for a, b in pairs)


def _near(one: str, other: str) -> bool:
    difference = abs(float(one.replace("−", "-")) - float(other.replace("−", "-")))
    return difference <= (NEAR if "." in one + other else 1)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = PAGE.read_text()
        after = executed(before, folder)
        if same(before, after) and all(picture.exists() for picture in PICTURES.values()):
            print("nothing changed")
            return
        PAGE.write_text(after)
        for file, picture in PICTURES.items():
            shutil.copy(folder / file, picture)
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
