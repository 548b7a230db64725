"""Which runs are trained together: a fleet holds runs whose models have equal shape and equal recipe."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from lengthwise import configuration, door
from lengthwise.errors import UserError
from lengthwise.machine import memory
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.records.directory import RunDirectory, StudyDirectory, make_folder
from lengthwise.records.files import write_json
from lengthwise.records.points import grid_words
from lengthwise.study import MOST_RUNS, Run
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import best_row_width
from lengthwise.training.limits import attention_memory
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.run_sizes import measured_sizes, row_width_of, sequence_lengths, sizes_of
from lengthwise.training.state import STATE, newest, not_finite, save_tensors


@dataclass(frozen=True)
class FleetPlan:
    """Runs to be trained together, in this order."""

    runs: tuple[Run, ...]

    @cached_property
    def id(self) -> str:
        text = " ".join(run.fingerprint for run in self.runs)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        tasks = sorted({run.title for run in self.runs})
        tasks_text = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
        points, seeds = {run.point for run in self.runs}, len({run.seed for run in self.runs})
        first = self.runs[0].grid
        shared = {axis: value for axis, value in first.items() if all(run.grid.get(axis) == value for run in self.runs)}
        grid = grid_words(shared) + (f"{', ' * bool(shared)}{len(points)} grid points" if len(points) > 1 else "")
        about = [tasks_text, *([grid] if grid else []), f"{seeds} seed{'s' * (seeds > 1)}"]
        return f"{self.runs[0].encoding.label} on {', '.join(about)}"

    @cached_property
    def lengths(self) -> Lengths:
        """The longest sequences of all its runs."""
        lengths = [sequence_lengths(run) for run in self.runs]
        return Lengths(max(each.trained for each in lengths), max(each.met for each in lengths))

    def row_width(self, device: str) -> int:
        """Tokens in a row of packed training examples; the same for all its runs, on the device where it was begun."""
        return max(row_width_of(run, device) for run in self.runs)

    def build(self) -> Decoder:
        """The architecture of the fleet; its weights come later, one set for each run."""
        first = self.runs[0]
        rows, counting = first.make_tokens().rows, first.data.make_placement().counting
        return build(first.model, rows, first.encoding.layers, self.lengths, counting)


MOST_WEIGHTS = {"cpu": 200_000_000, "cuda": 300_000_000}
"""Weights of all models of a fleet. Training keeps about seven numbers for each and saves four of them every time; a
large model gains little from company."""

CPU_SHARE = 0.6
"""Of the memory of a machine: what the training steps of its processes may take together."""
FULL = 0.93
"""Of the cells of packed rows, about."""

_FLEET = door.Object(needed={"runs": door.List(door.Text(most=64), most=10_000)})


def plan(
    runs: Sequence[Run],
    directory: StudyDirectory,
    largest: int,
    device: str,
    study: Sequence[Run] = (),
    held: Collection[str] = (),
) -> list[FleetPlan]:
    """Unfinished fleets as they were begun, then the runs that nobody has begun, at most `largest` together.

    A begun fleet keeps its members: the rounding of a model's numbers depends on how many are trained beside it. So
    where one of `runs` is in it, it comes whole, also with runs of the `study` that were not asked for. `held`: the
    fleets that someone works on; they and their runs are left out.
    """
    known = {run.fingerprint: run for run in (*study, *runs)}
    left = {run.fingerprint for run in runs if not run_directory(directory, run).is_finished}
    begun = _begun(directory)
    taken = {member for fleet in held for member in begun.get(fleet, ())}
    fleets: list[FleetPlan] = []
    for fleet, members in begun.items():
        # One with a run that this study does not know stays for the study that began it; our runs of it begin anew.
        if fleet in held or not left.intersection(members) or not all(member in known for member in members):
            continue
        if not taken.intersection(members):
            fleets.append(FleetPlan(tuple(known[member] for member in members)))
        taken.update(members)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.fingerprint in left and run.fingerprint not in taken:
            groups.setdefault(shape_key(run, device), []).append(run)
    for group in groups.values():
        most = min(largest, fitting(group[0], device))
        fleets += [FleetPlan(tuple(group[i : i + most])) for i in range(0, len(group), most)]
    return fleets


def fitting(run: Run, device: str) -> int:
    """How many models such as this run's a fleet has at most; one that is larger than the limits is trained alone."""
    one = 12 * run.model.layers * run.model.width**2  # weights of one model, nearly
    found = MOST_WEIGHTS[device] // one
    if device == "cpu":  # a GPU says when its memory ends; a CPU's processes are killed
        found = min(found, int(CPU_SHARE * memory() / (os.cpu_count() or 1) / memory_of_step(run, device)))
    return max(1, found)


def memory_of_step(run: Run, device: str) -> int:
    """About how many bytes a training step of one model keeps for its backward pass; measured, see the log."""
    sizes, _ = measured_sizes(run)
    width = row_width_of(run, device)
    rows = math.ceil(run.training.batch * float(sizes.mean()) / (FULL * width))
    states = rows * width * run.model.layers * (12 * run.model.width + 4 * run.model.inner_width) * 4
    return states + attention_memory(run.model, rows, width) // 2


