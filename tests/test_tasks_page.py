"""The page of tasks names every task, and nothing that does not exist."""

import re
from fnmatch import fnmatch
from pathlib import Path

from lengthwise import registry

PAGE = (Path(__file__).parent.parent / "docs/tasks.md").read_text()


def test_the_page_names_every_task() -> None:
    named = set(re.findall(r"`([a-z_]+(?:\.[a-z_*]+)?)`", PAGE))
    missing = [name for name in registry.tasks.names() if not any(fnmatch(name, pattern) for pattern in named)]
    assert not missing, f"docs/tasks.md does not name {missing}"


def test_dotted_names_on_the_page_exist() -> None:
    for name in set(re.findall(r"`([a-z_]+\.[a-z_*]+)`", PAGE)):
        assert any(fnmatch(task, name) for task in registry.tasks.names()), name
