"""Evaluates any model on a task, by length, and writes rows as runs have them, for `show`, `report` and `compare`.

OUT/
  study.json
  TASK/MODEL/seed-0-FINGERPRINT/
    run.json            before the first question: the model, the questions, versions, hardware
    answers.jsonl       what the model wrote after each question, as it comes: what is there is not asked again
    rows.jsonl, failures.jsonl
    finished.json       written last
"""

import dataclasses
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lengthwise import configuration
from lengthwise.data.lengths import read_lengths
from lengthwise.door import ANY_OBJECT, COUNT, Number, Object, Text, Truth, visible
from lengthwise.errors import UserError
from lengthwise.foreign_models.judged import judge
from lengthwise.foreign_models.questions import Asking, Questions, make_questions
from lengthwise.foreign_models.written import Writer, Written
from lengthwise.leftovers import clear_leftovers
from lengthwise.records.directory import RunDirectory, StudyDirectory, differences, in_words
from lengthwise.records.files import append_rows, read_json, read_rows, write_json, write_rows
from lengthwise.records.names import places, refuse_unfit
from lengthwise.records.provenance import provenance
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.records.schema import CHECKPOINTS
from lengthwise.runtime import Listener
from lengthwise.tasks.choosing import make_task, task_table
from lengthwise.tasks.task import Span, Task
from lengthwise.training.limits import refuse_long
from lengthwise.training.recipe import DataConfig

COUNT_OF_A_LENGTH = 100
"""Questions, where nothing is said."""
TOGETHER = 4
"""Batches that are asked before answers are saved."""
ANSWERS = "answers.jsonl"
ANSWER = Object(
    {"question": COUNT, "text": Text(most=2**26), "ended": Truth()}, {"tokens": COUNT, "seconds": Number(least=0)}
)
VERSION = 1
"""Part of every fingerprint: raised when a change to this code changes the numbers of an evaluation."""


def prepare_questions(
    task: str | Mapping[str, Any],
    lengths: Sequence[int] = (),
    count: int = COUNT_OF_A_LENGTH,
    asking: Asking | None = None,
    trained: str = "",
) -> Questions:
    """`task`: a name, or a table of a name and settings; its table `data` holds data settings, as a study's does.
    `lengths`: by default all of the task. `count`: questions of each. `trained`: `6` or `2-6`, the lengths that the
    model was trained on; by default those of the task."""
    settings: Mapping[str, Any] = {"name": task} if isinstance(task, str) else task
    own = settings.get("data", {})
    if not isinstance(own, Mapping):
        raise UserError("data must be a table of settings, for example data.scratchpad=full")
    made = make_task({key: value for key, value in settings.items() if key != "data"})
    data = configuration.read(DataConfig, {"test_per_length": count, **spans_of(made, trained), **own}, "data")
    try:
        data, chosen = fitting_data(made, data, lengths)
    except ValueError as error:
        raise UserError(str(error)) from error
    questions = make_questions(made, data, asking or Asking(), chosen)
    return dataclasses.replace(questions, trained_lengths_known=bool(trained.strip()) or "train_lengths" in own)


def spans_of(task: Task, trained: str) -> dict[str, list[int]]:
    """Data settings for a model that was trained on these lengths; nothing where nobody said so."""
    if not trained.strip():
        return {}
    named = read_lengths(trained, "--trained")
    if named != list(range(named[0], named[-1] + 1)):
        raise UserError(f"--trained {visible(trained, 60)!r}: lengths of training have no gaps; write 6 or 2-6")
    last = named[-1]
    first = named[0] if len(named) > 1 else min(task.train_lengths.first, last)
    return {"train_lengths": [first, last], "test_lengths": [last + 1, max(last + 1, task.test_lengths.last)]}


def fitting_data(task: Task, data: DataConfig, lengths: Sequence[int]) -> tuple[DataConfig, list[int]]:
    """Data settings by which the lengths are tested, and the lengths. Up to the last of training they count as seen."""
    refuse_long(task.title, data, task)
    train, test = data.spans(task)
    if not lengths:
        tested = [*task.buckets(train), *data.unseen(task)]
        return data, sorted({task.length_of(bucket) for bucket in tested})
    for length in lengths:
        if length < 1 or not task.buckets(Span(length, length)):
            raise UserError(f"{task.title} has no examples of length {length} ({task.length_means})")
    seen = [length for length in lengths if length <= train.last]
    unseen = [length for length in lengths if length > train.last]
    changed: dict[str, Any] = {}
    if seen and seen[0] < train.first:
        changed["train_lengths"] = (seen[0], train.last)
    if unseen and (unseen[0], unseen[-1]) != (test.first, test.last):
        changed["test_lengths"] = (unseen[0], unseen[-1])
    if changed.keys() == {"train_lengths"}:
        changed["test_lengths"] = (test.first, test.last)
    elif changed.keys() == {"test_lengths"}:
        changed["train_lengths"] = (train.first, train.last)
    if unseen and unseen != list(range(unseen[0], unseen[-1] + 1)):
        changed["test_at"] = tuple(unseen)
    return dataclasses.replace(data, **changed), sorted(lengths)


