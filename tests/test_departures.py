"""Departures from the published protocol: none for the study that keeps it, one for each setting that does not."""

from dataclasses import fields, replace
from typing import Any

import pytest

from lengthwise.model.config import ModelConfig
from lengthwise.records import published
from lengthwise.records.comparison import compare
from lengthwise.records.departures import departures
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.study import Run, load_study
from lengthwise.training.recipe import DataConfig, TrainingConfig

CPU, GPU = {"hardware": {"device": "CPU"}}, {"hardware": {"device": "NVIDIA H200"}}
UNAVOIDABLE = [
    "data: training expressions in the likeness of PCFG SET (published: PCFG SET's own): pcfg",
    "scoring: answers of any length (published: cut off at 256 tokens, prompt included): pcfg",
]
"""The training pairs of PCFG SET are lost to us, and nothing is cut off here."""


def result(run: Run, about: dict[str, Any], **row: int) -> RunResult:
    """As a finished run describes itself; half of its examples are right."""
    task = run.make_task()
    train, test = run.data.spans(task)
    description = {
        "name": run.name, "task": run.title, "encoding": run.encoding.label, "seed": run.seed,
        "fingerprint": run.fingerprint, "settings": run.table(), **about,
        "train_lengths": [train.first, train.last], "test_lengths": [test.first, test.last],
    }  # fmt: skip
    shared = {"n": 10, "correct": 5, "chance": 0.0, "ran_on": 0, "checkpoint": "best", **row}
    rows = [{**shared, "seen": True, "length": train.last}, {**shared, "seen": False, "length": test.first}]
    return RunResult(description, {}, [*rows, *({**row, "checkpoint": "last"} for row in rows)])


def results_of(*changes: str, about: dict[str, Any] = CPU, tasks: tuple[str, ...] = (), **row: int) -> Results:
    study = load_study("nope-paper", [*changes, *([f"tasks={list(tasks)}"] if tasks else [])])
    return Results([result(run, about, **row) for run in study.runs()], [], study.description())


def found(*changes: str, **given: Any) -> list[str]:
    return compare(results_of(*changes, **given), "best").departures


def test_the_published_protocol_is_kept() -> None:
    assert found() == UNAVOIDABLE
    assert found(about=GPU) == [UNAVOIDABLE[0], "training: precision bf16 (published fp32)", UNAVOIDABLE[1]]


def test_with_fp32_nothing_departs_on_a_gpu() -> None:
    assert found("training.precision='fp32'", about=GPU) == UNAVOIDABLE


CHANGES = {
    "data.tokens='symbols'": "tokens: symbols (published: the pieces of T5's tokenizer)",
    "data.trimmed=true": "tokens: embedding rows only for pieces in use (published 32,100)",
    "data.held_out='by_length'": "data: the same share of each length is held out (published: a share of all prompts)",
    "data.examples=0": "data: examples endless (published 100,000)",
    "data.validation=1000": "data: validation 1,000 (published: half of what training leaves)",
    "data.test_per_length=10": "data: test examples 200 (published 10,000)",
    "data.anchor=false": "data: anchor False (published True)",
    "data.placement='randomized'": "data: placement randomized(range=2048) (published consecutive)",
    "data.test_at=[25, 40]": "data: tests at 2 of the unseen lengths (published: all of them)",
    "data.test_lengths=[21, 30]": (
        "lengths: trained on 2-20, tested on 21-30 (published: trained on 2-20, tested on 21-40)"
    ),
    "model.loops=2": "model: loops 2 (published: layers are passed once)",
    "model.layers=6": "model: layers 6 (published 12)",
    "model.width=384": "model: width 384 (published 768)",
    "model.heads=6": "model: heads 6 (published 12)",
    "model.key_value_heads=4": "model: key_value_heads 4 (published: as many as heads)",
    "model.feed_forward=512": "model: feed_forward 512 (published: 4 times the width)",
    "model.dropout=0.0": "model: dropout 0.0 (published 0.1)",
    "model.style='llama'": "model: style llama (published t5)",
    "training.steps=20000": "training: steps 20,000 (published 40,000, pcfg 60,000 to 100,000)",
    "training.batch=32": "training: batch 32 (published 64)",
    "training.learning_rate=1e-4": "training: learning_rate 0.0001 (published 3e-05)",
    "training.final_learning_rate=0.0": "training: final_learning_rate 0.0 (published 1e-07)",
    "training.warmup=0.1": "training: warmup 0.1 (published 0.06)",
    "training.weight_decay=0.1": "training: weight_decay 0.1 (published 0.05)",
    "training.decay_norms=false": "training: decay_norms False (published True)",
    "training.clip=2.0": "training: clip 2.0 (published 1.0)",
    "training.beta1=0.8": "training: beta1 0.8 (published 0.9)",
    "training.beta2=0.98": "training: beta2 0.98 (published 0.999)",
    "training.epsilon=1e-6": "training: epsilon 1e-06 (published 1e-08)",
    "training.validate_every=1000": "training: validate_every 1,000 (published 2,000)",
    "training.best='latest'": "training: best latest (published earliest)",
    "training.precision='bf16'": "training: precision bf16 (published fp32)",
    "seeds=[1, 2]": "seeds: 10 cells have fewer than 3",
    "data.train_lengths=[2, 9]": (
        "lengths: trained on 2-9, tested on 21-40 (published: trained on 2-20, tested on 21-40)"
    ),
    "encodings=[{name='t5', buckets=16, label='t5'}, 'none']": "encoding: buckets 16 (published 32): t5",
}


