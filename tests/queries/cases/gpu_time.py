"""The window is [0, 100) on both GPUs; on the first [0, 10) and [5, 20) run, on the second [90, 100)."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 10)
    t.kernel(RMS_NORM, 5, 15, stream=20)
    t.kernel(MARLIN, 90, 10, device=1)
    return t


CASES = (
    Case(
        "gpu_time",
        trace(),
        """\
gpu,gpu_name,kernel_count,kernel_ns,busy_ns,no_kernel_ns,window_ns
0:0,,2,25,20,80,100
0:1,,1,10,10,90,100
""",
    ),
)
