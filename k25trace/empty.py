"""Why a report holds no kernels, and which capture would."""

from dataclasses import dataclass

from k25trace.errors import CannotAnswer
from k25trace.replays import OPAQUE_HINT, recorded_whole, replays
from k25trace.trace import Trace
from k25trace.units import counted


@dataclass(frozen=True)
class Reason:
    """Why a report holds no kernels, and what would mend it."""

    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.why} ({self.hint})"


def why_empty(trace: Trace) -> Reason:
    """Return why a report holds no usable kernel."""
    launched = replays(trace).opaque.height
    if launched:
        return Reason(f"all ran inside {recorded_whole(launched)}", OPAQUE_HINT)
    left_out = trace.unusable_kernels
    if left_out:
        return Reason(
            f"{counted(left_out, 'kernel')} with impossible times (an end before the start, or outside the capture)",
            "export the report again; if that changes nothing, capture again",
        )
    return Reason(
        "none was recorded (no-kernels)",
        "capture with --trace=cuda,nvtx, the program's workers included, and open the capture range around GPU work",
    )


def no_kernels(traces: list[Trace], reasons: list[Reason]) -> CannotAnswer:
    """Return why reports without kernels cannot answer, and which captures could."""
    if len(traces) == 1:
        return CannotAnswer(f"{traces[0].path}: no CUDA kernels: {reasons[0].why}", reasons[0].hint)
    each = "; ".join(f"{trace.path}: {reason.why}" for trace, reason in zip(traces, reasons, strict=True))
    return CannotAnswer(
        f"no kernels in any of {len(traces)} reports: {each}", "; ".join(dict.fromkeys(r.hint for r in reasons))
    )
