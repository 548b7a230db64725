"""Examples written to files and read from them: counts, hashes, and what bad lines get."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import small_table

from lengthwise.data.dataset import import_pcfg, write_all, write_dataset
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.splits import Split
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.records.rows import load_results
from lengthwise.study import study_from
from lengthwise.tasks.choosing import make_task


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_dataset_has_its_counts_and_says_so(tmp_path: Path) -> None:
    task = make_task("summation")
    counts = {Split.TRAIN: 700, Split.VALIDATION: 70, Split.TEST: 80}
    assert write_dataset(task, tmp_path, 5, Scratchpad(), counts) == {"train": 700, "validation": 70, "test": 80}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    for name in ("train", "validation", "test"):
        content = (tmp_path / f"{name}.jsonl").read_bytes()
        assert manifest["files"][name]["sha256"] == hashlib.sha256(content).hexdigest()
        lengths, found = np.unique([row["length"] for row in rows_of(tmp_path / f"{name}.jsonl")], return_counts=True)
        listed = {str(length): int(n) for length, n in zip(lengths, found, strict=True)}
        assert manifest["files"][name]["by_length"] == listed
    assert set(manifest["files"]["test"]["by_length"]) == {str(n) for n in range(9, 17)}
    shared = manifest["lengths_whose_examples_are_shared_by_train_and_validation"]
    assert shared == []  # even of the 81 sums of two digits some are held out
    train, validation = (
        {row["prompt"] for row in rows_of(tmp_path / f"{name}.jsonl") if row["length"] not in shared}
        for name in ("train", "validation")
    )
    assert not train & validation


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_dataset(make_task("addition"), tmp_path / folder, seed, Scratchpad("full"), {Split.TRAIN: 200})
    one, two, other = ((tmp_path / folder / "train.jsonl").read_bytes() for folder in "abc")
    assert one == two != other


def test_parity_says_that_its_splits_share(tmp_path: Path) -> None:
    write_dataset(make_task("parity"), tmp_path, 0, Scratchpad(), {Split.TRAIN: 400, Split.TEST: 80})
    shared = json.loads((tmp_path / "manifest.json").read_text())
    assert shared["lengths_whose_examples_are_shared_by_train_and_validation"] == [4, 5, 6, 7, 8]
    assert shared["files"]["train"]["examples"] == 400


def test_all_of_scan(tmp_path: Path) -> None:
    assert write_all(make_task("scan"), tmp_path, Scratchpad()) == {"all": 20_910}
    rows = rows_of(tmp_path / "all.jsonl")
    assert len({row["prompt"] for row in rows}) == 20_910
    assert sum(row["length"] <= 25 for row in rows) == 17_774
    assert all(len(row["target"].split()) == row["length"] for row in rows)
    with pytest.raises(UserError, match="too many examples to list"):
        write_all(make_task("copy.words"), tmp_path, Scratchpad())


def test_original_pcfg_files_are_checked_line_by_line(tmp_path: Path) -> None:
    source, out = tmp_path / "original", tmp_path / "out"
    source.mkdir()
    (source / "x.src").write_text("append swap_first_last F1 H1 , repeat T1 A1\nreverse A1 B1\n")
    (source / "x.tgt").write_text("H1 F1 T1 A1 T1 A1\nB1 A1\n")
    assert import_pcfg(source, out) == {"x": 2}
    prompt, target = "Solve: append swap_first_last F1 H1 , repeat T1 A1[SEP]", "H1 F1 T1 A1 T1 A1"
    assert rows_of(out / "x.jsonl")[0] == {"prompt": prompt, "target": target, "length": 3}
    file = make_task(str(out / "x.jsonl"))
    listed = file.all_examples(3)
    assert listed is not None and file.text(listed, 0) == (prompt, target)
    pcfg = make_task("pcfg").vocabulary
    assert [file.vocabulary.symbols[i] for i in file.vocabulary.encode(prompt)] == [
        pcfg.symbols[i] for i in pcfg.encode(prompt)
    ], "one symbol one token, as in the task itself"
    (source / "x.tgt").write_text("H1 F1 T1 A1 T1 A1\nA1 B1\n")
    with pytest.raises(UserError, match=r"x\.\w+:2"):
        import_pcfg(source, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(UserError, match=r"has no \.src files"):
        import_pcfg(tmp_path, out)


def test_a_file_of_examples_is_a_task(tmp_path: Path) -> None:
    """Written by one task, read as a file: the same prompts and targets, and it trains."""
    file = tmp_path / "mine.jsonl"
    pairs = [(n, pair) for n in range(2, 7) for pair in make_task("reverse.words").sample(n, 30)]
    file.write_text("".join(json.dumps({"prompt": p, "target": t, "length": n}) + "\n" for n, (p, t) in pairs))
    task = make_task(str(file))
    listed = task.all_examples(4)
    assert listed is not None
    assert {task.text(listed, i) for i in range(30)} == {pair for n, pair in pairs if n == 4}
    run_study(study_from(small_table(tasks=[str(file)], encodings=["none"], seeds=[1])), tmp_path / "s", "cpu")
    results = load_results(tmp_path / "s")
    assert results.tasks == ["mine"] and {row["length"] for row in results.rows} == {2, 3, 4, 5, 6}
    file.write_text(file.read_text().replace("[SEP]", "[sep]"))
    with pytest.raises(UserError, match="no longer the file"):
        study = study_from(small_table(tasks=[{"name": "file", "path": str(file), "sha256": task.config.sha256}]))
        run_study(study, tmp_path / "s", "cpu")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rubbish", ":2: not a line of JSON"),
        ("", ":2: not a line of JSON"),
        ("[1]", ":2: must be an object"),
        ('{"prompt": "a", "target": "b"}', ":2: has no 'length'"),
        ('{"prompt": "a", "target": 3, "length": 1}', ":2: 'target' must be a text"),
        ('{"prompt": "a", "target": "b", "length": "1"}', ":2: 'length' must be a whole number"),
        ('{"prompt": "a", "target": "b", "length": 0}', ":2: 'length' must be 1 or more"),
        ('{"prompt": " ", "target": "b", "length": 1}', ":2: 'prompt' has no symbols"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "bad.jsonl"
    good = '{"prompt": "a b", "target": "b", "length": 1}\n'
    file.write_text(good + line + "\n" + good)
    with pytest.raises(UserError, match=message):
        make_task(str(file))


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        make_task(str(tmp_path / "absent.jsonl"))
    for content, message in ((b"", "is empty"), (b"\xff\xfe\x00", "not a text file")):
        (tmp_path / "x.jsonl").write_bytes(content)
        with pytest.raises(UserError, match=message):
            make_task(str(tmp_path / "x.jsonl"))


@pytest.mark.slow
def test_training_with_a_scratchpad_reports_answers(tmp_path: Path) -> None:
    table = small_table(tasks=["summation"], encodings=["none"], data__scratchpad="minimal", data__test_lengths=[5, 6])
    run_study(study_from(table), tmp_path / "s", "cpu")
    for row in load_results(tmp_path / "s").rows:
        assert sum(row["answers"].values()) == row["n"]
        assert set(row["answers"]) == {"right", "wrong answer", "unparsed", "did not stop"}
        assert row["answers"]["right"] >= row["correct"]
