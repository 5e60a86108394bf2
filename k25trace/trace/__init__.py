"""Opening and reading one report; the differences between schemas live here alone."""

from k25trace.trace.opening import open_trace, open_traces, refuse_twice
from k25trace.trace.report import Trace

__all__ = ["Trace", "open_trace", "open_traces", "refuse_twice"]
