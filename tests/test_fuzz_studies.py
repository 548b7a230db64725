"""Some of the hostile inputs of `fuzz_studies`, of every kind; `make fuzz` tries all."""

from collections.abc import Callable
from itertools import islice

import pytest
from fuzz_studies import cases

SOME = list(islice(cases(), 150))


@pytest.mark.parametrize("case", [case for _, case in SOME], ids=[name for name, _ in SOME])
def test_a_hostile_input(case: Callable[[], None]) -> None:
    case()
