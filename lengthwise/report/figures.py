"""Charts of a study: accuracy by length, and the ranking."""

from typing import Any

from lengthwise.errors import UserError
from lengthwise.records.ranking import ranking
from lengthwise.records.rows import Results, mean_interval
from lengthwise.report.summaries import require_runs

try:
    import altair as alt
except ImportError as error:
    raise UserError(f"reports need {error.name}: pip install 'lengthwise[report]'") from error

Point = dict[str, Any]

PALETTE = ("#1d7651", "#bf9007", "#eb657c", "#7252c1", "#1ea09c", "#b73e09", "#9e85f9", "#a7468b")
"""Found by search: far apart for people with each kind of colour blindness (OKLab distance 0.078 or more, as in the
palette of Okabe and Ito), with a contrast of about 3 or more to both white and near-black paper; none stands out."""

SHAPES = (
    "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "M-0.9,-0.9H0.9V0.9H-0.9Z",
    "M0,-1.1L1.1,0.9H-1.1Z",
    "M0,-1.25L1.25,0L0,1.25L-1.25,0Z",
    "M0,1.1L1.1,-0.9H-1.1Z",
    "M-0.4,-1.2H0.4V-0.4H1.2V0.4H0.4V1.2H-0.4V0.4H-1.2V-0.4H-0.4Z",
    "M1.1,0L-0.9,1.1V-1.1Z",
)
"""SVG paths, so that colour is never the only sign; their number and that of the colours have no common divisor, which
makes 56 different pairs."""

FAMILIAR = ("none", "sinusoidal", "learned", "t5", "alibi", "rotary")
"""Encodings that look the same in the reports of all studies; others take what is left, in the study's order."""

INK = "#1b1f24"


def looks(encodings: list[str]) -> dict[str, tuple[str, str]]:
    """Encoding -> colour and shape."""
    others = [encoding for encoding in encodings if encoding not in FAMILIAR]
    taken = {FAMILIAR.index(encoding) for encoding in encodings if encoding in FAMILIAR}
    free = [number for number in range(len(PALETTE) * len(SHAPES)) if number not in taken]
    # Colours that no encoding of this study has come first.
    free.sort(key=lambda number: (number >= len(PALETTE), number in range(len(FAMILIAR)), number))
    numbers = {encoding: FAMILIAR.index(encoding) for encoding in encodings if encoding in FAMILIAR}
    numbers |= {encoding: free[i % len(free)] for i, encoding in enumerate(others)}
    return {
        encoding: (PALETTE[numbers[encoding] % len(PALETTE)], SHAPES[numbers[encoding] % len(SHAPES)])
        for encoding in encodings
    }


def accuracy_by_length(results: Results, checkpoint: str = "last") -> alt.ConcatChart:
    """One panel for each task, all axes alike."""
    require_runs(results)
    points = {task: curve_points(results, task, checkpoint) for task in results.tasks}
    panels = [curves(results, task, points[task]).properties(title=task) for task in results.tasks]
    chart = themed(alt.concat(*panels, columns=3, spacing=28), INK, background="white")
    return chart.properties(datasets={f"points of {task}": points[task] for task in results.tasks})


def curves(results: Results, task: str, points: list[Point], on_page: bool = False) -> Any:
    """Mean exact match of one task by length, one line with its interval for each encoding.

    The chart names its data, `points of TASK`, and leaves it to the caller to add them: Altair copies and checks data
    that it holds again and again. `on_page`: as wide as its place, with the parameter `shown` (a list of encodings)
    instead of a legend of its own.
    """
    shortest, furthest = (end(row["length"] for row in results.rows) for end in (min, max))
    x = alt.X(
        "length:Q",
        title="length",
        scale=alt.Scale(domain=[shortest - 0.5, furthest + 0.5], nice=False),
        axis=alt.Axis(tickMinStep=1, tickCount=8, format="d"),
    )
    y = alt.Y("mean:Q", title="exact match", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5, format=".1f"))
    colour, shape = _signs(results.encodings, legend=not on_page)
    base = alt.Chart(alt.NamedData(f"points of {task}")).encode(x=x, color=colour)
    if on_page:
        base = base.transform_filter("indexof(shown, datum.encoding) >= 0")
    longest = results.train_length(task)
    trained = alt.Chart(alt.Data(values=[{"length": longest}])).encode(x=x)
    room = longest < shortest + 0.7 * (furthest - shortest)
    chart = alt.layer(
        trained.mark_rule(strokeDash=[4, 3], strokeWidth=1, opacity=0.55, aria=False),
        trained.mark_text(
            align="left" if room else "right", dx=4 if room else -4, dy=-7, y=0, opacity=0.7, fontSize=10, aria=False
        ).encode(text=alt.value(f"trained to {longest}")),
        base.mark_area(opacity=0.16, aria=False).encode(y=alt.Y("low:Q", title="exact match"), y2="high:Q"),
        base.mark_line(strokeWidth=1.6, aria=False).encode(y=y),
        # The clear stroke makes small points easy to hit.
        base.mark_point(filled=True, opacity=1, size=20, stroke="transparent", strokeWidth=8, aria=False).encode(
            y=y, shape=shape, tooltip=_tooltip()
        ),
    ).properties(height=170, description=_spoken(points, task, results.encodings))
    if on_page:
        return chart.properties(width="container").add_params(alt.param("shown", value=results.encodings))
    return chart.properties(width=250)


