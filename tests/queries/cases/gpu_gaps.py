"""Kernels in [0, 10) and [50, 60), a copy in [20, 25): gaps of 10 and 25; the one of 10 is too short."""

from querykit import Case
from tracekit import MARLIN, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 10)
    t.memcpy(20, 5)
    t.kernel(MARLIN, 50, 10)
    return t


CASES = (
    Case(
        "gpu_gaps",
        trace(),
        """\
gpu,start_ns,end_ns,gap_ns
0:0,25,50,25
""",
        {"min_gap_ns": 11},
    ),
)
