"""A card for each method of some results: what its encodings say, and what a fresh model of them does."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import torch

from lengthwise import registry
from lengthwise.cards.pictures import TOKENS, Pictures, pictures_of
from lengthwise.door import visible
from lengthwise.encodings.choice import is_mixer, kinds_of, read_encoding, tables_of, words_of
from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Encoding
from lengthwise.errors import UserError
from lengthwise.model.backend import explain, probe
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.presets import PRESETS, Preset
from lengthwise.records.claims import Claim
from lengthwise.records.results import Results
from lengthwise.report.model.method_card import CardPart, MethodCard
from lengthwise.report.model.phrases import plain, span
from lengthwise.study import claim_of, shipped_studies

FRESH = ModelConfig(layers=1, width=256, heads=8)
"""Whatever the size of the models that were trained: pictures of different studies look the same."""
SEED = 1
LARGEST = 100_000
"""Numbers in settings beyond it are not built: results come from anywhere, and tables may be as long as they say."""

LONGEST = 300
"""Letters of what went wrong."""

PLACES = {
    "rotation": "queries and keys",
    "token_rotation": "queries and keys",
    "queries": "queries and keys",
    "keys": "queries and keys",
    "scale": "logits, as a factor",
    "distance_bias": "logits, by distance",
    "position_bias": "logits, by the positions of query and key",
    "row_column_bias": "logits, a number of the query and one of the key",
    "window": "which keys are seen",
    "chunk": "which keys are seen",
    "score": "logits",
    "normalizer": "the weights, in place of the softmax",
    "output": "what heads found",
}
"""Part of a contribution -> where it acts."""
DERIVED = {
    "rotation": "rotation",
    "token_rotation": "rotation",
    "queries": "rotation",
    "keys": "rotation",
    "scale": "scale",
    "distance_bias": "bias",
    "position_bias": "bias",
    "row_column_bias": "bias",
    "score": "bias",
    "window": "mask",
    "chunk": "mask",
    "normalizer": "normalizer",
    "output": "output",
}
"""The kind of a method that has no card, from what it contributes."""


def method_card(method: str, results: Results) -> MethodCard:
    """Of a method that these results have; never an error: what cannot be found here is said on the card."""
    run = results.by_encoding[method][0]
    layers = run.description["settings"]["encoding"]
    facts: list[tuple[str, str]] = []
    if _differ(layers):
        facts.append(("layers", _schedule(layers)))
    notes: list[str] = []
    drawn = Pictures()
    kinds = _kinds(layers)
    try:
        if _missing(layers):  # which its summary says
            models = []
        else:
            _refuse_large(layers)
            models = [(layer, _fresh(layer)) for layer in _distinct(layers)]
            facts += _facts(models)
        for layer, model in models:
            if is_mixer(layer):
                notes.append(f"{layer['name']} takes the place of attention: there is nothing to draw.")
                continue
            words = f"{words_of([dict(layer)])}: " if len(models) > 1 else ""
            encoding = model.encoding_at(0)
            with registry.asking(f"encoding {encoding.name}", type(encoding), "contribute"):
                own = pictures_of(encoding, _file_name(method, layer, len(models)), words)
            drawn.drawn += own.drawn
            drawn.notes += own.notes
        kinds = _derived(kinds, models) if "position" in kinds else kinds
    except Exception as error:  # code of others fails in any way; a page is worth more than one of its pictures
        kind = "" if isinstance(error, UserError | ValueError) else f"{type(error).__name__}: "
        notes.append(f"Not drawn: {visible(f'{kind}{error}', LONGEST)}")
    preset = _preset(method, layers)
    recorded = {each.description["parameters_of_encoding"] for each in results.by_encoding[method]}
    facts.append(("parameters of it in these runs", span(recorded)))
    facts += [("published claim", f"{title}: lengthwise run {study}") for study, title in _claims(method)]
    return MethodCard(
        method,
        tuple(kinds) or ("unknown",),
        tuple(_parts(layers)),
        tuple(facts),
        tuple(drawn.drawn),
        (*drawn.notes, *notes),
        preset.source if preset else "",
        preset.arxiv if preset else "",
    )


@cache
def _shipped_claims() -> dict[str, Claim | None]:
    return {study: claim_of(file) for study, file in shipped_studies().items()}


def _claims(method: str) -> list[tuple[str, str]]:
    """Studies that try a published claim about a method, and what they are about."""
    found = _shipped_claims()
    return [
        (study, claim.title)
        for study, claim in found.items()
        if claim and any(number.encoding == method for number in claim.numbers)
    ]


def _parts(layers: Sequence[Mapping[str, Any]]) -> list[CardPart]:
    """Each once, with what is set otherwise than by default; nothing of `none` beside others."""
    tables = [table for layer in layers for table in tables_of(dict(layer))]
    found: dict[CardPart, None] = {}
    for table in [table for table in tables if table["name"] != "none"] or tables:
        name = table["name"]
        components = registry.mixers if name in registry.mixers.entries else registry.encodings
        entry = components.entries.get(name)
        card = entry.card if entry else {}
        summary = entry.summary if entry else f"Its file is not found here; {registry.VARIABLE} may name its folder."
        defaults = entry.settings if entry else {}
        given = {key: value for key, value in table.items() if key != "name" and repr(value) != defaults.get(key)}
        said = (card.get(field, "") for field in ("equation", "source", "arxiv"))
        found[CardPart(name, summary, plain(given) if given else "", *said)] = None
    return list(found)


def _missing(layers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a method's file is not found here."""
    names = {table["name"] for layer in layers for table in tables_of(dict(layer))}
    return not names <= {*registry.encodings.entries, *registry.mixers.entries}


