"""One family on two GPUs, another on one."""

from querykit import Case
from tracekit import ALL_REDUCE, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 0, 10)
    t.kernel(ALL_REDUCE, 0, 11, device=1)
    t.kernel(RMS_NORM, 30, 5)
    return t


CASES = (
    Case(
        "family_sum",
        trace(),
        """\
category,family,gpu_count,kernel_count,kernel_ns
comm.allreduce,nccl_allreduce,2,2,21
norm,norm,1,1,5
""",
    ),
)
