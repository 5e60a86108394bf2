"""Two processes see their GPU as ordinal 0; the report says which GPUs they are; one says its rank."""

from querykit import Case
from tracekit import MARLIN, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.process(2000)
    t.gpu(0)
    t.gpu(3)
    t.cuda_device(1000, 0, 3)
    t.cuda_device(2000, 0, 0)
    t.mark("worker rank=1", 5)
    t.kernel(MARLIN, 10, 5)
    t.kernel(MARLIN, 10, 6, pid=2000)
    return t


CASES = (
    Case(
        "device_map",
        trace(),
        """\
gpu,gpu_name,pid,rank,device,kernel_count,kernel_ns,gpu_index
0:0,NVIDIA H200,2000,,0,1,6,0
0:3,NVIDIA H200,1000,1,0,1,5,1
""",
    ),
)
