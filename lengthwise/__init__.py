"""What happens when a Transformer trained on short sequences meets longer ones, and why.

import lengthwise as lw

lw.task("copy.repeat").sample(length=5, count=2)
lw.encoding("rotary", fraction=0.5)
results = lw.run("quickstart", out="runs/quickstart")
results.table()  # a row for each run and length, of the weights at the end
"""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.encodings.encoding import Encoding, Geometry
    from lengthwise.extensions.extended import Extended
    from lengthwise.extensions.extension import Extension
    from lengthwise.model.decoder import Decoder
    from lengthwise.records.rows import Results
    from lengthwise.study import Study
    from lengthwise.tasks.task import Task

__version__ = "0.1.0"

# Imports stay inside the functions: the command line must not wait for torch before it can print its help.


def task(name: str, **settings: Any) -> "Task":
    """A task by its name, for example `task("copy.words", symbols=20)`."""
    from lengthwise.tasks.choosing import make_task

    return make_task({"name": name, **settings})


def encoding(name: str, geometry: "Geometry | None" = None, **settings: Any) -> "Encoding":
    """An encoding by its name, for a model of the given geometry (by default 8 heads of 64)."""
    from lengthwise.encodings.encoding import Geometry
    from lengthwise.model.build import make_encoding

    return make_encoding({"name": name, **settings}, geometry or Geometry.of(width=512, heads=8))


def extension(name: str, **settings: Any) -> "Extension":
    """An extension of a trained model by its name, for example `extension("yarn", factor=4)`."""
    from lengthwise.extensions.extended import make_extension

    return make_extension({"name": name, **settings})


def extended(model: "Decoder", extensions: "Sequence[Extension]", context: int | None = None) -> "Extended":
    """A trained model with extensions, around the same weights; `context`: the longest sequence to be met."""
    from lengthwise.extensions import extended as extending

    return extending.extended(model, extensions, context)


def load_study(name: str, assignments: Iterable[str] = ()) -> "Study":
    """A shipped study by its name or any study by its file; `assignments` such as `training.steps=2000`."""
    from lengthwise import study

    return study.load_study(name, assignments)


def run(study: "Study | str", out: str | Path | None = None, device: str = "auto", workers: int = 0) -> "Results":
    """Trains and evaluates what is not finished yet, and returns the results.

    `workers`: processes that train side by side; 0 for one per core on a CPU, one per GPU.
    """
    from lengthwise.executors.local import outdated_runs, run_study
    from lengthwise.records.names import study_folder

    chosen = load_study(study) if isinstance(study, str) else study
    folder = Path(out) if out is not None else study_folder(chosen.name)
    run_study(chosen, folder, device, workers=workers)
    for line in outdated_runs(chosen, folder):
        warnings.warn(line, stacklevel=2)
    return results(folder)


def results(path: str | Path) -> "Results":
    """The finished runs in a study's folder."""
    from lengthwise.records.rows import load_results

    return load_results(Path(path))


def load(checkpoint: str | Path) -> "Decoder":
    """A trained model from a run's `last.safetensors` or `best.safetensors`."""
    from lengthwise.training.checkpoint import load_model

    return load_model(Path(checkpoint))