def refuse_one_sided(questions: Questions) -> None:
    """Refuses lengths that no table shows: these compare lengths of training with longer ones."""
    last, asked = questions.data.spans(questions.task)[0].last, questions.lengths
    if len({questions.seen(length) for length in asked}) == 2:
        return
    told = f"{questions.task.title}: tables compare lengths of training, up to {last}, with longer ones"
    if questions.seen(asked[0]):
        cure = f"add a longer one: --lengths {asked[0]}-{last + 1}"
    else:
        cure = f"add one of training: --lengths {last}-{asked[-1]}"
    if not questions.trained_lengths_known:
        cure += f"; or say up to which length the model was trained, for example --trained {asked[0]}"
    raise UserError(
        f"{told}, and --lengths has only {'the former' if questions.seen(asked[0]) else 'the latter'}; {cure}"
    )


def evaluate(
    writer: Writer, questions: Questions, out: Path | None = None, listener: Listener | None = None
) -> Results:
    """The results of all models in `out`, this one's among them; without `out`, of this one alone, kept nowhere.

    What a killed evaluation has asked is not asked again.
    """
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            Evaluation(writer, questions, StudyDirectory(Path(folder))).run(listener or Listener())
            results = load_results(Path(folder))
            read = [dataclasses.replace(run, rows=list(run.rows), failures=list(run.failures)) for run in results.runs]
            return dataclasses.replace(results, runs=read, folders=())
    refuse_one_sided(questions)
    Evaluation(writer, questions, StudyDirectory(out)).run(listener or Listener())
    return load_results(out)


