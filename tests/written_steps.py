"""The text of a scratchpad, put together in plain Python from the texts of its steps, as the released runs wrote it."""

from collections.abc import Collection, Mapping, Sequence

from lengthwise.data.examples import Part

WRITTEN = {
    Part.INPUT: "in {}",
    Part.COMPUTATION: "comp {}",
    Part.OUTPUT: "out {}",
    Part.VARIABLES: "[ {} ]",
    Part.REMAINING: "re {}",
}


def scratchpad_text(steps: Sequence[Mapping[Part, str]], kept: Collection[Part], answer: str) -> str:
    """The target with the parts `kept` of each step; the answer alone where nothing is kept."""
    if not kept:
        return answer
    written = [
        " ".join(form.format(step[part]) for part, form in WRITTEN.items() if part in kept and part in step)
        for step in steps
    ]
    text = f"Thinking step by step: {' # '.join(written)} . Thus, {answer}"
    return " ".join(text.split())  # an empty part leaves two spaces
