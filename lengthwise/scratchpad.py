"""Scratchpad formats: which of the five parts of a step a model writes before its answer; 32 choices."""

from dataclasses import dataclass

from lengthwise.errors import UserError, nearest
from lengthwise.examples import STEP_PARTS, Part

_STEP_NAMES = {part.name.lower(): part for part in STEP_PARTS}

PUBLISHED = {
    "full": STEP_PARTS,
    **{f"full-{part.name.lower()}": tuple(p for p in STEP_PARTS if p is not part) for part in STEP_PARTS},
    "minimal": (Part.COMPUTATION, Part.OUTPUT),
    "none": (),
}
"""The formats that the paper names."""


@dataclass(frozen=True)
class Scratchpad:
    """A format, by its published name or as its parts joined by `+` (`input+output`)."""

    name: str = "none"

    @property
    def steps(self) -> tuple[Part, ...]:
        if self.name in PUBLISHED:
            return PUBLISHED[self.name]
        chosen = self.name.split("+")
        for word in chosen:
            if word not in _STEP_NAMES:
                hint = nearest(word, [*PUBLISHED, *_STEP_NAMES])
                raise UserError(f"unknown scratchpad {self.name!r}; {hint}")
        return tuple(part for part in STEP_PARTS if part.name.lower() in chosen)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of an example that this format keeps."""
        frame = (Part.FRAME,) if self.steps else ()
        return (Part.ANCHOR, Part.PROMPT, *frame, *self.steps, Part.ANSWER)