class Evaluation:
    """One model on one task, in a folder."""

    def __init__(self, writer: Writer, questions: Questions, directory: StudyDirectory) -> None:
        self.writer, self.questions, self.directory = writer, questions, directory
        self.label = refuse_unfit(label_of(writer.label, questions.asking), "the name of the model (--name)")
        self.title = title_of(questions)
        self.settings = self._settings()
        text = json.dumps({**self.settings, "identity": writer.identity, "version": VERSION}, sort_keys=True)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.seed = questions.asking.seed
        self.own: RunDirectory = directory.run(self.title, self.label, self.seed, self.fingerprint)

    @property
    def is_finished(self) -> bool:
        return self.own.is_finished

    def run(self, listener: Listener) -> None:
        """Everything that can be wrong is found before anything is written."""
        directory = self.directory
        directory.refuse_collection()
        shared = self._shared()
        directory.refuse_other_settings(shared)
        if not self.is_finished:
            self.writer.refuse(self.questions)
        with directory.lock():
            self._refuse_others()
            directory.agree(shared)
        if self.is_finished:
            return
        claim = directory.claim(self.fingerprint)
        if claim is None:
            raise UserError(f"{self.own.path} is being evaluated by another process; wait for it, or choose --out")
        try:
            self._ask(listener)
        finally:
            claim.give_up()
        with directory.lock():
            shutil.rmtree(directory.fleets / self.fingerprint, ignore_errors=True)
            if directory.fleets.is_dir() and not any(directory.fleets.iterdir()):
                directory.fleets.rmdir()

    def _ask(self, listener: Listener) -> None:
        self.own.begin(self._description())
        clear_leftovers(self.own.path)
        file, questions = self.own.path / ANSWERS, self.questions
        found: dict[int, Written] = {}
        seconds = 0.0
        for row in read_rows(file, schema=ANSWER) if file.exists() else []:
            found[row["question"]] = Written(row["text"], row["ended"], row.get("tokens"))
            seconds += row.get("seconds", 0.0)
        left = [index for index in range(len(questions)) if index not in found]
        step = TOGETHER * getattr(self.writer, "batch", 1)
        listener.step(len(questions) - len(left), len(questions))
        for first in range(0, len(left), step):
            part, began = left[first : first + step], time.monotonic()
            written = self.writer.write(questions, part, listener.note)
            took = time.monotonic() - began
            seconds += took
            found.update(zip(part, written, strict=True))
            append_rows(file, [_row(i, each, took / len(part)) for i, each in zip(part, written, strict=True)])
            listener.step(len(questions) - len(left) + first + len(part), len(questions))
        self._finish([found[index] for index in range(len(questions))], seconds)

    def _finish(self, written: Sequence[Written], seconds: float) -> None:
        judged = judge(self.questions, written)
        about = {"run": self.fingerprint, "task": self.title, "encoding": self.label, "seed": self.seed}
        rows = judged.rows()
        write_rows(self.own.failures, [{"run": self.fingerprint, **row} for row in judged.failures()])
        write_rows(self.own.rows, [{**about, "checkpoint": name, **row} for name in CHECKPOINTS for row in rows])
        write_json(self.own.finished, {"trained_together": 1, "seconds_together": round(seconds, 3)})

    def _settings(self) -> dict[str, Any]:
        questions = self.questions
        return {
            "task": {**task_table({"name": questions.task.name, **configuration.table(questions.task.config)})},
            "encoding": [{"name": self.label}],
            "model": {**self.writer.about},
            "data": configuration.table(questions.data),
            "training": {},
            "asking": {**dataclasses.asdict(questions.asking), "lengths": questions.lengths},
        }

    def _shared(self) -> dict[str, Any]:
        """What study.json says; settings are those of each run, since models and tasks differ."""
        return {
            "name": self.directory.path.resolve().name or "evaluation",
            "summary": "Models that were not trained here, asked the questions of tasks.",
            "tasks": [self.settings["task"]],
            "encodings": [self.label],
            "seeds": [self.seed],
            "task_order": [self.title],
            "encoding_order": [self.label],
            "model": {},
            "data": {},
            "training": {},
        }

    def _refuse_others(self) -> None:
        """Refuses what no table could compare: the same model with other settings, or a task asked otherwise."""
        self._refuse_same_name()
        self.directory.refuse_doubles({(self.title, self.label, self.seed, ""): self.own})
        for place in places(self.directory.path, self.title):
            for file in place.glob("*/seed-*/run.json"):
                settings = read_json(file, Object({"settings": Object({"data": Object(), "asking": Object()})}))[
                    "settings"
                ]
                same = settings["data"] == json.loads(json.dumps(self.settings["data"]))
                if not same or settings["asking"].get("lengths") != self.questions.lengths:
                    raise UserError(
                        f"{self.directory.path} already holds {self.title} with other lengths, counts or data settings "
                        f"({file.parent}); use the same, or choose another folder with --out"
                    )

    def _refuse_same_name(self) -> None:
        """Refuses another model, or the same asked otherwise, that tables would call the same."""
        for place in places(self.directory.path, self.title, self.label):
            for file in place.glob(f"seed-{self.seed}-*/run.json"):
                earlier = read_json(file, Object({"settings": ANY_OBJECT}))
                if file.parent == self.own.path or earlier.get("encoding", self.label) != self.label:
                    continue
                told = f"{self.directory.path} already holds {self.title} asked of "
                if json.loads(json.dumps(self.writer.identity)) != earlier.get("identity"):
                    raise UserError(
                        f"{told}another model that is called {self.label!r}; give this one another --name, or choose "
                        "another folder with --out"
                    )
                now = json.loads(json.dumps(self.settings))
                changed = [
                    f"{section}.{key} was {in_words(old)}, is {in_words(new)}"
                    for section in ("model", "data", "asking")
                    for key, old, new in differences(earlier["settings"].get(section, {}), now[section])
                ]
                if changed:
                    raise UserError(
                        f"{told}{self.label} with other settings ({'; '.join(changed[:3])}); use the same, or choose "
                        "another folder with --out"
                    )

    def _description(self) -> dict[str, Any]:
        questions = self.questions
        train, test = questions.data.spans(questions.task)
        return {
            "fingerprint": self.fingerprint,
            "name": f"{self.title}/{self.label}/seed-{self.seed}",
            "task": self.title,
            "encoding": self.label,
            "seed": self.seed,
            "settings": self.settings,
            "identity": self.writer.identity,
            "train_lengths": [train.first, train.last],
            "test_lengths": [test.first, test.last],
            "examples": {"test": len(questions)},
            "encoding_of_each_layer": [self.label],
            "encoding_resolved": {},
            "attention_scale": 1.0,
            "precision": self.writer.about.get("dtype", "unknown"),
            "parameters": self.writer.parameters,
            "parameters_of_encoding": 0,
            "trained_lengths_known": questions.trained_lengths_known,
            "shots": [list(shot) for shot in questions.shots],
            **provenance(self.writer.device),
        }


def label_of(name: str, asking: Asking) -> str:
    """What tables call a model that is asked in this way."""
    told = [f"{asking.shots}-shot"] if asking.shots else []
    told += ["chat"] if asking.chat else []
    return f"{name} ({', '.join(told)})" if told else name


def title_of(questions: Questions) -> str:
    """What tables call the task, as in a study."""
    scratchpad = questions.data.scratchpad
    return questions.task.title + (f" ({scratchpad})" if scratchpad != "none" else "")


def _row(index: int, written: Written, seconds: float) -> dict[str, Any]:
    row = {"question": index, "text": written.text, "ended": written.ended, "seconds": round(seconds, 6)}
    return row if written.tokens is None else {**row, "tokens": written.tokens}
