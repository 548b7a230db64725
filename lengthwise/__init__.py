"""What happens when a Transformer trained on short sequences meets longer ones, and why.

import lengthwise as lw

lw.task("copy.repeat").sample(length=5, count=2)
lw.encoding("rotary", fraction=0.5)
results = lw.run("quickstart", out="runs/quickstart")
results.to_polars()  # a row for each run and length, of the weights at the end
results.plot()  # accuracy by length
"""

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lengthwise.encodings.encoding import Encoding, Geometry
    from lengthwise.extensions.extended import Extended
    from lengthwise.extensions.extension import Extension
    from lengthwise.model.decoder import Decoder
    from lengthwise.report.notebook import NotebookResults
    from lengthwise.runtime import Listener
    from lengthwise.study import Study
    from lengthwise.tasks.task import Task

__version__ = "0.1.0"
__all__ = [
    "dataset",
    "encoding",
    "evaluate",
    "extended",
    "extending",
    "extension",
    "load",
    "load_study",
    "merge",
    "results",
    "run",
    "task",
]

# Imports stay inside the functions: the command line must not wait for torch before it can print its help.


def task(name: str, **settings: Any) -> "Task":
    """Returns a task by its name, for example `lw.task("copy.words", symbols=20)`.

    `name`: one of `lengthwise list tasks`, or a file of examples such as `mine.jsonl`. `settings`: those of the task; a
    setting that it does not have is refused.
    """
    from lengthwise.tasks.choosing import make_task

    return make_task({"name": name, **settings})


def encoding(name: str, geometry: "Geometry | None" = None, **settings: Any) -> "Encoding":
    """Returns a positional encoding by its name, for example `lw.encoding("rotary", fraction=0.5)`.

    `geometry`: the shape of the model that it is for, by default 8 heads of 64. The result is a PyTorch module.
    """
    from lengthwise.encodings.encoding import Geometry
    from lengthwise.model.build import make_encoding

    return make_encoding({"name": name, **settings}, geometry or Geometry.of(width=512, heads=8))


def extension(name: str, **settings: Any) -> "Extension":
    """Returns a method of context extension by its name, for example `lw.extension("yarn", factor=4)`."""
    from lengthwise.extensions.extended import make_extension

    return make_extension({"name": name, **settings})


def extended(model: "Decoder", extensions: "Sequence[Extension]", context: int | None = None) -> "Extended":
    """Returns a trained model with extensions; it shares all weights with `model`, which stays as it is.

    The first extension acts next to the encoding, the last one outermost. `context`: the longest sequence that it will
    meet, in tokens; by default what the extensions are made for.
    """
    from lengthwise.extensions import extended as extending

    return extending.extended(model, extensions, context)


@contextlib.contextmanager
def extending(
    model: "PreTrainedModel", extensions: "Sequence[Extension]", context: int | None = None, trained: int = 0
) -> "Iterator[PreTrainedModel]":
    """Extends a causal language model of Transformers for the time of a `with`; then it is as it was, to the bit.

    The model within reads, generates and caches as ever: `with lw.extending(model, [lw.extension("yarn", factor=4)]):`.
    `context`: the longest sequence that it will meet, in tokens; by default what the extensions are made for.
    `trained`: tokens of the longest sequences of training; by default what its config says.
    """
    from lengthwise.context_extension.transformers_reader import TransformersReader

    with TransformersReader.of(model, trained).extended(extensions, context).attending() as within:
        yield within


def merge(
    model: "PreTrainedModel", extensions: "Sequence[Extension]", out: str | Path, trained: int = 0, dtype: str = "auto"
) -> Path:
    """Writes a causal language model of Transformers with extensions into a new folder, which it returns.

    Scales of heads go into its weights, RoPE scaling into its config: plain Transformers reads the folder and computes
    what the extended model computes, which is checked. What does not fit there is refused. The model stays as it was;
    save its tokenizer into the folder as well. `trained`: tokens of the longest sequences of training; by default what
    its config says. `dtype`: of the saved weights, `fp32`, `bf16` or `fp16`; by default the model's, or `fp32` where
    rounding would show.
    """
    from lengthwise.context_extension import merging

    return merging.merge(model, extensions, Path(out), trained, dtype).folder


def load_study(name: str, assignments: Iterable[str] = ()) -> "Study":
    """Returns a shipped study by its name, or any study by its TOML file.

    `assignments`: changes such as `training.steps=2000`, in the syntax of `lengthwise run --set`.
    """
    from lengthwise import study

    return study.load_study(name, assignments)


