"""One name in two shapes; the one with more time comes first."""

from querykit import Case
from tracekit import MARLIN, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 10, 5, gridX=132, blockX=256, registersPerThread=128, dynamicSharedMemory=1024)
    t.kernel(MARLIN, 20, 5, gridX=132, blockX=256, registersPerThread=128, dynamicSharedMemory=1024)
    t.kernel(MARLIN, 30, 7, gridX=66, blockX=256, registersPerThread=128)
    return t


CASES = (
    Case(
        "kernel_shapes",
        trace(),
        """\
name,grid,block,registers_per_thread,static_shared_bytes,dynamic_shared_bytes,kernel_count,kernel_ns
MARLIN,"132,1,1","256,1,1",128,0,1024,2,10
MARLIN,"66,1,1","256,1,1",128,0,0,1,7
""",
    ),
)
