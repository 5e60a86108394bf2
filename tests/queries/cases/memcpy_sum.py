"""Two copies of 4 KiB to the device in 8 ns, one of 2 MiB from it in 100 ns."""

from querykit import Case
from tracekit import TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.memcpy(10, 3)
    t.memcpy(20, 5)
    t.memcpy(30, 100, kind=2, size=2 << 20)
    return t


CASES = (
    Case(
        "memcpy_sum",
        trace(),
        """\
direction,from_bytes,copy_count,copied_bytes,copy_ns,bytes_per_us
device to host,1048576,1,2097152,100,20971520
host to device,1024,2,8192,8,1024000
""",
    ),
)
