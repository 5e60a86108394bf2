"""What the figures share: axes of time, look, and texts that Plotly takes for text."""

from collections.abc import Sequence
from typing import cast

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]

from k25trace.palette import LIGHT, Theme, ink
from k25trace.report.text import printable
from k25trace.units import format_ns, time_scale

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
_TICKS = 6

BAR_PX = 32
AXIS_PX = 34
_LEGEND_ROW_PX = 22
_LEGEND_ENTRIES = 3
"""Entries of a legend that stand side by side, at least: more where there is room."""


def plain(text: str, limit: int | None = None) -> str:
    """Return a name as Plotly shows it as it is: Plotly reads some HTML in texts."""
    escapes = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"}  # between dollars it expects TeX
    return "".join(escapes.get(c, c) for c in printable(text, limit))


Spec = dict[str, object]
"""A trace, an axis or a layout as Plotly's JSON has it."""


def figure(traces: Sequence[Spec], layout: Spec, *, height: int, theme: Theme = LIGHT) -> go.Figure:
    """Return a figure with the look of the product; its axes are those that the layout names."""
    return go.Figure(spec(traces, layout, height=height, theme=theme))


def spec(traces: Sequence[Spec], layout: Spec, *, height: int, theme: Theme = LIGHT) -> Spec:
    """Return a figure as Plotly's JSON has it: `figure` without the time that Plotly takes to check it."""
    axis = {"gridcolor": theme.line, "linecolor": theme.line, "zerolinecolor": theme.line, "automargin": True}
    look: Spec = {
        "template": "none",
        "height": height,
        "paper_bgcolor": theme.background,
        "plot_bgcolor": theme.background,
        "font": {"family": FONT, "size": 12, "color": theme.text},
        "margin": {"l": 8, "r": 10, "t": 8, "b": 8},
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "align": "left", "namelength": -1},
        "hovermode": "closest",
        "dragmode": "zoom",
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.15, "x": 0, "traceorder": "normal"},
    }
    axes = {name: {**axis, **cast("Spec", own)} for name, own in layout.items() if name[1:5] == "axis"}
    return {"data": list(traces), "layout": {**look, **layout, **axes}}


def time_ticks(start_ns: int, end_ns: int, count: int = _TICKS) -> tuple[list[int], list[str]]:
    """Return places and texts of round instants on an axis of nanoseconds, all in one unit."""
    span = max(1, end_ns - start_ns)
    step = 1
    while span // step > count:
        # 1, 2, 5, 10, 20, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    unit, scale = time_scale(max(abs(start_ns), abs(end_ns)))
    digits = max(0, len(str(scale)) - len(str(step)))
    first = -(-start_ns // step) * step
    places = list(range(first, end_ns + 1, step))
    return places, [f"{place / scale:,.{digits}f} {unit}" for place in places]


def stacked(longest_ns: int, entries: int) -> Spec:
    """Return the layout of stacked bars of time, one a GPU, with a legend of so many entries at the lower edge."""
    ticks, texts = time_ticks(0, longest_ns, 4)
    return {
        "barmode": "stack",
        "xaxis": {"tickvals": ticks, "ticktext": texts, "range": [0, longest_ns or 1], "fixedrange": True},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "ticks": "", "showgrid": False},
        "bargap": 0.25,
        # What does not fit its bar in letters that can be read is not written: colour, legend and table say it.
        "uniformtext": {"minsize": 10, "mode": "hide"},
        "margin": {"l": 8, "r": 10, "t": 8, "b": AXIS_PX + legend_px(entries)},
        "legend": {
            "orientation": "h",
            "yref": "container",
            "yanchor": "bottom",
            "y": 0,
            "x": 0,
            "traceorder": "normal",
            "maxheight": legend_px(entries) + 10,  # Plotly would let half a figure's height scroll
            "font": {"size": 11},
        },
    }


def legend_px(entries: int) -> int:
    """Return the height of a legend below a figure."""
    return _LEGEND_ROW_PX * -(-entries // _LEGEND_ENTRIES)


def segment(name: str, lengths_ns: Sequence[int], gpus: Sequence[str], colour: str, theme: Theme) -> Spec:
    """Return the segments of one name in stacked bars, one a GPU: named in the bar where the name fits."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": list(lengths_ns),
        "y": [f"GPU {gpu}" for gpu in gpus],
        "marker": {"color": colour, "line": {"width": 1, "color": theme.background}},
        "text": [name if ns else "" for ns in lengths_ns],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": ink(colour), "size": 11},
        "hovertext": [f"GPU {gpu}<br>{name}: {format_ns(ns)}" for gpu, ns in zip(gpus, lengths_ns, strict=True)],
        "hoverinfo": "text",
    }


def bars_px(gpus: int, entries: int) -> int:
    """Return the height of stacked bars, one a GPU, with their axis and legend."""
    return BAR_PX * gpus + AXIS_PX + legend_px(entries) + 8
