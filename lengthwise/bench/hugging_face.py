"""GPT-2 from Hugging Face's library, of the size of one of our models: what a comparison would use today."""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lengthwise.data.sequences import Sequences
from lengthwise.errors import UserError
from lengthwise.evaluation.generate import MARGIN
from lengthwise.study import Run
from lengthwise.training.batches import TrainingData
from lengthwise.training.run_sizes import sequence_lengths

IGNORED = -100
"""A label that has no part in the loss."""
PUBLISHED_VOCABULARY = 32_100
"""Embedding rows of the published models, most of which no example of a task ever uses."""


def require_transformers() -> ModuleType:
    """The library, or an error that says how to get it."""
    try:
        importlib.import_module("accelerate")  # which its Trainer needs
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise UserError(
            "comparing with Hugging Face needs its libraries, and here "
            f"{error.name or 'one of them'} is missing: pip install 'lengthwise[bench]'"
        ) from error
    transformers.logging.set_verbosity_error()
    return transformers


def gpt2(run: Run, vocabulary_rows: int = 0) -> Any:
    """With the layers, width, heads and dropout of a run's model; `vocabulary_rows`: 0 for as many as ours has."""
    transformers = require_transformers()
    vocabulary = run.make_tokens()
    config = transformers.GPT2Config(
        vocab_size=vocabulary_rows or vocabulary.rows,
        n_positions=sequence_lengths(run).met + MARGIN,
        n_layer=run.model.layers,
        n_embd=run.model.width,
        n_head=run.model.heads,
        n_inner=run.model.inner_width,
        resid_pdrop=run.model.dropout,
        embd_pdrop=run.model.dropout,
        attn_pdrop=run.model.dropout,
        bos_token_id=vocabulary.end,
        eos_token_id=vocabulary.end,
        pad_token_id=vocabulary.pad,
    )
    with torch.random.fork_rng():  # the library seeds and draws from the global generator
        torch.manual_seed(run.seed)
        return transformers.GPT2LMHeadModel(config)


class ExampleDataset(torch.utils.data.Dataset):
    """Tokenised examples as the Trainer takes them: ids, and labels that leave the prompt out."""

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        size, prompt = int(self.sequences.size[index]), int(self.sequences.prompt[index])
        ids = torch.from_numpy(self.sequences.tokens[index, :size].astype(np.int64))
        labels = ids.clone()
        labels[:prompt] = IGNORED
        return {"input_ids": ids, "labels": labels}


@dataclass(frozen=True)
class PadToLongest:
    """The collator: pads a batch on the right to its longest example."""

    pad: int

    def __call__(self, examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        def padded(name: str, value: int) -> torch.Tensor:
            rows = [example[name] for example in examples]
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)

        ones = [torch.ones_like(example["input_ids"]) for example in examples]
        mask = torch.nn.utils.rnn.pad_sequence(ones, batch_first=True, padding_value=0)
        return {
            "input_ids": padded("input_ids", self.pad),
            "attention_mask": mask,
            "labels": padded("labels", IGNORED),
        }


def training_examples(run: Run, steps: int) -> Sequences:
    """The examples that our training takes in its first `steps` steps, each set of them once."""
    data = TrainingData(run.make_task(), run.data, run.seed)
    wanted = steps * run.training.batch
    return data.slice(0, min(wanted, data.period) if run.data.examples else wanted)
