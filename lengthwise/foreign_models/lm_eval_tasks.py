"""Our tasks as files for lm-evaluation-harness: `lm_eval --include_path DIR`. They need lm-eval, and not this package.

DIR/
  lengthwise_tasks.py               reads the questions, and scores by length
  lengthwise_copy_repeat.yaml       a task
  lengthwise_copy_repeat.jsonl      its questions: the same that `lengthwise evaluate` asks
  lengthwise_copy_repeat.shots.jsonl
  lengthwise_passkey.yaml, .jsonl
  lengthwise_longbench_trec.yaml    a task of LongBench, which reads a file that stays where it is
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.context_extension.passkey import KeyDocument, KeyDocuments, draw
from lengthwise.errors import UserError
from lengthwise.foreign_models.questions import END_OF_LINE, Questions
from lengthwise.foreign_models.written import MARGIN
from lengthwise.leftovers import clear_leftovers_of, partial_of
from lengthwise.records.directory import make_folder
from lengthwise.records.files import storage_error

TRIED = 64
"""Tokens by which a passkey document may be shorter, so that its text is read as the same tokens."""

FUNCTIONS = '''"""Reads the questions of these tasks, and scores them by length."""

import json
from pathlib import Path

import datasets


def load(file, **others):
    """Questions as the split `test`, solved examples as `train`; the files lie beside this one."""
    here = Path(__file__).parent
    splits = {"test": here / f"{file}.jsonl", "train": here / f"{file}.shots.jsonl"}
    return {
        split: datasets.Dataset.from_list([json.loads(line) for line in path.read_text("utf-8").split("\\n") if line])
        for split, path in splits.items()
        if path.exists()
    }


def longbench(path, **others):
    """A file of LongBench, with the names that lm-eval's own tasks use."""
    rows = [json.loads(line) for line in Path(path).read_text("utf-8").split("\\n") if line]
    rows = [{**row, "question": row.get("question", row.get("input", ""))} for row in rows]
    names = ("context", "question", "answers", "all_classes")
    return {"test": datasets.Dataset.from_list([{name: row.get(name) for name in names} for row in rows])}


def words(text):
    return text.strip().partition("\\n")[0].split()


def written(doc, results):
    """What was generated is right if it has the words of the target and nothing else in its line."""
    return scores(doc, words(results[0]) == doc["target"].split())


def begins(doc, results):
    """What was generated is right if it begins with the target."""
    return scores(doc, results[0].strip().startswith(doc["target"].strip()))


def scores(doc, right):
    place = f"length {doc['length']:06d}"
    found = {"exact_match": float(right), place: float(right)}
    if "depth" in doc:
        found[f"{place} depth {doc['depth']:.2f}"] = float(right)
    return found
