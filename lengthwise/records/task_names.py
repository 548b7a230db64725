"""Which task and which scratchpad a run is about; a study may title the same task several times."""

from lengthwise.records.run_result import RunResult


def task_name(run: RunResult) -> str:
    """`addition`, also where results are titled `addition (full)` or `addition (rate 0.001)`."""
    return run.description.get("settings", {}).get("task", {}).get("name", run.description["task"])


def scratchpad_name(run: RunResult) -> str:
    """Its format, `none` without steps."""
    return run.description.get("settings", {}).get("data", {}).get("scratchpad", "none")
