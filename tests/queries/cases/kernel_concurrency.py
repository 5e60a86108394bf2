"""[0, 30) and [20, 50): one kernel in [0, 20) and [30, 50), two in [20, 30)."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 30)
    t.kernel(RMS_NORM, 20, 30, stream=20)
    return t


CASES = (
    Case(
        "kernel_concurrency",
        trace(),
        """\
gpu,kernels_at_once,running_ns,busy_share
0:0,1,40,0.8
0:0,2,10,0.2
""",
    ),
)
