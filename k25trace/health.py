"""What in a report says that something is missing from it: the warnings that its rows give away.

Each function looks at one sign and returns the warnings for it; none changes a figure.
"""

from collections.abc import Iterable, Iterator

import polars as pl

from k25trace.nesting import nest
from k25trace.packing import Packing
from k25trace.replays import Replays, capture_in_progress, recorded_whole
from k25trace.trace import Trace
from k25trace.trace.interning import ID, integers
from k25trace.trace.keys import with_key
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

END_SLACK_NS = 1_000_000
"""A launch this close to the end of the report need not have its kernel in it."""


def opaque_replays(found: Replays) -> list[ReportWarning]:
    """Warn of graph launches whose kernels the report does not contain."""
    count = found.opaque.height
    return [warn("opaque-graphs", count, recorded_whole(count))] if count else []


def open_ranges(trace: Trace) -> list[ReportWarning]:
    """Warn of ranges that were never closed, and of a report without any."""
    if trace.ranges.height == 0:
        return [warn("nvtx-not-recorded", 1, "no NVTX range in the report")]
    count = trace.ranges.filter(~pl.col("closed")).height
    return [warn("ranges-without-end", count, f"{counted(count, 'NVTX range')} without an end")] if count else []


def unlaunched_kernels(count: int) -> list[ReportWarning]:
    """Warn of kernels whose launch call is not in the report."""
    return [warn("kernels-without-launch", count, f"{counted(count, 'kernel')} without a launch call")] if count else []


def uncaptured_kernels(count: int) -> list[ReportWarning]:
    """Warn of replayed kernels whose graph was captured before the recording began."""
    seen = f"{counted(count, 'replayed kernel')} of a graph whose capture was not recorded"
    return [warn("capture-ranges-missing", count, seen)] if count else []


def launches_without_kernels(trace: Trace) -> list[ReportWarning]:
    """Warn of kernel launches that left no kernel.

    Not counted are calls that failed, calls during a stream capture (they launch nothing), graph launches (they
    are opaque replays), and calls within `END_SLACK_NS` of the end of the report.
    """
    calls = trace.calls("kernel_launch").filter(~pl.col("failed") & pl.col("correlation").is_not_null())
    end = trace.duration_ns
    if end is None:
        end = max([0, *integers(pl.concat([trace.survey["last_ns"], trace.launches["end_ns"]]).drop_nulls().top_k(1))])
    keyed = with_key(calls.filter(pl.col("start_ns") < end - END_SLACK_NS)).select("key", "thread", "start_ns")
    for operations in (trace.kernels, trace.unusable):
        keyed = keyed.join(with_key(operations.select("process", "correlation")), on="key", how="anti")
    during = capture_in_progress(trace, keyed.select("thread", pl.col("start_ns").alias("at_ns")))
    count = keyed.filter(during.is_null())["key"].n_unique()
    seen = f"{counted(count, 'kernel launch', 'kernel launches')} without a kernel"
    return [warn("launches-without-kernels", count, seen)] if count else []


def incomplete_capture(trace: Trace) -> list[ReportWarning]:
    """Warn of processes whose ranges go on while their API calls stop: nsys lost events, and exited 0."""
    parts = trace.range_spans.partition_by("process")
    trace.release("range_spans")
    innermost: list[pl.DataFrame] = []
    while parts:
        innermost.append(_innermost(parts.pop()))
    if not innermost:
        return []
    leaves = pl.concat(innermost)
    innermost.clear()
    leaves = leaves.sort("thread", "start_ns")
    who_called_what = [pl.DataFrame(schema={"process": ID, "name": ID})]

    def noted() -> Iterator[pl.DataFrame]:
        for chunk in trace.call_chunks():
            who_called_what.append(chunk.select("process", "name").unique())
            yield chunk

    called = _holds_a_call(leaves, noted())
    launching = _launching_processes(trace, pl.concat(who_called_what).unique())
    judged = (
        leaves.select("process", called.alias("called"))
        .filter(pl.col("process").is_in(launching))
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


def _holds_a_call(leaves: pl.DataFrame, chunks: Iterable[pl.DataFrame]) -> pl.Series:
    """Return, per range, whether a call of its thread begins inside; ranges of one thread are ordered and disjoint."""
    called = pl.repeat(value=False, n=leaves.height, eager=True)
    first = leaves.with_row_index("leaf").group_by("thread").agg(pl.col("leaf").min(), pl.len().alias("leaves"))
    starts, ends = leaves["start_ns"], leaves["end_ns"]
    by_thread = {thread: (leaf, starts.slice(leaf, count)) for thread, leaf, count in first.iter_rows()}
    for chunk in chunks:
        for (thread,), calls in chunk.select("thread", "start_ns").partition_by("thread", as_dict=True).items():
            if thread in by_thread:
                leaf, mine = by_thread[thread]
                place = mine.search_sorted(calls["start_ns"], side="right").cast(pl.Int64) - 1
                inside = (place >= 0) & (calls["start_ns"] < ends.gather(place.clip(0) + leaf))
                called = called.scatter((place.filter(inside) + leaf).unique(), True)
    return called


def _innermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the push/pop ranges inside which no other one of their thread opened."""
    nesting = nest(ranges)
    opened = nesting.nodes.filter(pl.col("depth") > 0)
    enclosing = nesting.nodes["range"].gather(opened["parent"].filter(opened["parent"] >= 0)).unique()
    innermost = opened.select("range").unique().join(enclosing.to_frame(), on="range", how="anti")
    return ranges.with_row_index("range").join(innermost, on="range", how="semi").drop("range")


def stream_overlap(trace: Trace) -> list[ReportWarning]:
    """Warn of kernels that start before the one ahead of them on their stream ends."""
    times = trace.kernels.select("gpu", "process", "stream", "start_ns", "end_ns").filter(
        pl.col("stream").is_not_null()
    )
    lane = Packing.of([times], ["gpu", "process", "stream"]).pack(times).alias("lane")
    lanes = times.select(lane, "start_ns", "end_ns")
    start, end, before = pl.col("start_ns"), pl.col("end_ns"), pl.col("start_ns").shift(1)
    # Rows come in the order of the file, which is the order of a stream nearly always: looked at before it is sorted.
    disorder = ((start < before) | ((start == before) & (end < end.shift(1)))).any()
    in_disorder = lanes.group_by("lane").agg(disorder.alias("disorder")).filter("disorder")["lane"]
    if in_disorder.len():
        lanes = lanes.sort("lane", "start_ns", "end_ns")
    count = int(lanes.group_by("lane").agg((start < end.shift(1)).sum().alias("count"))["count"].sum())
    seen = f"{counted(count, 'kernel')} starting before the one ahead on the same stream ends"
    return [warn("stream-overlap", count, seen)] if count else []


def _launching_processes(trace: Trace, calls: pl.DataFrame) -> list[int]:
    """Return the processes that ran kernels, or called (process, name) what launches them."""
    launching = {
        p
        for p, name in calls.drop_nulls().iter_rows()
        if api_kind(trace.names[int(name)]) in {"kernel_launch", "graph_launch"}
    }
    return sorted(launching.union(trace.survey["process"].drop_nulls().to_list()))
