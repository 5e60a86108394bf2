"""The lanes of a timeline: which kinds there are, which lane an interval lies on, what stands beside it."""

from collections.abc import Sequence
from typing import cast

import polars as pl

from k25trace.palette import PARTS
from k25trace.taxonomy import ALL_CATEGORIES, is_communication
from k25trace.trace import Trace
from k25trace.trace.interning import ID

STEPS, HOST, START_END, ON_GPU, COMMUNICATION, WAITS, STREAM, COPIES, OPAQUE, GAPS = range(10)
"""Kinds of lanes, in the order in which they lie below one another on each GPU."""

KIND_NAMES = (
    "steps", "host ranges", "start/end ranges", "ranges on GPU", "communication", "waits", "stream", "copies",
    "opaque graphs", "gaps",
)  # fmt: skip

OTHERS = -1
"""The ``row`` of the streams that share a lane, as they are too many."""

MOST_AT_ONCE = 6
"""Lanes that one stream, or one kind of lanes, takes where its intervals overlap."""

_SPREAD = (STEPS, START_END, COMMUNICATION, STREAM, COPIES)
"""Kinds whose intervals may overlap, and are told apart by further lanes."""

MARK_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "gpu": pl.String(),
    "kind": pl.UInt8(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "part": pl.UInt8(),
    "text": pl.String(),
    "note": pl.String(),
}
"""What others have found out and is drawn on a lane of its own: steps, waits, gaps."""

ITEM_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "report": pl.UInt16(),
    "gpu": pl.UInt32(),
    "kind": pl.UInt8(),
    "who": pl.Int64(),
    "row": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "part": pl.UInt8(),
    "text": ID,
    "path": ID,
    "shape": ID,
    "process": ID,
    "latency_ns": pl.Int64(),
    "bytes": pl.Int64(),
    "kernel_count": pl.Int64(),
    "kernel_ns": pl.Int64(),
}
PART = {name: number for number, name in enumerate(PARTS)}
_KEYS = ("report", "gpu", "kind", "who", "row")


def as_items(frame: pl.DataFrame, report: int) -> pl.DataFrame:
    """Return intervals with all columns of `ITEM_SCHEMA`."""
    filled = {"who": 0, "row": 0, "path": 0, "shape": 0, "report": report}
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(filled.get(name))).cast(dtype).alias(name)
        for name, dtype in ITEM_SCHEMA.items()
    )


