"""Domain 1 is another one in each process."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.process(2000)
    t.domain("engine", 1)
    t.domain("NCCL", 1, pid=2000)
    t.push_pop("step", 0, 10, domain=1)
    t.push_pop("ncclAllReduce", 0, 10, domain=1, pid=2000)
    t.mark("now", 3)
    return t


CASES = (
    Case(
        "nvtx_domains",
        trace(),
        """\
pid,domain_id,name,range_count,mark_count
1000,0,,0,1
1000,1,engine,1,0
2000,1,NCCL,1,0
""",
    ),
)
