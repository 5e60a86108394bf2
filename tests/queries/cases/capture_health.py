"""One of each sign but diagnostics, which this schema has not: NULL; and what is told of less."""

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
diagnostics,messages of level warning or worse,
failed-calls,launch calls,1
kernels-without-launch,kernels,1
ranges-without-end,ranges,1
unusable-times,kernels,1
""",
    ),
    Case(
        "ranges_alone",
        "CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid); INSERT INTO NVTX_EVENTS VALUES (1, NULL, 59, 1);",
        """\
sign,unit,found_count
diagnostics,messages of level warning or worse,
failed-calls,launch calls,
kernels-without-launch,kernels,
ranges-without-end,ranges,1
unusable-times,kernels,
""",
    ),
    Case(
        "messages_alone",
        "CREATE TABLE DIAGNOSTIC_EVENT (severity); INSERT INTO DIAGNOSTIC_EVENT VALUES (1), (2), (3);",
        """\
sign,unit,found_count
diagnostics,messages of level warning or worse,2
failed-calls,launch calls,
kernels-without-launch,kernels,
ranges-without-end,ranges,
unusable-times,kernels,
""",
    ),
)
