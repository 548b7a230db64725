"""Regions of sequences: which token is prefix, adapter, separator, target, for every task and whatever its tokens."""

from pathlib import Path

import numpy as np
import pytest
from conftest import small_study
from test_tokens import bytes_tokenizer, examples_of

from lengthwise import registry
from lengthwise.analysis.regions import REGIONS, Region, has_separator, region_inputs, regions_of
from lengthwise.data.examples import Examples, Part, assemble
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import kept_parts, render
from lengthwise.data.splits import Split
from lengthwise.data.tokenization import make_tokens, separator_symbols
from lengthwise.data.tokens import Tokens
from lengthwise.errors import UserError
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Task

BUILT_IN = [name for name in registry.tasks.names() if name != "file"]
SEPARATED = [name for name in BUILT_IN if separator_symbols(make_task(name))]
WRITTEN_IN_PIECES = [name for name in SEPARATED if name != "dyck"]
"""T5's pieces know no brackets of dyck."""


def region_texts(task: Task, examples: Examples, tokens: Tokens, anchor: bool = True) -> list[list[str]]:
    """The texts of the four regions of each example, the end left out; regions stand in order, padding behind."""
    sequences = render(task, examples, Scratchpad(), anchor, tokens)
    regions = regions_of(kept_parts(task, examples, Scratchpad(), anchor), separator_symbols(task), tokens)
    assert regions is not None and regions.shape == sequences.tokens.shape
    assert (np.diff(regions, axis=1) >= 0).all()
    assert ((regions == Region.PADDING).sum(1) == regions.shape[1] - sequences.size).all()
    assert ((regions < Region.TARGET).sum(1) == sequences.prompt).all()
    texts = []
    for row, ids, size in zip(regions, sequences.tokens, sequences.size, strict=True):
        assert row[size - 1] == Region.TARGET and ids[size - 1] == tokens.end
        texts.append([tokens.text(ids[: size - 1][row[: size - 1] == region]) for region in REGIONS])
    return texts


def expected_texts(task: Task, examples: Examples, anchor: bool = True) -> list[list[str]]:
    """From prompts and targets as people read them: the first word, what follows, `[SEP]`, the target."""
    found = []
    for i in range(len(examples)):
        prompt, target = task.text(examples, i)
        first, _, adapter = prompt.removesuffix("[SEP]").strip().partition(" ")
        assert prompt.endswith("[SEP]")
        found.append([first if anchor else "", adapter, "[SEP]", target])
    return found


def formatted(task: Task) -> Examples:
    return task.formatted(examples_of(task), Scratchpad())


def test_the_separator_is_where_tasks_say() -> None:
    assert {"copy.repeat", "reverse.words", "scan", "pcfg", "summation"} <= set(SEPARATED)
    assert not {"addition", "parity", "sort.symbols", "polynomial", "lego"} & set(SEPARATED)


@pytest.mark.parametrize("anchor", [True, False])
@pytest.mark.parametrize("name", SEPARATED)
def test_regions_of_symbols_are_those_of_the_text(name: str, anchor: bool) -> None:
    task = make_task(name)
    examples = formatted(task)
    assert region_texts(task, examples, make_tokens(task), anchor) == expected_texts(task, examples, anchor)


@pytest.mark.parametrize("name", SEPARATED)
def test_regions_of_layouts_have_as_many_tokens_as_were_asked_for(name: str) -> None:
    task = make_task(name)
    examples = formatted(task)
    tokens = make_tokens(task, prefix_tokens=3, separator_tokens=5)
    assert region_texts(task, examples, tokens) == expected_texts(task, examples)
    regions = regions_of(examples, separator_symbols(task), tokens)
    assert regions is not None
    assert set((regions == Region.PREFIX).sum(1)) == {3} and set((regions == Region.SEPARATOR).sum(1)) == {5}


@pytest.mark.parametrize("name", WRITTEN_IN_PIECES)
def test_regions_of_published_pieces_are_those_of_the_text(name: str) -> None:
    """Also where no space is before the separator: `walk[SEP]` is one word."""
    task = make_task(name)
    examples, tokens = formatted(task), make_tokens(task, "published")
    assert region_texts(task, examples, tokens) == expected_texts(task, examples)
    regions = regions_of(examples, separator_symbols(task), tokens)
    assert regions is not None and set((regions == Region.SEPARATOR).sum(1)) == {4}


