"""Examples of a task as a PyTorch dataset, or streamed as one of Hugging Face's `datasets`: prompt, target, length."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from lengthwise.data import splits
from lengthwise.data.examples import Examples
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.splits import Split
from lengthwise.errors import UserError, nearest
from lengthwise.tasks.task import Span, Task

if TYPE_CHECKING:
    import datasets

BLOCK = 1000
"""Examples of a stream that are drawn at once."""
SHARDS = 16
"""Parts of a stream, which workers of a loader share among them."""

Row = dict[str, Any]


class Supply:
    """Where examples of a split come from."""

    def __init__(self, task: Task, split: str, lengths: Sequence[int], seed: int, scratchpad: str) -> None:
        """`lengths`: by default those of training, for the test the unseen ones."""
        if split not in list(Split):
            raise UserError(f"unknown split {split!r}; {nearest(split, [each.value for each in Split])}")
        self.task, self.split, self.seed, self.scratchpad = task, Split(split), seed, Scratchpad(scratchpad)
        usual = task.test_lengths if self.split is Split.TEST else task.train_lengths
        self.span = Span(min(lengths), max(lengths)) if lengths else usual
        for length in lengths:
            if not task.buckets(Span(length, length)):
                raise UserError(f"{task.title} has no examples of length {length} ({task.length_means})")
        wanted = set(lengths) or set(self.span)
        self.buckets = [bucket for bucket in task.buckets(self.span) if task.length_of(bucket) in wanted]
        # At lengths that training does not use, every prompt may be in the test, as in published sets.
        self.apart = self.split is not Split.TEST or self.span.first <= task.train_lengths.last

    def draw(self, count: int, *names: str | int) -> Examples:
        drawn = splits.draw(
            *(self.task, self.split, self.span, count, self.seed, *names),
            apart=self.apart,
            again=True,
            buckets=self.buckets,
        )
        return self.task.formatted(drawn, self.scratchpad)

    def row(self, examples: Examples, index: int) -> Row:
        prompt, target = self.task.text(examples, index)
        return {"prompt": prompt, "target": target, "length": self.task.length_of(int(examples.buckets[index]))}

    def blocks(self, shards: Sequence[int], count: int | None) -> Iterator[Row]:
        """The rows of some of SHARDS shards, of `count` in all; None for an endless stream.

        An endless shard never ends, so that its blocks are taken in turn with those of the others.
        """
        number = 0
        while count is None or number * BLOCK * SHARDS < count:
            for shard in shards:
                place = (number * SHARDS + shard) * BLOCK
                size = BLOCK if count is None else min(BLOCK, count - place)
                if size > 0:
                    examples = self.draw(size, "stream", number, shard)
                    yield from (self.row(examples, index) for index in range(len(examples)))
            number += 1


class TaskDataset(Dataset[Row]):
    """A finite set, drawn when it is made."""

    def __init__(self, supply: Supply, count: int) -> None:
        self.supply, self.examples = supply, supply.draw(count)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Row:
        if not -len(self) <= index < len(self):
            raise IndexError(f"{index} of {len(self)} examples")
        return self.supply.row(self.examples, index % len(self))


def stream(supply: Supply, count: int | None = None) -> "datasets.IterableDataset":
    """The same examples every time; `count`: None for an endless stream."""
    try:
        import datasets
    except ImportError:
        raise UserError("streams need Hugging Face's datasets: pip install 'lengthwise[datasets]'") from None
    features = datasets.Features(
        {"prompt": datasets.Value("string"), "target": datasets.Value("string"), "length": datasets.Value("int64")}
    )
    arguments = {"shards": list(range(SHARDS)), "count": count}
    return datasets.IterableDataset.from_generator(supply.blocks, gen_kwargs=arguments, features=features)
