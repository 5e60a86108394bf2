"""Node 9 was made from node 1, which was captured in attn; the range around the capture's beginning is not shown.
Node 2 was captured under nothing else."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("capture", 0, 30)
    t.capture(5, 25)
    t.push_pop("attn", 10, 20)
    t.node(15, 1)
    t.node(22, 2)
    t.node(40, 9)
    t.node(41, 9, 1)
    replay = t.graph_launch(150)
    t.kernel(RMS_NORM, 320, 7, corr=replay, node=9)
    t.kernel(MARLIN, 340, 3, corr=replay, node=2)
    return t


CASES = (
    Case(
        "graph_node_ranges",
        trace(),
        """\
pid,node,captured_ns,thread,path,kernel_count,kernel_ns,name
1000,9,15,281491753927656,"[""attn""]",1,7,RMS_NORM
1000,2,22,281491753927656,,1,3,MARLIN
""",
    ),
)
