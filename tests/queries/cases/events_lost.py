"""The outer range is not innermost. A call is in the first inner range; none is in the other two."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("outer", 0, 100)
    t.push_pop("inner", 10, 20)
    t.push_pop("inner", 30, 40)
    t.push_pop("inner", 50, 60)
    t.api("cudaLaunchKernel_v7000", 15)
    t.api("cudaLaunchKernel_v7000", 40)
    return t


CASES = (
    Case(
        "events_lost",
        trace(),
        """\
pid,innermost_count,empty_count,empty_share,call_count
1000,3,2,0.6666666666666666,2
""",
    ),
)
