"""What in a report says that something is missing from it: the warnings that its rows give away.

Each function looks at one sign and returns the warnings for it; none changes a figure.
"""

import polars as pl

from k25trace.packing import Packing
from k25trace.replays import Replays, capture_in_progress, recorded_whole
from k25trace.trace import Trace
from k25trace.trace.interning import integers
from k25trace.trace.keys import with_key
from k25trace.units import counted
from k25trace.warnings import ReportWarning, warn

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


def stream_overlap(trace: Trace) -> list[ReportWarning]:
    """Warn of kernels that start before the one ahead of them on their stream ends."""
    times = trace.kernels.select("gpu", "process", "stream", "start_ns", "end_ns")
    if times["stream"].null_count():
        times = times.drop_nulls("stream")
    lane = Packing.of([times], ["gpu", "process", "stream"]).pack(times).alias("lane")
    lanes = times.select(lane, "start_ns", "end_ns")
    start, end, before = pl.col("start_ns"), pl.col("end_ns"), pl.col("start_ns").shift(1)
    # Rows come in the order of the file, which is the order of a stream nearly always: looked at before it is sorted.
    disorder = ((start < before) | ((start == before) & (end < end.shift(1)))).any().alias("disorder")
    early = (start < end.shift(1)).sum().alias("early")
    found = lanes.group_by("lane").agg(disorder, early)
    if found["disorder"].any():
        found = lanes.sort("lane", "start_ns", "end_ns").group_by("lane").agg(early)
    count = int(found["early"].sum())
    seen = f"{counted(count, 'kernel')} starting before the one ahead on the same stream ends"
    return [warn("stream-overlap", count, seen)] if count else []
