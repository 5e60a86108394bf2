"""One AllReduce of 20 in each step."""

from querykit import Case
from tracekit import ALL_REDUCE, MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    for start in (0, 100):
        t.push_pop("decode_step", start, start + 50)
        t.kernel(MARLIN, start + 20, 10, launch=start + 2)
        t.kernel(ALL_REDUCE, start + 25, 20, launch=start + 8, stream=20)
    t.kernel(RMS_NORM, 300, 1, launch=210)
    return t


CASES = (
    Case(
        "step_collectives",
        trace(),
        """\
pid,step,name,gpu,category,kernel_count,kernel_ns,max_ns
1000,1,decode_step,0:0,comm.allreduce,1,20,20
1000,2,decode_step,0:0,comm.allreduce,1,20,20
""",
    ),
)
