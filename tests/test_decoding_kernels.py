"""Fast decoding with our kernels beside attention, as models of fleets have them on a GPU; see `test_interpreted`."""

import numpy as np
import pytest
from conftest import INTERPRETED
from decoding_cases import CONFIGS, ends_apart, gaps, model_of, prompts_of

from lengthwise.evaluation.decoding import Decoding
from lengthwise.evaluation.generate import generate

BUDGET = 8


@pytest.mark.skipif(not INTERPRETED, reason="our kernels need a GPU or Triton's interpreter")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "config"), [("t5", "t5"), ("fox", "llama-grouped"), ("mamba2", "llama-grouped")])
def test_steps_with_our_kernels_write_the_same(name: str, config: str, precision: str) -> None:
    model, prompts = model_of([{"name": name}], CONFIGS[config]), prompts_of(10, longest=6)
    tokens = ends_apart(model, prompts, BUDGET)
    model.backend = "kernel"
    decoding = Decoding(model, precision)
    decoding.few_shapes = True
    found = decoding.generate(prompts, tokens, [BUDGET] * len(prompts))
    assert not decoding.why_eager
    apart = gaps(decoding.model, prompts, found, generate(decoding.model, prompts, tokens, BUDGET))
    assert max(apart, default=0.0) < (1e-3 if precision == "fp32" else 0.05)
    assert len({tuple(text) for text in found}) > 5 and np.max([len(text) for text in found]) > 4
