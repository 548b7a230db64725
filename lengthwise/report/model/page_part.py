"""What a page can carry of a study with thousands of runs: the first of its ranking; all numbers go beside it."""

from dataclasses import replace

from lengthwise.records.ranking import BASELINE, ranking
from lengthwise.records.results import Results
from lengthwise.report.model.phrases import plural

MOST_RUNS = 1200
"""Of a page; more of them make it larger than 5 MB."""


def page_part(results: Results, most: int = MOST_RUNS) -> Results:
    """All of it where it has at most `most` runs; else the encodings that are first in the ranking, with `none`.

    Where even two encodings have more runs, the lowest seeds of these, and then the first tasks.
    """
    if len(results.runs) <= most:
        return results
    best = [place.encoding for place in ranking(results)] or results.encodings
    ordered = sorted(best, key=lambda encoding: encoding != BASELINE)
    number = max(1, most // max(1, len(results.runs) // len(results.encodings)))
    chosen = {*ordered[: max(2, number)]}
    runs = [run for run in results.runs if run.description["encoding"] in chosen]
    for key in ("seed", "task"):
        if len(runs) > most:
            names = sorted({run.description["seed"] for run in runs}) if key == "seed" else results.tasks
            kept = {*names[: max(1, most * len(names) // len(runs))]}
            runs = [run for run in runs if run.description[key] in kept]
    return replace(results, runs=runs)


def left_out(part: Results, whole: Results, folder: str) -> str:
    """What the page does not have, and where it is; nothing where it has all."""
    if part is whole:
        return ""
    tasks, encodings = len(part.tasks), len(part.encodings)
    return (
        f"{len(whole.runs):,} runs are too many for a page. The ranking is over all of them; everything else here is "
        f"about {plural(len(part.runs), 'run')}: {plural(encodings, 'encoding')} that are first in it, on "
        f"{plural(tasks, 'task')}. Every number of all runs is in the tables of the folder {folder} beside this page"
    )