def curve_points(results: Results, task: str, checkpoint: str = "last") -> list[Point]:
    """Encoding, length, mean, interval and number of seeds, for each point of the curves of one task."""
    points = []
    for encoding in results.encodings:
        for length, values in results.by_length(task, encoding, checkpoint).items():
            mean, low, high = mean_interval(values)
            point = {"encoding": encoding, "length": length, "mean": mean, "low": low, "high": high}
            points.append({**point, "interval": f"{low:.3f} to {high:.3f}", "seeds": len(values)})
    return points


def ranking_chart(results: Results) -> alt.LayerChart:
    """Mean reciprocal rank with its interval, best first."""
    require_runs(results)
    table = [
        {
            "encoding": place.encoding,
            "mean": place.reciprocal_rank,
            "low": place.reciprocal_rank_interval[0],
            "high": place.reciprocal_rank_interval[1],
            "interval": "{:.3f} to {:.3f}".format(*place.reciprocal_rank_interval),
            "columns": place.columns,
        }
        for place in ranking(results)
    ]
    colour, shape = _signs(results.encodings, legend=False)
    base = alt.Chart(alt.Data(values=table)).encode(
        y=alt.Y("encoding:N", title=None, sort=[row["encoding"] for row in table], axis=alt.Axis(labelLimit=150)),
        color=colour,
        tooltip=[
            alt.Tooltip("encoding:N"),
            alt.Tooltip("mean:Q", title="mean reciprocal rank", format=".3f"),
            alt.Tooltip("interval:N", title="95 % interval"),
            alt.Tooltip("columns:Q", title="tasks x seeds"),
        ],
    )
    x = alt.X("mean:Q", title="mean reciprocal rank", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    spoken = ", ".join(f"{row['encoding']} {row['mean']:.2f}" for row in table) or "nothing to rank"
    return themed(
        alt.layer(
            base.mark_rule(strokeWidth=2, aria=False).encode(x=alt.X("low:Q", title=x["title"]), x2="high:Q"),
            base.mark_point(filled=True, opacity=1, size=70, aria=False).encode(x=x, shape=shape),
        ).properties(
            width=360,
            height=26 * len(table),
            description=f"Mean reciprocal rank of each encoding, best first: {spoken}.",
        ),
        INK,
        background="white",
    )


def themed(chart: Any, ink: str, background: str | None = None, font: str = "sans-serif") -> Any:
    """Quiet axes, all in `ink`; `currentColor` follows the page, in the light and in the dark."""
    return (
        chart.configure(background=background, font=font)
        .configure_view(stroke=None)
        .configure_axis(
            gridColor=ink, gridOpacity=0.12, domainColor=ink, domainOpacity=0.4, tickColor=ink, tickOpacity=0.4,
            labelColor=ink, labelOpacity=0.8, titleColor=ink, titleOpacity=0.8, titleFontWeight="normal",
            labelFontSize=11, titleFontSize=11, labelOverlap="parity",
        )
        .configure_title(color=ink, fontSize=13, fontWeight=600, anchor="start", offset=14)
        .configure_legend(labelColor=ink, labelFontSize=12, symbolSize=60, symbolOpacity=1)
        .configure_text(color=ink)
        .configure_rule(color=ink)
    )  # fmt: skip


def _signs(encodings: list[str], legend: bool) -> tuple[alt.Color, alt.Shape]:
    look = looks(encodings)
    where = alt.Legend(title=None, orient="top", direction="horizontal", columns=6, labelLimit=220) if legend else None
    colours, shapes = ([look[encoding][i] for encoding in encodings] for i in range(2))
    return (
        alt.Color("encoding:N", scale=alt.Scale(domain=encodings, range=colours), legend=where),
        alt.Shape("encoding:N", scale=alt.Scale(domain=encodings, range=shapes), legend=where),
    )


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("encoding:N"),
        alt.Tooltip("length:Q"),
        alt.Tooltip("mean:Q", title="mean exact match", format=".3f"),
        alt.Tooltip("interval:N", title="95 % interval"),
        alt.Tooltip("seeds:Q", title="seeds"),
    ]


def _spoken(points: list[Point], task: str, encodings: list[str]) -> str:
    """What a screen reader says instead of the curves."""
    ends = {row["encoding"]: row for row in points}
    said = ", ".join(
        f"{name} {ends[name]['mean']:.2f} at length {ends[name]['length']}" for name in encodings if name in ends
    )
    return f"Exact match on {task} by length. At the longest length: {said}."
