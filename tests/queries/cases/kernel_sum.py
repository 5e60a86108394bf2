"""Three kernels of two names: 10 + 30 of Marlin, 20 of the norm; 40 of 60 and 20 of 60."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 10)
    t.kernel(MARLIN, 10, 30)
    t.kernel(RMS_NORM, 50, 20)
    t.kernel(RMS_NORM, 0, 0)  # both times 0: left out
    return t


CASES = (
    Case(
        "kernel_sum",
        trace(),
        """\
name,kernel_count,kernel_ns,kernel_share,mean_ns,min_ns,max_ns
MARLIN,2,40,0.6666666666666666,20,10,30
RMS_NORM,1,20,0.3333333333333333,20,20,20
""",
    ),
)
