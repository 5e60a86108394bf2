"""Why time goes where it goes: steps by category, collectives split into wait and transfer, idle time by cause."""

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import polars as pl

from k25trace.figures.axes import bars_px, figure, segment, stacked
from k25trace.figures.wall import heatmap
from k25trace.palette import CAUSE_COLOURS, COLLECTIVE_COLOURS, LIGHT, TRANSFER, WAIT, Theme
from k25trace.results import place_of_gpu

MOST_STEPS = 300
"""Steps of one heat map; the first ones are shown of more."""


def steps(categories: pl.DataFrame, *, theme: Theme = LIGHT) -> go.Figure:
    """Return the kernel time of each step by category, over all GPUs, as shades.

    Parameters
    ----------
    categories
        index, category, kernel_ns (`k25trace.steps.Steps.categories`).
    """
    summed = (
        categories.filter(pl.col("index") < MOST_STEPS)
        .group_by("index", "category")
        .agg(pl.col("kernel_ns").sum())
        .sort("index", "category")
    )
    return heatmap(summed.rename({"index": "step"}), by="step", theme=theme)


def waits(ranks: pl.DataFrame, *, theme: Theme = LIGHT) -> go.Figure:
    """Return, for each GPU, how much of its time in collectives it waited and how much it transferred.

    Parameters
    ----------
    ranks
        gpu, wait_ns, transfer_ns (`k25trace.collectives.Collectives.ranks`).
    """
    summed = ranks.group_by("gpu").agg(pl.col("wait_ns", "transfer_ns").sum())
    long = pl.concat(
        [summed.select("gpu", pl.lit(what).alias("what"), pl.col(column).alias("ns")) for what, column in _SIDES]
    )
    return _stacked(long, COLLECTIVE_COLOURS, theme)


_SIDES = ((WAIT, "wait_ns"), (TRANSFER, "transfer_ns"))


def causes(summary: pl.DataFrame, *, theme: Theme = LIGHT) -> go.Figure:
    """Return the idle time of each GPU by the cause of its gaps.

    Parameters
    ----------
    summary
        gpu, cause, gap_ns (`k25trace.gaps.Gaps.summary`).
    """
    long = summary.select("gpu", pl.col("cause").alias("what"), pl.col("gap_ns").alias("ns"))
    return _stacked(long, CAUSE_COLOURS, theme)


def _stacked(long: pl.DataFrame, colours: dict[str, str], theme: Theme) -> go.Figure:
    """Return one stacked bar a GPU of gpu, what, ns."""
    gpus: list[str] = sorted(long["gpu"].unique().to_list(), key=place_of_gpu)
    known: dict[tuple[str, str], int] = {(gpu, what): ns for gpu, what, ns in long.iter_rows()}
    traces = [
        segment(what, [known.get((gpu, what), 0) for gpu in gpus], gpus, colour, theme)
        for what, colour in colours.items()
        if any((gpu, what) in known for gpu in gpus)
    ]
    longest = max([0, *(sum(known.get((gpu, what), 0) for what in colours) for gpu in gpus)])
    return figure(traces, stacked(longest, len(traces)), height=bars_px(len(gpus), len(traces)), theme=theme)
