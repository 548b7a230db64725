"""Some of the hostile fits and tables of extended models; `make fuzz` tries all."""

import fuzz_extension
import hostile_folders
import pytest

EVERY = list(fuzz_extension.cases(seed=0))
FIRST = 1 + len(fuzz_extension.MEANINGLESS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_hostile_tables(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The good one, what means nothing, and every twentieth of the others."""
    monkeypatch.setattr(hostile_folders, "MEGABYTES", 10**6)  # other tests ran in this process before
    for name, run in [*EVERY[:FIRST], *EVERY[FIRST::20]][part::4]:
        try:
            run()
        except AssertionError as problem:
            raise AssertionError(f"{name}: {problem}") from problem