NO_DEPARTURE = {
    "model.size": "a name for layers, width and heads, which are compared",
    "model.inject": "does nothing without loops, which are named",
    "data.watched": "unseen lengths that are looked at along the way, and choose nothing",
    "data.seed": "which examples; that all runs have the same is compared (below)",
    "data.scratchpad": "what is compared with what: published results have the same formats",
    "data.tokens_sha256": "of another tokenizer, which is named",
    "data.rows": "for tokens other than the published, which are named",
    "data.prefix_tokens": "the same (below)",
    "data.separator_tokens": "the same (below)",
}
"""Settings that may have any value, and why."""


def test_every_setting_departs_or_says_why_not() -> None:
    """A new setting must be entered in `CHANGES`, with what `compare` says of it, or in `NO_DEPARTURE`."""
    sections = {"model": ModelConfig, "data": DataConfig, "training": TrainingConfig}
    every = {f"{section}.{field.name}" for section, config in sections.items() for field in fields(config)}
    changed = {change.split("=")[0] for change in CHANGES if "." in change.split("=")[0]}
    assert changed | NO_DEPARTURE.keys() == every and not changed & NO_DEPARTURE.keys()


@pytest.mark.parametrize("change", ["data.watched=0", "data.seed=7", "model={size='base', dropout=0.1}"])
def test_what_changes_nothing_of_the_protocol_is_not_named(change: str) -> None:
    assert found(change, tasks=("copy.repeat",)) == []


OTHER_TASKS: dict[str, dict[str, Any]] = {
    **{task: {"symbols": 30} for task in published.TASK_SETTINGS},
    "copy.words": {"symbols": 30, "distinct": True},
    "sort.numbers": {"smallest": 20, "largest": 999},
    "addition": {"reversed": True, "padded": True, "hints": 20, "operands": 3, "sentence": False, "computes": "digits"},
    "pcfg": {"test_set": "sampled"},
}
"""Published task -> another value of each of its settings."""


@pytest.mark.parametrize("task", published.TASK_SETTINGS)
def test_every_setting_of_a_task_is_named(task: str) -> None:
    assert OTHER_TASKS[task].keys() == published.TASK_SETTINGS[task].keys()
    for key, value in OTHER_TASKS[task].items():
        also = {"padded": True} if key == "computes" else {}  # which needs it
        study = replace(load_study("nope-paper"), tasks=({"name": task, key: value, **also},))
        lines = departures([result(run, CPU) for run in study.runs()], "best")
        (line,) = [line for line in lines if line.startswith("task: ")]
        assert f"{key} {value} (published " in line and line.endswith(f": {task}")


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ("[['t5', 'ssmax']]", "t5 + ssmax in one layer (published t5 alone)"),
        ("['t5', 'none']", "name none (published t5)"),
        ("['t5', ['t5', 'window']]", "t5 + window in one layer (published t5 alone)"),
        ("'gated-recurrence'", "name gated-recurrence (published t5)"),
    ],
)
def test_what_bears_the_name_of_a_published_encoding_is_looked_at(layers: str, said: str) -> None:
    lines = found(f"encodings=[{{layers={layers}, label='t5'}}, 'none']", tasks=("copy.repeat",))
    assert lines == [f"encoding: {said}: t5"]


