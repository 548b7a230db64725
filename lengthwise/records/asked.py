"""Models that were not trained here: they were asked a task's questions, and their rows are beside those of runs."""

from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult


def was_asked(run: RunResult) -> bool:
    return "asking" in run.description.get("settings", {})


def asked(results: Results) -> list[str]:
    """What tables call those models."""
    return [name for name in results.encodings if all(map(was_asked, results.by_encoding[name]))]


def lengths_taken(results: Results) -> list[str]:
    """Says whose lengths of training are those of the task, because nobody said what the models were trained on."""
    unknown = [run for run in results.runs if was_asked(run) and not run.description.get("trained_lengths_known")]
    if not unknown:
        return []
    named = list(dict.fromkeys(run.description["encoding"] for run in unknown))
    models = named[0] if len(named) == 1 else f"{len(named)} models"
    were = "was" if len(named) == 1 else "were"
    return [
        f"{models} {were} not trained here, and nobody said on which lengths: those of the task are taken for lengths "
        "of training (lengthwise evaluate --trained 2-6 takes others)"
    ]
