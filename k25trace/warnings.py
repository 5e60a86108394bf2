"""The warnings: one list of stable codes, their levels and units, and what each does to the figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["info", "warning", "error"]
_ORDER: tuple[Level, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Kind:
    """What a code means: its level, the unit of its count, and its effect on the figures."""

    level: Level
    unit: str
    effect: str


KINDS: dict[str, Kind] = {
    "incomplete-capture": Kind(
        "error",
        "processes",
        "every figure is of what is left; capture again, with --capture-range",
    ),
    "no-kernels": Kind("error", "reports", "nothing of such a report is in any figure"),
    "dropped-events": Kind("error", "messages", "kernels may be missing: every figure is a lower bound"),
    "opaque-graphs": Kind(
        "warning",
        "graph launches",
        "what ran inside is in no share, its time is the wall row `opaque graph`, and exposed communication is an"
        " upper bound; capture with --cuda-graph-trace=node",
    ),
    "launches-without-kernels": Kind(
        "warning", "launches", "nsys may have lost kernels: kernel times are lower bounds"
    ),
    "kernels-without-launch": Kind("warning", "kernels", "counted, under no range"),
    "capture-ranges-missing": Kind(
        "warning",
        "replayed kernels",
        "captured before the recording began, so that the ranges of the replay alone are known;"
        " start the recording before the capture",
    ),
    "ranges-without-end": Kind("warning", "ranges", "taken to reach to the end of the report"),
    "unusable-times": Kind("warning", "kernels", "left out of every figure"),
    "ambiguous-device": Kind(
        "warning",
        "processes",
        "the report has no device map, so each is taken as a GPU of its own;"
        " if they share one GPU, busy and wall time count twice",
    ),
    "stream-overlap": Kind(
        "warning",
        "kernels",
        "programmatic dependent launch does that; kernel time counts the overlap twice, busy and wall time do not",
    ),
    "nvtx-not-recorded": Kind("warning", "reports", "no kernel has a range; capture with --trace=cuda,nvtx"),
    "unclassified": Kind("warning", "kernels", "no rule matches; extend the rules with --rules"),
    "diagnostics": Kind("warning", "messages", "what that concerns may be missing from the figures"),
    "clock-unaligned": Kind("warning", "reports", "instants of different reports are not comparable"),
    "assumed-device": Kind("info", "GPUs", "taken as physical GPUs, as the report has no device map"),
    "schema-newer": Kind(
        "info", "reports", "written by a newer nsys than this program knows: columns are read by name"
    ),
}


@dataclass(frozen=True)
class ReportWarning:
    """A warning about one run of an analysis.

    Attributes
    ----------
    code
        A key of `KINDS`.
    message
        One sentence: what was seen, and what it does to the figures.
    count
        How many of `unit` it concerns.
    """

    code: str
    message: str
    count: int

    @property
    def level(self) -> Level:
        """How bad it is: the level of its kind."""
        return KINDS[self.code].level

    @property
    def unit(self) -> str:
        """What `count` counts."""
        return KINDS[self.code].unit


def warn(code: str, count: int, seen: str) -> ReportWarning:
    """Return a warning whose message is what was seen, followed by what its kind does to the figures."""
    return ReportWarning(code, f"{seen}: {KINDS[code].effect}", count)


def in_order(warnings: Iterable[ReportWarning]) -> list[ReportWarning]:
    """Return warnings, the worst level first, then in the order of `KINDS`."""
    codes = list(KINDS)
    return sorted(warnings, key=lambda w: (_ORDER.index(w.level), codes.index(w.code)))
