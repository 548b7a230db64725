"""What became of questions: what a model wrote is compared with the target, symbol by symbol.

Shape letters: E examples.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthwise.evaluation.answers import AnswerVerdict, answer_in
from lengthwise.evaluation.exact import Outcomes
from lengthwise.foreign_models.questions import Questions
from lengthwise.foreign_models.written import Written
from lengthwise.tasks.task import Task

FAILURES_KEPT = 3
"""Examples of each length that went wrong and are kept to be looked at, as of runs."""
LONGEST_PIECE = 1000
"""Letters that are kept of a wrong symbol."""
END = "<end>"


@dataclass(frozen=True)
class Judged:
    """All questions with what became of each."""

    questions: Questions
    written: Sequence[Written]
    outcomes: Outcomes
    symbols: Sequence[Sequence[str]]
    """Of each answer, up to and including the first error; `<end>` where it ended."""

    def rows(self) -> list[dict[str, Any]]:
        """What was right in each bucket, as a row of a run has it."""
        questions, found = self.questions, []
        verdicts = self._verdicts() if questions.scratchpad.steps else None
        for counts in self.outcomes.by_bucket():
            bucket = counts["bucket"]
            length = questions.task.length_of(bucket)
            row: dict[str, Any] = {"length": length, "seen": questions.seen(length), **counts}
            del row["tokens"], row["right_tokens"]  # of what follows a first error nothing is known
            row["chance"] = questions.task.chance(bucket)
            sizes = [self.written[i].tokens for i in np.flatnonzero(self.outcomes.buckets_E == bucket).tolist()]
            known = [size for size in sizes if size is not None]
            if len(known) == len(sizes):
                row["sequence_tokens"] = round(float(np.mean(known)), 2)
            if verdicts is not None:
                row["answers"] = {verdict.value: verdicts[bucket][verdict] for verdict in AnswerVerdict}
            found.append(row)
        return found

    def failures(self) -> list[dict[str, Any]]:
        """Some examples of each length that went wrong."""
        found, kept, outcomes = [], Counter[int](), self.outcomes
        kinds = {"wrong symbol": outcomes.wrong_symbol_E, "stopped early": outcomes.stopped_early_E}
        for index in np.flatnonzero(~outcomes.correct_E).tolist():
            length = int(self.questions.length_E[index])
            kept[length] += 1
            if kept[length] > FAILURES_KEPT:
                continue
            prompt, target = self.questions.texts[index]
            first = int(outcomes.first_error_E[index])
            found.append(
                {
                    "length": length,
                    "prompt": prompt,
                    "target": target,
                    "predicted": [symbol[:LONGEST_PIECE] for symbol in self.symbols[index]],
                    "right_text": _joined(self.questions.task, self.symbols[index][:first]),
                    "first_error": first,
                    "kind": next((kind for kind, is_so in kinds.items() if is_so[index]), "ran on"),
                }
            )
        return found

    def _verdicts(self) -> dict[int, Counter[AnswerVerdict]]:
        """Bucket -> what became of final answers, which follow the steps."""
        found: dict[int, Counter[AnswerVerdict]] = {}
        for index, written in enumerate(self.written):
            bucket = int(self.questions.examples.buckets[index])
            found.setdefault(bucket, Counter())[self._verdict(index, written)] += 1
        return found

    def _verdict(self, index: int, written: Written) -> AnswerVerdict:
        if not written.line_ended:
            return AnswerVerdict.DID_NOT_STOP
        task, scratchpad = self.questions.task, self.questions.scratchpad
        answer = answer_in(task, scratchpad, written.line)
        if answer is None:
            return AnswerVerdict.UNPARSED
        expected = answer_in(task, scratchpad, self.questions.texts[index][1])
        return AnswerVerdict.RIGHT if answer == expected else AnswerVerdict.WRONG_ANSWER


def judge(questions: Questions, written: Sequence[Written]) -> Judged:
    """An answer is right if it has the symbols of the target and ends after them: with the line, or altogether."""
    kinds, firsts, counts, kept = [], [], [], []
    for (_, target), found in zip(questions.texts, written, strict=True):
        wanted = [*symbols_of(questions.task, target), END]
        symbols = [*symbols_of(questions.task, found.line), *([END] if found.line_ended else [])]
        same = next((i for i, pair in enumerate(zip(wanted, symbols, strict=False)) if pair[0] != pair[1]), None)
        first = min(len(wanted), len(symbols)) if same is None else same
        kinds.append(_kind(wanted, symbols, first))
        firsts.append(first)
        counts.append(len(wanted))
        kept.append(symbols[: first + 1])
    is_kind = {kind: np.array([each == kind for each in kinds]) for kind in ("correct", "wrong", "early", "on")}
    outcomes = Outcomes(
        correct_E=is_kind["correct"],
        wrong_symbol_E=is_kind["wrong"],
        stopped_early_E=is_kind["early"],
        ran_on_E=is_kind["on"],
        tokens_E=np.array(counts),
        right_tokens_E=np.array(firsts),
        first_error_E=np.array(firsts),
        buckets_E=questions.examples.buckets,
    )
    return Judged(questions, written, outcomes, kept)


def _kind(wanted: Sequence[str], symbols: Sequence[str], first: int) -> str:
    """What became of an answer of these symbols, of which those before `first` are right."""
    if first == len(wanted):
        return "correct"
    if first == len(wanted) - 1:
        return "on"
    return "early" if symbols[first : first + 1] == [END] else "wrong"


def symbols_of(task: Task, text: str) -> list[str]:
    """The task's symbols in a text; a word that is none of them is one by itself."""
    found: list[str] = []
    for word in text.split():
        try:
            found += [task.vocabulary.symbol(int(index)) for index in task.vocabulary.encode(word)]
        except ValueError:
            found.append(word)
    return found


def _joined(task: Task, symbols: Sequence[str]) -> str:
    return task.vocabulary.decode(task.vocabulary.ids(symbols))
