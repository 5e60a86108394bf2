"""Graph launches: which of them the report shows inside, and when the others may have run.

A launch is *opaque* where the report holds no operation of it. Newer nsys records when an opaque replay ran;
2023.4 does not, and all that can be said is when it may have run.
"""

from dataclasses import dataclass
from itertools import chain

import polars as pl

from k25trace.nesting import last_at
from k25trace.trace import Trace
from k25trace.trace.tables import FAR_FUTURE_NS
from k25trace.units import counted

_KEY = ["process", "correlation"]

OPAQUE_HINT = "capture with --cuda-graph-trace=node"
"""What makes nsys record the kernels of CUDA graphs."""


@dataclass(frozen=True)
class Replays:
    """The graph launches of one report.

    Attributes
    ----------
    visible
        gpu, first_ns, last_ns: launches whose operations are recorded, on the first GPU they ran on.
    opaque
        gpu, start_ns, end_ns, bounded, process, correlation: the others, and when they ran or may have run;
        ``bounded`` is false where nothing recorded says that one had ended (``end_ns`` is in the far future).
        ``gpu`` is null where nothing tells which device their process used.
    """

    visible: pl.DataFrame
    opaque: pl.DataFrame


def replays(trace: Trace) -> Replays:
    """Return the graph launches of a report."""
    visible = trace.replays.sort("gpu").unique(_KEY, keep="first", maintain_order=True)
    recorded = trace.graph_traces.join(visible, on=_KEY, how="anti")
    intervals = recorded.select("gpu", "start_ns", "end_ns", pl.lit(value=True).alias("bounded"), *_KEY)
    bare = (
        trace.graph_calls.join(visible, on=_KEY, how="anti")
        .join(recorded, on=_KEY, how="anti")
        .unique(_KEY, keep="first", maintain_order=True)
    )
    # One inside a stream capture adds a child graph and launches nothing.
    bare = bare.filter(capture_in_progress(trace, bare.select("thread", pl.col("start_ns").alias("at_ns"))).is_null())
    shown = [visible.select("gpu", "first_ns", "last_ns")]
    if bare.height:
        placed = _with_gpu(trace, bare)
        # What left operations with unusable times is no secret of the graph, and tells nothing of when it ran.
        shown.append(
            placed.join(trace.unusable, on=_KEY, how="semi").select("gpu", first_ns="end_ns", last_ns="end_ns")
        )
        unseen = placed.join(trace.unusable, on=_KEY, how="anti")
        # A report with graph-level rows says when replays ran; a launch without one ran at no time it knows of.
        nowhere = unseen.select(
            "gpu", pl.col("end_ns").alias("start_ns"), "end_ns", pl.lit(value=False).alias("bounded"), *_KEY
        )
        intervals = pl.concat([intervals, nowhere if trace.has_graph_traces else _may_run(trace, unseen)])
    return Replays(pl.concat(shown), intervals)


def recorded_whole(count: int) -> str:
    """Return how messages name graph launches whose kernels are not in the report."""
    launches = counted(count, "CUDA graph launch", "CUDA graph launches")
    return f"{launches} recorded without {'its' if count == 1 else 'their'} kernels"


def capture_in_progress(trace: Trace, instants: pl.DataFrame) -> pl.Series:
    """Return, per instant (thread, at_ns), when the stream capture in progress on its thread began; null: none is.

    Begin and end calls pair like brackets; of several captures in progress it is the one begun last.
    """
    calls = trace.stream_captures
    begun: dict[int, list[int]] = {}
    in_progress: list[int | None] = []
    for thread, at, begins in calls.iter_rows():
        mine = begun.setdefault(thread, [])
        if begins:
            mine.append(at)
        elif mine:
            mine.pop()
        in_progress.append(mine[-1] if mine else None)
    changes = calls.select("thread", "at_ns", pl.Series("began", in_progress, dtype=pl.Int64))
    return last_at(instants, changes)["began"]


def _may_run(trace: Trace, bare: pl.DataFrame) -> pl.DataFrame:
    """Return when launches without any record may have run: from the end of the call to the earliest sign of an end."""
    asked = bare.with_columns(pl.col("end_ns").alias("at_ns")).sort("at_ns").with_row_index("call")
    synchronizing = trace.calls("synchronize").select(
        "process", pl.col("start_ns").alias("at_ns"), pl.col("end_ns").alias("sign_ns")
    )
    end = _next(asked, synchronizing, "process")
    for chunk in chain((trace.copies, trace.graph_traces), trace.kernel_chunks()):
        begins = chunk.select("process", "gpu", pl.col("start_ns").alias("at_ns"), pl.col("start_ns").alias("sign_ns"))
        found = _next(asked, begins, ["process", "gpu"])
        end = pl.select(pl.min_horizontal(end, found.alias("found"))).to_series()
    return asked.select(
        "gpu",
        pl.col("at_ns").alias("start_ns"),
        end.fill_null(FAR_FUTURE_NS).alias("end_ns"),
        end.is_not_null().alias("bounded"),
        *_KEY,
    )


def _next(asked: pl.DataFrame, signs: pl.DataFrame, by: str | list[str]) -> pl.Series:
    """Return ``sign_ns`` of the first sign at or after each call's end, null without one."""
    return asked.join_asof(signs.sort("at_ns"), on="at_ns", by=by, strategy="forward", check_sortedness=False).sort(
        "call"
    )["sign_ns"]


def _with_gpu(trace: Trace, bare: pl.DataFrame) -> pl.DataFrame:
    """Add the GPU of each launch: its process's only one, else that of its thread's nearest launch, earlier first."""
    used = pl.concat([f.select("process", "gpu") for f in (trace.copies, trace.graph_traces, trace.slots)]).unique()
    lowest = used.group_by("process").agg(pl.col("gpu").min().alias("gpu"), pl.len().alias("count"))
    known = bare.select("process").join(lowest, on="process", how="left", maintain_order="left")
    if not (known["count"] > 1).any():
        return bare.with_columns(known["gpu"])
    operations = pl.concat([f.select(*_KEY, "gpu", "start_ns") for f in (trace.kernels, trace.copies)])
    operations = operations.sort("start_ns", maintain_order=True).unique(_KEY, keep="first").drop("start_ns")
    # Of launches at one instant the first counts, so that the answer does not depend on the order of joins.
    near = (
        trace.launches.join(operations, on=_KEY, maintain_order="left")
        .sort("start_ns", -pl.col("end_ns"), maintain_order=True)
        .unique(["thread", "start_ns"], keep="first", maintain_order=True)
        .select("thread", pl.col("start_ns").alias("at_ns"), "gpu")
    )
    asked = bare.select("thread", pl.col("start_ns").alias("at_ns")).with_row_index("position").sort("at_ns")
    found = [
        asked.join_asof(near, on="at_ns", by="thread", strategy=strategy, check_sortedness=False).sort("position")[
            "gpu"
        ]
        for strategy in ("backward", "forward")
    ]
    nearest = pl.coalesce(found[0], found[1], known["gpu"]).alias("gpu")
    return bare.with_columns(nearest)
