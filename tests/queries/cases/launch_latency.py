"""From the call's start: 12 - 2 = 10, and 5 - 8 = -3; of a graph replay the first kernel alone, 40 - 20 = 20."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 12, 10, launch=2)
    t.kernel(MARLIN, 5, 1, launch=8)
    replay = t.graph_launch(20)
    t.kernel(RMS_NORM, 40, 3, corr=replay, node=1)
    t.kernel(RMS_NORM, 50, 3, corr=replay, node=2)
    return t


CASES = (
    Case(
        "launch_latency",
        trace(),
        """\
gpu,launched_by,kernel_count,negative_count,min_ns,p50_ns,p90_ns,p99_ns,max_ns
0:0,graph launch,1,0,20,20,20,20,20
0:0,kernel launch,2,1,-3,-3,10,10,10
""",
    ),
)
