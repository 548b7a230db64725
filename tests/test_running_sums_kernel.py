"""Running sums in one kernel against PyTorch's, in Triton's interpreter on the CPU (`test_interpreted` runs them)."""

import pytest
import torch
from conftest import INTERPRETED
from torch.func import vmap

from lengthwise.kernels.running_sums import _running_sums, running_sums

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="`test_interpreted` runs these in Triton's interpreter")


@pytest.mark.parametrize(("rows", "tokens", "numbers"), [(3, 64, 12), (2, 130, 5), (1, 1, 1), (2, 17, 16)])
def test_sums_and_their_gradients_are_pytorchs(rows: int, tokens: int, numbers: int) -> None:
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(rows, tokens, numbers, generator=generator, requires_grad=True)
    weights = torch.randn(rows, tokens, numbers, generator=generator)
    found, expected = running_sums(given), given.double().cumsum(1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    gradients = (torch.autograd.grad((each * weights).sum(), given)[0] for each in (found, expected))
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_sums_of_one_number_lie_side_by_side() -> None:
    assert running_sums(torch.ones(2, 20, 3)).transpose(1, 2).is_contiguous()


def test_stacked_models_are_more_rows() -> None:
    given = torch.randn(4, 2, 20, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(vmap(running_sums)(given), given.cumsum(2))


def test_operators_keep_the_rules_of_pytorch() -> None:
    given = torch.randn(1, 2, 20, 3, requires_grad=True)
    torch.library.opcheck(_running_sums, (given, False))
