"""The leaderboard of some folders in the form that is asked for: a page with cards, Markdown, CSV or JSON."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lengthwise import registry
from lengthwise.encodings.choice import kinds_of
from lengthwise.errors import UserError
from lengthwise.records.boards import source_names
from lengthwise.records.costs import measured_costs
from lengthwise.records.files import write_text
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.records.task_names import task_name
from lengthwise.report.markdown.table import plain, section
from lengthwise.report.model.leaderboard import (
    Leaderboard,
    folder_table,
    leaderboard,
    leaderboard_table,
    leaderboard_values,
)
from lengthwise.report.model.table_csv import to_csv
from lengthwise.study import shipped_studies

ENDINGS = {".html": "html", ".md": "markdown", ".csv": "csv", ".json": "json"}
USUAL = Path("leaderboard.html")


def write_leaderboard(folders: Sequence[Path], out: Path | None = None, cost: Path | None = None) -> Path:
    """Writes it to `out`, by whose ending the format is chosen; `cost`: a file of `lengthwise bench train --out`."""
    path = out or USUAL
    kind = ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise UserError(f"--out must end in {', '.join(ENDINGS)}, not {path.name!r}")
    found = load_leaderboard(folders, cost)
    if kind == "html":
        from lengthwise.cards.method_cards import method_card  # which waits for torch
        from lengthwise.report.html.leaderboard import write_leaderboard_page

        cards = [method_card(method, found.results_of(method)) for method in found.methods]
        write_leaderboard_page(found, cards, path)
    else:
        write_text(path, {"markdown": _markdown, "csv": _csv, "json": _json}[kind](found))
    return path


def load_leaderboard(folders: Sequence[Path], cost: Path | None = None) -> Leaderboard:
    parts = [load_results(folder) for folder in dict.fromkeys(folders)]
    costs = None if cost is None else measured_costs(cost)
    found = leaderboard(parts, source_names(list(dict.fromkeys(folders))), costs)
    kinds = {method: _kinds(method, found.results_of(method)) for method in found.methods}
    families = {task: _family(found, task) for task in found.tasks}
    study = parts[0].study.get("name")
    return replace(found, kinds=kinds, families=families, study=study if study in shipped_studies() else "")


def _kinds(method: str, results: Results) -> list[str]:
    layers = results.by_encoding[method][0].description["settings"]["encoding"]
    return kinds_of([dict(layer) for layer in layers]) or ["unknown"]


def _family(found: Leaderboard, task: str) -> str:
    """`other` for a task that is not found here, or says nothing."""
    runs = next(board.results.by_task[task] for board in found.boards if task in board.results.by_task)
    name = task_name(runs[0])
    if name not in registry.tasks.entries:
        return "other"
    try:
        return str(registry.tasks.get(name).family)
    except UserError:  # a file that cannot be imported matters where it is trained on, not here
        return "other"


def _markdown(found: Leaderboard) -> str:
    title = plain(str(found.boards[0].results.study["name"]))
    return (
        "\n\n".join([f"# {title}: leaderboard", section(leaderboard_table(found)), section(folder_table(found))]) + "\n"
    )


def _csv(found: Leaderboard) -> str:
    return to_csv(leaderboard_values(found))


def _json(found: Leaderboard) -> str:
    values = leaderboard_values(found)
    rows = [dict(zip(values.fields, row, strict=True)) for row in values.values]
    about = {"notes": leaderboard_table(found).sentences, "folders": [name for name, _ in found.folders]}
    return json.dumps({**about, "rows": rows}, indent=1) + "\n"
