"""The timeline: bars of GPU operations and ranges on lanes, at one level of detail."""

from typing import Any, cast

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import polars as pl

from k25trace.figures.axes import Spec, figure, plain, spec, time_ticks
from k25trace.levels import NO_ITEM
from k25trace.palette import COLOURS, LIGHT, PARTS, Theme, part_name
from k25trace.scene import KIND_NAMES, ON_GPU, STREAM, Scene
from k25trace.units import counted, format_count, format_ns

ROW_PX = 18
BAR_HALF = 0.35
"""Half the height of a bar, in lanes."""

SLIDER_PX = 64
"""The overview is drawn in the range slider; the axes that own it are a sliver above."""

MARGIN_PX = 44
GPU_GAP = 0.7
"""Between the lanes of two GPUs, in lanes."""

_NAME_CHARACTERS = 80
_OVERVIEW_SLOTS = 240
_SLIVER = 0.002
TIMES = "\N{MULTIPLICATION SIGN}"
_GAP_PX = 24


def places(lanes: pl.DataFrame) -> list[float]:
    """Return where each lane lies on the y axis, the first at 0 and the others below it."""
    found: list[float] = []
    at, last = 0.0, None
    for gpu in lanes["gpu"]:
        if last is not None:
            at += 1 + (GPU_GAP if gpu != last else 0)
        last = gpu
        found.append(at)
    return found


def lane_labels(lanes: pl.DataFrame) -> list[str]:
    """Return what stands beside each lane; nothing beside one more of the same."""
    columns = lanes.select("gpu", "label", "further").iter_rows()
    return ["" if further else f"{gpu} {label}" for gpu, label, further in columns]


def height_px(lanes: pl.DataFrame) -> int:
    """Return the height of the figure of some lanes."""
    return round(SLIDER_PX + _GAP_PX + MARGIN_PX + ROW_PX * ((places(lanes) or [0.0])[-1] + 1))


def timeline(
    scene: Scene,
    bars: pl.DataFrame,
    *,
    theme: Theme = LIGHT,
    hover: bool = True,
    slider: bool = True,
    view: tuple[int, int] | None = None,
) -> go.Figure:
    """Return the figure of some bars of a scene.

    Parameters
    ----------
    scene
        The lanes, and what the items of the bars are.
    bars
        Bars of one level of detail (`k25trace.levels`).
    hover
        Whether the bars' texts go into the figure.
    slider
        Whether an overview with a range slider lies above the lanes.
    view
        First and last instant that show; None: the window of the scene.

    Returns
    -------
    plotly.graph_objects.Figure
        One trace a part that occurs in the scene, in the order of `k25trace.palette.PARTS`: each bar is an area from
        start to end (x in nanoseconds of the scene's clock), with what it is as the text of its upper edge.
    """
    return go.Figure(timeline_spec(scene, bars, theme=theme, hover=hover, slider=slider, view=view))


def timeline_spec(
    scene: Scene,
    bars: pl.DataFrame,
    *,
    theme: Theme = LIGHT,
    hover: bool = True,
    slider: bool = True,
    view: tuple[int, int] | None = None,
) -> Spec:
    """Return `timeline` as Plotly's JSON has it, without the time that Plotly takes to check it."""
    at = places(scene.lanes)
    numbers = bars["item"].filter(bars["item"] != NO_ITEM).unique().sort().cast(pl.UInt32)
    items = dict(zip(numbers.to_list(), scene.items[numbers].iter_rows(named=True), strict=True)) if hover else None
    traces = [
        _areas(scene, bars.filter(pl.col("part") == part), name, at, items)
        for part, name in enumerate(PARTS)
        if part in scene.parts
    ]
    height = height_px(scene.lanes) - (0 if slider else SLIDER_PX + _GAP_PX)
    layout = _lanes_layout(
        scene,
        at,
        theme,
        view or (scene.start_ns, scene.end_ns),
        upper=SLIDER_PX + _GAP_PX if slider else 0,
        height=height,
    )
    if slider:
        traces += _overview(scene)
        layout |= _slider_layout(scene, height)
    return spec(traces, layout, height=height, theme=theme)


