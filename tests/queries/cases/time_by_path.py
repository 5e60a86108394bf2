"""The eager kernel belongs to step > layer. The graph was captured in capture > attn, of which capture was open when
the capture began: its replay in step belongs to step > attn."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("capture", 0, 30)
    t.capture(5, 25)
    t.push_pop("attn", 10, 20)
    t.node(15, 1)
    t.push_pop("step", 100, 200)
    t.push_pop("layer", 110, 120)
    t.kernel(MARLIN, 300, 10, launch=115)
    replay = t.graph_launch(150)
    t.kernel(RMS_NORM, 320, 7, corr=replay, node=1)
    t.kernel(RMS_NORM, 340, 3)
    return t


CASES = (
    Case(
        "time_by_path",
        trace(),
        """\
gpu,pid,via,path,category,kernel_count,kernel_ns
0:0,1000,launch,,norm,1,3
0:0,1000,capture,"[""step"",""attn""]",norm,1,7
0:0,1000,launch,"[""step"",""layer""]",gemm.marlin,1,10
""",
    ),
)
