"""Durations 1 to 10: the 50th percentile is the 5th, the 90th the 9th, the 99th the 10th."""

from querykit import Case
from tracekit import MARLIN, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    for i in range(1, 11):
        t.kernel(MARLIN, 100 * i, i)
    return t


CASES = (
    Case(
        "kernel_percentiles",
        trace(),
        """\
name,kernel_count,p50_ns,p90_ns,p99_ns,max_ns
MARLIN,10,5,9,10,10
""",
    ),
)
