"""The leaderboard as one self-contained HTML page: methods by tasks, and a card for each method; it loads nothing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lengthwise.door import visible
from lengthwise.equation import to_mathml
from lengthwise.errors import UserError
from lengthwise.records.budgets import budget_warnings
from lengthwise.records.files import replace as replace_file
from lengthwise.records.results import Results
from lengthwise.report.figures.palette import DARK_SCALE, shade, styles
from lengthwise.report.html.page import templates
from lengthwise.report.model.leaderboard import Leaderboard, folder_table, leaderboard_table, leaderboard_values
from lengthwise.report.model.method_card import MethodCard
from lengthwise.report.model.run_tables import task_table

LARGEST = 3_000_000
"""Bytes of a page: where it would have more, its cards have no pictures."""
KINDS = ("bias", "rotation", "mask", "embedding", "scale", "normalizer", "output", "schedule", "mixer")
"""In the order in which a form offers them; others follow."""


def write_leaderboard_page(found: Leaderboard, cards: Sequence[MethodCard], path: Path) -> None:
    """`cards`: one for each method."""
    page = rendered(found, cards)
    if len(page.encode()) > LARGEST:
        note = "The page would be too large with pictures: make it of fewer methods."
        page = rendered(found, [replace(card, pictures=(), notes=(note,)) for card in cards])
    if len(page.encode()) > LARGEST:
        raise UserError(
            f"a page of {len(cards):,} methods is larger than {LARGEST:,} bytes; write --out leaderboard.csv"
        )
    replace_file(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def rendered(found: Leaderboard, cards: Sequence[MethodCard]) -> str:
    found = replace(found, kinds={card.method: card.kinds for card in cards})
    environment = templates(styles(found.methods))
    functions: dict[str, Any] = environment.globals
    functions.update(equation=lambda text: Markup(to_mathml(text)))
    return environment.get_template("leaderboard.html.jinja").render(**content(found, cards))


def _as_named(name: str, results: Results) -> str:
    """As it was given, where that says nothing of the machine."""
    folder = next(iter(results.folders), Path(name))
    return name if folder.is_absolute() else visible(str(folder))


def content(found: Leaderboard, cards: Sequence[MethodCard]) -> dict[str, Any]:
    identities = {card.method: f"method-{number}" for number, card in enumerate(cards, start=1)}
    first = found.boards[0]
    standings = {standing.method: standing for board in reversed(found.boards) for standing in board.standings}
    there = {kind for card in cards for kind in card.kinds}
    return {
        "name": first.results.study.get("name", "study"),
        "study": found.study,
        "first_folder": _as_named(*found.folders[0]),
        "summaries": [str(part.study["summary"]) for _, part in found.folders if part.study.get("summary")],
        "board": leaderboard_table(found, identities),
        "cards": [(identities[card.method], card, standings[card.method]) for card in cards],
        "kinds": [*(kind for kind in KINDS if kind in there), *sorted(there - {*KINDS})],
        "families": sorted(set(found.families.values())),
        "methods": found.methods,
        "tasks": found.tasks,
        "runs": sum(len(board.results.runs) for board in found.boards),
        "boards": [(board, task_table(board.results), budget_warnings(board.results)) for board in found.boards],
        "folders": folder_table(found),
        "unfinished": sum(len(results.unfinished) for _, results in found.folders),
        "scale": [(shade(step / 5), shade(step / 5, DARK_SCALE)) for step in range(6)],
        "tables": {table.name: table.data for table in (leaderboard_values(found),)},
    }
