"""One report made ready for questions about its steps, collectives and gaps: kernels with paths and categories."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from k25trace import health, losses
from k25trace.accounting import MEMCPY, MEMSET, OPAQUE
from k25trace.attribution import Attribution
from k25trace.classify import RuleSet, load_rules
from k25trace.empty import no_kernels, why_empty
from k25trace.intervals import union
from k25trace.replays import Replays, replays
from k25trace.selection import Bounds, Window, kernel_window
from k25trace.tally import Classes
from k25trace.taxonomy import ALL_CATEGORIES, is_communication
from k25trace.templates import Template
from k25trace.trace import Trace, open_traces
from k25trace.trace.interning import integers
from k25trace.warnings import ReportWarning

KERNEL, COPY, SET, REPLAY = range(4)
"""Kinds of what occupies a GPU: a kernel, a memory copy, a memory set, an opaque graph replay."""

NO_KERNEL = {COPY: MEMCPY, SET: MEMSET, REPLAY: OPAQUE}
"""What those that are no kernels are called."""

COMMUNICATION: tuple[int, ...] = tuple(i for i, c in enumerate(ALL_CATEGORIES) if is_communication(c))
"""Indices of the communication categories."""


@dataclass(frozen=True)
class Examined:
    """One report with what the questions about it share.

    Attributes
    ----------
    trace, attribution, replays, classes
        The report, the paths of its kernels, its graph launches, the categories of its kernel names.
    bounds, window
        The window that was asked for (None: from the first kernel to the last), and that of each GPU.
    warnings
        What to distrust.
    """

    trace: Trace
    attribution: Attribution
    replays: Replays
    classes: Classes
    bounds: Bounds | None
    window: Window
    warnings: list[ReportWarning]

    def within(self, bounds: Bounds | None) -> "Examined":
        """Return the same report with another window; the paths of its kernels are not found again."""
        if bounds == self.bounds:
            return self
        return replace(self, bounds=bounds, window=kernel_window(self.trace, self.replays, bounds))

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """`Attribution.kernels` and category UInt8 (index into `ALL_CATEGORIES`)."""
        kernels = self.attribution.kernels
        return kernels.hstack([self.classes.of(kernels["name"])["category"]])

    @cached_property
    def operations(self) -> pl.DataFrame:
        """Everything that occupies a GPU, opaque replays included.

        Returns
        -------
        pl.DataFrame
            gpu, process, start_ns, end_ns, correlation, graph_node, name (null for what is no kernel), category
            (likewise), what UInt8 (`KERNEL`, `COPY`, `SET`, `REPLAY`), thread, launch_ns (null without a known launch),
            stack, path.
        """
        columns = [
            *("gpu", "process", "start_ns", "end_ns", "correlation", "graph_node", "name", "category", "what"),
            *("thread", "launch_ns", "stack", "path"),
        ]
        nothing = [pl.lit(None, pl.UInt32).alias("name"), pl.lit(None, pl.UInt8).alias("category")]
        parts = [
            self.kernels.with_columns(pl.lit(KERNEL, pl.UInt8).alias("what")),
            self.attribution.copies.with_columns(*nothing, (COPY + pl.col("is_set").cast(pl.UInt8)).alias("what")),
            self._opaque.with_columns(*nothing, pl.lit(REPLAY, pl.UInt8).alias("what")),
        ]
        return pl.concat([part.select(columns) for part in parts])

    @cached_property
    def _opaque(self) -> pl.DataFrame:
        """Opaque replays on known GPUs, inside the report's window, as operations."""
        found = self.replays.opaque.filter(pl.col("gpu").is_not_null()).with_columns(
            pl.col("end_ns").clip(upper_bound=self.window.end_ns), pl.lit(None, pl.Int64).alias("graph_node")
        )
        return self.attribution.placed(found.filter(pl.col("end_ns") >= pl.col("start_ns")))

    @cached_property
    def occupied(self) -> pl.DataFrame:
        """When a GPU is not idle: gpu, start_ns, end_ns, disjoint."""
        return union(self.operations, ["gpu"])

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a frame with keys and operating system ids in place of the indices ``gpu`` and ``process``."""
        columns = {
            "gpu": pl.Series([gpu.key for gpu in self.trace.gpus], dtype=pl.String),
            "process": pl.Series([process.pid for process in self.trace.processes], dtype=pl.Int64),
        }
        present = [c for c in columns if c in frame.columns]
        return frame.with_columns(columns[c].gather(frame[c]).alias(c) for c in present)

    def path_names(self, paths: pl.Series) -> dict[int, tuple[str, ...]]:
        """Return the names of the distinct paths of a column, outermost first; none: under no range."""
        owners = {path: self.attribution.owner(path) for path in integers(paths.drop_nulls().unique())}
        return {path: owner.names if owner else () for path, owner in owners.items()}


Report = Trace | Examined | str | os.PathLike[str]
"""What questions are asked of: an opened report, one that was examined for another question, or a path."""


def examine(
    reports: Report | Sequence[Report],
    *,
    window: Bounds | str | None = None,
    domains: Sequence[str] | None = None,
    rules: RuleSet | None = None,
    template: Template | None = None,
) -> list[Examined]:
    """Open reports and attribute their kernels.

    Parameters
    ----------
    reports
        Opened reports or paths; those without kernels are left out. Those examined before keep their domains, rules
        and template.
    window, domains, rules, template
        As for `k25trace.attribute`.

    Raises
    ------
    CannotAnswer
        No report holds a kernel.
    UnreadableReport
        A file cannot be read.
    """
    bounds = Bounds.parse(window) if isinstance(window, str) else window
    given = [reports] if isinstance(reports, Trace | Examined | str | os.PathLike) else list(reports)
    traces = open_traces([each.trace if isinstance(each, Examined) else each for each in given])
    before = [each for each in given if isinstance(each, Examined)]
    if len(before) == len(given):
        return [each.within(bounds) for each in before]
    rules = rules or load_rules()
    for trace in traces:
        trace.load()
    with_kernels = [trace for trace in traces if trace.survey.height]
    if not with_kernels:
        raise no_kernels(traces, [why_empty(trace) for trace in traces])
    return [examined(Attribution(trace, domains, template), bounds, rules) for trace in with_kernels]


def examined(attribution: Attribution, bounds: Bounds | None, rules: RuleSet) -> Examined:
    """Return a report, whose kernels are attributed, made ready for questions."""
    trace = attribution.trace
    warnings = losses.incomplete_capture(trace)
    found = replays(trace)
    warnings += [
        *health.open_ranges(trace),
        *health.unlaunched_kernels(attribution.kernels["launch_ns"].null_count()),
        *health.uncaptured_kernels(attribution.uncaptured),
        *trace.warnings,
        *health.opaque_replays(found),
    ]
    window = kernel_window(trace, found, bounds)
    return Examined(trace, attribution, found, Classes(rules, trace), bounds, window, warnings)
