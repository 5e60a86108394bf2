"""Graph launches: which of them the report shows inside, and when the others may have run.

A launch is *opaque* where the report holds no operation of it. Newer nsys records when an opaque replay ran;
2023.4 does not, and all that can be said is when it may have run.
"""

from dataclasses import dataclass

import polars as pl

from k25trace.trace import Trace
from k25trace.trace.tables import FAR_FUTURE_NS

_KEY = ["process", "correlation"]


@dataclass(frozen=True)
class Replays:
    """The graph launches of one report.

    Attributes
    ----------
    visible
        gpu, first_ns, last_ns: launches whose operations are recorded, on the first GPU they ran on.
    opaque
        gpu, start_ns, end_ns, bounded: the others, and when they ran or may have run; ``bounded`` is false where
        nothing recorded says that one had ended (``end_ns`` is in the far future).
    """

    visible: pl.DataFrame
    opaque: pl.DataFrame


def replays(trace: Trace) -> Replays:
    """Return the graph launches of a report."""
    visible = trace.replays.sort("gpu").unique(_KEY, keep="first", maintain_order=True)
    recorded = trace.graph_traces.join(visible, on=_KEY, how="anti")
    intervals = recorded.select("gpu", "start_ns", "end_ns", pl.lit(value=True).alias("bounded"))
    bare = trace.graph_calls.join(visible, on=_KEY, how="anti").join(recorded, on=_KEY, how="anti")
    # A call without an id joins nothing; one inside a stream capture adds a child graph and launches nothing.
    bare = bare.filter(capture_in_progress(trace, bare.select("thread", pl.col("start_ns").alias("at_ns"))).is_null())
    if bare.height:
        intervals = pl.concat([intervals, _may_run(trace, bare)])
    return Replays(visible.select("gpu", "first_ns", "last_ns"), intervals)


def capture_in_progress(trace: Trace, instants: pl.DataFrame) -> pl.Series:
    """Return, per instant (thread, at_ns), when the stream capture in progress on its thread began; null: none is."""
    captures = [
        trace.calls(kind).select(
            "thread", pl.col("start_ns").alias("at_ns"), pl.when(begins).then("start_ns").alias("began")
        )
        for kind, begins in (("begin_capture", True), ("end_capture", False))
    ]
    asked = instants.select("thread", "at_ns").with_row_index("position")
    found = (
        asked.drop_nulls()
        .sort("at_ns")
        .join_asof(pl.concat(captures).sort("at_ns"), on="at_ns", by="thread", check_sortedness=False)
    )
    return asked.join(found.select("position", "began"), on="position", how="left", maintain_order="left")["began"]


def _may_run(trace: Trace, bare: pl.DataFrame) -> pl.DataFrame:
    """Return when launches without any record may have run: from the end of the call to the earliest sign of an end."""
    asked = bare.with_columns(_gpu_of(trace, bare), pl.col("end_ns").alias("at_ns")).sort("at_ns").with_row_index("call")
    synchronizing = trace.calls("synchronize").select("process", pl.col("start_ns").alias("at_ns"), pl.col("end_ns").alias("sign_ns"))
    ends = [_next(asked, synchronizing, "process")]
    for chunk in (trace.copies, trace.graph_traces, *trace.kernel_chunks()):
        begins = chunk.select("process", "gpu", pl.col("start_ns").alias("at_ns"), pl.col("start_ns").alias("sign_ns"))
        ends.append(_next(asked, begins, ["process", "gpu"]))
    end = pl.select(pl.min_horizontal(*ends)).to_series()
    return asked.select(
        "gpu",
        pl.col("at_ns").alias("start_ns"),
        end.fill_null(FAR_FUTURE_NS).alias("end_ns"),
        end.is_not_null().alias("bounded"),
    )


def _next(asked: pl.DataFrame, signs: pl.DataFrame, by: str | list[str]) -> pl.Series:
    """Return ``sign_ns`` of the first sign at or after each call's end, null without one."""
    return (
        asked.join_asof(signs.sort("at_ns"), on="at_ns", by=by, strategy="forward", check_sortedness=False)
        .sort("call")["sign_ns"]
        .rename(f"sign {id(signs)}")
    )


def _gpu_of(trace: Trace, bare: pl.DataFrame) -> pl.Series:
    """Return the GPU of each launch: its process's only one, else that of its thread's nearest launch, earlier first."""
    used = pl.concat([f.select("process", "gpu") for f in (trace.copies, trace.graph_traces, trace.slots)]).unique()
    lowest = used.group_by("process").agg(pl.col("gpu").min().alias("gpu"), pl.len().alias("count"))
    known = bare.select("process").join(lowest, on="process", how="left", maintain_order="left")
    if not (known["count"] > 1).any():
        return known["gpu"]
    operations = pl.concat([f.select(*_KEY, "gpu") for f in (trace.kernels, trace.copies)]).unique(_KEY)
    near = trace.launches.join(operations, on=_KEY).select("thread", pl.col("start_ns").alias("at_ns"), "gpu").sort("at_ns")
    asked = bare.select("thread", pl.col("start_ns").alias("at_ns")).with_row_index("position").sort("at_ns")
    found = [
        asked.join_asof(near, on="at_ns", by="thread", strategy=strategy, check_sortedness=False).sort("position")["gpu"]
        for strategy in ("backward", "forward")
    ]
    return found[0].fill_null(found[1]).fill_null(known["gpu"])

