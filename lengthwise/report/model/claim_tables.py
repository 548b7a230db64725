"""A published claim beside our numbers, as a table."""

from lengthwise.records.claims import Direction, JudgedClaim, JudgedNumber
from lengthwise.records.equivalence import MARGIN, Verdict
from lengthwise.report.model.numbers import ends, rounded
from lengthwise.report.model.table import Cell, Column, Table, TableRow, Tone, Words, number_cell, text_cell

VERDICTS: dict[Verdict, Tone] = {Verdict.equivalent: "good", Verdict.undecided: "unsure", Verdict.different: "bad"}
DIRECTIONS: dict[Direction, Tone] = {Direction.same: "good", Direction.open: "unsure", Direction.opposite: "bad"}
NUMBERS = {each: each.value for each in Verdict}
BOUNDS = {Verdict.equivalent: "holds", Verdict.undecided: "undecided", Verdict.different: "fails"}
EXPLAINED = (
    f"verdict: the 90 % interval of our mean over seeds is inside (equivalent) or outside (different) of the published "
    f"number ± {MARGIN:.2f}, or both (undecided); a bound holds for all of it, fails for all of it, or neither; of a "
    "difference also whether its sign is sure"
)


def claim_table(judged: JudgedClaim) -> Table:
    """One line for each published number."""
    columns = (
        Column("what", "left", ("says",), wide=True),
        Column("published", fields=("published", "at_least", "at_most")),
        Column("ours, 90 % interval", fields=("ours", "low", "high", "seeds")),
        Column("verdict", "left", ("verdict", "direction")),
    )
    notes = [EXPLAINED, *(f"our study departs: {line}" for line in judged.claim.departs)]
    if judged.claim.evidence:
        notes.append(f"published numbers: {judged.claim.evidence}")
    for each in judged.numbers:
        if each.left_out:
            told = ", ".join(map(str, each.left_out))
            notes.append(f"{each.number.says}: without seeds that did not learn their training lengths ({told})")
    return Table(
        "claim",
        f"{judged.claim.title} ({judged.claim.source}): {judged.outcome.value}",
        columns,
        tuple(TableRow(_cells(each)) for each in judged.numbers),
        tuple(notes),
    )


def _cells(each: JudgedNumber) -> tuple[Cell, ...]:
    number, signed = each.number, "+.3f" if each.number.minus else ".3f"
    if each.ours is None:
        ours = Cell((Words("no run", "quiet"),), (None, None, None, 0))
    else:
        told = f"{each.ours.mean:{signed}}"
        if each.interval:
            told += f" ({each.interval[0]:{signed}} to {each.interval[1]:{signed}})"
        ours = number_cell(told, rounded(each.ours.mean), *ends(each.interval), each.ours.seeds)
    sign = "≥ " if number.at_least is not None else "≤ " if number.at_most is not None else ""
    theirs = number_cell(f"{sign}{number.value:{signed}}", number.published, number.at_least, number.at_most)
    return text_cell(number.says), theirs, ours, _verdict(each)


def _verdict(each: JudgedNumber) -> Cell:
    if each.verdict is None:
        return Cell((Words("one seed" if each.ours else "", "quiet"),), (None, None))
    told, tone = (BOUNDS if each.number.is_bound else NUMBERS)[each.verdict], VERDICTS[each.verdict]
    if each.direction and each.verdict is not Verdict.equivalent:
        told, tone = f"{told}, {each.direction.value}", DIRECTIONS[each.direction]
    return Cell((Words(told, tone),), (each.verdict.value, each.direction.value if each.direction else None))
