"""NCCL runs in [10, 30), Marlin in [20, 40): 10 are exposed, 10 hidden. The custom collective in [50, 60) is
communication, and exposed, and none of NCCL's."""

from querykit import Case
from tracekit import ALL_REDUCE, CUSTOM_ALL_REDUCE, MARLIN, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 10, 20, stream=20)
    t.kernel(MARLIN, 20, 20)
    t.kernel(CUSTOM_ALL_REDUCE, 50, 10)
    return t


CASES = (
    Case(
        "exposed_communication",
        trace(),
        """\
gpu,communication_ns,exposed_communication_ns,hidden_communication_ns,nccl_ns,exposed_nccl_ns
0:0,30,20,10,20,10
""",
    ),
)
