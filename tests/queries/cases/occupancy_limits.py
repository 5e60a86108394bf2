"""256 threads: 2048 / 256 = 8 blocks by threads; 128 registers a thread: 65536 / 32768 = 2 blocks; 100 KiB of
shared memory and 1 KiB for the system: 233472 / 103424 = 2 blocks, and with 32 registers it limits."""

from querykit import Case
from tracekit import MARLIN, RMS_NORM, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 10, 9, gridX=132, blockX=256, registersPerThread=128)
    t.kernel(MARLIN, 20, 8, gridX=7, blockX=256, registersPerThread=32, dynamicSharedMemory=102400)
    t.kernel(RMS_NORM, 30, 7, gridX=1, blockX=1024, registersPerThread=32)
    return t


CASES = (
    Case(
        "occupancy_limits",
        trace(),
        """\
name,threads_per_block,grid_blocks,registers_per_thread,shared_bytes,blocks_fitting,limited_by,occupancy_share,kernel_count,kernel_ns
MARLIN,256,132,128,0,2,registers,0.25,1,9
MARLIN,256,7,32,102400,2,shared memory,0.25,1,8
RMS_NORM,1024,1,32,0,2,threads,1.0,1,7
""",
    ),
)