def _preset(method: str, layers: Sequence[Mapping[str, Any]]) -> Preset | None:
    """The published choice that this is: it has its name and its methods."""
    found = PRESETS.get(method)
    same = found and words_of(read_encoding(method).layers) == words_of([dict(layer) for layer in layers])
    return found if same else None


def _kinds(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    return kinds_of([dict(layer) for layer in layers])


def _derived(kinds: list[str], models: list[tuple[Mapping[str, Any], Decoder]]) -> list[str]:
    found: list[str] = [kind for kind in kinds if kind != "position"]
    for layer, model in models:
        if not is_mixer(layer):
            found += [DERIVED[name] for name in _contribution(model).names]
    return list(dict.fromkeys(found)) or ["embedding"]


def _fresh(layer: Mapping[str, Any]) -> Decoder:
    model = build(FRESH, 24, [layer], Lengths(TOKENS // 2, TOKENS))
    initialize(model, SEED)
    return model


def _contribution(model: Decoder) -> Contribution:
    encoding = model.encoding_at(0)
    return probe(encoding, FRESH.width).contribution(encoding)


def _facts(models: list[tuple[Mapping[str, Any], Decoder]]) -> list[tuple[str, str]]:
    places, computed, learned = [], [], 0
    for layer, model in models:
        if is_mixer(layer):
            places.append("takes the place of attention")
            computed.append("eager")
            learned += sum(parameter.numel() for mixer in model.mixers() if mixer for parameter in mixer.parameters())
            continue
        encoding = model.encoding_at(0)
        names = _contribution(model).names
        places += [PLACES[name] for name in names]
        if _embeds(encoding):
            places.append("token embeddings")
        computed.append(explain(encoding, FRESH))
        learned += sum(parameter.numel() for parameter in encoding.parameters())
    told = "; ".join(dict.fromkeys(computed))
    return [
        ("acts on", "; ".join(dict.fromkeys(places)) or "nothing"),
        ("learned", "yes" if learned else "no"),
        ("on a GPU", told),
    ]


@torch.no_grad()
def _embeds(encoding: Encoding) -> bool:
    """Whether it changes token embeddings."""
    nothing_BTD = torch.zeros(1, TOKENS, FRESH.width)
    return bool(encoding.embed(nothing_BTD, torch.arange(TOKENS)[None]).any())


def _refuse_large(value: Any) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _refuse_large(each)
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise UserError(f"a setting of {value:,} is more than cards are drawn for")


def _distinct(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({json.dumps(layer, sort_keys=True): layer for layer in layers}.values())


def _differ(layers: Sequence[Mapping[str, Any]]) -> bool:
    return any(layer != layers[0] for layer in layers)


def _schedule(layers: Sequence[Mapping[str, Any]]) -> str:
    names = [words_of([dict(layer)]) for layer in layers]
    return ", ".join(f"{name} × {len(list(group))}" for name, group in groupby(names))


def _file_name(method: str, layer: Mapping[str, Any], layers: int) -> str:
    return method if layers == 1 else f"{method}-{words_of([dict(layer)])}"
