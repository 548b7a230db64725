"""Hugging Face's Trainer with a GPT-2 of the same size, on the same examples, timed."""

import os
import statistics
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from lengthwise.bench.arithmetic import Peak, TokenCounts, synchronize, training_flops
from lengthwise.bench.hugging_face import ExampleDataset, PadToLongest, gpt2, require_transformers, training_examples
from lengthwise.bench.training import free_memory, peak_memory
from lengthwise.bench.workload import Workload
from lengthwise.data.sequences import Sequences
from lengthwise.errors import UserError
from lengthwise.executors.local import one_thread
from lengthwise.study import Run

STRETCH = {"cpu": 8, "cuda": 32}
"""Steps between two readings of the clock."""
WARM_UP = {"cpu": 8, "cuda": 96}
"""Steps before the first reading: compiled programs meet their shapes in them."""
LOADERS = {"cpu": 0, "cuda": 4}
"""Processes that prepare batches; on a CPU they would only take the cores away from the model."""


@dataclass(frozen=True)
class TrainerTimes:
    """One model under Hugging Face's Trainer; fields as in `TrainingTimes` where they have the same names."""

    trainer: str
    task: str
    size: str
    layers: int
    width: int
    vocabulary_rows: int
    dropout: float
    precision: str
    compiled: bool
    threads: int
    loaders: int
    batch: int
    timed_steps: int
    tokens_per_step: float
    padding_share: float
    """Of batches of random examples, each padded to its longest."""
    step_ms: float
    """End to end: the loaders work beside the steps."""
    model_steps_per_second: float
    tokens_per_second: float
    flops: float
    """The operations that the task needs (those of our model, see `training_flops`), not the ones spent."""
    peak_share: float
    peak_memory_gib: float
    reserved_memory_gib: float
    start_up_seconds: float
    """Until the first step is done."""
    run_steps: int
    run_seconds: float
    """All steps of the recipe and start-up; no validation."""
    loss: float
    """Mean over all steps."""


class Clock:
    """Reads the time after the first step, after the warm-up, and then after every stretch of steps."""

    def __init__(self, device: torch.device, warm_up: int, stretch: int) -> None:
        self.device, self.warm_up, self.stretch = device, warm_up, stretch
        self.first = 0.0
        self.readings: list[float] = []

    def step_done(self, step: int) -> None:
        """`step` counts from 1."""
        timed = step - self.warm_up
        if step == 1 or (timed >= 0 and timed % self.stretch == 0):
            synchronize(self.device)
            now = time.perf_counter()
            if step == 1:
                self.first = now
            if timed >= 0 and timed % self.stretch == 0:
                self.readings.append(now)

    @property
    def seconds(self) -> float:
        """Median of a step."""
        return statistics.median(np.diff(self.readings).tolist()) / self.stretch


def time_trainer(
    workload: Workload,
    device: torch.device,
    peak: Peak,
    steps: int,
    compiled: bool = False,
    vocabulary_rows: int = 0,
) -> TrainerTimes:
    """`steps` timed steps, rounded up to whole stretches, after the warm-up; with PyTorch's present threads."""
    transformers = require_transformers()
    if device.index:
        raise UserError(f"the Trainer takes the first GPU that it sees; set CUDA_VISIBLE_DEVICES={device.index}")
    run = workload.runs()[0]
    stretch, warm_up = min(steps, STRETCH[device.type]), min(steps, WARM_UP[device.type])
    timed = -(-steps // stretch) * stretch
    clock = Clock(device, warm_up, stretch)
    start = time.perf_counter()
    sequences = training_examples(run, warm_up + timed)
    model = gpt2(run, vocabulary_rows)
    with tempfile.TemporaryDirectory() as folder:
        loss = _train(transformers, run, model, sequences, device, warm_up + timed, compiled, clock, folder)
    memory, reserved = peak_memory(device)
    work = TokenCounts.of_sequences(sequences)
    done = clock.seconds * len(sequences) / run.training.batch  # what all of the examples take
    flops = training_flops(run.model, run.make_tokens().rows, work) / done
    return TrainerTimes(
        trainer=f"transformers {transformers.__version__}",
        task=run.title,
        size=run.model.size,
        layers=run.model.layers,
        width=run.model.width,
        vocabulary_rows=model.config.vocab_size,
        dropout=run.model.dropout,
        precision="bf16" if device.type == "cuda" else "fp32",
        compiled=compiled,
        threads=torch.get_num_threads(),
        loaders=loaders(device),
        batch=run.training.batch,
        timed_steps=timed,
        tokens_per_step=work.tokens * run.training.batch / len(sequences),
        padding_share=1 - work.tokens / padded_cells(sequences.size, run.training.batch),
        step_ms=1e3 * clock.seconds,
        model_steps_per_second=1 / clock.seconds,
        tokens_per_second=work.tokens / done,
        flops=flops,
        peak_share=flops / peak.flops,
        peak_memory_gib=memory,
        reserved_memory_gib=reserved,
        start_up_seconds=clock.first - start,
        run_steps=run.training.steps,
        run_seconds=clock.first - start + run.training.steps * clock.seconds,
        loss=loss,
    )


def _train(
    transformers: Any,
    run: Run,
    model: Any,
    sequences: Sequences,
    device: torch.device,
    steps: int,
    compiled: bool,
    clock: Clock,
    folder: str,
) -> float:
    """Trains for `steps` steps; returns the mean loss."""

    class Reading(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            clock.step_done(state.global_step)

    recipe = run.training
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=recipe.batch,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        adam_beta1=recipe.beta1,
        adam_beta2=recipe.beta2,
        adam_epsilon=recipe.epsilon,
        max_grad_norm=recipe.clip,
        bf16=device.type == "cuda",
        use_cpu=device.type == "cpu",
        torch_compile=compiled,
        dataloader_num_workers=loaders(device),
        dataloader_pin_memory=device.type == "cuda",
        remove_unused_columns=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=run.seed,
    )
    if arguments.device.type == "cuda":
        arguments._n_gpu = 1  # it would split the batch over all GPUs of the machine
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=ExampleDataset(sequences),
        data_collator=PadToLongest(run.make_tokens().pad),
        callbacks=[Reading()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return float(trainer.train().training_loss)


def loaders(device: torch.device) -> int:
    """Processes that prepare batches; one core is left to the Trainer itself."""
    return min(LOADERS[device.type], max(0, (os.cpu_count() or 1) - 1))


def padded_cells(size_E: np.ndarray, batch: int) -> int:
    """Tokens and padding, where each `batch` examples in turn are padded to the longest of them."""
    return sum(len(part) * int(part.max()) for part in np.split(size_E, range(batch, len(size_E), batch)))


def trainer_row(
    workload: Workload,
    device: torch.device,
    peak: Peak,
    steps: int,
    compiled: bool,
    vocabulary_rows: int = 0,
    single_thread: bool = False,
) -> dict[str, Any]:
    """The times as a row."""
    torch._dynamo.reset()
    free_memory(device)
    with one_thread() if single_thread else nullcontext():
        return asdict(time_trainer(workload, device, peak, steps, compiled, vocabulary_rows))
