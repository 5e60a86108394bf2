"""A scene from reports: every lane's intervals, in one clock."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from k25trace.attribution import Attribution
from k25trace.classify import RuleSet
from k25trace.levels import single_bars
from k25trace.replays import replays
from k25trace.scene import operations, spans
from k25trace.scene.lanes import as_items, placed
from k25trace.scene.source import Source, Words
from k25trace.selection import Bounds, kernel_window
from k25trace.tally import Classes
from k25trace.trace import Trace
from k25trace.trace.interning import integers


@dataclass(frozen=True)
class Scene:
    """The lanes of a timeline and what lies on them.

    Attributes
    ----------
    lanes
        lane UInt32 · gpu, kind (of `KIND_NAMES`), label String · further Boolean (one more lane of the label before
        it); from top to bottom.
    items
        The intervals: report, gpu, kind, who, row, start_ns, end_ns (in the drawing's clock, inside the window) ·
        part UInt8 (index into `k25trace.palette.PARTS`) · text, path, shape UInt32 (indices) · process ·
        latency_ns, bytes, kernel_count, kernel_ns Int64, null where they have no meaning.
    bars
        One bar an interval and lane (`k25trace.levels.single_bars`).
    texts, paths, shapes
        What the indices of ``items`` stand for; the first of paths and shapes means none.
    ranks
        GPU → ranks of the processes that used it.
    shifts
        By report: what was taken from the report's clock to get the drawing's. Zero for a single report.
    start_ns, end_ns
        The window in the drawing's clock.
    notes
        What is not drawn, and why.
    """

    lanes: pl.DataFrame
    items: pl.DataFrame
    bars: pl.DataFrame
    texts: list[str]
    paths: list[str]
    shapes: list[str]
    ranks: dict[str, list[int]]
    shifts: dict[int, int]
    start_ns: int
    end_ns: int
    notes: list[str]

    @cached_property
    def parts(self) -> frozenset[int]:
        """The parts that occur."""
        return frozenset(integers(self.items["part"].unique()))

    def from_zero(self) -> "Scene":
        """Return the scene in a clock that is 0 where its window starts.

        Instants of a report can be so large (nanoseconds since 1970) that a Float64, which is what browsers reckon
        with, does not tell neighbours apart.
        """
        start = self.start_ns
        moved = pl.col("start_ns", "end_ns") - start
        return replace(
            self,
            items=self.items.with_columns(moved),
            bars=self.bars.with_columns(moved),
            shifts={report: shift + start for report, shift in self.shifts.items()},
            start_ns=0,
            end_ns=self.end_ns - start,
        )


def scene(
    traces: Sequence[Trace | Attribution],
    rules: RuleSet,
    *,
    bounds: Bounds | None = None,
    gpus: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    marks: pl.DataFrame | None = None,
) -> Scene:
    """Return what there is to draw of some reports.

    Parameters
    ----------
    traces
        Opened reports, or the attributions of their kernels where these are made already.
    bounds
        The window; None: from the first kernel to the last, per report.
    gpus
        Keys of the GPUs that are drawn; None: all.
    domains
        NVTX domains whose ranges own kernels; None: all but NCCL's. Attributions have theirs.
    marks
        Steps, waits and gaps (`MARK_SCHEMA`), in the clocks of their reports; None: none.
    """
    words = Words()
    items: list[pl.DataFrame] = []
    shifts: dict[int, int] = {}
    notes: list[str] = []
    ranks: dict[str, list[int]] = {}
    ends: list[int] = []
    starts: list[int] = []
    sources = [
        _source(each if isinstance(each, Attribution) else Attribution(each, domains), rules, bounds, words)
        for each in traces
    ]
    for source in sources:
        trace, window = source.trace, source.window
        shift = window.start_ns if len(traces) > 1 else 0
        shifts[trace.report] = shift
        wanted = [i for i, gpu in enumerate(trace.gpus) if gpus is None or gpu.key in gpus]
        found = _items(source, marks).filter(pl.col("gpu").is_in(wanted))
        items.append(found.with_columns(pl.col("start_ns", "end_ns") - shift))
        notes += source.notes
        ranks |= source.ranks()
        starts.append(window.start_ns - shift)
        ends.append(window.end_ns - shift)
    every = pl.concat(items)
    lanes, numbered, crowded = placed(every, [source.trace for source in sources])
    return Scene(
        lanes,
        every,
        single_bars(numbered),
        words.texts.values,
        words.paths.values,
        words.shapes.values,
        ranks,
        shifts,
        min(starts),
        max(ends),
        notes + crowded,
    )


def _source(attribution: Attribution, rules: RuleSet, bounds: Bounds | None, words: Words) -> Source:
    found = replays(attribution.trace)
    window = kernel_window(attribution.trace, found, bounds)
    return Source(attribution, found, window, Classes(rules, attribution.trace), words)


def _items(source: Source, marks: pl.DataFrame | None) -> pl.DataFrame:
    """Return the intervals of a report."""
    frames = [
        operations.kernels(source),
        operations.copies(source),
        operations.opaque(source),
        spans.host_ranges(source),
        spans.start_end_ranges(source),
        spans.projected(source),
    ]
    if marks is not None:
        frames.append(operations.marked(source, marks))
    return pl.concat([as_items(frame, source.trace.report) for frame in frames])
