"""The grid of addition shows, for each pair of digits, what the rows say; only where rows are about such pairs."""

import csv
import re
import struct
import zlib
from base64 import b64decode
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic import description

from lengthwise import registry
from lengthwise.records.operand_pairs import PAIRED, bucket_of, is_pair
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.records.run_result import RunResult
from lengthwise.report.export import write_report
from lengthwise.report.figures.operand_grid import LEFT, SIDE, TOP, grid_figure, grid_panels
from lengthwise.report.figures.palette import DARK_SCALE, SCALE, shade
from lengthwise.report.model.operand_grid import OperandGrid, operand_grids
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Span

RESULTS = Path(__file__).parent.parent / "results"
N = 20
Pair = tuple[int, int]


def correct(encoding: str, seed: int, i: int, j: int) -> int:
    """Of N; another number if the operands, the seeds or the encodings are exchanged."""
    return (7 * i + 3 * j + 5 * seed + 11 * len(encoding) + i * j * seed) % (N + 1)


def mean(encoding: str, i: int, j: int, seeds: Iterable[int] = (1, 2)) -> float:
    return float(np.mean([correct(encoding, seed, i, j) / N for seed in seeds]))


def study(
    pairs: Iterable[Pair],
    trained: tuple[int, int] = (1, 3),
    encodings: Iterable[str] = ("none", "alibi"),
    seeds: Iterable[int] = (1, 2),
    settings: dict[str, Any] | None = None,
    coded: bool = True,
) -> Results:
    """A run for each encoding and seed; `coded`: whether buckets are pairs, else they are lengths."""
    runs, asked = [], sorted(pairs)
    for encoding, seed in product(encodings, seeds):
        about = description("addition", encoding, seed, f"{encoding}{seed}")
        about |= {"train_lengths": list(trained), "test_lengths": [trained[1] + 1, max(map(max, asked))]}
        about["settings"]["task"] = settings or {"name": "addition", "operands": 2}
        rows = []
        for checkpoint, (i, j) in product(("last", "best"), asked):
            right = correct(encoding, seed, i, j) if checkpoint == "last" else 0
            names = {"run": about["fingerprint"], "task": "addition", "encoding": encoding, "seed": seed}
            counts = {"n": N, "correct": right, "wrong_symbol": N - right, "stopped_early": 0, "ran_on": 0}
            length, bucket = max(i, j), bucket_of(i, j) if coded else max(i, j)
            place = {"length": length, "bucket": bucket, "seen": length <= trained[1], "checkpoint": checkpoint}
            rows.append({**names, **counts, **place})
        runs.append(RunResult(about, {"trained_together": 1, "seconds_together": 1.0}, rows))
    return Results(runs, [], {"name": "sums", "encoding_order": list(encodings)})


def square(size: int) -> list[Pair]:
    return list(product(range(1, size + 1), repeat=2))


def only(results: Results) -> OperandGrid:
    (grid,) = operand_grids(results)
    return grid


def pixels(body: str, name: str, number: int = 0) -> list[list[str | None]]:
    """Colours of an image of a drawing, row by row; None where it is transparent."""
    images = [each for each in ElementTree.fromstring(f"<g>{body}</g>").iter("image") if each.get("class") == name]
    data = b64decode(images[number].attrib["href"].removeprefix("data:image/png;base64,"))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(data):
        (size,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        content = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + content),)
        chunks[kind], at = content, at + 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == height * (width + 1) and not any(lines[:: width + 1]), "no line is filtered"
    palette = [f"#{chunks[b'PLTE'][i : i + 3].hex()}" for i in range(0, len(chunks[b"PLTE"]), 3)]
    clear = [level == 0 for level in chunks[b"tRNS"]]
    return [
        [None if index < len(clear) and clear[index] else palette[index] for index in lines[start : start + width]]
        for start in range(1, len(lines), width + 1)
    ]


