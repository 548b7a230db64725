"""Second, naive solutions of mqmtar and of the tasks of retrieval: from the text of a prompt to that of its target."""

import re
from collections.abc import Callable


def mqmtar(prompt: str) -> str:
    """Splits at blanks and questions, and looks the keys up in a dictionary."""
    source, *questions = prompt.removeprefix("Recall: ").removesuffix(" [SEP]").split(" ? ")
    pairs = [pair.strip() for pair in f" {source} ".split("_") if pair.strip()]
    values = dict(pair.split(" : ") for pair in pairs)
    assert len(values) == len(pairs), "keys are distinct"
    return " ".join(values[question] for question in questions)


def max_retrieval(prompt: str) -> str:
    words = prompt.removeprefix("Largest: ").removesuffix(" [SEP]").split()
    items = sorted((int(priority), name) for name, priority in zip(words[::2], words[1::2], strict=True))
    assert len(items) == 1 or items[-1][0] > items[-2][0], "there is one largest"
    return items[-1][1]


def selective_copy(prompt: str) -> str:
    return " ".join(word for word in prompt.split()[1:-1] if word != "_")


def delay_copy(prompt: str) -> str:
    return prompt.split("[ ")[1].split(" ]")[0]


def variable_tracking(prompt: str) -> str:
    """Runs the assignments one after the other, whatever stands between them."""
    source, asked = prompt.removeprefix("Track: ").removesuffix(" [SEP]").split(" ? ")
    values: dict[str, str] = {}
    for name, right in re.findall(r"([A-Z]) = ([A-Z]|[0-9](?: [0-9])*) ;", source):
        assert name not in values
        values[name] = values.get(right, right)
    return " ".join(name for name, value in values.items() if value == asked)


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "mqmtar": mqmtar,
    "max_retrieval": max_retrieval,
    "selective_copy": selective_copy,
    "delay_copy": delay_copy,
    "variable_tracking": variable_tracking,
}
