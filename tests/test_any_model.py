"""Any model of Transformers is extended: its logits are those of attention by hand, and then it is as it was."""

from functools import cache
from typing import Any

import pytest
import torch
import transformers
from foreign_by_hand import ARCHITECTURES, BY_HAND, LENGTH, TRAINED, attending_by_hand, make, settings_of
from torch import Tensor

import lengthwise as lw
from lengthwise import registry
from lengthwise.context_extension.transformers_reader import TransformersReader
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension

CLOSE = 2e-5
"""Relative to the largest logit."""
NOT_FOR_TABLES = {"lm-infinite", "streaming"}
"""Of those that do not need rotations: positions that are added to embeddings would stay as they are."""
FITS = [
    (architecture, extension)
    for architecture, known in ARCHITECTURES.items()
    for extension, method in BY_HAND.items()
    if known.rotated or not (method.rotates or extension in NOT_FOR_TABLES)
    if (architecture, extension) != ("gpt-oss", "adaptive-temperature")  # it has another normaliser: sinks
]
FEW = {("llama", "yarn"), ("gemma3", "self-extend"), ("gpt-oss", "logn"), ("gpt2", "head-scale")}


def slow_but(few: set[Any], cases: list[Any]) -> list[Any]:
    return [case if case in few else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@cache
def reader_of(architecture: str) -> TransformersReader:
    return TransformersReader.of(make(architecture), trained=TRAINED)


def chosen(extension: str, architecture: str) -> Extension:
    return lw.extension(extension, **settings_of(extension, architecture))


def with_scales(reader: TransformersReader, extension: Extension) -> TransformersReader:
    """Head scales are as the reference has them."""
    if extension.name == "head-scale":
        layers, heads = extension.scales_LH.shape
        with torch.no_grad():
            extension.scales_LH.copy_(
                torch.tensor([[1 + 0.1 * layer + 0.07 * head for head in range(heads)] for layer in range(layers)])
            )
    return reader


def tokens(length: int = LENGTH, rows: int = 2) -> Tensor:
    return torch.randint(3, 61, (rows, length), generator=torch.Generator().manual_seed(5))


def assert_close(ours: Tensor, theirs: Tensor, close: float = CLOSE) -> None:
    assert torch.isfinite(ours).all()
    assert float((ours - theirs).abs().max()) <= close * float(theirs.abs().max())


def test_every_extension_has_a_formula_here() -> None:
    assert set(BY_HAND) == set(registry.extensions.names())


@torch.no_grad()
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_reference_is_the_model_where_nothing_is_extended(architecture: str) -> None:
    model = reader_of(architecture).model
    own = model(tokens()).logits
    with attending_by_hand(model, architecture, None):
        assert_close(model(tokens()).logits, own)


@torch.no_grad()
@pytest.mark.parametrize(("architecture", "extension"), slow_but(FEW, FITS))
def test_extended_models_are_those_of_the_reference(architecture: str, extension: str) -> None:
    """Of all architectures and extensions; cached equals uncached; the model stays as it was, bit for bit."""
    reader, tokens_BT = reader_of(architecture), tokens()
    before = reader.model(tokens_BT).logits
    method = chosen(extension, architecture)
    extended = with_scales(reader.extended([method], LENGTH), method)
    with attending_by_hand(reader.model, architecture, extension):
        expected = reader.model(tokens_BT).logits
    assert float((expected - before).abs().max()) > 20 * CLOSE * float(before.abs().max())  # it does something
    assert_close(extended.logits(tokens_BT), expected)
    with extended.attending() as model:
        cached = transformers.DynamicCache(config=model.config)
        pieces = tokens_BT.split([LENGTH - 7, 4, 1, 1, 1], dim=1)
        if extension == "dynamic-ntk":  # what a shorter sequence has left there is not what a longer one needs
            model(pieces[0], past_key_values=cached)
            with pytest.raises(UserError, match="a cache of 33 tokens was made for shorter ones than 37"):
                model(pieces[1], past_key_values=cached)
        else:
            parts = [model(piece, past_key_values=cached).logits for piece in pieces]
            assert_close(torch.cat(parts, dim=1), model(tokens_BT).logits)
    assert torch.equal(reader.model(tokens_BT).logits, before)
