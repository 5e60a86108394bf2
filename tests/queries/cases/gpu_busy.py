"""[0, 10) and [5, 20) are 20 long together; of [30, 50) the window to 40 keeps 10."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 10)
    t.kernel(RMS_NORM, 5, 15, stream=20)
    t.kernel(MARLIN, 30, 20)
    t.kernel(MARLIN, 40, 5, device=1)
    return t


CASES = (
    Case(
        "gpu_busy",
        trace(),
        """\
device,kernel_count,kernel_ns,busy_ns
0,3,35,30
""",
        {"window_start_ns": 0, "window_end_ns": 40},
    ),
)
