"""A kernel and a copy were launched inside the inner range, another kernel inside the outer alone: the inner one
spans 50 to 75, the outer one 50 to 110."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("outer", 0, 40)
    t.push_pop("inner", 5, 20)
    t.kernel(MARLIN, 50, 10, launch=6)
    t.memcpy(70, 5, launch=12)
    t.kernel(RMS_NORM, 100, 10, launch=30)
    t.kernel(RMS_NORM, 200, 10, launch=41)
    return t


CASES = (
    Case(
        "nvtx_projection",
        trace(),
        """\
gpu,pid,range_row,name,domain,host_start_ns,host_end_ns,first_ns,last_ns,span_ns,launch_count,operation_count,kernel_ns
0:0,1000,1,outer,default,0,40,50,110,60,3,3,20
0:0,1000,2,inner,default,5,20,50,75,25,2,2,10
""",
    ),
)
