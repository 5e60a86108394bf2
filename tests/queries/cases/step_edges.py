"""Each step begins with Marlin and ends with the AllReduce."""

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
        "step_edges",
        trace(),
        """\
pid,step,name,gpu,first_kernel,first_ns,last_kernel,last_ns
1000,1,decode_step,0:0,MARLIN,20,ALL_REDUCE,45
1000,2,decode_step,0:0,MARLIN,120,ALL_REDUCE,145
""",
    ),
)