@pytest.mark.parametrize("size", [16, 101])  # from 100 digits up the code of a pair is another
def test_every_cell_has_the_colour_of_its_mean_over_seeds(size: int) -> None:
    untested = {(i, j) for i, j in square(size) if (i + 2 * j) % 5 == 0 or 20 < max(i, j) < 99}
    grid = only(study({*square(size)} - untested))
    for panel, encoding in zip(grid_panels(grid, ["none", "alibi"]), ("none", "alibi"), strict=True):
        for name, scale in (("in-light", SCALE), ("in-dark", DARK_SCALE)):
            rows = pixels(panel.body, name)
            assert len(rows) == size and {len(row) for row in rows} == {size}
            for i, j in square(size):
                value = round(mean(encoding, i, j) * 100) / 100  # shades are a hundredth apart
                expected = None if (i, j) in untested else shade(value, scale)
                assert rows[size - j][i - 1] == expected, "the second operand goes up"
        assert f"{len(untested)} of {size**2} pairs were not tested" in panel.description
        assert "hatched: not tested" in panel.body
    assert "hatched" not in grid_figure(only(study(square(4))), ["none", "alibi"]).body


def test_colours_are_explained_from_one_to_zero() -> None:
    (panel, _) = grid_panels(only(study(square(4))), ["none", "alibi"])
    column = [row[0] for row in pixels(panel.body, "in-light", 1)]
    assert column[0] == shade(1.0) and column[-1] == shade(0.0) and column[10] == shade(0.5)


@pytest.mark.parametrize("trained", [(1, 3), (3, 5), (5, 5), (1, 8)])
def test_the_frame_encloses_what_was_trained_on(trained: tuple[int, int]) -> None:
    size = 8
    grid = only(study(square(size), trained))
    (panel, _) = grid_panels(grid, ["none", "alibi"])
    (data,) = re.findall(r'class="trained" d="M([^"]*)z"', panel.body)
    corners = [tuple(map(float, corner.split(","))) for corner in data.split("L")]
    for i, j in square(size):
        x, y = LEFT + (i - 0.5) * SIDE / size, TOP + SIDE - (j - 0.5) * SIDE / size
        enclosed = sum(
            x0 == x1 and x0 > x and min(y0, y1) < y < max(y0, y1)
            for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True)
        )
        assert enclosed % 2 == (trained[0] <= max(i, j) <= trained[1]) == grid.trained((i, j))


def test_somebody_who_cannot_see_it_hears_the_means_of_its_parts() -> None:
    grid = only(study(square(6), (1, 3)))
    parts: dict[str, list[float]] = {"trained": [], "one operand longer": [], "both longer": []}
    for i, j in square(6):
        name = "trained" if i <= 3 and j <= 3 else "both longer" if i > 3 and j > 3 else "one operand longer"
        parts[name].append(mean("alibi", i, j))
    said = ", ".join(f"{name} {np.mean(values):.2f}" for name, values in parts.items())
    figure = grid_figure(grid, ["none", "alibi"])
    assert "Exact match of alibi on addition by digits of the first and of the second operand" in figure.description
    assert f"1 to 6. Trained on 1 to 3 digits. Mean over pairs: {said}." in figure.description


