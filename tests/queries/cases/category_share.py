"""30 of 40 are Marlin's, two at once for 5 of them; 10 are a norm's."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 15)
    t.kernel(MARLIN, 10, 15, stream=20)
    t.kernel(RMS_NORM, 30, 10)
    return t


CASES = (
    Case(
        "category_share",
        trace(),
        """\
gpu,category,kernel_count,kernel_ns,kernel_share,busy_ns,max_ns
0:0,gemm.marlin,2,30,0.75,25,15
0:0,norm,1,10,0.25,10,10
""",
    ),
)
