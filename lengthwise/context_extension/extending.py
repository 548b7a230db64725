"""What each `lengthwise extend` command does."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from lengthwise import door
from lengthwise.context_extension.entropy import correlate, entropies, entropy_rows, spread_positions
from lengthwise.context_extension.fit_files import holds_others, save_fit
from lengthwise.context_extension.fitting import FitSettings
from lengthwise.context_extension.fitting_entropy import fit_by_method
from lengthwise.context_extension.fitting_rows import Targets, TrainingWindows, choose_targets, usual_scored
from lengthwise.context_extension.forward import watching_memory
from lengthwise.context_extension.hugging_face import Positions
from lengthwise.context_extension.loaded_model import LoadedModel, at_context, open_model
from lengthwise.context_extension.passkey import KeyDocuments, depths, passkey_rows
from lengthwise.context_extension.perplexity import loss_by_position, perplexities
from lengthwise.context_extension.search import fit_growth
from lengthwise.context_extension.tables import (
    entropy_table,
    heat_map,
    perplexity_table,
    position_table,
    uniform_table,
)
from lengthwise.context_extension.uniform import search_uniform
from lengthwise.context_extension.variant import variant
from lengthwise.errors import UserError
from lengthwise.extensions.naming import extension_table
from lengthwise.machine import require_memory
from lengthwise.records.files import append_rows, write_rows
from lengthwise.report.model.context_extension_tables import correlation_table
from lengthwise.report.model.table import Table
from lengthwise.runtime import Listener, choose_device

Row = dict[str, Any]
LONGEST, MOST_LENGTHS = 2**30, 1000
"""Tokens of a context, and contexts of a call."""
MOST_KEYS = 1_000_000
"""Documents of a passkey test."""


@dataclass(frozen=True)
class ExtensionRequest:
    """What was asked for, of one model."""

    model: Path
    """The folder of a run, or of a Hugging Face checkpoint."""
    extensions: list[str] = field(default_factory=list)
    fit: Path | None = None
    contexts: list[int] = field(default_factory=list)
    """None: 1, 2, 4 and 8 times the trained length."""
    corpus: Path | None = None
    split: str = "test"
    windows: int = 256
    scored: int = 0
    """Tokens of a run; 0 for the usual number."""
    store: Path | None = None
    positions: Positions = "auto"
    trained: int = 0
    dtype: str = "auto"
    device: str = "auto"


class Extending:
    """One call: what it wants, what it found."""

    def __init__(self, wanted: ExtensionRequest, listener: Listener | None = None) -> None:
        self.wanted, self.listener = wanted, listener or Listener()
        self.loaded: LoadedModel = open_model(
            wanted.model, choose_device(wanted.device), wanted.store, wanted.positions, wanted.trained, wanted.dtype
        )
        self.listener.note(self.loaded.described())
        self.variant = variant(self.loaded, wanted.extensions, wanted.fit)
        self.contexts = wanted.contexts or [times * self.loaded.trained for times in (1, 2, 4, 8)]
        self.rows: list[Row] = []
        """For programs."""

    def perplexity(self, by_position: bool) -> list[Table]:
        targets = self._targets()
        about = {"model": self.loaded.name, "variant": self.variant.label}
        with watching_memory(self.loaded.model.device) as peak:
            found = [each.table() for each in perplexities(self.variant, targets, self.contexts)]
            memory = peak()
        if memory is not None:
            self.listener.note(f"GPU memory at most: {memory / 2**30:.1f} GiB")
        self.rows = [{**about, "kind": "perplexity", **row, "memory_bytes": memory} for row in found]
        tables = [perplexity_table(f"{self.loaded.name}, {self.variant.label}", found)]
        if by_position:
            longest = max(self.contexts)
            positions = loss_by_position(self.variant(longest), targets, longest)
            self.rows += [{**about, "kind": "position", "context": longest, **row} for row in positions]
            tables.append(position_table(f"Loss by position in windows of {longest:,} tokens", positions))
        return tables

    def passkey(self, depth_count: int, trials: int, seed: int) -> list[Table]:
        if self.loaded.key_rows == 0:
            self.listener.note(f"{self.loaded.name} saw no passkey documents in training: it may know no answer")
        keys = depth_count * trials
        if keys * len(self.contexts) > MOST_KEYS:
            raise UserError(f"{keys * len(self.contexts):,} passkey documents are too many; choose fewer --trials")
        self._require_memory(max(self.contexts), keys)
        documents = KeyDocuments(self.loaded.tokenizer, self.loaded.begins)
        found = passkey_rows(self.variant, documents, self.contexts, depths(depth_count), trials, seed)
        about = {"model": self.loaded.name, "variant": self.variant.label, "digits": documents.digits()}
        self.rows = [{**about, **row} for row in found]
        title = f"{self.loaded.name}, {self.variant.label}: passkey accuracy, by depth and length"
        return [heat_map(title, found, documents.digits())]

    def entropy(self, samples: int, positions: int) -> list[Table]:
        """Of the model as trained, and under its extensions or fit, where there are any."""
        context = max(self.contexts)
        rows_RT = self._targets(samples).rows(context)[:, :-1]
        asked = spread_positions(context, positions)
        variants = [variant(self.loaded), *([self.variant] if self.wanted.extensions or self.wanted.fit else [])]
        tables = []
        for each in variants:
            found = entropy_rows(entropies(each(context), rows_RT, asked), asked, len(rows_RT))
            self.rows += [{"model": self.loaded.name, "variant": each.label, **row} for row in found]
            tables.append(entropy_table(f"{each.label}: entropy of attention in bits, mean over heads", found))
        if self.variant.fitted is not None and self.variant.fitted.settings.head_scale:
            tables.append(self._correlation(self.variant.fitted.learned["scales_LH"].double(), samples))
        return tables

    def _correlation(self, scales_LH: Tensor, samples: int) -> Table:
        """Of the learned scales with the entropy that the heads have as trained, at the trained length."""
        trained = self.loaded.trained
        within = spread_positions(trained, 64)[1:]  # the first token has no choice
        rows_RT = self._targets(samples, [trained]).rows(trained)[:, :-1]
        entropy_LH = entropies(self.loaded.model, rows_RT, within).mean(dim=-1)
        found = correlate(scales_LH, entropy_LH)
        self.rows.append({"model": self.loaded.name, "kind": "correlation", **found.table()})
        return correlation_table(found.table())

    def uniform(self) -> list[Table]:
        found = search_uniform(
            self.loaded,
            self._targets(),
            self.contexts,
            lambda context, search: self.listener.note(f"{context}: {search.best:.2f}"),
        )
        trained = self.loaded.trained
        best = {context: search.best for context, search in found.items()}
        growth = fit_growth(best, trained) if any(context > trained for context in best) else None
        for context, search in found.items():
            tried = [{"scale": scale, "loss": loss} for scale, loss in sorted(search.losses.items())]
            self.rows.append({"model": self.loaded.name, "context": context, "best": search.best, "tried": tried})
        if growth is not None:
            self.rows.append({"model": self.loaded.name, "slope": growth.slope, "determination": growth.determination})
        return [uniform_table(f"{self.loaded.name}: best uniform scale", found, growth)]

    def fit(self, what: str, length: int, out: Path, initial: float | None, recipe: dict[str, Any]) -> str:
        """`what`: head-scale, or an extension under which all weights are trained. Returns a line that says it."""
        if (out / "fit.json").exists():
            raise UserError(f"{out} holds a fit already; choose another folder, or delete it")
        if out.exists() and (not out.is_dir() or holds_others(out)):
            raise UserError(f"--out {out} holds something else already; a fit has a folder of its own")
        head_scale = what == "head-scale"
        # Before the search: documents may be too short.
        by_entropy = recipe["method"] == "entropy"
        tokens = 2 * (1 if by_entropy else recipe["steps"]) * recipe["batch"] * length
        documents = self.loaded.documents(recipe["split"], self.wanted.corpus, tokens, length, self.listener.note)
        windows = TrainingWindows(documents, length, recipe["seed"])
        self._require_memory(length, recipe["batch"])
        more: Row = {}
        if by_entropy:
            initial = max(1.0, recipe["floor"])
        elif head_scale and initial is None:
            self.listener.note(f"searching the best uniform scale at {length:,} tokens")
            targets = self._targets(min(self.wanted.windows, 64), [length], "validation")
            search = search_uniform(self.loaded, targets, [length])[length]
            initial = max(search.best, recipe["floor"])
            more["uniform_search"] = sorted(search.losses.items())
        if head_scale:
            settings = _settings(FitSettings, length=length, initial=initial, **recipe)
        else:
            recipe = {name: value for name, value in recipe.items() if name != "floor"}
            tables = (at_context(extension_table(what), length, self.loaded.trained),)
            settings = _settings(FitSettings, length=length, head_scale=False, extensions=tables, **recipe)
        fitted = fit_by_method(self.loaded, windows, settings, self.listener)
        save_fit(out, self.loaded, fitted, more)
        count = sum(value.numel() for value in fitted.learned.values())
        tail = fitted.losses[1:][-10:] or fitted.losses
        losses = f"loss {fitted.losses[0]:.4f}, at the end {sum(tail) / len(tail):.4f}"
        started = ", by entropy" if by_entropy else f", from {initial:.2f} on" if head_scale else ""
        return f"Fitted {count:,} numbers at {length:,} tokens{started} in {fitted.seconds:.1f} s ({losses}): {out}"

    def _require_memory(self, length: int, rows: int) -> None:
        """Of rows of so many tokens, and of what the widest layer makes of one of them."""
        needed = 8 * rows * length + 4 * length * self.loaded.model.inner_width
        require_memory(needed, f"{rows:,} rows of {length:,} tokens", "choose fewer or shorter ones")

    def _targets(
        self, windows: int | None = None, contexts: Sequence[int] | None = None, split: str | None = None
    ) -> Targets:
        documents = self.loaded.documents(split or self.wanted.split, self.wanted.corpus, note=self.listener.note)
        chosen = list(contexts or self.contexts)
        scored = usual_scored(self.wanted.scored, min(chosen))
        return choose_targets(documents, chosen, windows or self.wanted.windows, scored)


def require_place(out: Path | None) -> None:
    """Refuses a file that could not be written: now, not after minutes."""
    if out is None:
        return
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file, e.g. {out / 'rows.jsonl'}")
    if not out.parent.is_dir():
        raise UserError(f"the folder of --out {out} does not exist")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise UserError(f"--out {out} cannot be written")


def keep(rows: Sequence[Row], out: Path | None) -> None:
    """Rows as JSON lines in a file: added where it has some."""
    if out is not None:
        (append_rows if out.exists() else write_rows)(out, rows)


def read_lengths(text: str) -> list[int]:
    """`512,1024` or `512,1k,2k` (1,024 tokens each)."""
    found = []
    for word in filter(None, text.lower().replace(" ", "").split(",")):
        number = word.removesuffix("k")
        if not number.isdecimal() or len(number) > 12 or not 1 <= int(number) <= LONGEST:
            raise UserError(
                f"{door.visible(word, 40)!r} is no length in tokens up to 2^30; write for example 512,1024,2k"
            )
        found.append(int(number) * (1024 if word.endswith("k") else 1))
    if len(found) > MOST_LENGTHS:
        raise UserError(f"{len(found):,} lengths are too many; at most {MOST_LENGTHS:,} are measured in a call")
    return found


def _settings(cls: Any, **values: Any) -> Any:
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(str(error)) from error
