"""A launcher without kernels, and a worker with two on two ordinals."""

from querykit import Case
from tracekit import MARLIN, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.process(1000, name="torchrun")
    t.process(2000)
    t.push_pop("wait", 0, 10)
    t.kernel(MARLIN, 10, 5, pid=2000, launch=2)
    t.kernel(MARLIN, 10, 5, pid=2000, device=1)
    return t


CASES = (
    Case(
        "processes",
        trace(),
        """\
pid,name,device_count,kernel_count,call_count,nvtx_count,process
1000,torchrun,0,0,0,1,281491753926656
2000,python3,2,2,1,0,281508531142656
""",
    ),
)