'''


def name_of(task: str) -> str:
    """What lm-eval calls a task."""
    return "lengthwise_" + "".join(letter if letter.isalnum() else "_" for letter in task)


def write_lm_eval(
    to: Path,
    asked: Sequence[Questions],
    passkeys: Sequence[Mapping[str, Any]] = (),
    others: Mapping[str, str] | None = None,
) -> list[str]:
    """Writes the folder, or nothing; returns the names of the tasks. `others`: name of a task -> its YAML file."""
    files: dict[str, str] = {"lengthwise_tasks.py": FUNCTIONS}
    names = []
    for questions in asked:
        name = name_of(questions.task.title)
        if name in names:
            raise UserError(f"two tasks would be called {name}; write them into two folders")
        names.append(name)
        files |= _files(name, questions)
    if passkeys:
        names.append("lengthwise_passkey")
        files["lengthwise_passkey.jsonl"] = _lines(passkeys)
        # Not by likelihood: lm-eval would count the space before a key as a part of it.
        most = max(len(row["target"]) for row in passkeys)
        files["lengthwise_passkey.yaml"] = _yaml("lengthwise_passkey", "begins", most, {})
    for name, text in (others or {}).items():
        names.append(name)
        files[f"{name}.yaml"] = text
    _write(to, files)
    return names


def passkey_rows(
    documents: KeyDocuments, contexts: Sequence[int], depths: Sequence[float], trials: int, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """The documents of `extend passkey` as text. A text that would be read as other tokens is made a little shorter."""
    for length in contexts:
        for depth in depths:
            for trial in range(trials):
                for shorter in range(min(TRIED, length)):
                    found = draw(documents, length - shorter, depth, seed, trial)
                    prompt, target = _text(documents, found)
                    if _reads_back(documents, found, prompt + target):
                        break
                else:
                    raise UserError(f"the tokenizer reads no passkey document of about {length} tokens as it wrote it")
                size = len(found.prompt) + len(found.answer)
                yield {"prompt": prompt, "target": target, "length": length, "depth": depth, "tokens": size}


def _text(documents: KeyDocuments, found: KeyDocument) -> tuple[str, str]:
    """Prompt and answer; the space between them belongs to where the tokenizer puts it."""
    begins, decode = len(documents.begins), documents.tokenizer.decode
    prompt = decode(found.prompt[begins:])
    whole = decode(np.concatenate([found.prompt[begins:], found.answer]))
    if not whole.startswith(prompt):
        raise UserError(
            "the tokenizer writes a prompt otherwise once an answer follows it; its keys cannot be asked for"
        )
    return prompt, whole[len(prompt) :]


def _reads_back(documents: KeyDocuments, found: KeyDocument, text: str) -> bool:
    tokens = np.concatenate([found.prompt[len(documents.begins) :], found.answer])
    return np.array_equal(documents.tokenizer.encode(text), tokens)


def _files(name: str, questions: Questions) -> dict[str, str]:
    pairs = zip(questions.texts, questions.length_E.tolist(), strict=True)
    rows = [{"prompt": prompt, "target": target, "length": length} for (prompt, target), length in pairs]
    shots = [{"prompt": prompt, "target": target} for prompt, target in questions.shots]
    # A target has at most as many tokens as letters, for tokenizers that read bytes of plain letters.
    most = max(len(row["target"]) for row in rows) + 2 * MARGIN
    settings: dict[str, Any] = {
        "num_fewshot": len(shots),
        "fewshot_delimiter": END_OF_LINE,
        "description": questions.asking.instruction + END_OF_LINE if questions.asking.instruction else "",
    }
    if shots:
        settings |= {"fewshot_split": "train", "fewshot_config": {"sampler": "first_n"}}
    found = {f"{name}.jsonl": _lines(rows), f"{name}.yaml": _yaml(name, "written", most, settings)}
    return {**found, f"{name}.shots.jsonl": _lines(shots)} if shots else found


def _yaml(name: str, scorer: str, most: int, settings: Mapping[str, Any]) -> str:
    """Values are written as JSON, which YAML reads, but for functions. `most`: tokens that may be generated."""
    plain = {
        "task": name,
        "tag": ["lengthwise"],
        "dataset_kwargs": {"file": name},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{target}}",
        "generation_kwargs": {"until": [END_OF_LINE], "do_sample": False, "max_gen_toks": most},
        **settings,
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1},
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in plain.items()]
    functions = {"custom_dataset": "load", "process_results": scorer}
    lines += [f"{key}: !function lengthwise_tasks.{function}" for key, function in functions.items()]
    return "\n".join(lines) + "\n"


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _write(to: Path, files: Mapping[str, str]) -> None:
    if to.is_dir() and any(to.iterdir()):
        raise UserError(f"{to} is there and not empty; choose another folder with --to, or delete it")
    if to.exists() and not to.is_dir():
        raise UserError(f"{to} is a file; name a folder with --to")
    make_folder(to.parent)
    clear_leftovers_of(to)
    partial = partial_of(to)
    try:
        partial.mkdir()
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
        partial.replace(to)
    except OSError as error:
        raise storage_error(error, to) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
