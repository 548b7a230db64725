"""What no language model can be is refused before anything is written, and a refused run leaves nothing behind."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lengthwise.errors import UserError
from lengthwise.language.model import build_language_model
from lengthwise.language.settings import LanguageSettings
from lengthwise.leftovers import remove_empty
from lengthwise.machine import require_memory
from lengthwise.records.directory import RunDirectory, differences
from lengthwise.records.files import read_json

FEWEST_ROWS = 256
"""Of any vocabulary: the bytes."""
BYTES_OF_A_WEIGHT = 16
"""The weight, its gradient and two moments, in fp32."""


def refuse_impossible(settings: LanguageSettings) -> None:
    """Refuses a model that this machine cannot hold, or that cannot be built, before its tokens are made."""
    config, rows = settings.model, settings.data.context
    weights = config.layers * (2 * config.width**2 + 2 * config.width * config.inner_width)
    weights += 2 * FEWEST_ROWS * config.width
    if not settings.training.sharded:  # else it is divided among machines that nobody knows here
        require_memory(
            BYTES_OF_A_WEIGHT * weights, f"a model of {weights:,} parameters", "choose fewer layers or less width"
        )
    # A step's tokens, segments, positions and targets; and one number of the width for each token.
    require_memory(settings.training.batch_tokens * 4 * (4 + config.width), "a step", "choose fewer --batch-tokens")
    with torch.device("meta"):  # it needs no weights
        model = build_language_model(settings, settings.data.vocabulary)
    if model.last_position is not None and model.last_position < rows - 1:
        raise UserError(
            f"the encoding ends at position {model.last_position}, the context at {rows - 1};"
            " set the encoding's 'rows' to 0 or higher"
        )


def refuse_others(directory: RunDirectory, now: Mapping[str, Any]) -> None:
    """A folder holds one run. `now`: its `settings`, and `tokens` where they are known already."""
    if (directory.path / "study.json").exists():
        raise UserError(f"{directory.path} holds a study; choose another folder with --out")
    if not directory.description.exists():
        return
    before = read_json(directory.description)
    before = {key: before[key] for key in now if key in before}
    changes = [f"{key} was {old!r}, is {new!r}" for key, old, new in differences(_flat(before), _flat(now))]
    if changes:
        raise UserError(
            f"{directory.path} holds a run with other settings ({'; '.join(changes[:3])}); "
            "choose another folder with --out, or delete this one"
        )


class Beginning:
    """What was there before a run began; to be made before anything is written."""

    def __init__(self, out: Path, tokens: Path) -> None:
        self.out, self.tokens = out, tokens
        self.above = {each: next(p for p in (each, *each.absolute().parents) if p.exists()) for each in (out, tokens)}
        self.had_lock = (out / "lock").exists()
        self.had_tokens = {each.name for each in tokens.glob("*")}
        self.store: Path | None = None
        """The tokens of the corpus, once they are there."""

    @contextmanager
    def restored_if_refused(self) -> Iterator[None]:
        """Removes what was made since then, where the run is refused before it is described."""
        try:
            yield
        except UserError:
            if not (self.out / "run.json").exists():
                self._restore()
            raise

    def _restore(self) -> None:
        if self.store is not None and self.store.parent == self.tokens and self.store.name not in self.had_tokens:
            shutil.rmtree(self.store, ignore_errors=True)
        if not self.had_lock:
            (self.out / "lock").unlink(missing_ok=True)
        for folder, above in self.above.items():
            remove_empty(folder.absolute(), above.absolute())


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under names such as `training.tokens`."""
    flat = {"tokens": facts.get("tokens")}
    for name, value in facts.get("settings", {}).items():
        inside = name in ("model", "data", "training")
        flat |= {f"{name}.{key}": each for key, each in value.items()} if inside else {name: value}
    return flat
