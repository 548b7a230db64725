"""The theorems hold in the decoder's own arithmetic, break where they should, and the page about them is true."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from drawings import assert_same_drawing

from lengthwise.analysis import theory
from lengthwise.analysis.theory import BYPASSED, FP32, FP64, IGNORED, NO_FIRST_TOKEN, TheoremCase
from lengthwise.analysis.theory_picture import absolute_figure, relative_figure
from lengthwise.cli import main
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/theory.md").read_text()

LENGTHS = [2, 3, 7, 64, 512]
HOLDING = pytest.mark.parametrize("case", [FP64, FP32, BYPASSED], ids=lambda case: case.name)
ROUNDING = {"fp64": 1e-12, "fp32": 1e-5}
"""Of what is added up, relative to the length."""


def traced(model: Decoder, tokens_BT: torch.Tensor) -> Trace:
    trace = Trace()
    with torch.no_grad():
        model(tokens_BT, trace=trace)
    return trace


def check_absolute(length: int, vocabulary: int, case: TheoremCase, seed: int = 0) -> None:
    inverse_T, position_T = theory.absolute_readings(length, vocabulary, case, seed)
    for t in range(1, length + 1):
        assert inverse_T[t - 1].item() == pytest.approx(1 / t, rel=1e-15 if case.precision == "fp64" else 1.2e-7)
        assert abs(position_T[t - 1].item() - t) <= ROUNDING[case.precision] * t


@HOLDING
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("vocabulary", [2, 50])
def test_the_first_layer_writes_position(length: int, vocabulary: int, case: TheoremCase) -> None:
    check_absolute(length, vocabulary, case, seed=length)


@HOLDING
def test_the_first_layer_writes_position_up_to_4096(case: TheoremCase) -> None:
    check_absolute(4096, 1000, case)


@HOLDING
@pytest.mark.parametrize("length", LENGTHS)
def test_later_logits_are_content_less_distance(length: int, case: TheoremCase) -> None:
    result = theory.verify_relative(length, 50, case, seed=length)
    assert result.logit_error <= ROUNDING[case.precision] * length


@pytest.mark.slow
@pytest.mark.parametrize("case", [FP64, BYPASSED], ids=lambda case: case.name)
def test_later_logits_are_content_less_distance_up_to_4096(case: TheoremCase) -> None:
    assert theory.verify_relative(4096, 50, case).logit_error <= ROUNDING[case.precision] * 4096


@pytest.mark.parametrize("case", [FP32, BYPASSED], ids=lambda case: case.name)
def test_what_the_decoder_itself_reports(case: TheoremCase) -> None:
    """Weights and logits of a traced pass, beside sums written out entry by entry."""
    length = 7
    model = theory.relative_decoder(length, 5, case)
    trace = traced(model, theory.tokens(length, 5, first_token=True))
    weights_TS = trace.layers[0].weights_BHTS[0, 0]
    content = range(theory.CONTENT.start, theory.CONTENT.stop)
    for t in range(1, length + 1):
        assert weights_TS[t - 1].tolist() == pytest.approx([1 / t] * t + [0] * (length - t))
        for layer in (1, 2):
            assert trace.residual_BTD[layer][0, t - 1, theory.POSITION].item() == pytest.approx(t)
            joined = model.blocks[layer].attention.projection.weight.tolist()  # queries, keys, values: 16 entries each
            x = trace.residual_BTD[layer][0].tolist()
            for i in range(1, t + 1):
                query = [sum(x[t - 1][d] * joined[d][k] for d in content) for k in content]
                key = [sum(x[i - 1][d] * joined[d][16 + k] for d in content) for k in content]
                expected = sum(q * k for q, k in zip(query, key, strict=True)) - (t - i)
                assert trace.layers[layer].logits_BHTS[0, 0, t - 1, i - 1].item() == pytest.approx(expected, abs=1e-4)


def test_later_layers_change_content_and_not_position() -> None:
    """Otherwise the third layer would only repeat the second."""
    model = theory.relative_decoder(20, 9, FP64)
    _, first_TD, second_TD, third_TD = theory.residual_stream(model, theory.tokens(20, 9, first_token=True))
    kept = slice(0, theory.CONTENT.start)
    assert torch.equal(first_TD[:, kept], second_TD[:, kept]) and torch.equal(first_TD[:, kept], third_TD[:, kept])
    changes = (second_TD - first_TD)[:, theory.CONTENT], (third_TD - second_TD)[:, theory.CONTENT]
    assert all(change.abs().mean() > 0.1 for change in changes)


def test_bypassed_norms_change_no_bit() -> None:
    tokens_BT = theory.tokens(100, 9, first_token=True)
    without, bypassed = (
        theory.residual_stream(theory.relative_decoder(100, 9, case), tokens_BT) for case in (FP32, BYPASSED)
    )
    others = [entry for entry in range(theory.WIDTH) if entry != theory.LARGE]
    for x_TD, y_TD in zip(without, bypassed, strict=True):
        assert torch.equal(x_TD[:, others], y_TD[:, others])
        assert (y_TD[:, theory.LARGE] == theory.LARGEST).all()


def test_bypassed_norms_leave_next_token_logits_small() -> None:
    model, tokens_BT = theory.relative_decoder(30, 9, BYPASSED), theory.tokens(30, 9, first_token=True)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens_BT), theory.relative_decoder(30, 9, FP32)(tokens_BT))


@pytest.mark.parametrize("length", [7, 64])
def test_norms_that_are_ignored_break_both(length: int) -> None:
    assert theory.verify_absolute(length, 50, IGNORED).position_error > 1
    assert theory.verify_relative(length, 50, IGNORED).logit_error > 1


@pytest.mark.parametrize("length", [2, 7, 64])
def test_without_the_first_token_every_position_is_the_same(length: int) -> None:
    inverse_T, position_T = theory.absolute_readings(length, 50, NO_FIRST_TOKEN)
    assert inverse_T.tolist() == [0] * length
    assert position_T.tolist() == [2 * length - 1] * length
    assert theory.verify_relative(length, 50, NO_FIRST_TOKEN).logit_error == pytest.approx(length - 1, abs=1e-4)


def test_without_the_first_token_no_weights_help() -> None:
    """Equal tokens give equal vectors at all positions, whatever the weights; a different first one is enough."""
    config = ModelConfig(layers=3, width=32, heads=4)
    for seed in range(3):
        model = build(config, 5, [{"name": "none"}], Lengths(40, 40))
        initialize(model, seed)
        tokens_BT = torch.full((1, 40), 2)
        assert (
            theory.residual_stream(model, tokens_BT)[-1] - theory.residual_stream(model, tokens_BT[:, :1])[-1]
        ).abs().max() < 1e-4
        tokens_BT[0, 0] = 0
        changed_TD = theory.residual_stream(model, tokens_BT)[-1]
        assert (changed_TD[1:] - changed_TD[-1:]).abs().max() > 1e-2


def test_a_first_token_that_comes_again_is_counted_again() -> None:
    """The head writes how many of the tokens seen are first tokens, so it must be nowhere else."""
    model = theory.absolute_decoder(6, 5, FP64)
    tokens_BT = torch.tensor([[0, 3, 3, 0, 1, 1]])
    written = theory.residual_stream(model, tokens_BT)[1][:, theory.INVERSE].tolist()
    assert written == pytest.approx([1, 1 / 2, 1 / 3, 2 / 4, 2 / 5, 2 / 6])


def test_positions_fall_behind_past_the_length_that_was_chosen() -> None:
    """The line through 1/(T-1) and 1/T goes on: an interpolation does not extrapolate."""
    model = theory.absolute_decoder(8, 5, FP64)
    position_T = theory.residual_stream(model, theory.tokens(16, 5, first_token=True))[1][:, theory.POSITION]
    expected = [t if t <= 8 else 15 - 56 / t for t in range(1, 17)]
    assert position_T.tolist() == pytest.approx(expected)
    assert position_T[-1].item() == pytest.approx(11.5)


def test_summing_from_the_other_end_would_cancel() -> None:
    """The same function of 1/t, written from 1/T upwards: a difference of terms as large as T^2."""
    length = 4096
    t_T = torch.arange(1, length + 1, dtype=torch.float64)
    inverse_T, j_I = (1 / t_T).float(), torch.arange(2.0, length)
    rising_T = (2 * j_I * inverse_T[:, None] - 2).relu().sum(1)
    falling_T = (length * (length - 1) * inverse_T - (length - 1)).relu()
    assert torch.allclose(length - falling_T + rising_T, t_T.float(), rtol=0, atol=1), "it is that function"
    error = (length - falling_T + rising_T - t_T).abs().max().item()
    assert error > 10 * theory.verify_absolute(length, 50, FP32).position_error


@pytest.mark.parametrize(("length", "vocabulary"), [(1, 50), (2, 1)])
def test_too_little_is_refused(length: int, vocabulary: int) -> None:
    with pytest.raises(ValueError, match="2 or more"):
        theory.absolute_decoder(length, vocabulary, FP32)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["lengthwise", "theory", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code


@pytest.mark.parametrize(("theorem", "columns"), [("absolute", 2), ("relative", 1)])
def test_commands_print_json_and_draw(
    theorem: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    call(monkeypatch, theorem, "--length", "6", "--json", "--picture", str(tmp_path / "a.svg"))
    rows = json.loads(capsys.readouterr().out)
    assert [row["length"] for row in rows if row["case"] == "fp64"] == [2, 4, 6]
    assert {row["theorem"] for row in rows} == {theorem}
    assert all(len([name for name in row if name.endswith("_error")]) == columns for row in rows)
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("theorem", ["absolute", "relative"])
def test_the_page_shows_what_the_command_prints(
    theorem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Rounding errors differ between machines: small ones may, by a factor."""
    monkeypatch.setenv("COLUMNS", "100")
    call(monkeypatch, theorem, "--length", "64")
    printed = numbers(capsys.readouterr().out)
    command = f"lengthwise theory {theorem} --length 512\n```\n\n```text\n"
    shown = numbers(PAGE.split(command)[1].split("```")[0])
    assert len(printed) == (12 if theorem == "absolute" else 6)
    for row in printed:
        alike = [other for other in shown if other[0] == row[0]]
        assert any(all(map(near, row, other)) for other in alike), row


def numbers(text: str) -> list[list[float]]:
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d", line)]
    return [[float(word) for word in row] for row in rows]


def near(first: float, second: float) -> bool:
    return max(first, second) < 1e-4 or first == pytest.approx(second, rel=0.01)


@pytest.mark.parametrize("figure", [absolute_figure, relative_figure], ids=lambda figure: figure.__name__)
def test_pictures_are_up_to_date(figure: object) -> None:
    drawn = figure(32, 50)  # type: ignore[operator]
    text = (ROOT / f"docs/pictures/{drawn.name}.svg").read_text()
    assert_same_drawing(text, drawn.file(), said=0.11)
