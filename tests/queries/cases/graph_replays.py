"""One replay with two kernels, and an opaque one."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    first = t.graph_launch(0)
    t.kernel(MARLIN, 10, 4, corr=first, node=1)
    t.kernel(RMS_NORM, 20, 6, corr=first, node=2)
    t.graph_launch(100)
    return t


CASES = (
    Case(
        "graph_replays",
        trace(),
        """\
pid,start_ns,call_ns,gpu,kernel_count,kernel_ns,first_ns,last_ns,correlation,thread
1000,0,5,0:0,2,10,10,26,101,281491753927656
1000,100,5,,0,0,,,102,281491753927656
""",
    ),
)