def test_page_pictures_and_tables_have_it(tmp_path: Path) -> None:
    results = study(square(6))
    page = write_report(results, tmp_path / "r.html").read_text(encoding="utf-8")
    lengths, others = page.split('<section id="tasks"')
    assert lengths.count('data-figure="operand-grid-addition-') == 2 and "operand-grid" not in others
    assert len(pixels(lengths[lengths.index("<image") :].split("<path")[0], "in-light")) == 6
    drawing = (write_report(results, tmp_path / "svg", "svg") / "operand-grid-addition.svg").read_text()
    words = [each.text for each in ElementTree.fromstring(drawing).iter()]
    assert words.count("none") == words.count("alibi") == 1
    with (write_report(results, tmp_path / "csv", "csv") / "operand-grid.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 36
    for row in rows:
        i, j = int(row["first_digits"]), int(row["second_digits"])
        assert float(row["mean"]) == pytest.approx(mean(row["encoding"], i, j), abs=1e-4)
        assert (row["trained"], row["n"]) == (str(max(i, j) <= 3), str(N))
        assert list(map(float, row["by_seed"].split())) == [correct(row["encoding"], s, i, j) / N for s in (1, 2)]


@pytest.mark.parametrize(
    "results",
    [
        study(square(6), settings={"name": "multiplication"}),
        study(square(6), settings={"name": "addition", "operands": 3}, coded=False),
        study((n, n) for n in range(1, 7)),
        study(square(6), settings={"name": "mixture", "tasks": [{"name": "summation"}, {"name": "addition"}]}),
        study(square(6), settings={"name": "mixture", "tasks": "addition"}),
    ],
    ids=["other task", "three operands", "one pair of each length", "tested on another", "odd settings"],
)
def test_without_pairs_there_is_none(results: Results, tmp_path: Path) -> None:
    assert operand_grids(results) == []
    assert "operand-grid" not in write_report(results, tmp_path / "r.html").read_text(encoding="utf-8")


def test_no_grid_without_addition_or_where_some_rows_do_not_say_their_pair(tmp_path: Path) -> None:
    results = load_results(RESULTS / "quickstart")
    for kind in ("csv", "svg"):
        folder = write_report(results, tmp_path / kind, kind)
        assert not [file for file in folder.iterdir() if "operand" in file.name]
    partly = study(square(6))
    partly.runs[1].rows[3].pop("bucket")
    assert operand_grids(partly) == []


def test_a_mixture_is_tested_on_its_first_task() -> None:
    settings = {"name": "mixture", "tasks": [{"name": "addition"}, {"name": "summation"}]}
    assert only(study(square(6), settings=settings)).size == 6


def test_pairs_are_those_of_addition_alone() -> None:
    """Of the tasks that there are, so that no other's buckets are taken for digits."""
    two = make_task(PAIRED)
    assert all(is_pair(bucket, two.length_of(bucket)) for bucket in two.buckets(Span(1, 120)))
    several = make_task({"name": PAIRED, "operands": 3})
    assert not any(is_pair(bucket, several.length_of(bucket)) for bucket in several.buckets(Span(1, 200)))
    for name in {*registry.tasks.names()} - {PAIRED, "mixture", "file"}:
        task = make_task(name)
        spans = task.train_lengths, task.test_lengths
        buckets = [bucket for span in spans for bucket in task.buckets(span)]
        assert not any(is_pair(bucket, task.length_of(bucket)) for bucket in buckets), name


@pytest.mark.slow
def test_a_hundred_digits_and_five_encodings_of_noise_fit_a_page() -> None:
    names = ("none", "alibi", "t5", "rotary", "sinusoidal")
    grid = only(study(square(100), (1, 20), names, seeds=(1,)))
    noise = np.random.default_rng(0).random((5, 100, 100))
    for shares, cells in zip(noise, grid.cells.values(), strict=True):
        for (i, j), cell in cells.items():
            cell.by_seed[0] = shares[i - 1, j - 1]
    assert sum(len(panel.inline()) for panel in grid_panels(grid, list(names))) < 200_000


def test_grids_of_the_battery_have_the_accuracies_of_its_curves() -> None:
    """A length is all pairs whose longer operand has so many digits."""
    results = load_results(RESULTS / "battery-small-symbols")
    grid = only(results)
    assert grid.size == 16 and grid.train_lengths == (1, 8)
    for encoding, cells in grid.cells.items():
        assert sorted(cells) == square(16)
        for length, by_seed in results.by_length("addition", encoding).items():
            own = [cell for pair, cell in cells.items() if max(pair) == length]
            mean = sum(cell.mean * cell.n for cell in own) / sum(cell.n for cell in own)
            assert mean == pytest.approx(np.mean(by_seed))
