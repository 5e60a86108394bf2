"""Calls last 5: 12 - 7 = 5 of queue; 0 where a kernel starts before its call ends; a replay's first 40 - 25."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 12, 10, launch=2)
    t.kernel(MARLIN, 10, 1, launch=8)
    replay = t.graph_launch(20)
    t.kernel(RMS_NORM, 40, 3, corr=replay, node=1)
    t.kernel(RMS_NORM, 50, 3, corr=replay, node=2)
    return t


CASES = (
    Case(
        "queue_time",
        trace(),
        """\
gpu,kernel_count,unqueued_count,queue_ns,mean_ns,p50_ns,max_ns
0:0,3,1,20,6,5,15
""",
    ),
)
