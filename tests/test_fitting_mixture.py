"""What a fit reads: texts and passkey documents in the share of training, each document for itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_by_hand import LENGTH, TRAINED
from test_any_model import assert_close, reader_of
from test_context_extension import CONTEXT, CPU, bits, folder, nope, random_reader

from lengthwise.context_extension import fitting
from lengthwise.context_extension.fitting import FitSettings, fit, sequences_of
from lengthwise.context_extension.fitting_rows import TrainingWindows
from lengthwise.context_extension.key_rows import FitSequences, KeyRows
from lengthwise.context_extension.loaded_model import LoadedModel, open_model
from lengthwise.context_extension.passkey import KeyDocuments
from lengthwise.context_extension.reader import Reader, positions_in
from lengthwise.context_extension.variant import Variant
from lengthwise.errors import UserError
from lengthwise.extensions.head_scale import HeadScale
from lengthwise.language.passkey_rows import DIGITS, Passkeys, draw_key
from lengthwise.seeding import stream

__all__ = ["folder", "nope"]


def key_rows(nope: LoadedModel, length: int = 300) -> KeyRows:
    return KeyRows(KeyDocuments(nope.tokenizer, nope.begins), nope.ends, length, seed=3)


@pytest.mark.slow
def test_rows_of_keys_are_full_of_whole_documents(nope: LoadedModel) -> None:
    part = key_rows(nope).part([0, 1, 2, 3])
    assert part.segments_RT is not None and (part.segments_RT > 0).all()
    begin, end = int(nope.begins[0]), int(nope.ends[0])
    counts = []
    for tokens, targets, segments in zip(part.tokens_RT, part.targets_RT, part.segments_RT, strict=True):
        counts.append(len(np.unique(segments)))
        for number in np.unique(segments):
            document = np.append(tokens[segments == number], targets[segments == number][-1])
            assert document[0] == begin and document[-1] == end
            assert (targets[segments == number][:-1] == document[1:-1]).all()
            text = nope.tokenizer.decode(document[1:-1])
            key = text[-DIGITS:]
            assert f"The pass key is {key}. Remember it." in text and text.endswith(f"The pass key is {key}")
    assert min(counts[0], counts[2]) >= 2 >= 1, "short documents, several a row, in every other row"
    again = key_rows(nope).part([2])
    assert (again.tokens_RT[0] == part.tokens_RT[2]).all()
    with pytest.raises(UserError, match="are too few for passkey documents"):
        key_rows(nope, 40)


def test_keys_of_fits_are_those_of_training_not_of_tests(nope: LoadedModel) -> None:
    tests = {draw_key(stream(0, "a", n), held_out=True) for n in range(2000)}
    part = key_rows(nope).part(list(range(40)))
    asked = {nope.tokenizer.decode(row[-DIGITS - 1 :])[-DIGITS:] for row in part.tokens_RT}
    assert len(asked) > 20 and not asked & tests


def test_documents_are_those_of_the_training_mix(nope: LoadedModel) -> None:
    """Token for token, with the end that training has."""
    documents = KeyDocuments(nope.tokenizer, nope.begins)
    made = documents.document(119, 0.4, "31415")
    tokens = np.concatenate([made.prompt, made.answer, nope.ends])
    assert (Passkeys(nope.tokenizer).document(120, 0.4, "31415").tokens == tokens).all()  # type: ignore[arg-type]


def test_the_share_of_rows_is_that_of_training(nope: LoadedModel) -> None:
    windows = TrainingWindows(nope.documents("train"), 300, 0)
    sequences = FitSequences(windows, key_rows(nope), 0.25)
    texts, keys = [], 0
    for first in range(0, 64, 8):
        for part in sequences.parts(first, 8):
            if part.segments_RT is None:
                texts += list(part.tokens_RT)
            else:
                keys += len(part.tokens_RT)
    assert keys == 16 and len(texts) == 48
    expected = windows.rows(0, 48)[:, :-1]
    assert (np.stack(texts) == expected).all(), "the same texts as without keys, in the same order"
    (alone,) = FitSequences(windows).parts(0, 8)
    assert alone.segments_RT is None and (alone.targets_RT == windows.rows(0, 8)[:, 1:]).all()


READERS = {
    "none": lambda: random_reader("none", [], 40),
    "rotary": lambda: random_reader("rotary", [{"name": "yarn", "factor": 4.0}], 40, width=64),
    "alibi": lambda: random_reader("alibi", [{"name": "head-scale", "initial": 1.4}], 40),
    "llama": lambda: reader_of("llama"),
    "mistral": lambda: reader_of("mistral"),
}


@torch.no_grad()
@pytest.mark.parametrize("name", READERS)
def test_documents_of_a_row_are_read_as_if_alone(name: str) -> None:
    reader: Reader = READERS[name]()
    tokens_BT = torch.randint(3, 50, (1, LENGTH), generator=torch.Generator().manual_seed(2))
    segments_BT = torch.tensor([[1] * 13 + [2] * (LENGTH - 13)])
    assert positions_in(segments_BT).tolist() == [[*range(13), *range(LENGTH - 13)]]
    both = reader.hidden(tokens_BT, segments_BT=segments_BT)
    assert_close(both[:, :13], reader.hidden(tokens_BT[:, :13]))
    assert_close(both[:, 13:], reader.hidden(tokens_BT[:, 13:]))
    assert TRAINED < LENGTH


def test_the_loss_of_a_step_is_the_mean_over_all_targets(nope: LoadedModel) -> None:
    """Of texts (of their last tokens, if asked) and of passkey documents, whatever is read together."""
    settings = FitSettings(300, batch=8, passkey_share=0.25, scored=40)
    parts = sequences_of(nope, TrainingWindows(nope.documents("train"), 300, 0), settings).parts(0, 8)
    model = nope.model.copied().require_gradients(True)
    found = float(fitting._gradients(model, parts, 40))
    losses: list[torch.Tensor] = []
    with torch.no_grad():
        for part in parts:
            for row in range(len(part.tokens_RT)):
                segments = np.ones(300, dtype=int) if part.segments_RT is None else part.segments_RT[row]
                for number in np.unique(segments):
                    chosen = segments == number
                    logits_TV = nope.model.logits(torch.from_numpy(part.tokens_RT[row, chosen])[None])[0]
                    targets_T = torch.from_numpy(part.targets_RT[row, chosen])
                    own = torch.nn.functional.cross_entropy(logits_TV, targets_T, reduction="none")
                    losses.append(own[-40:] if part.segments_RT is None else own)
    assert found == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)


def test_a_scale_for_each_layer(nope: LoadedModel, tmp_path: Path) -> None:
    windows, before = TrainingWindows(nope.documents("train"), 96, 0), bits(nope.model)
    found = fit(nope, windows, FitSettings(96, initial=1.2, floor=0.0, steps=3, batch=2, scales="layer"))
    assert found.learned["scales_LH"].shape == (2, 1) and bits(nope.model) == before
    fitting_again = fitting.apply(nope, found.settings, found.learned, 96)
    tokens_BT = torch.arange(96)[None] % 50
    torch.testing.assert_close(fitting_again.logits(tokens_BT), found.model.logits(tokens_BT))
    by_head = HeadScale(HeadScale.Config(initial=1.0, floor=0.0))
    extended = nope.model.extended([by_head], 96)
    with torch.no_grad():
        by_head.scales_LH.copy_(found.learned["scales_LH"].expand(2, 4))
    torch.testing.assert_close(extended.logits(tokens_BT), found.model.logits(tokens_BT))
    assert "layer-scale, fitted at 96" in _label(nope, found, tmp_path)


def _label(nope: LoadedModel, found: Any, folder: Path) -> str:
    from lengthwise.context_extension.fit_files import load_fit, save_fit

    save_fit(folder / "fit", nope, found)
    return Variant(nope, [], load_fit(folder / "fit", nope)).label


def test_a_fit_of_fresh_text_reads_validation_documents(folder: Path) -> None:
    nope = open_model(folder / "none", CPU)
    rows = TrainingWindows(nope.documents("validation"), 2 * CONTEXT, 0).rows(0, 4)
    trained = {tuple(row) for row in TrainingWindows(nope.documents("train"), 2 * CONTEXT, 0).rows(0, 200)}
    assert not {tuple(row) for row in rows} & trained
