"""The benchmarks: that they count right and measure what they say. How fast things are is asserted nowhere."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import small_table
from rich.console import Console

from lengthwise.bench import evaluation, growth, hugging_face, trainer, training
from lengthwise.bench import measurements as commands
from lengthwise.bench.arithmetic import Peak, TokenCounts, matrix_weights, measure_peak, training_flops
from lengthwise.bench.measurements import Bench
from lengthwise.bench.profile import profile_step
from lengthwise.bench.report import Report, cell, command
from lengthwise.bench.start import time_start
from lengthwise.bench.workload import Workload, workload, workloads_of
from lengthwise.cli import main
from lengthwise.data.sequences import Sequences
from lengthwise.errors import UserError
from lengthwise.model.config import ModelConfig
from lengthwise.study import load_study
from lengthwise.training.batches import collate
from lengthwise.training.run_sizes import row_width_of

CPU = torch.device("cpu")
PEAK = Peak("fp32", 1e11, 5e10)


def small_workload(fleet: int = 1, **changes: object) -> Workload:
    table = small_table()
    work = Workload(table["tasks"][0], "none", fleet, table["model"], table["data"], table["training"])
    return replace(work, **changes)


def sequences(*sizes: tuple[int, int]) -> Sequences:
    """Of pairs of prompt and whole size."""
    prompt, size = (np.array(column, dtype=np.int32) for column in zip(*sizes, strict=True))
    tokens = np.full((len(size), size.max()), 5, dtype=np.int32)
    tokens[np.arange(size.max()) >= size[:, None]] = 0
    return Sequences(tokens, prompt, size, size)


def test_operations_are_those_of_a_count_by_hand() -> None:
    """Two examples of 3 and 5 tokens, the last 1 and 2 of which are targets; every product written out."""
    config = ModelConfig(layers=2, width=8, heads=2, feed_forward=20)
    rows = 64
    forward = 0
    for size, targets in ((3, 1), (5, 2)):
        for _ in range(config.layers):
            for inputs, outputs in ((8, 8), (8, 8), (8, 8), (8, 8), (8, 20), (20, 8)):  # q, k, v, output, in, out
                forward += 2 * size * inputs * outputs
            for query in range(size):
                for _key in range(query + 1):
                    forward += 2 * 2 * 4 + 2 * 2 * 4  # two heads of width 4: a logit, and its share of the values
        forward += 2 * targets * 8 * rows
    work = TokenCounts.of_sequences(sequences((2, 3), (3, 5)))
    assert work == TokenCounts(tokens=8, predicted=3, pairs=6 + 15)
    assert training_flops(config, rows, work) == 3 * forward  # the backward pass of a product is two products


def test_matrix_weights_are_those_of_the_decoder() -> None:
    from lengthwise.model.build import Lengths, build

    for config in (
        ModelConfig(layers=3, width=24, heads=4),
        ModelConfig(layers=2, width=32, heads=4, key_value_heads=2, style="llama"),
    ):
        model = build(config, 64, [{"name": "none"}], Lengths(8, 8))
        assert matrix_weights(config) == sum(p.numel() for p in model.blocks.parameters() if p.ndim == 2)


def test_work_of_packed_batches_is_that_of_their_examples() -> None:
    each = sequences((2, 4), (3, 9), (1, 5), (2, 7), (4, 6))
    batches = collate([each, each], pad=0, row_width=16, batch=2)
    alone = TokenCounts.of_sequences(each)
    assert TokenCounts.of(batches) == TokenCounts(2 * alone.tokens, 2 * alone.predicted, 2 * alone.pairs)


@pytest.mark.slow
def test_the_peak_is_measured() -> None:
    peak = measure_peak(CPU)
    assert peak.precision == "fp32" and peak.flops > 1e8 and peak.flops_of_layer > 1e8


@pytest.mark.slow
def test_times_of_a_fleet_agree_with_each_other() -> None:
    times = training.time_training(small_workload(fleet=2), CPU, PEAK, steps=12)
    assert (times.fleet, times.timed_steps, times.batch, times.run_steps, times.run_validations) == (2, 12, 8, 30, 3)
    assert times.row_width == row_width_of(small_workload().runs()[0], "cpu")
    # Lengths 2-4 of copy.repeat are 7 to 11 tokens; 8 examples for each of 2 models.
    assert 2 * 8 * 7 <= times.tokens_per_step <= 2 * 8 * 11
    assert 0 <= times.padding_share < 0.5
    assert times.step_ms_per_model == pytest.approx(times.step_ms / 2)
    assert times.tokens_per_second == pytest.approx(1e3 * times.tokens_per_step / times.end_to_end_ms)
    assert times.model_steps_per_second == pytest.approx(2e3 / times.end_to_end_ms)
    assert times.peak_share == pytest.approx(times.flops / PEAK.flops)
    parts = [times.start_up_seconds, times.warm_up_seconds, 30e-3 * times.end_to_end_ms]
    parts += [times.first_validation_seconds, 2 * times.validation_seconds]
    assert times.run_seconds == pytest.approx(sum(parts)) and min(parts[2:]) > 0
    assert np.isfinite(times.loss) and times.note == ""


def test_a_fleet_that_does_not_fit_gets_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("full")

    monkeypatch.setattr(training, "time_training", full)
    row = training.training_row(small_workload(fleet=3), CPU, PEAK, steps=4)
    assert row["fleet"] == 3 and "does not fit" in row["note"] and "step_ms" not in row


def test_workloads_are_the_published_one_and_the_quickstart() -> None:
    published = workload("base", "rotary", fleet=2).runs()
    assert len(published) == 2 and published[0].task["symbols"] == 6052
    assert (published[0].model.layers, published[0].model.dropout, published[0].training.batch) == (12, 0.1, 64)
    assert published[0].training.steps == 40_000
    quick = workload("tiny").runs()[0]
    assert (quick.task["symbols"], quick.data.train_lengths, quick.training.batch) == (500, (2, 6), 32)
    assert quick.model.dropout == 0 and workload("tiny", dropout=0.2).runs()[0].model.dropout == 0.2
    assert workload("tiny", task="reverse.words").runs()[0].training.batch == 64


@pytest.mark.slow
def test_workloads_of_a_study_are_its_own_runs() -> None:
    found = workloads_of("methods", [2], "parity", ["none", "stick-breaking"])
    assert [each.encoding for each in found] == ["none", "stick-breaking"]
    assert [[run.seed for run in each.runs()] for each in found] == [[1, 2], [1, 2]]
    wanted = {run.fingerprint for run in load_study("methods").runs()}
    assert {run.fingerprint for each in found for run in each.runs()} <= wanted
    assert len(workloads_of("quickstart", [1, 3], encodings=["all"])) == 10
    with pytest.raises(UserError, match="study methods has no encoding 'fxo'; did you mean 'fox'"):
        workloads_of("methods", [1], encodings=["fxo"])


def test_trainer_trains_a_gpt2_of_the_same_size() -> None:
    """The real one, for six steps on the CPU."""
    times = trainer.time_trainer(small_workload(), CPU, PEAK, steps=3)
    assert times.timed_steps == 3 and times.batch == 8 and not times.compiled and times.vocabulary_rows == 64
    assert np.isfinite(times.loss) and times.loss > 0
    assert times.step_ms > 0 and times.run_seconds > times.start_up_seconds > 0
    assert 8 * 7 <= times.tokens_per_step <= 8 * 11 and 0 < times.padding_share < 0.5


def test_gpt2_has_the_shape_of_our_model() -> None:
    run = small_workload(model={"layers": 3, "width": 24, "heads": 2, "dropout": 0.25}).runs()[0]
    model = hugging_face.gpt2(run)
    config = model.config
    assert (config.n_layer, config.n_embd, config.n_head, config.vocab_size) == (3, 24, 2, 64)
    assert config.resid_pdrop == config.attn_pdrop == config.embd_pdrop == 0.25
    matrices = sum(p.numel() for p in model.transformer.h.parameters() if p.ndim == 2)
    assert matrices == matrix_weights(run.model)
    published = hugging_face.gpt2(run, hugging_face.PUBLISHED_VOCABULARY)
    assert published.transformer.wte.num_embeddings == 32_100
    state = torch.get_rng_state()
    hugging_face.gpt2(run)
    assert torch.equal(state, torch.get_rng_state())


def test_the_collator_pads_to_the_longest_and_hides_prompts() -> None:
    examples = hugging_face.ExampleDataset(sequences((2, 4), (3, 6)))
    batch = hugging_face.PadToLongest(pad=0)([examples[0], examples[1]])
    assert batch["input_ids"].tolist() == [[5, 5, 5, 5, 0, 0], [5, 5, 5, 5, 5, 5]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[-100, -100, 5, 5, -100, -100], [-100, -100, -100, 5, 5, 5]]
    assert trainer.padded_cells(np.array([4, 6, 3]), batch=2) == 2 * 6 + 3


def test_trainer_sees_the_examples_of_our_first_steps() -> None:
    from lengthwise.training.batches import TrainingData

    run = small_workload().runs()[0]
    ours = TrainingData(run.make_task(), run.data, run.seed).slice(0, 24)
    assert np.array_equal(hugging_face.training_examples(run, steps=3).tokens, ours.tokens)
    few = small_workload(data={**small_table()["data"], "examples": 20}).runs()[0]
    assert len(hugging_face.training_examples(few, steps=300)) == 20


def test_the_clock_skips_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([10.0, 20.0, 26.0, 30.0, 40.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(seconds))
    clock = trainer.Clock(CPU, warm_up=4, stretch=2)
    for step in range(1, 11):
        clock.step_done(step)
    assert clock.first == 10.0 and clock.readings == [20.0, 26.0, 30.0, 40.0]
    assert clock.seconds == 3.0, "the median of three stretches of two steps"


@pytest.mark.parametrize("missing", ["transformers", "accelerate"])
def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=rf"{missing} is missing: pip install 'lengthwise\[bench\]'"):
        Bench("cpu", Console(quiet=True), Console(quiet=True)).trainer()


@pytest.mark.slow
@pytest.mark.parametrize("affordable", [True, False])
def test_evaluation_scales_what_it_measured(monkeypatch: pytest.MonkeyPatch, affordable: bool) -> None:
    monkeypatch.setattr(evaluation, "AFFORDABLE_SECONDS", 600 if affordable else 0)
    one_pass, *generated = evaluation.time_evaluation(
        small_workload(), CPU, examples=60, sample=12, batch=4, with_transformers=True
    )
    assert (one_pass.method, one_pass.examples, one_pass.measured, one_pass.written_tokens) == ("one pass", 60, 60, 0)
    eager, fast, theirs = generated
    names = ["lengthwise generate, eager", "lengthwise generate, launched", "transformers generate"]
    assert [times.method for times in generated] == names
    for times in generated:
        assert (times.examples, times.measured) == (60, 60 if affordable else 12)
        assert times.batch == (times.measured if times is fast else 4)
        assert times.times_the_one_pass == pytest.approx(times.seconds / one_pass.seconds)
        # Lengths 2-6: answers of 3 to 7 tokens with their end, and no batch writes beyond its longest.
        assert 0 < times.written_tokens <= times.measured * 7
        assert (times.same_texts, times.note) == (1.0 if times is fast else None, "")
    assert theirs.encoding == "gpt2" and eager.target_tokens == fast.target_tokens == theirs.target_tokens
    assert fast.written_tokens <= fast.target_tokens, "each as many as its own answer has, and fewer with an end"


def test_examples_are_spread_over_all_lengths() -> None:
    each = sequences(*((1, size) for size in range(2, 12)))
    assert evaluation.spread_over(each, 4).size.tolist() == [2, 5, 8, 11]
    assert evaluation.spread_over(each, 20).size.tolist() == sorted(evaluation.spread_over(each, 20).size.tolist())
    assert len(evaluation.spread_over(each, 20)) == 20


def test_growth_keeps_the_tokens_of_a_step() -> None:
    for point in growth.points("length", "cpu"):
        run = point.workload.runs()[0]
        assert row_width_of(run, "cpu") == point.value
        assert run.training.batch * point.value == growth.TOKENS["cpu"]
    widths = [point.workload.runs()[0].model.width for point in growth.points("width", "cuda")]
    assert widths == list(growth.WIDTHS["cuda"])
    assert [len(point.workload.runs()) for point in growth.points("fleet", "cpu")] == list(growth.FLEETS["cpu"])


@pytest.mark.slow
def test_a_process_is_timed_from_its_start() -> None:
    cold, warm = time_start(small_workload(), "cpu")
    assert (cold.cache, warm.cache) == ("cold", "warm")
    for times in (cold, warm):
        assert times.process_seconds > times.start_up_seconds > 0


@pytest.mark.slow
def test_a_profile_accounts_for_a_step() -> None:
    times = list(profile_step(small_workload(), torch.device("cpu")))
    assert sum(each.share for each in times) == pytest.approx(1)
    assert [each.microseconds for each in times] == sorted((each.microseconds for each in times), reverse=True)
    products = sum(each.calls for each in times if each.kernel in ("aten::mm", "aten::bmm"))
    layers = small_workload().runs()[0].model.layers
    assert products >= 3 * (4 * layers + 1), "four products a layer and the logits, each forwards and twice backwards"


@pytest.mark.slow
def test_commands_print_a_table_and_write_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands, "workload", lambda *_, **__: small_workload())
    monkeypatch.setattr(commands, "points", lambda *_: [growth.Point("length", 16, small_workload())])
    for words, section in [
        (["train", "--size", "tiny", "--steps", "2"], "training"),
        (["trainer", "--steps", "2"], "trainer"),
        (["evaluate", "--examples", "20", "--sample", "4"], "evaluation"),
        (["growth", "--what", "length", "--steps", "2"], "growth"),
    ]:
        file = tmp_path / f"{section}.json"
        monkeypatch.setattr(sys, "argv", ["lengthwise", "bench", *words, "--device", "cpu", "--out", str(file)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        written = json.loads(file.read_text())
        assert written["command"] == f"lengthwise bench {' '.join(words)} --device cpu --out {section}.json"
        assert written["hardware"]["device"] == "CPU" and written["versions"]["transformers"]
        assert written[section] and "seconds" in json.dumps(written[section])
        head, *parts = re.split(r"^ ─+ *$", capsys.readouterr().out, flags=re.MULTILINE)
        title, *headings = head.splitlines()
        lines = [line for line in parts[0].splitlines() if line.strip()]
        # A line for each row; where a table goes on below, its headings follow.
        assert title.strip() and (len(lines) == len(written[section]) or len(parts) > 1)
        assert ("seconds" if section == "evaluation" else "step") in " ".join(headings).split()


def test_wrong_names_are_errors_before_anything_is_timed(tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    bench = Bench("cpu", quiet, quiet)
    for call, message in [
        (lambda: bench.train(["bas"]), "did you mean 'base'"),
        (lambda: bench.train(encodings=["rotari"]), "did you mean 'rotary'"),
        (lambda: bench.train(task="copy.word"), "did you mean"),
        (lambda: Bench("cpu", quiet, quiet, tmp_path / "absent" / "x.json"), "does not exist"),
    ]:
        with pytest.raises(UserError, match=message):
            call()
    assert not bench.report.sections


def test_tables_in_files_have_at_most_120_columns(tmp_path: Path) -> None:
    wide = {key: f"{key}-{'x' * 12}" for key in commands.TRAINING}
    profile = {"kernel": "§" * 300, "calls": 12, "microseconds": 3.5, "share": 0.25}
    with (tmp_path / "table.txt").open("w") as file:
        report = Report(console := Console(file=file), Console(quiet=True))
        before = console.width
        report.show_rows([wide], commands.TRAINING)
        report.show_rows([profile], commands.PROFILE)
    assert console.width == before, "it is everybody's"
    lines = (tmp_path / "table.txt").read_text().splitlines()
    assert 100 < max(map(len, lines)) <= 120
    words = " ".join(lines).split()
    assert all(value in words for value in wide.values())  # whole, in whatever part
    rows = [line.split() for line in lines if "-xxxx" in line]
    assert len(rows) > 1 and all(row[:3] == [wide["size"], wide["encoding"], wide["fleet"]] for row in rows)
    assert "".join(words).count("§") == 300 and "25.0" in words


def test_cells_are_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cell(None, "x") == "-" and cell(True, "compiled") == "yes" and cell(0.1234, "% padding") == "12.3"
    assert (
        cell(1.5e13, "TFLOP/s") == "15.0" and cell(12345.6, "tokens/s") == "12,346" and cell(2.71828, "ms") == "2.718"
    )
    monkeypatch.setattr(sys, "argv", ["/some/where/lengthwise", "bench", "data", "--out", "/some/where/x.json"])
    assert command() == "lengthwise bench data --out x.json"
    report = Report(Console(quiet=True), Console(quiet=True))
    report.add("rows", {"a": 1})
    report.show("absent", {"a": "a"})
    assert report.sections == {"rows": [{"a": 1}]}
