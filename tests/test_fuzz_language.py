"""Some of the hostile inputs of `fuzz_language`; all of them are tried by `make fuzz`."""

from itertools import islice
from pathlib import Path

import fuzz_language
import pytest

from lengthwise.errors import UserError

TRIED = 120


def test_hostile_inputs_are_refused_in_a_line_and_nothing_is_written() -> None:
    found = fuzz_language.cases(seed=0)
    broken = []
    for name, run in islice(found, TRIED):
        try:
            run()
        except AssertionError as error:
            broken.append(f"{name}: {error}")
    found.close()
    assert not broken, "\n".join(broken)


def test_every_way_to_break_the_promise_is_seen(tmp_path: Path) -> None:
    def writes() -> None:
        (tmp_path / "litter").touch()
        raise UserError("no")

    def fails(error: BaseException) -> None:
        raise error

    for work, told in {
        lambda: None: "accepted",
        lambda: fails(KeyError("x")): "KeyError",
        lambda: fails(SystemExit(0)): "SystemExit",
        lambda: fails(UserError("two\nlines")): "several lines",
        writes: "written",
    }.items():
        with pytest.raises(AssertionError, match=told):
            fuzz_language.expect(work, tmp_path, refused=True)
    fuzz_language.expect(lambda: fails(UserError("no")), tmp_path, refused=True)
    fuzz_language.expect(lambda: None, tmp_path, refused=False)
