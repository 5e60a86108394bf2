"""Two waits for a stream: 10 and 30."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.sync(0, 10)
    t.sync(20, 30)
    return t


CASES = (
    Case(
        "sync_sum",
        trace(),
        """\
pid,device,waits_for,sync_count,sync_ns,max_ns
1000,0,stream,2,40,30
""",
    ),
)
