"""One launch with a kernel, one without, and a graph launch with two kernels."""

from querykit import Case
from tracekit import LAUNCH_CALL, MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 50, 10, launch=0)
    t.api(LAUNCH_CALL, 10)
    replay = t.graph_launch(20, 9)
    t.kernel(RMS_NORM, 60, 3, corr=replay, node=1)
    t.kernel(RMS_NORM, 70, 4, corr=replay, node=2)
    return t


CASES = (
    Case(
        "kernel_launches",
        trace(),
        """\
pid,call,call_count,call_ns,without_kernel_count,kernel_count,kernel_ns
1000,cudaLaunchKernel_v7000,2,10,1,1,10
1000,cudaGraphLaunch_v10000,1,9,0,2,7
""",
    ),
)
