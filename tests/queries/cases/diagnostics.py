"""One message twice, another once; the more severe first."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder(schema="3.28.1")
    t.diagnostic("3 events were dropped", 2)
    t.diagnostic("CUDA injection failed", 3)
    t.diagnostic("3 events were dropped", 2)
    return t


CASES = (
    Case(
        "diagnostics",
        trace(),
        """\
severity,message_count,first_ns,message
3,1,10,CUDA injection failed
2,2,10,3 events were dropped
""",
    ),
)