def refuse_changed(fleet: FleetPlan, directory: StudyDirectory) -> None:
    """Refuses to resume with another version of a file from outside the package: the numbers would be of neither."""
    folder = directory.fleets / fleet.id
    if not any(folder.glob("*.safetensors")):
        return  # it has no step behind it
    for run in fleet.runs:
        found = run_directory(directory, run)
        if not found.is_finished and (changed := found.changed(run.outside)):
            raise UserError(
                f"{found.path} was begun with another version of {', '.join(changed)}; choose another folder with "
                f"--out, or delete {folder}, and its runs begin anew"
            )


def _begun(directory: StudyDirectory) -> dict[str, list[str]]:
    """Fleet -> fingerprints of its runs, in their order."""
    found = {}
    for file in sorted(directory.fleets.glob("*/fleet.json")):
        try:
            found[file.parent.name] = door.read_json(file, _FLEET)["runs"]
        except door.MissingFile:  # finished since it was listed
            continue
    return found


def remove_finished(runs: Sequence[Run], directory: StudyDirectory, held: Collection[str]) -> None:
    """Removes what is left of fleets whose runs are all finished, or that were never begun: somebody was killed just
    then. `held`: as for `plan`. To be asked under the directory's lock."""
    known = {run.fingerprint: run for run in runs}
    begun = _begun(directory)
    for folder in sorted(directory.fleets.glob("*")):
        members = begun.get(folder.name, [])
        over = all(each in known and run_directory(directory, known[each]).is_finished for each in members)
        if not members:
            over = not any(folder.glob("*.safetensors"))  # a state is never thrown away unread
        if folder.name not in held and over:
            shutil.rmtree(folder, ignore_errors=True)


def split(fleet: FleetPlan, directory: StudyDirectory) -> list[FleetPlan]:
    """Two fleets instead of one, with what it had reached: the first half and the rest."""
    middle = len(fleet.runs) // 2
    whole = directory.fleets / fleet.id

    def misfit(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> str:
        wrong = [name for name, value in tensors.items() if len(value) != len(fleet.runs)]
        return f"{wrong[0]} is of {len(tensors[wrong[0]])} models" if wrong else ""

    reached = newest(whole / STATE, misfit)
    halves = [FleetPlan(fleet.runs[:middle]), FleetPlan(fleet.runs[middle:])]
    for half, rows in zip(halves, (slice(middle), slice(middle, None)), strict=True):
        folder = directory.fleets / half.id
        make_folder(folder)
        if reached is not None:
            tensors, metadata, _ = reached
            kept = {key: value for key, value in metadata.items() if key != "checksum"}
            parts = {name: value[rows].clone() for name, value in tensors.items()}
            save_tensors(folder / STATE, parts, kept | {"not_finite": not_finite(parts)})
        write_json(folder / "fleet.json", {"runs": [run.fingerprint for run in half.runs]})
    shutil.rmtree(whole)
    return halves


def run_directory(directory: StudyDirectory, run: Run) -> RunDirectory:
    return directory.run(run.title, run.encoding.label, run.seed, run.fingerprint, run.point)


def shape_key(run: Run, device: str) -> str:
    """Equal for runs that can be one fleet. Building the model also finds settings that cannot go together."""
    found = _SHAPE_KEYS.get((run.fingerprint, device))
    if found is None:
        if len(_SHAPE_KEYS) >= MOST_RUNS:
            _SHAPE_KEYS.clear()
        try:
            found = _shape_key(json.dumps([run.task, run.encoding.layers]), run.model, run.data, run.training, device)
        except ValueError as error:
            raise UserError(f"{run.name}: {error}") from error
        _SHAPE_KEYS[run.fingerprint, device] = found
    return found


_SHAPE_KEYS: dict[tuple[str, str], str] = {}
"""By fingerprint and kind of device: a study is planned again for every fleet, and a model is built for each key."""


@lru_cache(maxsize=1024)
def _shape_key(named: str, model: ModelConfig, data: DataConfig, training: TrainingConfig, device: str) -> str:
    """Of all seeds. `named`: the tables of task and encoding, as JSON."""
    task, layers = json.loads(named)
    sizes = sizes_of(json.dumps(task), data)
    with torch.device("meta"):
        counting = data.make_placement().counting
        built = build(model, data.make_tokens(make_task(task)).rows, layers, sizes.lengths, counting)
    if built.last_position is not None and built.last_position < sizes.longest - 1:
        raise ValueError(
            f"the encoding ends at position {built.last_position}, but the longest test sequence has "
            f"{sizes.longest} tokens; set the encoding's 'rows' to 0 or higher, or test shorter lengths"
        )
    shapes = [(name, list(parameter.shape)) for name, parameter in built.named_parameters()]
    shared: dict[str, Any] = {"encoding": layers}
    shared |= {"model": configuration.table(model), "training": configuration.table(training)}
    for own in ("learning_rate", "final_learning_rate", "warmup"):  # each model of a fleet may have its own
        shared["training"].pop(own)
    # Dropout depends on the place in a row, and a table of positions on the context: those must agree too.
    context = vars(sizes.lengths) if built.last_position is not None else None
    width = best_row_width(sizes.trained, training.batch, device)
    return json.dumps([shapes, shared, width, context, vars(counting)], sort_keys=True)
