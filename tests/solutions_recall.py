"""Second, naive solutions of mqmtar and of the tasks of retrieval: from the text of a prompt to that of its target."""

from collections.abc import Callable


def mqmtar(prompt: str) -> str:
    """Splits at blanks and questions, and looks the keys up in a dictionary."""
    source, *questions = prompt.removeprefix("Recall: ").removesuffix(" [SEP]").split(" ? ")
    pairs = [pair.strip() for pair in f" {source} ".split("_") if pair.strip()]
    values = dict(pair.split(" : ") for pair in pairs)
    assert len(values) == len(pairs), "keys are distinct"
    return " ".join(values[question] for question in questions)


SOLUTIONS: dict[str, Callable[[str], str]] = {"mqmtar": mqmtar}