def placed(items: pl.DataFrame, traces: Sequence[Trace]) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Return the lanes of some items, which item lies on which of them, and what has no room.

    Kernels of communication lie on two lanes: that of their stream, and one that their GPU has for them. Where steps,
    kernels of a stream, copies or start/end ranges overlap, they take further lanes, as few as it takes.

    Returns
    -------
    pl.DataFrame
        lane UInt32 · gpu, kind, label String · further Boolean (the lane before it is of the same stream, or kind, and
        has the label of both).
    pl.DataFrame
        item, lane UInt32 · start_ns, end_ns, part, as in the items.
    list of str
        What lies over one another.
    """
    numbered = items.with_row_index("item").select("item", *_KEYS, "start_ns", "end_ns", "part")
    talking = pl.col("part").is_in([PART[c] for c in ALL_CATEGORIES if is_communication(c)])
    nobody = {"kind": COMMUNICATION, "who": 0, "row": 0}
    again = numbered.filter((pl.col("kind") == STREAM) & talking).with_columns(
        pl.lit(value, ITEM_SCHEMA[name]).alias(name) for name, value in nobody.items()
    )
    every = pl.concat([numbered, again])
    rows = every.select(_KEYS).unique().sort(_KEYS).with_row_index("at")
    every = every.join(rows, on=_KEYS, how="left", maintain_order="left")
    spread = every["kind"].is_in(_SPREAD)
    beside, crowded = sublanes(every.select("at", "start_ns", "end_ns"), spread, MOST_AT_ONCE)
    every = every.select("item", "at", "start_ns", "end_ns", "part", beside)
    lanes = every.select("at", "beside").unique().sort("at", "beside").with_row_index("lane")
    every = every.join(lanes, on=["at", "beside"], how="left", maintain_order="left").drop("at", "beside")
    labelled = lanes.join(rows, on="at", how="left", maintain_order="left")
    notes = [
        f"more than {MOST_AT_ONCE} steps, kernels, copies or start/end ranges at once: the rest lie over one another"
    ]
    return _labelled(labelled, traces), every, notes if crowded else []


def sublanes(intervals: pl.DataFrame, spread: pl.Series, most: int) -> tuple[pl.Series, bool]:
    """Return on which lane beside one another intervals of one row lie, so that those of a lane do not overlap.

    Parameters
    ----------
    intervals
        at (the row) · start_ns, end_ns.
    spread
        Which of them take further lanes where they overlap; the others do not.
    most
        Lanes of a row: what overlaps further lies on the one that is free first.

    Returns
    -------
    pl.Series
        ``beside``, UInt8: 0 for the first lane.
    bool
        Whether there were too many.

    Examples
    --------
    >>> a = pl.DataFrame({"at": [0, 0, 0], "start_ns": [0, 4, 5], "end_ns": [5, 9, 7]})
    >>> sublanes(a, pl.Series([True] * 3), 6)[0].to_list()
    [0, 1, 0]
    """
    found = pl.repeat(0, intervals.height, dtype=pl.UInt8, eager=True).alias("beside")
    ordered = intervals.with_row_index("place").filter(spread).sort("at", "start_ns", "end_ns", "place")
    # Where any two of a row overlap, neighbours do.
    touching = (pl.col("at") == pl.col("at").shift(1)) & (pl.col("start_ns") < pl.col("end_ns").shift(1))
    rows = ordered.filter(touching)["at"].unique()
    if rows.len() == 0:
        return found, False
    ordered = ordered.filter(pl.col("at").is_in(rows.implode()))
    reach = ordered.select(pl.col("end_ns").cum_max().shift(1).over("at").alias("reach"))["reach"]
    begins = (ordered["start_ns"] >= reach).fill_null(value=True)
    # A cluster: intervals one of which reaches to the next. One alone stays on the first lane.
    clusters = ordered.with_columns(begins.cast(pl.UInt32).cum_sum().alias("cluster"))
    several = clusters.filter(~(begins & begins.shift(-1, fill_value=True)))
    lanes, crowded = _first_fit(several, most)
    return found.scatter(several["place"], lanes), crowded


def _first_fit(clusters: pl.DataFrame, most: int) -> tuple[pl.Series, bool]:
    lanes: list[int] = []
    last, until, crowded = 0, list[int](), False
    rows = cast("list[tuple[int, int, int]]", clusters.select("cluster", "start_ns", "end_ns").rows())
    for cluster, start, end in rows:
        if cluster != last:
            last, until = cluster, []
        lane = next((n for n, reach in enumerate(until) if reach <= start), len(until))
        if lane == most:
            lane, crowded = until.index(min(until)), True
        elif lane == len(until):
            until.append(end)
        until[lane] = max(end, until[lane])
        lanes.append(lane)
    return pl.Series(lanes, dtype=pl.UInt8), crowded


def _labelled(lanes: pl.DataFrame, traces: Sequence[Trace]) -> pl.DataFrame:
    of = {trace.report: trace for trace in traces}
    streams = lanes.filter(pl.col("kind") == STREAM).group_by("report", "gpu").agg(pl.col("who").n_unique())
    shared = {(report, gpu) for report, gpu, users in streams.iter_rows() if users > 1}
    rows: list[tuple[int, str, str, str, bool]] = []
    columns = lanes.select("lane", *_KEYS, "beside")
    for lane, report, gpu, kind, who, row, beside in cast("list[tuple[int, ...]]", columns.rows()):
        label = KIND_NAMES[kind]
        if kind == STREAM:
            label = "other streams" if row == OTHERS else f"stream {row}"
            if (report, gpu) in shared:
                label += f" pid {of[report].processes[who].pid}"
        further = beside > 0 or (kind in {HOST, ON_GPU} and row > 1)
        rows.append((lane, of[report].gpus[gpu].key, KIND_NAMES[kind], label, further))
    schema = {"lane": pl.UInt32, "gpu": pl.String, "kind": pl.String, "label": pl.String, "further": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")
