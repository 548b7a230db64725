"""Extensions as the command line names them: what is wrong is said before a model is read."""

import pytest

from lengthwise.errors import UserError
from lengthwise.extensions.naming import extension_table


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("yarn", "yarn needs factor; write yarn:factor=4, or factor=auto, which follows the context"),
        ("yarn=4", "'yarn=4': settings stand behind a colon, such as yarn:factor=4"),
        ("yarn:factor=four", "factor must be a number from 1 up, or auto, which follows the context, not 'four'"),
        ("ntk:factor=0", "factor must be a number from 1 up"),
        ("ntk:factor=true", "factor must be a number from 1 up"),
        ("yarn:factor=nan", "factor must be a number from 1 up"),
        ("yarn:factor=4,ntk:factor=4", "name another extension with another --extension"),
        ("yarn:factr=4", "unknown setting 'extension yarn.factr'; did you mean 'factor'"),
    ],
)
def test_a_wrong_extension_is_told_its_cure(given: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        extension_table(given)


@pytest.mark.parametrize("given", ["yarn:factor=4", "yarn:factor=auto", "ntk:factor=1", "logn", "pi:factor=2.5"])
def test_a_right_one_is_read(given: str) -> None:
    assert extension_table(given)["name"] in ("yarn", "ntk", "logn", "position-interpolation")