def overview(scene: Scene, *, theme: Theme = LIGHT) -> go.Figure:
    """Return which part of the time the kernels of the scene's streams take, stacked by category, over its window.

    The height of a slot of time is the mean over GPUs. Where the kernels of a GPU overlap so that they sum to more than
    the slot, each category has its share of it.
    """
    axis: Spec = {"showticklabels": False, "showgrid": False, "zeroline": False, "fixedrange": True}
    layout: Spec = {
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "xaxis": {**axis, "range": [scene.start_ns, scene.end_ns]},
        "yaxis": {**axis, "range": [0, 1.02]},
        "showlegend": False,
    }
    return figure(_overview(scene), layout, height=SLIDER_PX, theme=theme)


def _areas(
    scene: Scene, bars: pl.DataFrame, name: str, at: list[float], items: dict[int, dict[str, Any]] | None
) -> Spec:
    x: list[int | None] = []
    y: list[float | None] = []
    texts: list[str | None] = []
    lane = None
    for row in bars.sort("lane", "start_ns", "end_ns", "item").iter_rows(named=True):
        if lane is not None and row["lane"] != lane:
            x, y, texts = [*x, None], [*y, None], [*texts, None]
        lane = row["lane"]
        start, end = row["start_ns"], row["end_ns"]
        place = at[cast("int", row["lane"])]
        low, high = place + BAR_HALF, place - BAR_HALF
        # Along the foot of the lane from bar to bar: one outline a lane, whose area is the bars.
        x += [start, start, (start + end) // 2, end, end]
        y += [low, high, high, high, low]
        text = describe(scene, row, items.get(row["item"])) if items is not None else ""
        texts += ["", text, text, text, ""]
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "none",
        "name": part_name(name),
        "fill": "toself",
        "fillcolor": COLOURS[name],
        "line": {"simplify": False},
        "text": texts if items is not None else None,
        "hoverinfo": "text" if items is not None else "skip",
        "hoveron": "points",
        "xaxis": "x2",
        "yaxis": "y2",
        "connectgaps": False,
        "showlegend": True,
    }


def describe(scene: Scene, bar: dict[str, int], item: dict[str, Any] | None) -> str:
    """Return what a bar is, in lines; ``item``: the one interval that it is, None where it stands for several."""
    part = part_name(PARTS[bar["part"]])
    if item is None:
        return f"{format_count(bar['count'])} {TIMES} {part}<br>{format_ns(bar['ns'])} together, merged: zoom in"
    name = cast("str", scene.texts[item["text"]])
    name = name if name.strip() else "(unnamed)"
    lines = [f"<b>{plain(name, _NAME_CHARACTERS)}</b>", part, format_ns(bar["ns"])]
    if item["latency_ns"] is not None:
        lines.append(f"launch latency {format_ns(item['latency_ns'])}")
    if item["path"]:
        lines.append(plain(cast("str", scene.paths[item["path"]]), _NAME_CHARACTERS))
    if item["shape"]:
        lines.append(cast("str", scene.shapes[item["shape"]]))
    if item["kernel_count"] is not None:
        what = "kernel" if item["kind"] == ON_GPU else "operation"
        lines.append(f"{counted(item['kernel_count'], what)}, kernel time {format_ns(item['kernel_ns'])}")
    gpu = scene.lanes["gpu"][bar["lane"]]
    ranks = scene.ranks.get(gpu)
    lines.append(f"GPU {gpu}" + (f", rank {', '.join(map(str, ranks))}" if ranks else ""))
    return "<br>".join(lines)


