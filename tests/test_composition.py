"""Several methods in one layer, and scales and normalisers as axes of a study."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lengthwise import registry
from lengthwise.encodings.choice import read_encoding, words_of
from lengthwise.encodings.composition import Composition
from lengthwise.encodings.encoding import Geometry
from lengthwise.errors import UserError
from lengthwise.model.build import Lengths, build, make_encoding
from lengthwise.model.config import ModelConfig
from lengthwise.model.trace import Trace
from lengthwise.study import load_study, study_from
from lengthwise.training.checkpoint import run_from
from lengthwise.training.fleet import Fleet
from lengthwise.training.trainer import resolved_encodings

CONFIG = ModelConfig(style="llama", layers=2, width=32, heads=4, feed_forward=40)
GEOMETRY = replace(Geometry.of(32, 4, 2), logit_scale=CONFIG.logit_scale)

GATED = '''
import torch
from torch import nn
from lengthwise.encodings.encoding import Contribution, Encoding
from lengthwise.encodings.contribution import RowColumnBias

class Gated(Encoding):
    """A number of the key, made from what the layer reads."""
    name = "gated"
    reads_layer = True
    def __init__(self, config, geometry):
        super().__init__(config, geometry)
        self.gate = nn.Linear(geometry.width, geometry.heads)
        self.slope = nn.Parameter(torch.tensor(0.1))
    def token_numbers(self, layer_input_BTD):
        return self.gate(layer_input_BTD).float()
    def contribute(self, layout):
        column = layout.token_numbers_BSC.movedim(-1, 1) * self.slope
        return Contribution(row_column_bias=RowColumnBias(torch.zeros_like(column[..., :1]), column))
    def decays(self, name):
        return name == "slope"
'''
LOG_SCALE = '''
from lengthwise.encodings.encoding import Contribution, Encoding

class LogScale(Encoding):
    """Logits grow with the logarithm of how many keys are seen."""
    name = "log-scale"
    kind = "scale"
    def contribute(self, layout):
        return Contribution(scale=1 + layout.visible_BT[:, None, :, None].float().log())
'''
SHARE = '''
from lengthwise.encodings.encoding import Contribution, Encoding

class Share(Encoding):
    """A key more that takes its share and says nothing."""
    name = "share"
    kind = "normalizer"
    def contribute(self, layout):
        return Contribution(normalizer=lambda logits, layout: logits.exp() / (1 + logits.exp().sum(-1, keepdim=True)))
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "encodings").mkdir()
    for name, text in (("gated", GATED), ("log_scale", LOG_SCALE), ("share", SHARE)):
        (tmp_path / "encodings" / f"{name}.py").write_text(text)
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    registry.encodings.__dict__.pop("entries", None)
    for name in [name for name in sys.modules if name.startswith("lengthwise_path_")]:
        del sys.modules[name]


def model_of(*layers: object, rows: int = 20):
    model = build(CONFIG, rows, read_encoding(list(layers)).resolved().layers, Lengths(16, 16))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def test_methods_of_a_layer_are_written_as_an_inner_list() -> None:
    choice = read_encoding([["rotary", {"name": "alibi"}], "none"])
    assert choice.label == "rotary+alibi,none"
    assert choice.layers == ({"methods": [{"name": "rotary"}, {"name": "alibi"}]}, {"name": "none"})
    assert words_of(choice.layers) == "rotary+alibi,none"
    assert read_encoding({"layers": [["rotary", "alibi"]], "label": "both"}).label == "both"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ([["rotary", ["alibi"]]], "flat list"),
        ([[]], "flat list"),
        ([], "at least one"),
        ([["rotary", "rotari"]], "rotary"),
        ([["rotary", 3]], "a name or a table"),
        ({"layers": ["rotary"], "lable": "x"}, "lable"),
        ({"layers": ["rotary"], "label": "../x"}, "plain word"),
    ],
)
def test_what_is_no_encoding_is_refused(choice: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_encoding(choice)


def test_a_composition_does_what_its_methods_do_by_themselves(outside: Path) -> None:
    """Products are rotated, then scaled, then ALiBi and the gate are added: checked against its parts by hand."""
    tokens_BT = torch.randint(1, 20, (2, 9), generator=torch.Generator().manual_seed(1))
    composed = model_of(["rotary", "alibi", "log-scale", "gated"])
    encoding = composed.encoding_at(0)
    assert isinstance(encoding, Composition) and encoding.numbers == [0, 0, 0, 4]
    layout = composed.layout(tokens_BT)
    x_BTD = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2))
    numbers = encoding.token_numbers(x_BTD)
    here = layout.at_layer(0, x_BTD, numbers)
    found = here.contribution(encoding)
    rotary, alibi, _, gated = encoding.methods
    assert found.rotation is not None and found.rotation.angles == rotary.contribute(layout).rotation.angles
    expected = alibi.penalty(layout.distances_BTS).movedim(0, 1)
    expected = expected + (gated.gate(x_BTD).movedim(-1, 1) * gated.slope)[:, :, None, :]
    torch.testing.assert_close(found.bias(layout).expand_as(expected), expected)
    counted = 1 + torch.arange(1, 10).float().log()
    torch.testing.assert_close(found.scale.expand(1, 1, 9, 1).flatten(), counted)


def test_order_of_additive_methods_does_not_matter_and_cached_equals_uncached(outside: Path) -> None:
    tokens_BT = torch.randint(1, 20, (2, 9), generator=torch.Generator().manual_seed(1))
    model = model_of(["gated", "rotary", "log-scale", "alibi"])
    with torch.no_grad():
        whole = model(tokens_BT)
        cache, steps = model.new_cache(2, 9), []
        for t in range(9):
            steps.append(model(tokens_BT[:, t : t + 1], cache=cache))
        torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=2e-5, rtol=2e-5)


def test_a_fleet_trains_every_parameter_of_a_composition(outside: Path) -> None:
    model = build(CONFIG, 20, read_encoding([["gated", "t5", "log-scale"]]).resolved().layers, Lengths(16, 16))
    fleet = Fleet(model, 2, torch.device("cpu"))
    fleet.initialize([1, 2])
    names = [name for name in fleet.shapes if name.startswith("encodings.")]
    assert names == ["encodings.0.methods.0.slope", "encodings.0.methods.0.gate.weight",
                     "encodings.0.methods.0.gate.bias", "encodings.0.methods.1.table"]  # fmt: skip
    assert fleet.named(fleet.matrix_NW)["encodings.0.methods.0.slope"].tolist() == pytest.approx([0.1, 0.1])
    assert [fleet.decays_weight(name, norms=False) for name in names] == [True, False, False, False]


def test_two_normalisers_or_two_rotations_are_one_line() -> None:
    for first, second, what in (("rotary", {"name": "rotary", "base": 500.0}, "rotation"),):
        layers = read_encoding([[first, second]]).resolved().layers
        with pytest.raises(UserError, match=f"two methods of one layer have a {what}"):
            build(CONFIG, 20, layers, Lengths(16, 16))


def test_scales_and_normalisers_are_axes(outside: Path) -> None:
    table = {
        "name": "axes",
        "summary": "",
        "tasks": ["copy.repeat"],
        "encodings": ["none", ["rotary", "none"]],
        "scales": ["none", "log-scale"],
        "normalizers": ["softmax", "share"],
        "seeds": [1],
    }
    study = study_from(table)
    assert study.labels == [
        *("none", "none+share", "none+log-scale", "none+log-scale+share"),
        *("rotary,none", "(rotary,none)+share", "(rotary,none)+log-scale", "(rotary,none)+log-scale+share"),
    ]
    runs = study.runs()
    assert len({run.fingerprint for run in runs}) == 8
    last = runs[-1].encoding.layers
    assert [[method["name"] for method in layer["methods"]] for layer in last] == [
        ["rotary", "log-scale", "share"], ["none", "log-scale", "share"]]  # fmt: skip
    assert run_from(runs[-1].table()).fingerprint == runs[-1].fingerprint


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("scales", "alibi", "alibi is no scale but of the kind position"),
        ("scales", "share", "share is no scale but of the kind normalizer"),
        ("normalizers", "sharp", "share"),
        ("scales", ["log-scale", "log-scale"], "the same in every layer"),
    ],
)
def test_an_axis_takes_methods_of_its_kind(outside: Path, key: str, value: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_study("quickstart", [f"{key}={[value]!r}"])


def test_runs_that_are_older_than_placements_and_compositions_keep_their_fingerprint() -> None:
    """Of the quickstart's first run, as committed in results/."""
    first = load_study("quickstart").runs()[0]
    assert (first.name, first.fingerprint) == ("copy.repeat/none/seed-1", "301ec4fceedf")


