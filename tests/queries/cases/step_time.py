"""In each step 10 and 20 run, 5 of them at once: 30 of kernel time, 25 busy, a span of 25."""

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
        "step_time",
        trace(),
        """\
pid,step,name,gpu,host_ns,span_ns,kernel_count,kernel_ns,busy_ns,first_ns
1000,1,decode_step,0:0,50,25,2,30,25,20
1000,2,decode_step,0:0,50,25,2,30,25,120
""",
    ),
)
