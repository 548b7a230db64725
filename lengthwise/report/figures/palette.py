"""How things look in every figure: one colour and shape for each encoding, one colour scale for accuracies."""

import math
import zlib

PALETTE = ("#1d7651", "#bf9007", "#eb657c", "#7252c1", "#1ea09c", "#b73e09", "#9e85f9", "#a7468b")
"""Found by search: far apart for people with each kind of colour blindness (OKLab distance 0.078 or more, as in the
palette of Okabe and Ito), with a contrast of about 3 or more to both white and near-black paper; none stands out."""

SHAPES = (
    "m1,0a1,1,0,1,1,-2,0a1,1,0,1,1,2,0z",
    "m-0.9,-0.9h1.8v1.8h-1.8z",
    "m0,-1.1l1.1,2h-2.2z",
    "m0,-1.25l1.25,1.25l-1.25,1.25l-1.25,-1.25z",
    "m0,1.1l1.1,-2h-2.2z",
    "m-0.4,-1.2h0.8v0.8h0.8v0.8h-0.8v0.8h-0.8v-0.8h-0.8v-0.8h0.8z",
    "m1.1,0l-2,1.1v-2.2z",
)
"""SVG paths about the current point, so that colour is never the only sign; their number and that of the colours have
no common divisor, which makes 56 different pairs."""

DARK_PALETTE = ("#7cc4b2", "#f0ca6e", "#df705c", "#c2aef4", "#9ddee5", "#f89772", "#a58cee", "#be7cb2")
"""What a page in the dark shows instead, see `page.css`: much the same hues, found by search among colours with a
contrast of 5.5 or more to near-black paper, at least 0.085 apart for everybody."""

KNOWN = (
    *("none", "sinusoidal", "learned", "t5", "alibi", "rotary", "fire", "kerple"),
    *("fox", "cope", "sandwich", "xpos", "path", "pope", "dape", "stick-breaking"),
    *("window", "hard-alibi", "nape", "p-rope", "selective-rotary", "path-fox", "t5-interpolated", "smollm3"),
    *("irope", "rnope-swa", "swan", "none+ssmax", "rotary+ssmax", "none+entmax", "nape+asentmax", "rotary+sink"),
)
"""Methods with a colour and a shape of their own in every report, whatever it is about; the first eight differ in
colour. Another one has what its name says (a number made of its letters), unless somebody beside it has that colour."""

INK = "#1b1f24"

SCALE = ("#f4f1e6", "#c5dfc9", "#7fbfc0", "#3f8fb5", "#2b5c97", "#1d2f6b")
"""Accuracies from 0 to 1. Lightness falls evenly, so that the order survives colour blindness and grey paper."""

DARK_SCALE = ("#262b32", "#2c4a66", "#2f7090", "#4c9b9f", "#93c5a1", "#e6edc9")
"""The same on near-black paper, where 0 must not shine: lightness rises evenly."""

DIVERGING = ("#7a3b06", "#c7762b", "#f0c48f", "#f4f4f1", "#9ccbdc", "#3f8fb5", "#1d4a7d")
"""Factors from well below 1 to well above it: 1 is nearly white, and both sides darken alike."""

ERROR_COLOURS = {"correct": "#6f9f86", "wrong_symbol": "#c98b5f", "stopped_early": "#7d8fb8", "ran_on": "#b98fb0"}
"""Colours of what becomes of an answer, the same as in `templates/page.css`."""


def styles(encodings: list[str]) -> dict[str, tuple[str, str]]:
    """Encoding -> colour and shape."""
    pairs = len(PALETTE) * len(SHAPES)
    numbers = {encoding: KNOWN.index(encoding) for encoding in encodings if encoding in KNOWN}
    for encoding in (each for each in encodings if each not in KNOWN):
        wanted = len(KNOWN) + zlib.crc32(encoding.encode()) % (pairs - len(KNOWN))
        places = [(wanted + i) % pairs for i in range(pairs)]
        colours = {number % len(PALETTE) for number in numbers.values()}
        fresh = [place for place in places if place % len(PALETTE) not in colours]
        free = [place for place in places if place not in numbers.values()]
        numbers[encoding] = (fresh or free or places)[0]  # with more than 56 encodings some look alike
    return {
        encoding: (PALETTE[numbers[encoding] % len(PALETTE)], SHAPES[numbers[encoding] % len(SHAPES)])
        for encoding in encodings
    }


def shade(value: float, scale: tuple[str, ...] = SCALE) -> str:
    """The colour of an accuracy."""
    place = min(max(value, 0.0), 1.0) * (len(scale) - 1)
    first = min(int(place), len(scale) - 2)
    rest = place - first
    pair = zip(_channels(scale[first]), _channels(scale[first + 1]), strict=True)
    return "#" + "".join(f"{round(low + (high - low) * rest):02x}" for low, high in pair)


def diverging(factor: float, limit: float) -> str:
    """The colour of a factor; `limit`: the greatest that is shown, above 1. Its inverse is as far from white.

    0, which switches off what it multiplies, is beyond every inverse and has the last colour.
    """
    if limit <= 1:
        return shade(0.5, DIVERGING)
    return shade(0.5 + 0.5 * math.log(factor) / math.log(limit) if factor > 0 else 0.0, DIVERGING)


def text_on(colour: str) -> str:
    """Black or white, whichever is easier to read on `colour`; the contrast is always above 4.5."""
    return "#ffffff" if contrast("#ffffff", colour) > contrast("#000000", colour) else "#000000"


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours as WCAG defines it, 1 to 21."""
    darker, lighter = sorted(map(_luminance, (first, second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
