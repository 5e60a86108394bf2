"""One kernel has its call; one has none; a call of another process with its id does not help."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.process(2000)
    t.kernel(MARLIN, 10, 5, launch=2)
    t.kernel(RMS_NORM, 20, 7, corr=900)
    t.api("cudaLaunchKernel_v7000", 3, pid=2000, corr=900)
    return t


CASES = (
    Case(
        "kernels_without_launch",
        trace(),
        """\
pid,name,kernel_count,kernel_ns
1000,RMS_NORM,1,7
""",
    ),
)
