"""What analyses found as blocks of the page, one for each task; those that would make it too large are folded up."""

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lengthwise.records.findings import AnalysisRows
from lengthwise.records.results import Results
from lengthwise.report.model.finding_values import finding_values, head_values
from lengthwise.report.model.findings import TaskFindings, findings
from lengthwise.report.model.table import Table

UNFOLDED = 1_000_000
"""Bytes of blocks and tables that stand in the page as they are; the first block always does."""


@dataclass
class FindingBlocks:
    tasks: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    """HTML."""
    packed: dict[str, str] = field(default_factory=dict)
    """Task -> a block and its tables, deflated; scripts unfold it when the task is chosen."""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of the blocks that stand in the page: for downloads."""


def finding_blocks(results: Results, analysis: AnalysisRows, render: Callable[[TaskFindings], str]) -> FindingBlocks:
    """`render`: the HTML of one task's block."""
    made, size, open_tasks = FindingBlocks(), 0, []
    for found in findings(results, analysis):
        block, tables = render(found), {table.name: table.data for table in page_tables(analysis, [found.task])}
        size += len(block) + len(json.dumps(tables))
        made.tasks.append(found.task)
        if not made.blocks or size <= UNFOLDED:
            made.blocks.append(block)
            open_tasks.append(found.task)
        else:
            text = json.dumps({"html": block, "tables": tables}, ensure_ascii=False, separators=(",", ":"))
            made.packed[found.task] = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    made.tables = {table.name: table.data for table in page_tables(analysis, open_tasks)}
    return made


def page_tables(analysis: AnalysisRows, tasks: list[str]) -> list[Table]:
    """Of single heads only those of one run of each encoding; all are in `--format csv`."""
    heads = head_values(analysis, tasks, first_seeds_only=True)
    return [*finding_values(analysis, tasks), *([heads] if heads.rows else [])]
