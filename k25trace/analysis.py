"""From reports to results: one call that fixes the windows, attributes, accounts, and says what to distrust.

Everything that is printed, drawn or saved comes from the `Analysis` made here, so that no figure is computed
twice.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from k25trace import health, losses
from k25trace.accounting import OPAQUE, slabs
from k25trace.attribution import Attribution
from k25trace.classify import RuleSet, load_rules
from k25trace.empty import no_kernels, why_empty
from k25trace.estimates import estimated
from k25trace.ordering import in_time_order
from k25trace.ownership import owned
from k25trace.replays import Replays, replays
from k25trace.results import Analysis, Part, combine
from k25trace.selection import (
    Bounds,
    Window,
    kernel_window,
    refuse_opaque,
    select_range,
)
from k25trace.tally import Classes, Sums, Tally, other_intervals
from k25trace.templates import Template
from k25trace.trace import Trace, open_traces
from k25trace.warnings import ReportWarning, in_order, warn

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Analysis", "attribute"]

_TOGETHER_ROWS = 1 << 22
"""Kernels up to which accounting and attribution run side by side; above, what both need at a time is too much."""


def attribute(
    reports: Trace | str | os.PathLike[str] | Sequence[Trace | str | os.PathLike[str]],
    *,
    window: Bounds | str | None = None,
    range_glob: str | None = None,
    domains: Sequence[str] | None = None,
    rules: RuleSet | None = None,
    ranges: bool = True,
    template: Template | None = None,
) -> Analysis:
    """Attribute and account the kernels of one or more reports.

    Parameters
    ----------
    reports
        Opened reports or paths; GPUs of different reports are different GPUs.
    window
        Instants of the report's clock (``A:B``, `Bounds`); None: from the first kernel to the last, per report.
    range_glob
        Only kernels launched (or captured) inside ranges whose name matches this pattern, in the time those
        ranges project onto each GPU.
    domains
        NVTX domains whose ranges may own kernels; None: every domain but NCCL's.
    rules
        Classification rules; None: the default ones.
    ranges
        False leaves ``ranges`` and ``inclusive`` out and streams the kernels: memory does not grow with them.
    template
        Names what was captured before the recording began (see `k25trace.learn_template`).

    Returns
    -------
    Analysis
        For every GPU: categories partition the kernel time, push/pop ranges with the null path do, and the rows
        of ``wall`` partition the window, exactly.

    Raises
    ------
    CannotAnswer
        A report holds no kernels, or nothing that was asked for.
    UnreadableReport
        A file cannot be read.
    """
    traces = open_traces(reports)
    bounds = Bounds.parse(window) if isinstance(window, str) else window
    rules = rules or load_rules()
    if ranges or range_glob is not None:
        for trace in traces:
            trace.load()  # once, before anything would stream them
    attributions = [Attribution(trace, domains, template) for trace in traces]
    return analysed(attributions, bounds, rules, range_glob=range_glob, ranges=ranges, template=template)


def analysed(
    every: Sequence[Attribution],
    bounds: Bounds | None,
    rules: RuleSet,
    *,
    range_glob: str | None = None,
    ranges: bool = True,
    template: Template | None = None,
    gpus: Collection[str] | None = None,
) -> Analysis:
    """Return `attribute` of reports whose kernels are attributed, or will be at the first question.

    ``gpus`` are the keys of those that the figures are about; None: all.
    """
    traces = [each.trace for each in every]
    attributions = [each for each in every if each.trace.survey.height]
    empty = {trace.report: why_empty(trace) for trace in traces if not trace.survey.height}
    if not attributions:
        raise no_kernels(traces, list(empty.values()))
    parts = [_analyse(each, bounds, range_glob, rules, ranges=ranges) for each in attributions]
    for part in parts:
        if part.window.selector == "window" and part.sums.names.height == 0:
            refuse_opaque(part.trace, part.window, part.replays)
    found = combine(parts, traces, ranges=ranges, chosen=gpus)
    if empty:
        each = [f"no kernels in {trace.path}: {empty[trace.report]}" for trace in traces if trace.report in empty]
        found.warnings.append(warn("no-kernels", len(empty), "; ".join(each)))
    if len(traces) > 1:
        own = "each report has a clock of its own" + (", on which --window is taken" if bounds is not None else "")
        found.warnings.append(warn("clock-unaligned", len(traces), own))
    found.warnings[:] = in_order(found.warnings)
    has_opaque = found.wall.filter(found.wall["row"] == OPAQUE)["wall_ns"].sum() > 0
    return replace(found, estimates=estimated(found.wall, template, rules)) if template and has_opaque else found


def _analyse(
    attribution: Attribution, bounds: Bounds | None, range_glob: str | None, rules: RuleSet, *, ranges: bool
) -> Part:
    trace = attribution.trace
    classes = Classes(rules, trace)
    if ranges or range_glob is not None:
        return _attributed(bounds, range_glob, attribution, classes, ranges=ranges)
    # The signs of loss come first: what they need for a while is given back before the kernels need as much.
    signs = losses.incomplete_capture(trace)
    found = replays(trace)
    window = kernel_window(trace, found, bounds)
    others = other_intervals(trace, found)
    trace.release("copies")
    narrow = ("gpu", "name", "start_ns", "end_ns")
    slabs_of_time = in_time_order(lambda: (c.select(narrow) for c in trace.kernel_chunks()), trace.kernel_order)
    sums = _accounted(window, classes, others, slabs_of_time)
    return Part(trace, window, found, sums, None, classes, [*signs, *_admitted(trace, found)])


def _attributed(
    bounds: Bounds | None,
    range_glob: str | None,
    attribution: Attribution,
    classes: Classes,
    *,
    ranges: bool,
) -> Part:
    """Analyse one report whose kernels are in memory, with their launches and ranges."""
    trace = attribution.trace
    found = replays(trace)
    kernels = trace.kernels
    if range_glob is None:
        window = kernel_window(trace, found, bounds)
    else:
        window, selected = select_range(attribution, range_glob, bounds)
        kernels = kernels.with_columns(selected.alias("selected"))
    others = other_intervals(trace, found)
    timed = kernels.select("gpu", "name", "start_ns", "end_ns", *(c for c in kernels.columns if c == "selected"))
    with ThreadPoolExecutor(1, thread_name_prefix="k25trace-account") as pool:
        signs = pool.submit(_signs, trace)
        account = pool.submit(_accounted, window, classes, others, slabs(timed))
        if kernels.height > _TOGETHER_ROWS:
            wait([account])
        _ = attribution.calls
        warnings = health.launches_without_kernels(trace) + signs.result()
        trace.release("launches")
        warnings += health.unlaunched_kernels(attribution.kernels["launch_ns"].null_count())
        warnings += health.uncaptured_kernels(attribution.uncaptured)
        owners = None
        if ranges:
            owning = attribution.kernels.hstack(kernels.select(c for c in kernels.columns if c == "selected"))
            owners = owned(attribution, window.chosen(owning), classes)
        warnings += _admitted(trace, found)
        return Part(trace, window, found, account.result(), owners, classes, warnings, attribution.template_rows)


def _signs(trace: Trace) -> list[ReportWarning]:
    """Return what calls and ranges say of each other, and kernels of themselves."""
    return [*losses.incomplete_capture(trace), *health.open_ranges(trace), *health.stream_overlap(trace)]


def _admitted(trace: Trace, found: Replays) -> list[ReportWarning]:
    """Return what the report says of itself, and what its graph launches keep to themselves."""
    return [*trace.warnings, *health.opaque_replays(found)]


def _accounted(
    window: Window,
    classes: Classes,
    others: "pl.DataFrame",
    slabs_of_time: "Iterable[tuple[pl.DataFrame, int | None]]",
) -> Sums:
    """Return what kernels, which come in slabs of time, and other intervals add up to."""
    account = Tally(window, classes)
    account.add(others)
    for slab, until in slabs_of_time:
        account.take(slab, until)
    return account.finish()
