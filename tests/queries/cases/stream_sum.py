"""On stream 7 the second kernel starts 2 before the first ends; stream 20 has one."""

from querykit import Case
from tracekit import ALL_REDUCE, MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 10)
    t.kernel(RMS_NORM, 8, 10)
    t.kernel(ALL_REDUCE, 5, 3, stream=20)
    return t


CASES = (
    Case(
        "stream_sum",
        trace(),
        """\
pid,device,stream,kernel_count,kernel_ns,overlap_count,first_ns,last_ns
1000,0,7,2,20,1,0,18
1000,0,20,1,3,0,5,8
""",
    ),
)
