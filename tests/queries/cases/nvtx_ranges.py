"""Two ranges of one name, 10 and 20 long, a registered one never closed, and a start/end range of 5."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("step", 0, 10)
    t.push_pop("step", 10, 30)
    t.push_pop("open", 5, None, registered=True)
    t.start_end("copy", 40, 45)
    return t


CASES = (
    Case(
        "nvtx_ranges",
        trace(),
        """\
pid,kind,name,range_count,open_count,host_ns,min_ns,max_ns,first_ns
1000,pushpop,step,2,0,30,10,20,0
1000,startend,copy,1,0,5,5,5,40
1000,pushpop,open,1,1,0,,,5
""",
    ),
)
