"""The steps of a training, ready for the engine: rows, learning rates, keys of dropout."""

import numpy as np

from lengthwise.errors import UserError
from lengthwise.language.passkey_rows import Passkeys
from lengthwise.language.processes import ProcessGroup
from lengthwise.language.settings import LanguageSettings
from lengthwise.language.store import TokenStore
from lengthwise.language.windows import Arrangement, Windows
from lengthwise.seeding import derive
from lengthwise.training.optimizer import corrections
from lengthwise.training.update import Steps


class WindowSteps:
    """Prepares steps of given rows: the same ones, however they are cut into stretches."""

    def __init__(self, settings: LanguageSettings, windows: Windows, processes: ProcessGroup) -> None:
        self.settings, self.windows, self.processes = settings, windows, processes
        self.part = processes.part(settings.rows)

    def steps(self, first: int, end: int) -> Steps:
        settings, numbers = self.settings, range(first, end)
        rates = [[settings.training.learning_rate_at(step)] for step in numbers]
        seeds = [[derive(settings.seed, "dropout", step, self.processes.number)] for step in numbers]
        recipe = settings.training.recipe
        return Steps(
            self.windows.batches(first, end, settings.rows, self.part),
            seeds_KN=np.array(seeds),
            rates_KN=np.array(rates, np.float32),
            corrections_K2=np.array([corrections(recipe, step) for step in numbers], np.float32),
        )


class TextSteps(WindowSteps):
    """Of the rows of a corpus."""

    def __init__(self, settings: LanguageSettings, store: TokenStore, processes: ProcessGroup) -> None:
        documents, context = store.documents("train"), settings.data.context
        if context > documents.longest - 1:
            raise UserError(
                f"a context of {context} tokens is longer than any document of the corpus (the longest has "
                f"{documents.longest}), so that no row would be that long; choose a shorter --context"
            )
        share = settings.data.passkey_share
        self.arrangement = Arrangement(documents, context, store.tokenizer.padding)
        windows = Windows(self.arrangement, settings.seed, Passkeys(store.tokenizer) if share else None, share)
        super().__init__(settings, windows, processes)

    @property
    def epochs(self) -> float:
        """How often the whole corpus is read."""
        rows = self.settings.training.steps * self.settings.rows
        return rows * (1 - self.settings.data.passkey_share) / len(self.arrangement)