def run(
    study: "Study | str",
    out: str | Path | None = None,
    device: str = "auto",
    workers: int = 0,
    only: str = "",
    listener: "Listener | None" = None,
) -> "NotebookResults":
    """Trains and evaluates the runs of a study that are not finished yet, and returns the results of all.

    A call that was interrupted is made again to resume it. `out`: the study's folder, by default `runs/NAME`. `device`:
    `auto`, `cpu`, `cuda` or `cuda:1`. `workers`: processes that train side by side; 0 for one per core on a CPU, one
    per GPU. `only`: a part of it, such as `task=addition,encoding=none` or `layers=4`. `listener`: is told of steps,
    losses, validations and results while they come; several fleets side by side tell the same one.
    """
    from lengthwise.bench.estimate import cpu_warning
    from lengthwise.executors.local import Job, outdated_runs, run_study
    from lengthwise.records.names import study_folder

    def warn(job: Job) -> None:
        if told := cpu_warning(job):
            warnings.warn(told, stacklevel=4)

    chosen = load_study(study) if isinstance(study, str) else study
    folder = Path(out) if out is not None else study_folder(chosen.name)
    watch = (lambda number, fleets, plan: listener) if listener else None
    run_study(chosen, folder, device, watch, workers=workers, only=only, prepared=warn)
    for line in outdated_runs(chosen, folder, only):
        warnings.warn(line, stacklevel=2)
    return results(folder, only=only)


def results(*folders: str | Path, only: str = "") -> "NotebookResults":
    """Returns the results of the finished runs in a study's folder, or in a folder that `collect` wrote.

    Of several folders, too; those of different studies are distinguished by `study`.

    `only`: a part of them, such as `task=addition,encoding=none` or `layers=4`.
    """
    from lengthwise.errors import UserError
    from lengthwise.records.merging import load_together
    from lengthwise.report.notebook import in_notebook

    if not folders:
        raise UserError("results needs a folder, such as runs/quickstart")
    return in_notebook(load_together([Path(folder) for folder in folders]).only(only))


def load(checkpoint: str | Path) -> "Decoder":
    """Returns a trained model, on the CPU, from a run's `last.safetensors` or `best.safetensors`."""
    from lengthwise.training.checkpoint import load_model

    return load_model(Path(checkpoint))


def evaluate(
    model: Any,
    tokenizer: Any = None,
    task: "str | dict[str, Any]" = "copy.repeat",
    lengths: "str | Iterable[int]" = (),
    count: int = 100,
    shots: int = 0,
    chat: bool = False,
    instruction: str = "",
    seed: int = 0,
    out: str | Path | None = None,
    name: str = "",
    batch: int = 0,
    device: str = "auto",
    beyond_context: bool = False,
    trained: str = "",
) -> "NotebookResults":
    """Asks any model a task's questions and returns the results by length.

    `model`: the folder of a Hugging Face model, `http://HOST:PORT` of a server, or a model of Transformers, which needs
    its `tokenizer`. `lengths`: `"2-40"`, or numbers; by default all of the task. `count`: questions of each length.
    `shots`: solved examples before each question. `chat`: in the model's chat template. `out`: a folder in which
    results of several models and tasks come together; what it has is not asked again. `device`: of a folder's model.
    `trained`: `"2-6"`, the lengths that the model was trained on; by default those of the task.
    """
    from lengthwise.data.lengths import read_lengths
    from lengthwise.foreign_models import evaluating
    from lengthwise.foreign_models.opening import open_writer
    from lengthwise.foreign_models.questions import Asking
    from lengthwise.report.notebook import in_notebook

    asking = Asking(shots, chat, instruction, seed)
    chosen = read_lengths(lengths, "lengths") if isinstance(lengths, str) else sorted({int(each) for each in lengths})
    questions = evaluating.prepare_questions(task, chosen, count, asking, trained)
    writer = open_writer(model, tokenizer, name, device=device, batch=batch, beyond_context=beyond_context)
    return in_notebook(evaluating.evaluate(writer, questions, None if out is None else Path(out)))


def dataset(
    task: "str | dict[str, Any]",
    lengths: "str | Iterable[int]" = (),
    count: int | None = None,
    split: str = "train",
    seed: int = 0,
    scratchpad: str = "none",
    streaming: bool = False,
) -> Any:
    """Examples of a task, each with prompt, target and length, as a PyTorch dataset of `count` (by default 10,000).

    `lengths`: `"2-20"`, or numbers; by default those of training, for `split="test"` the unseen ones. Splits have no
    prompt in common. `streaming`: a `datasets.IterableDataset` instead, endless where no `count` is given.
    """
    from lengthwise.data.lengths import read_lengths
    from lengthwise.data.task_dataset import Supply, TaskDataset, stream
    from lengthwise.errors import UserError
    from lengthwise.tasks.choosing import make_task

    if count is not None and count < 1:
        raise UserError(f"count must be 1 or more, not {count}")
    chosen = read_lengths(lengths, "lengths") if isinstance(lengths, str) else sorted({int(each) for each in lengths})
    supply = Supply(make_task(task), split, chosen, seed, scratchpad)
    return stream(supply, count) if streaming else TaskDataset(supply, 10_000 if count is None else count)
