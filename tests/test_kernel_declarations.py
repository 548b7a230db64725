"""What encodings declare, in the fused attention kernel: against attention one key at a time, interpreted.

`test_interpreted` runs it in a process of its own. Whatever the kernel refuses must come out the same all the same.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_by_hand import CONFIGS, HEADS, Declared, decoder_with, draw_tokens, geometry_of, read_by_hand
from conftest import INTERPRETED
from test_declarations import CASES

from lengthwise.model import kernel
from lengthwise.model.backend import explain

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")

EAGER = {"scores above mean", "scores squared", "softmax plus one", "sigmoid over visible", "wider", "narrower"}
BY_DISTANCE = {"bias by distance", "window", "windows by head"}
SIZES = (9, 4, 3)
"""Of the sequences of a row: 16 tokens, for which there is a kernel."""
GAPPED = [0, 1, 4, 5, 6, 9, 11, 17, 20]


@pytest.mark.parametrize("placed", ["consecutive", "gapped"])
@pytest.mark.parametrize("style", ["t5", "llama-grouped"])
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_packed_rows_equal_each_sequence_by_hand(
    case: str, style: str, placed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    fused = kernel.fused_attention
    monkeypatch.setattr(kernel, "fused_attention", lambda *given: calls.append(given) or fused(*given))
    config, hand = replace(CONFIGS[style], width=16 * HEADS), CASES[case]
    encoding = Declared(geometry_of(config), hand)
    model = decoder_with(encoding, config)
    model.backend = "kernel"
    parts = set(case.split(" + "))
    assert explain(encoding, config).startswith("eager" if parts & EAGER else "fused")
    sequences = [draw_tokens(size, seed=size) for size in SIZES]
    segments = torch.arange(1, 4).repeat_interleave(torch.tensor(SIZES))[None]
    places = [range(size) if placed == "consecutive" else GAPPED[:size] for size in SIZES]
    positions = torch.tensor([[place for each in places for place in each]]) if placed == "gapped" else None
    logits = model(torch.cat(sequences)[None], positions_BT=positions, segments_BT=segments)
    in_kernel = not parts & EAGER and not (placed == "gapped" and parts & BY_DISTANCE)
    assert len(calls) == (config.layers if in_kernel else 0)
    for found, tokens, place in zip(logits[0].split(SIZES), sequences, places, strict=True):
        torch.testing.assert_close(found, read_by_hand(model, tokens, place, hand)[0], rtol=3e-5, atol=3e-5)
