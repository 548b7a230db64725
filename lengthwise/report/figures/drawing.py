"""Small words for writing SVG: elements, paths, text, a scale, and the figure that they make."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from lengthwise.report.figures.palette import INK

Point = tuple[float, float]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Figure:
    """A drawing; its ink is `currentColor`, so that it follows the page in the light and in the dark."""

    name: str
    """Of the file."""
    title: str
    description: str
    """What is said to somebody who cannot see it."""
    width: float
    height: float
    body: str

    def inline(self) -> str:
        """For a page that describes it in its own words."""
        return (
            f'<svg viewBox="0 0 {number(self.width)} {number(self.height)}" width="{number(self.width)}"'
            f' height="{number(self.height)}" data-figure="{escape(self.name)}" aria-hidden="true">{self.body}</svg>'
        )

    def file(self) -> str:
        """On white paper, for a file of its own."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(self.width)} {number(self.height)}"'
            f' width="{number(self.width)}" height="{number(self.height)}"'
            f' color="{INK}" font-family="{FONT}" role="img">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
            f'<rect width="100%" height="100%" fill="#ffffff"/>{self.body}</svg>\n'
        )


@dataclass(frozen=True)
class Scale:
    """Values of `domain` to places in `range`, evenly."""

    domain: tuple[float, float]
    range: tuple[float, float]

    def __call__(self, value: float) -> float:
        (first, last), (start, end) = self.domain, self.range
        return start + (value - first) / ((last - first) or 1) * (end - start)


def element(tag: str, content: str = "", /, **attributes: float | str | None) -> str:
    """An element; `_` in the names of attributes is `-`, attributes without a value are left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def text(
    words: str,
    x: float,
    y: float,
    size: float = 11,
    anchor: str = "start",
    weight: int | None = None,
    quiet: bool = False,
    fill: str = "currentColor",
) -> str:
    return element(
        "text",
        escape(words),
        x=x,
        y=y,
        font_size=size,
        text_anchor=None if anchor == "start" else anchor,
        font_weight=weight,
        fill=fill,
        fill_opacity=0.78 if quiet else None,
    )


def upwards(words: str, x: float, y: float, size: float = 11) -> str:
    """Quiet words that go up, their middle at (x, y): the title of an axis."""
    return element(
        "g", text(words, 0, 0, size, "middle", quiet=True), transform=f"translate({x:.0f},{y:.0f})rotate(-90)"
    )


def labels(words: Iterable[tuple[str, float, float]], size: float = 10.5, anchor: str = "start") -> str:
    """Quiet words at several places, all alike; much shorter than each by itself."""
    each = "".join(f'<text x="{number(x)}" y="{number(y)}">{escape(word)}</text>' for word, x, y in words)
    if not each:
        return ""
    return element(
        "g",
        each,
        font_size=size,
        text_anchor=None if anchor == "start" else anchor,
        fill="currentColor",
        fill_opacity=0.78,
    )


def line(x1: float, y1: float, x2: float, y2: float, width: float = 1, **attributes: float | str | None) -> str:
    places = path([(x1, y1), (x2, y2)])
    return element("path", d=places, stroke=attributes.pop("stroke", "currentColor"), stroke_width=width, **attributes)


def path(places: Iterable[Point]) -> str:
    """The data of a path from place to place."""
    return "M" + "L".join(f"{number(x)},{number(y)}" for x, y in places)


def dots(places: Iterable[Point]) -> str:
    """The data of a path that is nothing but points: drawn with round ends they are dots of the width of the line."""
    return "".join(f"M{number(x)},{number(y)}h0" for x, y in places)


def marks(places: Iterable[Point], shape: str, size: float, colour: str, **attributes: float | str | None) -> str:
    """The same shape at several places."""
    return "".join(
        element(
            "path", d=f"M0,0{shape}", transform=f"translate({number(x)},{number(y)})scale({number(size)})", fill=colour,
            **attributes,
        )
        for x, y in places
    )  # fmt: skip


def number(value: float) -> str:
    """With one decimal where it needs one."""
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 or value == 0 else f"{value:.2g}"


def width_of(words: str, size: float = 11) -> float:
    """About as wide as the words are."""
    return 0.53 * size * len(words)


def shortened(words: str, room: float, size: float = 11) -> str:
    """The words, or as many letters of them as there is room for."""
    most = int(room / (0.53 * size))
    return words if len(words) <= most else words[: max(1, most - 1)] + "…"


def ticks(first: float, last: float, most: int) -> list[int]:
    """At most `most` round numbers between first and last."""
    step, factors = 1, iter((2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000, 1000000))
    while last // step - -(-first // step) + 1 > most:
        step = next(factors)
    start = int(-(-first // step) * step)
    return list(range(start, int(last) + 1, step))


def apart(wanted: list[float], least: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, at least `least` apart; between low and high if there is room for all."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed: list[float] = []
    for i in order:
        placed.append(max(wanted[i], low if not placed else placed[-1] + least))
    end = high
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], end)
        end = placed[i] - least
    result = [0.0] * len(wanted)
    for i, place in zip(order, placed, strict=True):
        result[i] = place
    return result
