"""Which runs are trained together: a fleet holds runs whose models have equal shape and equal recipe."""

import hashlib
import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch

from lengthwise.data.scratchpad import Scratchpad
from lengthwise.errors import UserError
from lengthwise.evaluation.generate import MARGIN
from lengthwise.evaluation.test_set import test_set
from lengthwise.model.build import Lengths, build
from lengthwise.model.decoder import Decoder
from lengthwise.records.directory import RunDirectory, StudyDirectory, make_folder
from lengthwise.records.files import MissingFile, read_json, write_json
from lengthwise.study import Run, make_task
from lengthwise.training.batches import TrainingData, best_row_width
from lengthwise.training.recipe import DataConfig
from lengthwise.training.state import STATE, load_tensors, save_tensors


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
        seeds = len({run.seed for run in self.runs})
        return f"{self.runs[0].encoding.label} on {tasks_text}, {seeds} seed{'s' * (seeds > 1)}"

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
        return build(first.model, first.make_tokens().rows, first.encoding.layers, self.lengths)


MEASURED = 4096
"""Training examples whose sizes are measured."""


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
        fleets += [FleetPlan(tuple(group[i : i + largest])) for i in range(0, len(group), largest)]
    return fleets


def _begun(directory: StudyDirectory) -> dict[str, list[str]]:
    """Fleet -> fingerprints of its runs, in their order."""
    found = {}
    for file in sorted(directory.fleets.glob("*/fleet.json")):
        try:
            found[file.parent.name] = read_json(file)["runs"]
        except MissingFile:  # finished since it was listed
            continue
    return found


def split(fleet: FleetPlan, directory: StudyDirectory) -> list[FleetPlan]:
    """Two fleets instead of one, with what it had reached: the first half and the rest."""
    middle = len(fleet.runs) // 2
    whole = directory.fleets / fleet.id
    halves = [FleetPlan(fleet.runs[:middle]), FleetPlan(fleet.runs[middle:])]
    for half, rows in zip(halves, (slice(middle), slice(middle, None)), strict=True):
        folder = directory.fleets / half.id
        make_folder(folder)
        if (whole / STATE).exists():
            tensors, metadata = load_tensors(whole / STATE)
            metadata.pop("checksum")
            save_tensors(folder / STATE, {name: value[rows].clone() for name, value in tensors.items()}, metadata)
        write_json(folder / "fleet.json", {"runs": [run.fingerprint for run in half.runs]})
    shutil.rmtree(whole)
    return halves


def run_directory(directory: StudyDirectory, run: Run) -> RunDirectory:
    return directory.run(run.title, run.encoding.label, run.seed, run.fingerprint)


def sequence_lengths(run: Run) -> Lengths:
    """The longest sequences of a run, in tokens."""
    sizes = _sizes(json.dumps(run.task), run.data)
    return Lengths(trained=sizes.longest_trained, met=sizes.longest)


def row_width_of(run: Run, device: str) -> int:
    """Tokens in a row of packed training examples."""
    return best_row_width(_sizes(json.dumps(run.task), run.data).trained, run.training.batch, device)


@dataclass(frozen=True)
class _Sizes:
    """Of sequences, in tokens."""

    trained: np.ndarray
    longest: int

    @property
    def longest_trained(self) -> int:
        return int(self.trained.max())


@lru_cache(maxsize=256)
def _sizes(task_table: str, data: DataConfig) -> _Sizes:
    """Measured on the test set, which has every length, and on many training examples of another seed.

    Where the length of an example does not settle its size (pcfg), a rare one may still be longer.
    """
    task = make_task(json.loads(task_table))
    test = test_set(task, data)
    trained = TrainingData(task, data, seed=0).slice(0, MEASURED).size
    longest = data.make_placement().reach(max(int(test.size.max()), int(trained.max())))
    # A model that writes for itself may go on a little longer than the gold text.
    room = MARGIN if Scratchpad(data.scratchpad).steps else 0
    return _Sizes(trained, longest + room)


def shape_key(run: Run, device: str) -> str:
    """Equal for runs that can be one fleet. Building the model also finds settings that cannot go together."""
    with torch.device("meta"):
        try:
            model = build(run.model, run.make_tokens().rows, run.encoding.layers, sequence_lengths(run))
        except ValueError as error:
            raise UserError(f"{run.name}: {error}") from error
    if model.last_position is not None and model.last_position < sequence_lengths(run).met - 1:
        raise UserError(
            f"{run.name}: the encoding ends at position {model.last_position}, but the longest test sequence has "
            f"{sequence_lengths(run).met} tokens; set the encoding's 'rows' to 0 or higher, or test shorter lengths"
        )
    shapes = [(name, list(parameter.shape)) for name, parameter in model.named_parameters()]
    table = run.table()
    shared = {key: table[key] for key in ("encoding", "model", "training")}
    for own in ("learning_rate", "final_learning_rate", "warmup"):  # each model of a fleet may have its own
        shared["training"].pop(own)
    # Dropout depends on the place in a row, and a table of positions on the context: those must agree too.
    context = vars(sequence_lengths(run)) if model.last_position is not None else None
    return json.dumps([shapes, shared, row_width_of(run, device), context], sort_keys=True)