def test_few_seeds_of_one_cell_are_not_made_up_by_another_of_its_task() -> None:
    study = load_study("nope-paper", ["tasks=['copy.repeat', {name='copy.repeat', tokens='symbols'}]"])
    runs = [run for run in study.runs() if run.title == "copy.repeat" or run.seed == 1]
    assert departures([result(run, CPU) for run in runs], "best")[-1] == "seeds: 5 cells have fewer than 3"


@pytest.mark.parametrize("change", CHANGES)
def test_one_changed_setting_is_one_departure(change: str) -> None:
    tasks = ("copy.repeat", "reverse.words")
    lines = found(change, tasks=tasks)
    assert [line.removesuffix(": copy.repeat, reverse.words") for line in lines] == [CHANGES[change]]


def test_the_layout_is_part_of_the_protocol() -> None:
    changed = found("data.tokens='symbols'", "data.prefix_tokens=2", "data.separator_tokens=4", tasks=("copy.repeat",))
    assert changed[0].startswith("tokens: symbols")
    assert changed[1] == "data: prefix_tokens 2 (published 0), separator_tokens 4 (published 0): copy.repeat"


def test_training_sets_that_differ_by_seed_are_named() -> None:
    study = load_study("nope-paper")
    runs = [result(run, CPU) for run in study.runs() if run.title == "copy.words"]
    for run in runs:
        run.description["settings"]["data"]["seed"] = None
    assert departures(runs, "best") == [
        "data: training examples are drawn for each seed (published: the same for all): copy.words"
    ]


def test_other_task_settings_are_named() -> None:
    study = load_study("nope-paper", ["tasks=[{name='copy.words', symbols=50}]"])
    (line,) = departures([result(run, CPU) for run in study.runs()], "best")
    assert line == "task: symbols 50 (published 100): copy.words"


def test_the_checkpoint_is_named_where_it_is_the_last() -> None:
    results = results_of(tasks=("copy.repeat",))
    (line,) = compare(results, "last").departures
    assert line.startswith("checkpoint: last (published: best in distribution")


def test_answers_that_do_not_end_count_as_wrong_here_and_that_is_said() -> None:
    (line,) = found(tasks=("addition",), ran_on=1)
    assert line == "scoring: an answer must end (published: what follows a right sentence is not read): addition"
    assert found(tasks=("copy.words",), ran_on=1) == [], "there the published score reads the whole text, too"


@pytest.mark.parametrize(("steps", "departs"), [(40_000, True), (60_000, False), (100_000, False)])
def test_pcfg_took_more_steps(steps: int, departs: bool) -> None:
    study = load_study("nope-paper", [f"tasks=[{{name='pcfg', steps={steps}}}]"])
    lines = departures([result(run, CPU) for run in study.runs()], "best")
    assert any(line.startswith("training: steps 40,000 (published 40,000, pcfg 60,000") for line in lines) == departs


def test_results_of_earlier_versions_say_what_these_could_not_do_otherwise() -> None:
    """Rows of version 8 and before name neither tokens nor the rule of the best checkpoint; both are known."""
    study = load_study("nope-paper")
    runs = [result(run, CPU) for run in study.runs() if run.title == "copy.repeat"]
    for run in runs:
        settings = run.description["settings"]
        for key in ("tokens", "trimmed", "held_out", "seed", "watched", "prefix_tokens", "separator_tokens"):
            settings["data"].pop(key)
        settings["training"].pop("decay_norms")
        settings["training"].pop("best")
        settings["numerics"] = 8
    lines = " ".join(departures(runs, "best"))
    for said in ("tokens: symbols", "each length is held out", "drawn for each seed", "decay_norms False", "latest"):
        assert said in lines, said
    for run in runs:
        run.description["settings"]["numerics"] = 4
    assert "latest" not in " ".join(departures(runs, "best")), "then the earliest of equals was the best"


def test_runs_that_do_not_say_how_they_were_made_are_not_judged() -> None:
    study = load_study("nope-paper")
    runs = [result(run, CPU) for run in study.runs() if run.title == "copy.repeat"]
    for run in runs:
        del run.description["settings"]
    assert departures(runs, published.CHECKPOINT) == []
