"""A runtime call and the driver call in it share an id; the same id in another process is another."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.process(2000)
    t.api("cudaLaunchKernel_v7000", 10, corr=5)
    t.api("cuLaunchKernel", 11, corr=5)
    t.api("cuLaunchKernel", 11, corr=5, pid=2000)
    return t


CASES = (
    Case(
        "duplicate_correlations",
        trace(),
        """\
pid,correlation,call_count,first_call,last_call,first_ns
1000,5,2,cudaLaunchKernel_v7000,cuLaunchKernel,10
""",
    ),
)
