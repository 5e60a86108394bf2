"""One of each sign but diagnostics, which this schema has not."""

from querykit import Case
from tracekit import MARLIN, TraceBuilder


def trace() -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 10, 5, launch=2)
    t.kernel(MARLIN, 20, 5)
    t.kernel(MARLIN, 30, -5, launch=28)
    t.api("cudaLaunchKernel_v7000", 40, returned=1)
    t.push_pop("open", 0, None)
    return t


CASES = (
    Case(
        "capture_health",
        trace(),
        """\
sign,unit,found_count
diagnostics,messages of level warning or worse,0
failed-calls,launch calls,1
kernels-without-launch,kernels,1
ranges-without-end,ranges,1
unusable-times,kernels,1
""",
    ),
)