def test_a_normaliser_that_attends_to_nothing_sums_below_one(outside: Path) -> None:
    encoding = make_encoding({"methods": [{"name": "alibi"}, {"name": "share"}]}, GEOMETRY)
    assert isinstance(encoding, nn.Module)
    layout = model_of("none").layout(torch.ones(1, 4, dtype=torch.long))
    normalizer = encoding.contribute(layout).normalizer
    logits: Tensor = torch.tensor([[[[0.0, -math.inf]]]])
    assert normalizer is not None
    torch.testing.assert_close(normalizer(logits, layout), torch.tensor([[[[0.5, 0.0]]]]))


WITHIN = '''
from lengthwise.encodings.encoding import Contribution, Encoding

class Within(Encoding):
    """Three keys at most."""
    name = "within"
    def contribute(self, layout):
        return Contribution(window=3)
'''
CENTRED = '''
from torch import nn
from lengthwise.encodings.encoding import Contribution, Encoding

class Centred(Encoding):
    """Logits times a number of the key that the layer's input says, less their mean over keys that are seen."""
    name = "centred"
    reads_layer = True
    def __init__(self, config, geometry):
        super().__init__(config, geometry)
        self.gate = nn.Linear(geometry.width, 1, bias=False)
    def token_numbers(self, layer_input_BTD):
        return self.gate(layer_input_BTD).float()
    def contribute(self, layout):
        return Contribution(score=self.score, output=self.output)
    def score(self, scores):
        column = scores.logits_BHTS * scores.layout.token_numbers_BSC.movedim(-1, 1)[:, :, None]
        seen = scores.visible_BTS[:, None]
        return column - column.masked_fill(~seen, 0).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
    def output(self, mixed, layout):
        assert layout.token_numbers_BSC.shape[-1] == 1
        return mixed
'''


