"""What to do next: commands that can be copied, on stderr below what a command has done."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console


def say_next(messages: Console, *commands: list[str | Path]) -> None:
    """One command a line, each a list of words; unfolded, so that it can be copied."""
    for number, command in enumerate(commands):
        line = shlex.join(map(str, command))
        start = "Next: " if number == 0 else "      "
        messages.print(start + line, highlight=False, markup=False, soft_wrap=True, style="dim")


def after_run(messages: Console, folder: Path) -> None:
    say_next(messages, ["lengthwise", "show", folder], ["lengthwise", "report", folder, "--out", "report.html"])


def after_report(messages: Console, folders: Sequence[Path]) -> None:
    """What a page could have besides: an analysis, where there are weights and there is none yet."""
    for runs in folders:
        weights = next(runs.rglob("last.safetensors"), None)
        if weights is not None and not (runs / "analysis").exists():
            say_next(messages, ["lengthwise", "analyze", "all", runs])
            return
    say_next(messages, ["lengthwise", "compare", *folders])


def after_analysis(messages: Console, runs: Path, out: Path | None) -> None:
    """The report of a study shows what is in its folder."""
    if out is None and (runs / "study.json").exists():
        say_next(messages, ["lengthwise", "report", runs, "--out", "report.html"])


def after_export(messages: Console, folder: Path, native: bool, asked: Sequence[str] = ()) -> None:
    """`asked`: options of `evaluate` for the task that the model was trained on; none for a language model."""
    ours = "" if native else "import lengthwise.hub; "
    program = f"{ours}from transformers import AutoModelForCausalLM as M; print(M.from_pretrained({str(folder)!r}))"
    if set(program) & set('"$`!\\'):
        say_next(messages, ["python", "-c", program])
    else:  # quotes within quotes, as one would write them
        messages.print(f'Next: python -c "{program}"', highlight=False, markup=False, soft_wrap=True, style="dim")
    if asked:
        command = shlex.join(["lengthwise", "evaluate", str(folder), *asked])
        messages.print(f"      {command}", highlight=False, markup=False, soft_wrap=True, style="dim")


def after_dataset(messages: Console, out: Path, length: int | None) -> None:
    """`length`: one that the training examples have."""
    file = out / "train.jsonl"
    if length is not None and file.exists():
        say_next(messages, ["lengthwise", "sample", file, "--length", str(length)])


def after_training(messages: Console, run: Path) -> None:
    say_next(messages, ["lengthwise", "language", "info", run], ["lengthwise", "extend", "perplexity", run])
