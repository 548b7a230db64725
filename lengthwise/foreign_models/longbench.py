"""LongBench from its own files: tasks of lm-evaluation-harness that read these and load nothing from a network.

The prompts and the scores are those of lm-eval; its tasks read a copy whose field `question` is `input` in the files.
"""

import json
from importlib.util import find_spec
from pathlib import Path

from lengthwise.door import visible
from lengthwise.errors import UserError, nearest
from lengthwise.records.files import iterate_rows

PREFIX = "lengthwise_longbench_"
FIELDS = ("context", "answers")
"""That every row has, beside `input`."""


def longbench_tasks(folder: Path) -> dict[str, str]:
    """Name of a task -> its YAML file, for every file of LongBench in a folder; values are written as JSON."""
    if not folder.is_dir():
        raise UserError(f"no such folder: {visible(str(folder))}; name that of LongBench's .jsonl files")
    known = {file.stem: file for file in _own_tasks().glob("*.yaml") if not file.stem.startswith("_")}
    files = {file.stem: file for file in sorted(folder.glob("*.jsonl"))}
    if not files:
        raise UserError(f"{folder} has no .jsonl file; it must hold those of LongBench, as its data.zip has them")
    found = {}
    for name, file in files.items():
        if name not in known:
            raise UserError(f"{file} is not named after a task of LongBench; {nearest(name, known)}")
        _refuse_others(file)
        lines = {
            "include": str(known[name]),
            "task": f"{PREFIX}{name}",
            "tag": ["lengthwise"],
            "dataset_path": "",
            "dataset_name": None,
            "dataset_kwargs": {"path": str(file.resolve())},
        }
        written = [f"{key}: {json.dumps(value)}" for key, value in lines.items()]
        found[f"{PREFIX}{name}"] = "\n".join([*written, "custom_dataset: !function lengthwise_tasks.longbench"]) + "\n"
    return found


def _own_tasks() -> Path:
    """Where lm-eval keeps its tasks of LongBench."""
    spec = find_spec("lm_eval")
    if spec is None or spec.origin is None:
        raise UserError("LongBench needs lm-evaluation-harness: pip install 'lengthwise[lm-eval]'")
    return Path(spec.origin).parent / "tasks/longbench"


def _refuse_others(file: Path) -> None:
    """Refuses a file whose first row is not one of LongBench, before lm-eval says so in its own words."""
    row = next(iterate_rows(file), None)
    if row is None:
        raise UserError(f"{file} is empty")
    if lacking := [name for name in FIELDS if name not in row]:
        raise UserError(f"{file} is no file of LongBench: its first row has no {lacking[0]!r}")
    if not {"input", "question"} & row.keys():
        raise UserError(f"{file} is no file of LongBench: its first row has no 'input'")
