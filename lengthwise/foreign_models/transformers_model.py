"""A model of Hugging Face's Transformers, from a folder or as an object: batched greedy generation, padded on the left.

Shape letters: B batch, T tokens, V vocabulary.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from lengthwise import configuration
from lengthwise.door import visible
from lengthwise.errors import RunError, UserError
from lengthwise.exported import task_of
from lengthwise.foreign_models.questions import Questions
from lengthwise.foreign_models.written import MARGIN, Written
from lengthwise.hub.loading import open_causal_model, open_tokenizer
from lengthwise.hub.quiet import quietly
from lengthwise.runtime import choose_device, device_name
from lengthwise.training.limits import is_out_of_memory

SHOWN_WORDS = 3
"""Words that a warning names."""
SAMPLES, SAMPLED = 64, 2**16
"""Places of a file of weights that its checksum reads, and bytes at each: all of it would take minutes."""


class TransformersModel:
    """Writes with `generate`. What its generation config says of sampling and penalties is not used."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        label: str = "",
        batch: int = 32,
        beyond_context: bool = False,
        identity: dict[str, Any] | None = None,
        trained_on: dict[str, Any] | None = None,
    ) -> None:
        """`beyond_context`: also longer sequences than the config allows. `identity`: by default of the weights.
        `trained_on`: name and settings of a task, where they are known."""
        self.trained_on = trained_on
        self.label = label or type(model).__name__
        if not callable(getattr(model, "generate", None)) or not getattr(model, "can_generate", lambda: True)():
            raise UserError(f"{self.label} cannot generate; give a causal language model, which has `generate`")
        if tokenizer is None or not callable(getattr(tokenizer, "decode", None)):
            raise UserError(f"{self.label} needs a tokenizer; give that of the model")
        self.model, self.tokenizer, self.batch = model.eval(), tokenizer, batch
        self.beyond_context = beyond_context
        self.identity = identity or {"class": type(model).__name__, "weights": checksum_of_model(model)}
        self.about = describe(model)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.where = next(model.parameters()).device
        self.device = device_name(self.where)
        self.context = None if beyond_context else context_of(model)
        self.ends = self._ends()
        pads = (tokenizer.pad_token_id, self.ends[0] if self.ends else None, 0)
        self.pad = next(token for token in pads if token is not None)
        self.warned: set[str] = set()
        """Tasks of whose unknown words was told."""

    def _ends(self) -> list[int]:
        """Tokens by which it ends an answer."""
        configs = (getattr(self.model, "generation_config", None), self.model.config)
        named = [getattr(config, "eos_token_id", None) for config in configs] + [self.tokenizer.eos_token_id]
        found = [token for each in named for token in (each if isinstance(each, list | tuple) else [each])]
        return sorted({int(token) for token in found if token is not None})

    def refuse(self, questions: Questions) -> None:
        if questions.asking.chat and not getattr(self.tokenizer, "chat_template", None):
            raise UserError(f"the tokenizer of {self.label} has no chat template; leave out --chat")
        self._refuse_unknown_words(questions)
        if self.context is None:
            return
        fits = 0
        for length in questions.lengths:
            needed = max(
                len(self._prompt(questions, index)) + self._target(questions, index) - 1
                for index in np.flatnonzero(questions.length_E == length).tolist()
            )
            if needed > self.context:
                less = f"test --lengths up to {fits}" if fits else "ask for shorter --lengths or fewer --shots"
                raise UserError(
                    f"{questions.task.title} of length {length} needs {needed:,} tokens, and the context of "
                    f"{self.label} has {self.context:,}; {less}, or try it all the same with --beyond-context"
                )
            fits = length

    def _refuse_unknown_words(self, questions: Questions) -> None:
        """A closed vocabulary has no token for others: that is known before anything is asked."""
        words = dict.fromkeys(word for pair in questions.texts for text in pair for word in text.split())
        try:
            self.tokenizer(" ".join(words), add_special_tokens=False)
        except ValueError as error:
            found = re.match(r"not in the vocabulary: ('.*?'|\".*?\");", str(error))
            if found is None:
                raise
            raise UserError(
                f"{self.label} has no token for {found[1]}, a word of {questions.task.title}; {self._cure(questions)}"
            ) from None

    def _cure(self, questions: Questions) -> str:
        """What the model was trained on, where its folder says so."""
        if self.trained_on is None:
            return "ask with the settings of the task that it was trained on, for example --set symbols=20"
        task = dict(self.trained_on)
        name = task.pop("name", "")
        given = configuration.table(questions.task.config)
        changed = [f"--set {key}={value}" for key, value in task.items() if key not in given or given[key] != value]
        if name != questions.task.name:
            return f"it was trained on {name}: ask with --task {' '.join([str(name), *changed])}"
        return f"it was trained with other settings: add {' '.join(changed)}"

    def _prompt(self, questions: Questions, index: int) -> list[int]:
        if not questions.asking.chat:
            return self.tokenizer(questions.plain(index)).input_ids
        text = self.tokenizer.apply_chat_template(
            questions.messages(index), tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def _target(self, questions: Questions, index: int) -> int:
        """Tokens of the target with its end."""
        return len(self.tokenizer(" " + questions.texts[index][1], add_special_tokens=False).input_ids) + 1

    def write(self, questions: Questions, indices: Sequence[int], note: Callable[[str], None]) -> list[Written]:
        """Halves its batch where that does not fit into memory."""
        if questions.task.title not in self.warned and (told := self._unknown_words(questions)):
            note(told)
        self.warned.add(questions.task.title)
        found: list[Written] = []
        while len(found) < len(indices):
            part = indices[len(found) : len(found) + self.batch]
            try:
                found += self._write_together(questions, part)
                continue
            except (RuntimeError, MemoryError) as error:
                if not isinstance(error, torch.cuda.OutOfMemoryError) and not is_out_of_memory(error):
                    raise
                if len(part) == 1:
                    length = int(questions.length_E[part[0]])
                    raise RunError(f"length {length} does not fit into the memory of {self.device}") from None
            self.batch = max(1, len(part) // 2)
            note(f"{len(part)} questions do not fit into memory together; continuing with {self.batch} at a time")
            if self.where.type == "cuda":
                torch.cuda.empty_cache()
        return found

    def _unknown_words(self, questions: Questions) -> str:
        """A warning where the tokenizer reads words of the questions as its unknown token; else nothing."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if unknown is None:
            return ""
        words = sorted({word for pair in questions.texts for text in pair for word in text.split()})
        lost = [word for word in words if unknown in self.tokenizer(word, add_special_tokens=False).input_ids]
        if not lost:
            return ""
        named = ", ".join(visible(word, 40) for word in lost[:SHOWN_WORDS])
        more = ", ..." if len(lost) > SHOWN_WORDS else ""
        return (
            f"the tokenizer of {self.label} reads {len(lost):,} of the {len(words):,} words of {questions.task.title} "
            f"as unknown ({named}{more}), so the model cannot tell them apart"
        )

    @torch.no_grad()
    def _write_together(self, questions: Questions, indices: Sequence[int]) -> list[Written]:
        prompts = [self._prompt(questions, index) for index in indices]
        targets = [self._target(questions, index) for index in indices]
        width = max(map(len, prompts))
        budget = max(targets) + MARGIN
        if self.context is not None:
            budget = min(budget, self.context - width + 1)  # the last token written is not read
            budget = max(budget, 1)
        tokens_BT = torch.full((len(prompts), width), self.pad, dtype=torch.long)
        mask_BT = torch.zeros_like(tokens_BT)
        for row, prompt in enumerate(prompts):
            tokens_BT[row, width - len(prompt) :] = torch.tensor(prompt, dtype=torch.long)
            mask_BT[row, width - len(prompt) :] = 1
        try:
            with quietly():
                written_BT = self.model.generate(
                    tokens_BT.to(self.where),
                    attention_mask=mask_BT.to(self.where),
                    generation_config=self._greedy(budget),
                    logits_processor=LogitsProcessorList([_RefuseNotNumbers(self.label)]),
                )
        except IndexError as error:  # of learned positions
            raise UserError(
                f"{self.label} has no positions for {width + budget:,} tokens; test shorter --lengths"
            ) from error
        rows = written_BT[:, width:].cpu().tolist()
        return [
            self._read(row[: target + MARGIN], len(prompt) + target)
            for row, prompt, target in zip(rows, prompts, targets, strict=True)
        ]

    def _greedy(self, budget: int) -> GenerationConfig:
        """Everything is said, since what is not said would be taken from the model's own generation config."""
        return GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=budget,
            min_new_tokens=0,
            min_length=0,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            eos_token_id=self.ends or None,
            pad_token_id=self.pad,
            use_cache=True,
        )

    def _read(self, tokens: list[int], size: int) -> Written:
        """Up to the end. A token that the tokenizer does not have is an error of the model, not nothing."""
        end = next((place for place, token in enumerate(tokens) if token in self.ends), None)
        kept = tokens if end is None else tokens[:end]
        known = len(self.tokenizer)
        odd = next((place for place, token in enumerate(kept) if token >= known), None)
        if odd is not None:
            return Written(self._text(kept[:odd]) + f" <token-{kept[odd]}>", False, size)
        return Written(self._text(kept), end is not None, size)

    def _text(self, tokens: list[int]) -> str:
        # Special tokens stay, since a model that writes them has not written the answer alone.
        return self.tokenizer.decode(tokens, skip_special_tokens=False)


class _RefuseNotNumbers(LogitsProcessor):
    """The likeliest of NaN is the first token: an answer that looks like one, and is none."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if bool(scores.isnan().any()):
            raise RunError(
                f"the logits of {self.label} are not numbers (NaN); its weights are damaged, or need --dtype fp32"
            )
        return scores


def open_folder(
    folder: Path,
    tokenizer: Path | None = None,
    label: str = "",
    device: str = "auto",
    dtype: str = "auto",
    batch: int = 32,
    beyond_context: bool = False,
) -> TransformersModel:
    """A model that `save_pretrained` or `lengthwise export` wrote. None of its code is run, nothing is downloaded."""
    if not folder.is_dir():
        raise UserError(
            f"no such folder: {visible(str(folder))}; name the folder of a Hugging Face model, or http://HOST:PORT"
        )
    if not (folder / "config.json").exists():
        hint = "; it is a run: `lengthwise export` makes a folder of it" if (folder / "run.json").exists() else ""
        raise UserError(f"{folder} has no config.json, so it is not the folder of a Hugging Face model{hint}")
    where = choose_device(device)
    read, model = open_tokenizer(tokenizer or folder), open_causal_model(folder, dtype)
    identity = {"folder": checksum_of_folder(folder), "tokenizer": checksum_of_folder(tokenizer) if tokenizer else ""}
    if dtype != "auto":
        identity["dtype"] = dtype
    name = label or folder.resolve().name
    return TransformersModel(model.to(where), read, name, batch, beyond_context, identity, task_of(folder))


def context_of(model: Any) -> int | None:
    """The longest sequence that it takes, in tokens; None where nothing says so."""
    decoder = getattr(model, "decoder", None)
    if hasattr(decoder, "last_position"):
        return None if decoder.last_position is None else decoder.last_position + 1
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    found = getattr(config, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def describe(model: Any) -> dict[str, Any]:
    """What its config says, in the words of our own models."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    names = {
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "heads": "num_attention_heads",
        "key_value_heads": "num_key_value_heads",
        "feed_forward": "intermediate_size",
        "context": "max_position_embeddings",
    }
    found = {ours: getattr(config, theirs, None) for ours, theirs in names.items()}
    known = {name: value for name, value in found.items() if type(value) is int}
    return {"architecture": type(model).__name__, "dtype": str(model.dtype).removeprefix("torch."), **known}


def checksum_of_folder(folder: Path) -> str:
    """Of its config, tokenizer and weights; of large files some places."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix not in (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja") or not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as opened:
            if size <= SAMPLES * SAMPLED:
                digest.update(opened.read())
                continue
            for place in np.linspace(0, size - SAMPLED, SAMPLES).astype(int).tolist():
                opened.seek(place)
                digest.update(opened.read(SAMPLED))
    return digest.hexdigest()[:16]


def checksum_of_model(model: Any) -> str:
    """Of some numbers of every parameter."""
    digest = hashlib.sha256(str(getattr(model, "config", "")).encode())
    for name, parameter in model.named_parameters():
        flat = parameter.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // 4096)].float().cpu().numpy()
        digest.update(name.encode() + some.tobytes())
    return digest.hexdigest()[:16]
