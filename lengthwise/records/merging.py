"""Results from several folders as one: parts of a study that were run apart, or what is new and what was before."""

from collections.abc import Sequence

from lengthwise.errors import UserError
from lengthwise.records.rows import Results, RunResult


def _name(part: Results) -> str:
    return " and ".join(map(str, part.folders))


def merge(parts: Sequence[Results]) -> Results:
    """All runs, each once, under the study of the first part.

    Runs of one name must be the same run: the same settings, so the same fingerprint.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    found: dict[str, tuple[RunResult, Results]] = {}
    for part in parts:
        for run in part.runs:
            name, fingerprint = run.description["name"], run.description["fingerprint"]
            before = found.setdefault(name, (run, part))
            if before[0].description["fingerprint"] != fingerprint:
                raise UserError(
                    f"{_name(before[1])} and {_name(part)} both hold {name}, with different settings "
                    f"({before[0].description['fingerprint']}, {fingerprint}); results of one study can be put together"
                )
    unfinished = {name for part in parts for name in part.unfinished} - found.keys()
    folders = tuple(folder for part in parts for folder in part.folders)
    return Results([run for run, _ in found.values()], sorted(unfinished), first.study, folders)
