"""Two calls of 4 and 7, one of which failed; one of 5."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.api("cudaMalloc_v3020", 0, 4)
    t.api("cudaMalloc_v3020", 10, 7, returned=2)
    t.api("cudaFree_v3020", 20, 5)
    return t


CASES = (
    Case(
        "api_sum",
        trace(),
        """\
name,call_count,failed_count,call_ns,mean_ns,max_ns
cudaMalloc_v3020,2,1,11,5,7
cudaFree_v3020,1,0,5,5,5
""",
    ),
)