def _overview(scene: Scene) -> list[Spec]:
    span = max(1, scene.end_ns - scene.start_ns)
    width = -(-span // _OVERVIEW_SLOTS)
    lanes = scene.lanes.filter(pl.col("kind") == KIND_NAMES[STREAM])
    gpus = max(1, lanes["gpu"].n_unique())
    kernels = scene.items.filter(pl.col("kind") == STREAM).select(
        "report", "gpu", "part", pl.col("start_ns") - scene.start_ns, pl.col("end_ns") - scene.start_ns
    )
    spread = (
        kernels.with_columns(
            pl.int_ranges(
                pl.col("start_ns") // width, (pl.col("end_ns") - 1).clip(lower_bound="start_ns") // width + 1
            ).alias("slot")
        )
        .explode("slot", empty_as_null=False)
        .with_columns(
            pl.min_horizontal("end_ns", (pl.col("slot") + 1) * width).alias("until"),
            pl.max_horizontal("start_ns", pl.col("slot") * width).alias("from"),
        )
        .group_by("report", "gpu", "part", "slot")
        .agg((pl.col("until") - pl.col("from")).sum().alias("ns"))
        # Kernels of several streams of a GPU run at once: they share the slot.
        .with_columns((pl.col("ns").sum().over("report", "gpu", "slot") / width).clip(lower_bound=1).alias("at_once"))
        .sort("report", "gpu", "part", "slot")  # sums of floats depend on the order
        .group_by("part", "slot", maintain_order=True)
        .agg((pl.col("ns") / pl.col("at_once")).sum())
    )
    slots = -(-span // width)
    found: list[Spec] = []
    for part in sorted(spread["part"].unique().to_list()):
        mine = dict(spread.filter(pl.col("part") == part).select("slot", "ns").iter_rows())
        found.append(
            {
                "type": "scatter",
                "x": [scene.start_ns + slot * width + width // 2 for slot in range(slots)],
                "y": [round(mine.get(slot, 0) / (width * gpus), 4) for slot in range(slots)],
                "stackgroup": "kernels",
                "mode": "lines",
                "name": PARTS[part],
                "line": {"width": 0, "shape": "hvh", "color": COLOURS[PARTS[part]]},
                "fillcolor": COLOURS[PARTS[part]],
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    return found


def _lanes_layout(
    scene: Scene, at: list[float], theme: Theme, view: tuple[int, int], *, upper: int, height: int
) -> Spec:
    ticks, texts = time_ticks(*view)
    named = [(place, label) for place, label in zip(at, lane_labels(scene.lanes), strict=True) if label]
    gpus = scene.lanes["gpu"].to_list()
    edges = [at[i - 1] for i in range(1, len(gpus)) if gpus[i] != gpus[i - 1]]
    middle = (1 + GPU_GAP) / 2
    return {
        "xaxis2": {
            "range": list(view),
            "tickmode": "array",
            "tickvals": ticks,
            "ticktext": texts,
            "anchor": "y2",
        },
        "yaxis2": {
            "range": [(at or [0.0])[-1] + 0.6, -0.6],
            "domain": [0, 1 - upper / (height - MARGIN_PX)],
            "fixedrange": True,
            "tickvals": [place for place, _ in named],
            "ticktext": [label for _, label in named],
            "showgrid": False,
            "zeroline": False,
            "ticks": "",
            "anchor": "x2",
        },
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "yref": "y2",
                "y0": edge + middle,
                "y1": edge + middle,
                "line": {"color": theme.line, "width": 1},
                "layer": "below",
            }
            for edge in edges
        ],
    }


def _slider_layout(scene: Scene, height: int) -> Spec:
    """Return the axes of the overview: a sliver at the top, whose range slider shows it."""
    window = [scene.start_ns, scene.end_ns]
    thickness = SLIDER_PX / (height - MARGIN_PX)
    bare: Spec = {"showticklabels": False, "showgrid": False, "zeroline": False}
    slider = {"visible": True, "thickness": thickness, "range": window}
    return {
        "xaxis": {**bare, "range": window, "anchor": "y", "showline": False, "rangeslider": slider, "matches": "x2"},
        "yaxis": {**bare, "range": [0, 1.02], "domain": [1 - _SLIVER, 1], "fixedrange": True},
    }
