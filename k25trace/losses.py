"""What gives away that nsys lost events of a capture, and exited with 0.

Each function looks at one sign. A recording cuts its first and last events, and programs have ranges around host
code alone: neither is a sign.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from k25trace.trace import Trace
from k25trace.trace.interning import ID, integers
from k25trace.trace.tables import api_kind
from k25trace.units import counted
from k25trace.warnings import ReportWarning, warn

LOSSY_RANGES_COUNT = 50
"""Innermost ranges below which a process is not judged by them."""

LOSSY_EMPTY_SHARE = 0.9
"""Share of innermost ranges without any API call from which events were lost.

Measured on H200 with nsys 2023.4.4: 0.93 to 0.999 in six captures that lost most kernels, 0 to 0.63 in ten whole
ones, where ranges around host code alone are empty, too.
"""

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


@dataclass(frozen=True)
class Coverage:
    """Where API calls were recorded inside ranges.

    Attributes
    ----------
    ranges
        Push/pop ranges inside which no other one of their thread opened: process, name, start_ns, called (whether a
        call of the thread begins inside).
    callers
        Who called what: process, name; distinct.
    last
        process, last_ns: when the last call of each process began.
    """

    ranges: pl.DataFrame
    callers: pl.DataFrame
    last: pl.DataFrame


def coverage(trace: Trace) -> Coverage:
    """Return where API calls were recorded inside ranges, in one pass over the calls."""
    spans = trace.range_spans
    trace.release("range_spans")
    innermost = [_innermost(spans.clear())]
    parts = spans.partition_by("process")
    del spans
    while parts:
        innermost.append(_innermost(parts.pop()))
    leaves = pl.concat(innermost)
    innermost.clear()
    callers = [pl.DataFrame(schema={"process": ID, "name": ID})]
    last = [pl.DataFrame(schema={"process": ID, "last_ns": pl.Int64})]
    latest = pl.col("start_ns").max().alias("last_ns")

    def noted() -> Iterator[pl.DataFrame]:
        for chunk in trace.call_chunks():
            callers.append(chunk.select("process", "name").unique())
            last.append(chunk.group_by("process").agg(latest))
            yield chunk

    called = _holds_a_call(leaves, noted())
    return Coverage(
        leaves.select("process", "name", "start_ns", called.alias("called")),
        pl.concat(callers).drop_nulls().unique(),
        pl.concat(last).drop_nulls().group_by("process").agg(pl.col("last_ns").max()),
    )


def incomplete_capture(trace: Trace) -> list[ReportWarning]:
    """Warn of processes whose ranges go on while their API calls stop: nsys lost events, and exited 0.

    Calls that merely end before the ranges do prove a loss only where a process opened the recording itself: the
    call that closes it would have to follow.
    """
    looked = coverage(trace)
    if found := emptied(trace, looked):
        return found
    opened = _opened(trace, looked.callers)
    ended = [tail for tail in tails(trace, looked) if tail.process in opened]
    if not ended:
        return []
    who, ranges = counted(len(ended), "process", "processes"), counted(sum(tail.count for tail in ended), "NVTX range")
    seen = f"events were lost in {who} ({ranges} beginning after the last API call)"
    return [warn("incomplete-capture", len(ended), seen)]


def emptied(trace: Trace, looked: Coverage) -> list[ReportWarning]:
    """Warn of processes nearly all of whose innermost ranges hold no API call."""
    judged = (
        looked.ranges.filter(pl.col("process").is_in(_launching_processes(trace, looked.callers)))
        .group_by("process")
        .agg(pl.len().alias("count"), (~pl.col("called")).mean().alias("empty"))
        .filter((pl.col("count") >= LOSSY_RANGES_COUNT) & (pl.col("empty") >= LOSSY_EMPTY_SHARE))
        .sort("process")
    )
    if judged.height == 0:
        return []
    shares = ", ".join(f"{empty:.0%} of {count:,}" for count, empty in judged.select("count", "empty").iter_rows())
    who = counted(judged.height, "process", "processes")
    seen = f"events were lost in {who} ({shares} innermost NVTX ranges hold no API call)"
    return [warn("incomplete-capture", judged.height, seen)]


def tails(trace: Trace, looked: Coverage) -> list[Tail]:
    """Return the processes whose innermost ranges go on after their last API call.

    Counted are ranges of a name that holds API calls elsewhere in the report. Names that occur in a tail alone
    count in processes that opened the recording with the CUDA profiler's switch: there a call that closes it
    follows. Names of ranges around host code alone, which are empty earlier, too, do not count.
    """
    placed = looked.ranges.join(looked.last, on="process").with_columns(
        (pl.col("start_ns") > pl.col("last_ns")).alias("late")
    )
    if not placed["late"].any():
        return []
    calling = placed.filter("called")["name"].unique()
    seen_earlier = placed.filter(~pl.col("late"))["name"].unique()
    late = placed.filter(
        pl.col("late")
        & (
            pl.col("name").is_in(calling.implode())
            | (~pl.col("name").is_in(seen_earlier.implode()) & pl.col("process").is_in(_opened(trace, looked.callers)))
        )
    )
    found: list[Tail] = []
    for (process,), part in sorted(late.partition_by("process", as_dict=True).items()):
        names = Counter(integers(part["name"]))
        if part.height >= TAIL_RANGES_COUNT:
            found.append(Tail(process, part.height, tuple(trace.names[name] for name, _ in names.most_common())))
    return found


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


def _opened(trace: Trace, callers: pl.DataFrame) -> list[int]:
    """Return the processes that opened the recording."""
    starts = ("cuProfilerStart", "cudaProfilerStart")
    return [process for process, name in callers.iter_rows() if trace.names[int(name)].startswith(starts)]


def _launching_processes(trace: Trace, calls: pl.DataFrame) -> list[int]:
    """Return the processes that ran kernels, or called (process, name) what launches them."""
    launching = {
        p for p, name in calls.iter_rows() if api_kind(trace.names[int(name)]) in {"kernel_launch", "graph_launch"}
    }
    return sorted(launching.union(trace.survey["process"].drop_nulls().to_list()))


def _holds_a_call(leaves: pl.DataFrame, chunks: Iterable[pl.DataFrame]) -> pl.Series:
    """Return, per range, whether a call of its thread begins inside.

    Ranges of one thread are disjoint, stand together and are ordered.
    """
    called = pl.repeat(value=False, n=leaves.height, eager=True)
    first = leaves.with_row_index("leaf").group_by("thread").agg(pl.col("leaf").min(), pl.len().alias("leaves"))
    by_thread = {thread: (leaf, leaves.slice(leaf, count)) for thread, leaf, count in first.iter_rows()}
    for chunk in chunks:
        for (thread,), calls in chunk.select("thread", "start_ns").partition_by("thread", as_dict=True).items():
            if thread in by_thread:
                leaf, mine = by_thread[thread]
                place = mine["start_ns"].search_sorted(calls["start_ns"], side="right").cast(pl.Int64) - 1
                inside = (place >= 0) & (calls["start_ns"] < mine["end_ns"].gather(place.clip(0)))
                called = called.scatter((place.filter(inside) + leaf).unique(), True)
    return called


def _innermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the push/pop ranges (in row order) inside which no other one of their thread opened.

    They open in the order of `k25trace.nesting`: what opens next opens inside, unless the range has ended by then.
    """
    opened = ranges.filter(pl.col("end_ns") > pl.col("start_ns")).sort(
        "thread", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True
    )
    following = pl.col("start_ns").shift(-1)
    elsewhere = pl.col("thread").ne_missing(pl.col("thread").shift(-1))
    return opened.filter(elsewhere | (following >= pl.col("end_ns")))
