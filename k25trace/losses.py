"""What gives away that nsys lost events of a capture, and exited with 0.

Each function looks at one sign. A recording cuts its first and last events, and programs have ranges around host
code alone: neither is a sign.
"""

from collections import Counter
from dataclasses import dataclass

import polars as pl

from k25trace.trace import Trace
from k25trace.trace.interning import integers

TAIL_RANGES_COUNT = 3
"""Ranges after the last API call of their process below which nothing is said."""

_CALL = ["process", "correlation"]


@dataclass(frozen=True)
class Tail:
    """Ranges of a process that go on after its API calls have ended.

    Attributes
    ----------
    process
        Index into the processes of the trace.
    count
        How many ranges begin after the last call.
    names
        Their names, the most frequent first.
    """

    process: int
    count: int
    names: tuple[str, ...]


def tails(trace: Trace) -> list[Tail]:
    """Return the processes whose push/pop ranges go on after their last API call.

    Counted are ranges of a name that holds API calls elsewhere in the report. Names that occur in a tail alone
    count in processes that opened the recording with the CUDA profiler's switch: there a call that closes it
    follows. Names of ranges around host code alone, which are empty earlier, too, do not count.
    """
    calls = trace.launches.select("process", "thread", "start_ns", "name").drop_nulls(["process", "thread"])
    last = calls.group_by("process").agg(pl.col("start_ns").max().alias("last_ns"))
    ranges = trace.ranges.filter("push_pop").select("process", "thread", "start_ns", "end_ns", "name")
    following = calls.select("thread", "start_ns", pl.col("start_ns").alias("next_ns")).sort("start_ns")
    placed = (
        ranges.sort("start_ns")
        .join_asof(following, on="start_ns", by="thread", strategy="forward", check_sortedness=False)
        .join(last, on="process")
        .select(
            "process",
            "name",
            (pl.col("next_ns") < pl.col("end_ns")).fill_null(value=False).alias("calls"),
            (pl.col("start_ns") > pl.col("last_ns")).alias("late"),
        )
    )
    calling = placed.filter("calls")["name"].unique()
    seen_earlier = placed.filter(~pl.col("late"))["name"].unique()
    late = placed.filter(
        pl.col("late")
        & (
            pl.col("name").is_in(calling.implode())
            | (~pl.col("name").is_in(seen_earlier.implode()) & pl.col("process").is_in(_opened_the_recording(trace)))
        )
    )
    found: list[Tail] = []
    for (process,), part in sorted(late.partition_by("process", as_dict=True).items()):
        names = Counter(integers(part["name"]))
        if part.height >= TAIL_RANGES_COUNT:
            found.append(Tail(process, part.height, tuple(trace.names[name] for name, _ in names.most_common())))
    return found


def _opened_the_recording(trace: Trace) -> list[int]:
    called = trace.launches.select("process", "name").unique().drop_nulls()
    starts = ("cuProfilerStart", "cudaProfilerStart")
    return [process for process, name in called.iter_rows() if trace.names[int(name)].startswith(starts)]


def partial_replays(trace: Trace) -> int:
    """Count graph launches that have a part of their kernels only: fewer than other replays of the same nodes.

    The first and the last one of each process are not counted: the recording may have cut them.
    """
    kernels = trace.kernels.select(*_CALL, "graph_node", "start_ns").drop_nulls()
    launches = kernels.group_by(_CALL).agg(pl.len().alias("count"), pl.col("start_ns").min())
    counted = kernels.select(*_CALL, "graph_node").join(launches, on=_CALL)
    node = ["process", "graph_node"]
    most = counted.group_by(node).agg(pl.col("count").max().alias("most"))
    whole = counted.join(most, on=node).group_by(_CALL).agg(pl.col("most").max())
    first, last = pl.col("start_ns").min().over("process"), pl.col("start_ns").max().over("process")
    return (
        launches.join(whole, on=_CALL)
        .filter((pl.col("start_ns") != first) & (pl.col("start_ns") != last))
        .filter(pl.col("count") < pl.col("most"))
        .height
    )


def lost_launches(trace: Trace) -> int:
    """Count kernels whose launch call was made during the recording and is not in the report.

    Correlation ids of a process grow. One below those of all recorded calls was launched before the recording
    began, and the very last call may not have returned when it ended.
    """
    calls = trace.launches.select(_CALL).drop_nulls()
    kernels = trace.kernels.select(_CALL).drop_nulls()
    span = calls.group_by("process").agg(
        pl.col("correlation").min().alias("first"), pl.col("correlation").max().alias("last")
    )
    without = kernels.join(calls, on=_CALL, how="anti").join(span, on="process")
    beyond = pl.col("correlation") > pl.col("last")
    ids_beyond = pl.col("correlation").filter(beyond).n_unique().over("process")
    return without.filter((pl.col("correlation") > pl.col("first")) & (~beyond | (ids_beyond > 1))).height
