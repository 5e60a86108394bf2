"""Where the window goes: the wall partition as a waterfall, GPU beside GPU, and the categories by each denominator."""

from collections.abc import Sequence

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import polars as pl

from k25trace.accounting import IDLE, WALL_ROWS
from k25trace.figures.axes import Spec, bars_px, figure, segment, stacked, time_ticks
from k25trace.palette import LIGHT, Theme, colour, ink, mixed
from k25trace.units import format_count, format_ns, format_share

ROW_PX = 26
_FRAME_PX = 70
_FEW = 16
"""Columns of a heat map up to which cells have room for their figures."""

_SHARES = (
    ("kernel_share", "of kernel time", ""),
    ("busy_share", "of the window, while it runs", "/"),
    ("wall_share", "of the window, by the wall partition", "x"),
)


def waterfall(wall: pl.DataFrame, *, theme: Theme = LIGHT) -> go.Figure:
    """Return the wall partition over all GPUs as a waterfall: each row begins where the one above it ends.

    Parameters
    ----------
    wall
        gpu, row, wall_ns (`Analysis.wall`). Rows are summed over GPUs; the longest comes first, idle last.
    """
    rows = (
        wall.group_by("row", maintain_order=True)
        .agg(pl.col("wall_ns").sum())
        .filter((pl.col("wall_ns") > 0) | (pl.col("row") == IDLE))
        .sort(pl.col("row") == IDLE, -pl.col("wall_ns"), maintain_order=True)
    )
    names, lengths = rows["row"].to_list(), rows["wall_ns"].to_list()
    total = sum(lengths)
    said = [f"{format_ns(ns)}, {format_share(ns / total if total else 0)}" for ns in lengths]
    ticks, texts = time_ticks(0, total, 4)
    bar: Spec = {
        "type": "bar",
        "orientation": "h",
        "x": lengths,
        "y": names,
        "base": [sum(lengths[:i]) for i in range(len(lengths))],
        "marker": {"color": [colour(name) for name in names], "line": {"width": 0}},
        "text": said,
        "textposition": "auto",
        "insidetextfont": {"color": [ink(colour(name)) for name in names]},
        "hovertext": [
            f"{name}: {text} ({format_count(ns)} ns)" for name, text, ns in zip(names, said, lengths, strict=True)
        ],
        "hoverinfo": "text",
        "cliponaxis": False,
        "showlegend": False,
    }
    layout: Spec = {
        "xaxis": {"tickvals": ticks, "ticktext": texts, "range": [0, total * 1.18 or 1], "fixedrange": True},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "ticks": "", "showgrid": False},
        "bargap": 0.25,
    }
    return figure([bar], layout, height=_FRAME_PX + ROW_PX * len(names), theme=theme)


def by_gpu(wall: pl.DataFrame, *, theme: Theme = LIGHT) -> go.Figure:
    """Return the wall partition of each GPU, one stacked bar a GPU.

    Parameters
    ----------
    wall
        gpu, row, wall_ns (`Analysis.wall`).
    """
    gpus: list[str] = wall["gpu"].unique(maintain_order=True).to_list()
    traces: list[Spec] = []
    for row in WALL_ROWS:
        mine = dict(wall.filter((pl.col("row") == row) & (pl.col("wall_ns") > 0)).select("gpu", "wall_ns").iter_rows())
        if mine:
            traces.append(segment(row, [mine.get(gpu, 0) for gpu in gpus], gpus, colour(row), theme))
    longest = int(wall.group_by("gpu").agg(pl.col("wall_ns").sum())["wall_ns"].max() or 0)  # pyright: ignore[reportArgumentType]
    return figure(traces, stacked(longest, len(traces)), height=bars_px(len(gpus), len(traces)), theme=theme)


def shares(categories: pl.DataFrame, window_ns: int, *, theme: Theme = LIGHT) -> go.Figure:
    """Return each category by its three denominators: kernel time, its own union, the wall partition.

    Parameters
    ----------
    categories
        category, kernel_share, busy_ns, wall_share, of one GPU or over all (`Analysis.categories`).
    window_ns
        What busy time is divided by: the window, summed over the same GPUs.
    """
    busy = pl.col("busy_ns") / window_ns if window_ns else pl.lit(0.0)
    shown = categories.with_columns(busy.alias("busy_share"))
    names: list[str] = shown["category"].to_list()
    traces: list[Spec] = []
    for column, what, pattern in _SHARES:
        values: Sequence[float] = shown[column].to_list()
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": what,
                "x": values,
                "y": names,
                "marker": {
                    "color": [colour(name) for name in names],
                    "pattern": {"shape": pattern, "fgcolor": theme.background, "size": 5, "solidity": 0.3},
                },
                "text": [format_share(value) for value in values],
                "textposition": "outside",
                "textfont": {"size": 10},
                "hovertext": [f"{n}: {format_share(v)} {what}" for n, v in zip(names, values, strict=True)],
                "hoverinfo": "text",
                "cliponaxis": False,
                "showlegend": False,  # plain, striped, crossed: said in words, where it can be read
            }
        )
    most = max([0.01, *(v for t in traces for v in t["x"])])  # pyright: ignore
    layout: Spec = {
        "barmode": "group",
        "xaxis": {"tickformat": ".0%", "range": [0, most * 1.15], "fixedrange": True, "nticks": 6},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "ticks": "", "showgrid": False},
        "bargap": 0.2,
    }
    return figure(traces, layout, height=_FRAME_PX + 3 * 15 * len(names), theme=theme)


def heatmap(categories: pl.DataFrame, *, by: str = "gpu", theme: Theme = LIGHT) -> go.Figure:
    """Return kernel time by category and GPU (or another key), as shades with their figures.

    Parameters
    ----------
    categories
        ``by``, category, kernel_ns.
    """
    keys: list[object] = categories[by].unique(maintain_order=True).to_list()
    names = (
        categories.group_by("category")
        .agg(pl.col("kernel_ns").sum())
        .sort("kernel_ns", "category", descending=[True, False])["category"]
        .to_list()
    )
    known = {(key, category): ns for key, category, ns in categories.select(by, "category", "kernel_ns").iter_rows()}
    values = [[known.get((key, name), 0) for key in keys] for name in names]
    most = max([1, *(ns for row in values for ns in row)])
    across = [f"GPU {key}" if by == "gpu" else str(key) for key in keys]
    cell: Spec = {
        "type": "heatmap",
        "x": across,
        "y": names,
        "z": values,
        "zmin": 0,
        "zmax": most,
        "text": [[format_ns(ns) for ns in row] for row in values],
        "hovertemplate": "%{y}<br>%{x}<br>%{text}<extra></extra>",
        "colorscale": [[0, theme.panel], [1, theme.accent]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    # Of its own, because each cell needs an ink that stands out on its shade.
    places = [(x, y, ns) for y, row in zip(names, values, strict=True) for x, ns in zip(across, row, strict=True)]
    written: Spec = {
        "type": "scatter",
        "mode": "text",
        "x": [x for x, _, _ in places],
        "y": [y for _, y, _ in places],
        "text": [format_ns(ns) for _, _, ns in places],
        "textfont": {"size": 11, "color": [ink(mixed(theme.panel, theme.accent, ns / most)) for _, _, ns in places]},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    layout: Spec = {
        "xaxis": {"type": "category", "side": "top", "fixedrange": True, "ticks": ""},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "ticks": "", "showgrid": False},
    }
    traces = [cell, written] if len(keys) <= _FEW else [cell]
    return figure(traces, layout, height=_FRAME_PX + 22 * len(names), theme=theme)