@pytest.mark.slow
@pytest.mark.parametrize("crossing", [False, True])
@pytest.mark.parametrize("name", ["copy.words", "scan"])
def test_regions_of_any_tokenizer(name: str, crossing: bool, tmp_path: Path) -> None:
    """A piece across two regions counts to the later one; one with the space behind the separator to the target."""
    bytes_tokenizer(tmp_path / "bytes.json", crossing)
    task = make_task(name)
    examples, tokens = formatted(task), make_tokens(task, str(tmp_path / "bytes.json"))
    for found, expected in zip(region_texts(task, examples, tokens), expected_texts(task, examples), strict=True):
        assert "".join(found).replace(" ", "") == "".join(expected).replace(" ", "")
        if crossing:
            assert expected[0].startswith(found[0].strip()) and found[3].endswith(expected[3])
        else:
            assert [text.strip() for text in found] == expected


@pytest.mark.parametrize(
    "prompt", [["Copy:", "[SEP]", "station"], ["Copy:", "[SEP]", "station", "[SEP]"], ["Copy:", "station"]]
)
def test_a_prompt_that_does_not_end_with_its_only_separator_has_no_regions(prompt: list[str]) -> None:
    task = make_task("copy.words")
    first, *rest = (task.vocabulary.ids([word]) for word in prompt)
    columns = [(Part.ANCHOR, first), *((Part.PROMPT, ids) for ids in rest), (Part.ANSWER, task.fixed("station"))]
    assert regions_of(assemble(1, 2, columns), separator_symbols(task), make_tokens(task)) is None


def test_an_empty_target_is_its_end_alone() -> None:
    task = make_task("copy.words")
    columns = [(Part.ANCHOR, task.fixed("Copy:")), (Part.PROMPT, task.fixed("station [SEP]"))]
    regions = regions_of(assemble(1, 2, columns), separator_symbols(task), make_tokens(task))
    assert regions is not None and regions.tolist() == [[0, 1, 2, 3]] * 2


def test_material_has_the_regions_of_its_own_sequences() -> None:
    task = {"name": "copy.repeat", "symbols": 20, "prefix_tokens": 2, "separator_tokens": 3}
    (run, *_) = small_study(tasks=[task]).runs()
    divided = region_inputs(run, 4)
    sequences = divided.inputs.sequences
    assert divided.region_ET.shape == sequences.tokens.shape
    assert (divided.source_E == divided.inputs.length_E).all() and set(divided.separator_E) == {3}
    for batch in divided.inputs.batches():
        region_BT = divided.of(batch)
        assert region_BT.shape == batch.tokens_BT.shape and (region_BT != Region.PADDING).all()
        source = batch.tokens_BT[region_BT == Region.SOURCE].reshape(len(region_BT), -1)
        target = batch.tokens_BT[region_BT == Region.TARGET].reshape(len(region_BT), -1)
        assert (source == target[:, :-1]).all(), "one symbol, as often"
    prompts = {split: {tuple(row) for row in _prompts(region_inputs(run, 99, [3], split))} for split in Split}
    assert not prompts[Split.TRAIN] & prompts[Split.TEST], "what probes are fitted to is held out from what they see"


def _prompts(divided: object) -> list[list[int]]:
    sequences = divided.inputs.sequences  # type: ignore[attr-defined]
    return [ids[:size].tolist() for ids, size in zip(sequences.tokens, sequences.prompt, strict=True)]


def test_tasks_without_separator_are_told_apart() -> None:
    data = {"train_lengths": [4, 5], "test_lengths": [6, 7], "examples": 0}
    (run, *_) = small_study(tasks=["parity"], data=data).runs()
    assert not has_separator(run)
    with pytest.raises(UserError, match=r"parity do not end with a separator \[SEP\]"):
        region_inputs(run, 2)


@pytest.mark.slow
def test_a_tokenizer_that_leaves_no_token_to_the_separator_is_refused(tmp_path: Path) -> None:
    bytes_tokenizer(tmp_path / "bytes.json", crossing=True)
    (run, *_) = small_study(tasks=["scan"], data={"examples": 0, "tokens": str(tmp_path / "bytes.json")}).runs()
    with pytest.raises(UserError, match="no token of their own"):
        region_inputs(run, 2, [3])