def test_who_counts_keys_knows_what_a_window_of_the_same_layer_hides(outside: Path) -> None:
    (outside / "encodings/within.py").write_text(WITHIN)
    _forget()
    tokens_BT = torch.ones(1, 6, dtype=torch.long)
    for order in (["within", "log-scale"], ["log-scale", "within"]):
        model = model_of(order)
        scale = model.layout(tokens_BT).contribution(model.encoding_at(0)).scale
        torch.testing.assert_close(scale.flatten(), 1 + torch.tensor([1.0, 2, 3, 3, 3, 3]).log())
        blocks = model.layout(tokens_BT).queries(torch.tensor([1, 4])).contribution(model.encoding_at(0)).scale
        torch.testing.assert_close(blocks.flatten(), 1 + torch.tensor([2.0, 3]).log())


def test_each_method_is_shown_the_numbers_that_it_made_itself(outside: Path) -> None:
    """Also in what is called later: changes of scores and of the output. By hand, one layer."""
    (outside / "encodings/centred.py").write_text(CENTRED)
    (outside / "encodings/within.py").write_text(WITHIN)
    _forget()
    model = model_of(["gated", "centred", "within"])
    tokens_BT = torch.randint(1, 20, (1, 7), generator=torch.Generator().manual_seed(1))
    trace = Trace()
    with torch.no_grad():
        model(tokens_BT, trace=trace)
        block = model.blocks[0]
        x_TD = block.attention_norm(model.embedding(tokens_BT))[0]
        gated, centred, _ = model.encoding_at(0).methods
        gate_TH, factor_T = gated.gate(x_TD) * gated.slope, centred.gate(x_TD)[:, 0]
        content_HTS = trace.layers[0].content_BHTS[0]
        for t in range(7):
            seen = range(max(0, t - 2), t + 1)
            for head in range(4):
                raw = [(content_HTS[head, t, s] + gate_TH[s, head]) * factor_T[s] for s in seen]
                expected = torch.stack(raw) - torch.stack(raw).mean()
                found = trace.layers[0].logits_BHTS[0, head, t, seen.start : seen.stop]
                torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
                assert (trace.layers[0].logits_BHTS[0, head, t, : seen.start] == -math.inf).all()


def test_a_run_says_how_its_attention_is_computed(outside: Path) -> None:
    (outside / "encodings/centred.py").write_text(CENTRED)
    _forget()
    layers = read_encoding([["rotary", "alibi"], "centred"]).resolved().layers
    told = resolved_encodings(build(replace(CONFIG, width=64), 20, layers, Lengths(16, 16)))
    assert told["rotary+alibi"]["attention"] == "fused"
    assert told["centred"]["attention"] == "partly fused: logits are made before the kernel"
