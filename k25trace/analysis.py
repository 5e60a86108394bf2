"""From reports to results: one call that fixes the windows, attributes, accounts, and says what to distrust.

Everything that is printed, drawn or saved comes from the `Analysis` made here, so that no figure is computed
twice.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from k25trace import accounting, health
from k25trace.accounting import Account, Sweep, kernel_part, outside_part, row_part, slabs
from k25trace.attribution import Attribution
from k25trace.classify import Match, RuleSet, load_rules
from k25trace.errors import CannotAnswer, UsageError
from k25trace.intervals import union
from k25trace.medians import Medians
from k25trace.ordering import SLAB_ROWS, in_time_order
from k25trace.replays import Replays, replays
from k25trace.selection import Bounds, Window, kernel_window, select_range
from k25trace.taxonomy import ALL_CATEGORIES, UNCLASSIFIED, is_nccl
from k25trace.trace import Trace, open_trace
from k25trace.trace.interning import ID, integers
from k25trace.warnings import ReportWarning, in_order, warn

ALL_GPUS = "all"
"""The ``gpu`` of rows over all GPUs."""

PUSH_POP, START_END = "pushpop", "startend"
UNCLASSIFIED_SHOWN = 5
_LANE_BITS = 16
_NO_PROCESS = (1 << _LANE_BITS) - 1


@dataclass(frozen=True)
class Analysis:
    """The results of one analysis, as frames. Column units: ``_ns`` Int64, ``_count`` Int64, ``_share`` Float64.

    Attributes
    ----------
    reports
        report, file, nsys_version, export_schema.
    windows
        report, start_ns, end_ns, selector, pattern.
    gpus
        One row a GPU: gpu, report, device, name, kernel_count, kernel_ns, busy_ns, no_kernel_ns, idle_ns,
        window_ns, communication_ns, exposed_communication_ns, hidden_communication_ns, nccl_ns,
        exposed_nccl_ns, graph_launch_count, opaque_graph_count, exposed_is_upper_bound.
    processes
        gpu, process, device, rank: who used it.
    categories
        Per GPU and over all (`ALL_GPUS`): gpu, category, kernel_count, kernel_ns, kernel_share, busy_ns, wall_ns,
        wall_share, mean_ns, median_ns, max_ns (means and medians of even counts in whole nanoseconds, rounded down).
    families
        gpu, category, family, kernel_count, kernel_ns, kernel_share.
    wall
        gpu, row, wall_ns, wall_share: the wall partition; sums to the window of each GPU.
    ranges
        gpu, report, process, kind, via, path, domain, category, kernel_count, kernel_ns. Push/pop rows are
        exclusive and sum to all kernels. None where ranges were not asked for.
    inclusive
        gpu, report, process, range, category, kernel_count, kernel_ns: a kernel once for each name in its path.
    kernels
        Over all GPUs: name, category, family, rule, kernel_count, kernel_ns, mean_ns, max_ns.
    warnings
        Worst first.
    """

    reports: pl.DataFrame
    windows: pl.DataFrame
    gpus: pl.DataFrame
    processes: pl.DataFrame
    categories: pl.DataFrame
    families: pl.DataFrame
    wall: pl.DataFrame
    ranges: pl.DataFrame | None
    inclusive: pl.DataFrame | None
    kernels: pl.DataFrame
    warnings: list[ReportWarning] = field(default_factory=list[ReportWarning])


def attribute(
    reports: Trace | str | os.PathLike[str] | Sequence[Trace | str | os.PathLike[str]],
    *,
    window: Bounds | str | None = None,
    range_glob: str | None = None,
    domains: Sequence[str] | None = None,
    rules: RuleSet | None = None,
    ranges: bool = True,
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
    given = [reports] if isinstance(reports, Trace | str | os.PathLike) else list(reports)
    if not given:
        raise UsageError("no report given")
    traces = [item if isinstance(item, Trace) else open_trace(item, number) for number, item in enumerate(given)]
    if len({trace.report for trace in traces}) < len(traces):
        raise UsageError("two of the reports have one index", "open each with open_trace(path, report=N)")
    bounds = Bounds.parse(window) if isinstance(window, str) else window
    rules = rules or load_rules()
    if ranges or range_glob is not None:
        for trace in traces:
            trace.load()  # once, before anything would stream them
    with_kernels = [trace for trace in traces if trace.survey.height]
    if not with_kernels:
        raise _no_kernels(traces[0])
    parts = [_analyse(trace, bounds, range_glob, domains, rules, ranges=ranges) for trace in with_kernels]
    found = _combine(parts, ranges=ranges)
    empty = [trace for trace in traces if not trace.survey.height]
    if empty:
        seen = "no CUDA kernel in " + ", ".join(str(trace.path) for trace in empty)
        found.warnings.insert(0, warn("no-kernels", len(empty), seen))
    found.warnings[:] = in_order(found.warnings)
    return found


def _no_kernels(trace: Trace) -> CannotAnswer:
    launched = replays(trace).opaque.height
    if launched:
        return CannotAnswer(
            f"{trace.path}: no kernels: all ran inside {launched} CUDA graph launches that were recorded as wholes",
            "capture with --cuda-graph-trace=node",
        )
    left_out = trace.unusable_kernels
    if left_out:
        return CannotAnswer(
            f"{trace.path}: no kernels with usable times: all {left_out} end before they start or outside the capture",
            "export the report again; if that changes nothing, capture again",
        )
    return CannotAnswer(
        f"{trace.path}: no CUDA kernels in this report (no-kernels)",
        "capture with --trace=cuda,nvtx, the program's workers included, and open the capture range around GPU work",
    )


# ---- one report


@dataclass(frozen=True)
class _Part:
    """What one report contributes; ``gpu`` is an index into the report's GPUs."""

    trace: Trace
    window: Window
    replays: Replays
    accounts: dict[int, Account]
    names: pl.DataFrame
    medians: Medians
    ranges: pl.DataFrame | None
    classes: "_Classes"
    warnings: list[ReportWarning]


class _Classes:
    """Categories of a report's kernel names, decided once a name."""

    def __init__(self, rules: RuleSet, trace: Trace) -> None:
        self._rules = rules
        self._trace = trace
        self._match: dict[int, Match] = {}

    def match(self, name: int) -> Match:
        """Return the category, family and rule of a name."""
        found = self._match.get(name)
        if found is None:
            found = self._match[name] = self._rules.classify(self._trace.names[name])
        return found

    def of(self, names: pl.Series) -> pl.DataFrame:
        """Return, aligned with a column of names: category (index), part and outside (`accounting.PARTS`), UInt8."""
        distinct = names.unique()
        matches = [self.match(name) for name in distinct.to_list()]
        columns = {
            "category": [ALL_CATEGORIES.index(m.category) for m in matches],
            "part": [kernel_part(m.category, nccl=is_nccl(m.family)) for m in matches],
            "outside": [outside_part(m.category, nccl=is_nccl(m.family)) for m in matches],
        }
        table = pl.DataFrame({"name": distinct, **columns}, schema_overrides=dict.fromkeys(columns, pl.UInt8))
        return names.to_frame("name").join(table, on="name", how="left", maintain_order="left").drop("name")


def _analyse(
    trace: Trace,
    bounds: Bounds | None,
    range_glob: str | None,
    domains: Sequence[str] | None,
    rules: RuleSet,
    *,
    ranges: bool,
) -> _Part:
    # The signs of loss come first: what they need for a while is given back before the kernels need as much.
    warnings = health.incomplete_capture(trace)
    found = replays(trace)
    attribution = Attribution(trace, domains) if ranges or range_glob is not None else None
    if attribution is not None:
        warnings += [
            *health.open_ranges(trace),
            *health.launches_without_kernels(trace),
            *health.stream_overlap(trace),
        ]
        _ = attribution.calls
        trace.release("launches")
        warnings += [
            *health.unlaunched_kernels(attribution.kernels["launch_ns"].null_count()),
            *health.uncaptured_kernels(attribution.uncaptured),
        ]
    selected: pl.Series | None = None
    if attribution is not None and range_glob is not None:
        window, selected = select_range(attribution, range_glob, bounds)
    else:
        window = kernel_window(trace, found, bounds)
    classes = _Classes(rules, trace)
    kernels = None if attribution is None else attribution.kernels
    if kernels is not None and selected is not None:
        kernels = kernels.with_columns(selected.alias("selected"))
    account = _Accountant(window, classes)
    account.add(_others(trace, found), window)
    if kernels is None:
        trace.release("copies")
        narrow = ("gpu", "name", "start_ns", "end_ns")
        for slab, until in in_time_order(lambda: (c.select(narrow) for c in trace.kernel_chunks()), trace.kernel_order):
            account.take(slab, until)
    else:
        for slab, until in slabs(
            kernels.select("gpu", "name", "start_ns", "end_ns", *(["selected"] if selected is not None else []))
        ):
            account.take(slab, until)
    owned = None
    if attribution is not None and kernels is not None and ranges:
        owned = _owned(attribution, account.chosen(kernels), classes)
    warnings += [*trace.warnings, *health.opaque_replays(found)]
    return _Part(
        trace,
        window,
        found,
        account.sweep.finish(),
        account.names,
        account.medians,
        owned,
        classes,
        warnings,
    )


def _others(trace: Trace, found: Replays) -> pl.DataFrame:
    """Return what owns wall time without being a kernel: gpu, start_ns, end_ns, part."""
    copies = trace.copies.select(
        "gpu",
        "start_ns",
        "end_ns",
        pl.when("is_set")
        .then(row_part(accounting.MEMSET))
        .otherwise(row_part(accounting.MEMCPY))
        .cast(pl.UInt8)
        .alias("part"),
    )
    opaque = found.opaque.select(
        "gpu", "start_ns", "end_ns", pl.lit(row_part(accounting.OPAQUE), pl.UInt8).alias("part")
    )
    return pl.concat([copies, opaque.filter(pl.col("gpu").is_not_null())])


class _Accountant:
    """Feeds kernels to a sweep, and adds up what needs no sweep: counts, sums, maxima, durations by value."""

    def __init__(self, window: Window, classes: _Classes) -> None:
        self._window = window
        self._classes = classes
        self._names: list[pl.DataFrame] = []
        self.medians = Medians()
        self._others = pl.DataFrame()
        self.sweep = Sweep(window.pieces)

    def add(self, others: pl.DataFrame, window: Window) -> None:
        """Add intervals that are no kernels; all at once, before any kernel."""
        first, last = window.start_ns, window.end_ns
        self._others = others.with_columns(pl.col("start_ns", "end_ns").clip(first, last))
        self.sweep.add(self._others)

    def chosen(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """Return the selected kernels inside the window, clipped to it."""
        if "selected" in kernels.columns:
            kernels = kernels.filter("selected")
        if not self._window.cuts:
            return kernels
        first, last = self._window.start_ns, self._window.end_ns
        inside = (pl.col("start_ns") < last) & ((pl.col("end_ns") > first) | (pl.col("start_ns") >= first))
        return kernels.filter(inside).with_columns(
            pl.col("start_ns").clip(lower_bound=first), pl.col("end_ns").clip(upper_bound=last)
        )

    def take(self, kernels: pl.DataFrame, until: int | None) -> None:
        """Account kernels (gpu, name, start_ns, end_ns[, selected]); all that start before ``until`` are in."""
        classed = pl.concat([kernels, self._classes.of(kernels["name"])], how="horizontal")
        part = (
            pl.when("selected").then("part").otherwise("outside") if "selected" in kernels.columns else pl.col("part")
        )
        self.sweep.add(classed.with_columns(part.alias("part")))
        if until is not None:
            self.sweep.advance(until)
        span = pl.col("end_ns") - pl.col("start_ns")
        mine = self.chosen(classed).select("gpu", "name", "category", span.alias("duration_ns"))
        self._names.append(
            mine.group_by("gpu", "name").agg(
                pl.len().cast(pl.Int64).alias("kernel_count"),
                pl.col("duration_ns").sum().alias("kernel_ns"),
                pl.col("duration_ns").max().alias("max_ns"),
            )
        )
        self.medians.add(mine.select(_lane("gpu", "category").alias("group"), pl.col("duration_ns").alias("value")))

    @property
    def names(self) -> pl.DataFrame:
        """gpu, name, kernel_count, kernel_ns, max_ns."""
        return (
            pl.concat(self._names)
            .group_by("gpu", "name")
            .agg(pl.col("kernel_count").sum(), pl.col("kernel_ns").sum(), pl.col("max_ns").max())
        )


def _lane(*columns: str) -> pl.Expr:
    """Return small unsigned columns as one Int64 (16 bits each, the last lowest): one key groups faster than many."""
    packed = pl.lit(0, pl.Int64)
    for column in columns:
        packed = packed * (1 << _LANE_BITS) + pl.col(column).cast(pl.Int64)
    return packed.alias("lane")


def _unpacked(lane: str, *columns: str) -> list[pl.Expr]:
    """Return the columns that `_lane` packed."""
    shifts = range(_LANE_BITS * (len(columns) - 1), -1, -_LANE_BITS)
    return [
        (pl.col(lane) // (1 << shift) % (1 << _LANE_BITS)).cast(ID).alias(column)
        for column, shift in zip(columns, shifts, strict=True)
    ]


# ---- ranges


def _owned(attribution: Attribution, kernels: pl.DataFrame, classes: _Classes) -> pl.DataFrame:
    """Return kernel counts and times by owner: gpu, process (index), kind, via, path, domain, category, ..."""
    totals = [pl.col("kernel_count").sum(), pl.col("kernel_ns").sum()]
    keys = ["lane", "owner"]
    parts = [_by_owner(part, classes) for part in kernels.iter_slices(4 * SLAB_ROWS)] or [_by_owner(kernels, classes)]
    by_path = (
        pl.concat(parts)
        .group_by(keys)
        .agg(totals)
        .with_columns(
            *_unpacked("lane", "gpu", "process", "category"),
            (pl.col("owner") // 2).cast(ID).alias("path"),
            (pl.col("owner") % 2 == 1).alias("via_capture"),
        )
        .with_columns(pl.col("process").replace(_NO_PROCESS, None))
    )
    owners = {path: attribution.owner(path) for path in by_path["path"].unique().to_list()}
    table = pl.DataFrame(
        [(path, list(o.names) if o else None, o.domain if o else None) for path, o in owners.items()],
        schema={"path": ID, "names": pl.List(pl.String), "domain": pl.String},
        orient="row",
    )
    push_pop = by_path.join(table, on="path", how="left").select(
        "gpu",
        "process",
        pl.lit(PUSH_POP).alias("kind"),
        pl.when("via_capture").then(pl.lit("capture")).otherwise(pl.lit("launch")).alias("via"),
        pl.col("names").alias("path"),
        "domain",
        "category",
        "kernel_count",
        "kernel_ns",
    )
    return pl.concat([push_pop, *_start_end(attribution, kernels, classes)])


def _by_owner(kernels: pl.DataFrame, classes: _Classes) -> pl.DataFrame:
    """Return kernels added up by lane (gpu, process, category) and owner (path and via in one number)."""
    classed = kernels.with_columns(
        classes.of(kernels["name"])["category"],
        # A kernel without a process is of a process that no other kernel is of.
        pl.col("process").fill_null(_NO_PROCESS),
    )
    owner = pl.col("path").cast(pl.Int64) * 2 + pl.col("via_capture")
    return classed.group_by(_lane("gpu", "process", "category"), owner.alias("owner")).agg(
        pl.len().cast(pl.Int64).alias("kernel_count"),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("kernel_ns"),
    )


def _start_end(attribution: Attribution, kernels: pl.DataFrame, classes: _Classes) -> Iterator[pl.DataFrame]:
    """Yield, per process, the rows of start/end ranges: a kernel once for each name open at its launch."""
    for ranges in attribution.owning.filter(~pl.col("push_pop")).partition_by("process", maintain_order=True):
        mine = kernels.filter((pl.col("process") == ranges["process"][0]) & pl.col("launch_ns").is_not_null())
        if mine.height:
            yield _open_at_launch(attribution, mine, ranges.sort("row"), classes)


def _open_at_launch(
    attribution: Attribution, kernels: pl.DataFrame, ranges: pl.DataFrame, classes: _Classes
) -> pl.DataFrame:
    """Return the rows of the start/end ranges of one process."""
    names = attribution.trace.names
    by = ["process", "gpu", "category"]
    classed = kernels.with_columns(classes.of(kernels["name"])["category"])
    lanes = classed.select(*by, _lane(*by), "launch_ns", (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    covered = union(ranges, ["process", "name"]).join(lanes.select(*by, "lane").unique(), on="process")
    first, last = (
        integers(lanes["launch_ns"].top_k(1) if back else lanes["launch_ns"].bottom_k(1))[0] for back in (False, True)
    )
    shift = (last - first + 1).bit_length()
    numbers = {lane: i for i, lane in enumerate(lanes["lane"].unique().sort().to_list())}

    def position(lane: pl.Series, instant: pl.Series) -> pl.Series:
        """Lane and instant as one number, ordered by both."""
        return lane.replace_strict(numbers, return_dtype=pl.Int64) * (1 << shift) + (instant - first)

    ordered = pl.DataFrame([position(lanes["lane"], lanes["launch_ns"]).alias("position"), lanes["duration_ns"]]).sort(
        "position"
    )
    running = pl.concat([pl.Series([0], dtype=pl.Int64), ordered["duration_ns"].cum_sum()])

    def launched_before(instant: str) -> pl.Series:
        """How many launches are ahead of an instant of each covered interval, earlier lanes included."""
        inside = covered[instant].clip(first, last + 1)
        return ordered["position"].search_sorted(position(covered["lane"], inside), side="left")

    totals = ["kernel_count", "kernel_ns"]
    since, until = launched_before("start_ns"), launched_before("end_ns")
    inside = covered.with_columns(
        (until.cast(pl.Int64) - since.cast(pl.Int64)).alias("kernel_count"),
        (running.gather(until) - running.gather(since)).alias("kernel_ns"),
    )
    domains = dict(ranges.sort("start_ns", descending=True, maintain_order=True).select("name", "domain").iter_rows())
    summed = (
        inside.group_by("gpu", "process", "name", "category")
        .agg(pl.col(totals).sum())
        .filter(pl.col("kernel_count") > 0)
    )
    table = pl.DataFrame(
        [(name, [names[name]], names[domains[name]]) for name in summed["name"].unique().to_list()],
        schema={"name": ID, "path": pl.List(pl.String), "domain": pl.String},
        orient="row",
    )
    return summed.join(table, on="name", how="left").select(
        "gpu",
        "process",
        pl.lit(START_END).alias("kind"),
        pl.lit("launch").alias("via"),
        "path",
        "domain",
        pl.col("category").cast(ID),
        *totals,
    )


# ---- all reports together


def _combine(parts: list[_Part], *, ranges: bool) -> Analysis:
    gpus = pl.concat([_gpu_rows(part) for part in parts])
    names = pl.concat([_named(part) for part in parts])
    categories = _categories(parts, gpus, names)
    families = _with_kernel_share(_summed(names, ["gpu", "category", "family"]), gpus)
    wall = pl.concat([_wall_rows(part) for part in parts])
    owned = pl.concat([_range_rows(part) for part in parts]) if ranges else None
    return Analysis(
        reports=pl.concat([_report_row(part) for part in parts]),
        windows=pl.concat([_window_row(part) for part in parts]),
        gpus=gpus,
        processes=pl.concat([_process_rows(part) for part in parts]),
        categories=categories,
        families=_in_gpu_order(families, gpus, ["kernel_ns", "family"], [True, False]),
        wall=wall,
        ranges=owned,
        inclusive=_inclusive(owned) if owned is not None else None,
        kernels=_kernel_rows(names),
        warnings=[w for part in parts for w in part.warnings] + _unclassified(names),
    )


def _report_row(part: _Part) -> pl.DataFrame:
    facts = part.trace.facts
    return pl.DataFrame(
        {
            "report": [part.trace.report],
            "file": [str(part.trace.path)],
            "nsys_version": [facts.get("EXPORT_PRODUCT_VERSION")],
            "export_schema": [facts.get("EXPORT_SCHEMA_VERSION")],
        },
        schema={"report": pl.Int64, "file": pl.String, "nsys_version": pl.String, "export_schema": pl.String},
    )


def _window_row(part: _Part) -> pl.DataFrame:
    w = part.window
    row = (part.trace.report, w.start_ns, w.end_ns, w.selector, w.pattern)
    schema = {
        "report": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "selector": pl.String,
        "pattern": pl.String,
    }
    return pl.DataFrame([row], schema=schema, orient="row")


def _gpu_rows(part: _Part) -> pl.DataFrame:
    totals = {
        gpu: (count, ns)
        for gpu, count, ns in part.names.group_by("gpu")
        .agg(pl.col("kernel_count").sum(), pl.col("kernel_ns").sum())
        .iter_rows()
    }
    visible = _overlapping(part.replays.visible.rename({"first_ns": "start_ns", "last_ns": "end_ns"}), part.window)
    opaque = _overlapping(part.replays.opaque, part.window)
    rows: list[dict[str, object]] = []
    for number, gpu in enumerate(part.trace.gpus):
        account = part.accounts.get(number, Account())
        count, ns = totals.get(number, (0, 0))
        rows.append(
            {
                "gpu": gpu.key,
                "report": part.trace.report,
                "device": gpu.device,
                "name": part.trace.gpu_names[number],
                "kernel_count": count,
                "kernel_ns": ns,
                "busy_ns": account.busy_ns,
                "no_kernel_ns": account.window_ns - account.busy_ns,
                "idle_ns": account.wall[accounting.IDLE],
                "window_ns": account.window_ns,
                "communication_ns": account.communication_ns,
                "exposed_communication_ns": account.exposed_communication_ns,
                "hidden_communication_ns": account.communication_ns - account.exposed_communication_ns,
                "nccl_ns": account.nccl_ns,
                "exposed_nccl_ns": account.exposed_nccl_ns,
                "graph_launch_count": visible.get(number, 0) + opaque.get(number, 0),
                "opaque_graph_count": opaque.get(number, 0),
                "exposed_is_upper_bound": opaque.get(number, 0) > 0,
            }
        )
        wall = account.wall.total()
        if wall != account.window_ns:
            raise AssertionError(f"wall rows of GPU {gpu.key} sum to {wall} ns, its window is {account.window_ns} ns")
    types = {"gpu": pl.String, "name": pl.String, "exposed_is_upper_bound": pl.Boolean}
    return pl.DataFrame(rows, schema={key: types.get(key, pl.Int64) for key in rows[0]})


def _overlapping(launches: pl.DataFrame, window: Window) -> dict[int, int]:
    """Return how many graph launches of each GPU have to do with the window; of a whole report: all of them."""
    if window.selector != "kernels":
        near = launches.join(window.pieces, on="gpu", suffix="_piece")
        touching = (pl.col("start_ns") < pl.col("end_ns_piece")) & (pl.col("end_ns") > pl.col("start_ns_piece"))
        launches = near.filter(touching).unique(launches.columns)
    return dict(launches.group_by("gpu").len().iter_rows())


def _process_rows(part: _Part) -> pl.DataFrame:
    trace = part.trace
    keys = [gpu.key for gpu in trace.gpus]
    rows = [
        (
            keys[int(gpu)],
            None if process is None else trace.processes[int(process)].pid,
            device,
            None if process is None else trace.processes[int(process)].rank,
        )
        for process, device, gpu in trace.slots.iter_rows()
    ]
    schema = {"gpu": pl.String, "process": pl.Int64, "device": pl.Int64, "rank": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _named(part: _Part) -> pl.DataFrame:
    """Gpu (key), name (text), category, family, rule, kernel_count, kernel_ns, max_ns."""
    keys = [gpu.key for gpu in part.trace.gpus]
    rows = [
        (keys[int(gpu)], part.trace.names[int(name)], m.category, m.family, m.rule, count, ns, longest)
        for gpu, name, count, ns, longest in part.names.iter_rows()
        for m in (part.classes.match(name),)
    ]
    text = dict.fromkeys(("gpu", "name", "category", "family", "rule"), pl.String)
    numbers = dict.fromkeys(("kernel_count", "kernel_ns", "max_ns"), pl.Int64)
    return pl.DataFrame(rows, schema={**text, **numbers}, orient="row")


def _summed(frame: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    return frame.group_by(by).agg(pl.col("kernel_count").sum(), pl.col("kernel_ns").sum())


def _with_kernel_share(frame: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    """Add kernel_share: kernel time ÷ kernel time of all kernels of the same GPU."""
    whole = gpus.select("gpu", pl.col("kernel_ns").alias("whole"))
    share = pl.when(pl.col("whole") > 0).then(pl.col("kernel_ns") / pl.col("whole")).otherwise(0.0)
    return frame.join(whole, on="gpu", how="left").with_columns(share.alias("kernel_share")).drop("whole")


def _categories(parts: list[_Part], gpus: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    per_gpu = _summed(names, ["gpu", "category"])
    unions = pl.DataFrame(
        [
            (
                gpu.key,
                category,
                account.category_ns(category),
                account.wall[accounting.WALL_ROWS[i]],
                account.window_ns,
            )
            for part in parts
            for number, gpu in enumerate(part.trace.gpus)
            for account in (part.accounts.get(number, Account()),)
            for i, category in enumerate(ALL_CATEGORIES)
        ],
        schema={
            "gpu": pl.String,
            "category": pl.String,
            "busy_ns": pl.Int64,
            "wall_ns": pl.Int64,
            "window_ns": pl.Int64,
        },
        orient="row",
    )
    per_gpu = per_gpu.join(unions.drop("window_ns"), on=["gpu", "category"], how="left")
    measures = ["kernel_count", "kernel_ns", "busy_ns", "wall_ns"]
    overall = per_gpu.group_by("category").agg(pl.col(measures).sum()).with_columns(pl.lit(ALL_GPUS).alias("gpu"))
    every = pl.concat([per_gpu.select("gpu", "category", *measures), overall.select("gpu", "category", *measures)])
    total = gpus.select(pl.lit(ALL_GPUS).alias("gpu"), pl.col("kernel_ns").sum(), pl.col("window_ns").sum())
    wholes = pl.concat([gpus.select("gpu", "kernel_ns", "window_ns"), total.unique()])
    shown = _with_kernel_share(every, wholes).join(wholes.select("gpu", "window_ns"), on="gpu", how="left")
    wall_share = pl.when(pl.col("window_ns") > 0).then(pl.col("wall_ns") / pl.col("window_ns")).otherwise(0.0)
    longest = names.group_by("gpu", "category").agg(pl.col("max_ns").max())
    overall_longest = (
        longest.group_by("category").agg(pl.col("max_ns").max()).with_columns(pl.lit(ALL_GPUS).alias("gpu"))
    )
    longest = pl.concat([longest, overall_longest.select(longest.columns)])
    joined = (
        shown.with_columns(
            wall_share.alias("wall_share"), (pl.col("kernel_ns") // pl.col("kernel_count")).alias("mean_ns")
        )
        .join(_medians(parts), on=["gpu", "category"], how="left")
        .join(longest, on=["gpu", "category"], how="left")
        .select(
            "gpu",
            "category",
            "kernel_count",
            "kernel_ns",
            "kernel_share",
            "busy_ns",
            "wall_ns",
            "wall_share",
            "mean_ns",
            "median_ns",
            "max_ns",
        )
    )
    return _in_gpu_order(joined, gpus, ["kernel_ns", "category"], [True, False])


def _medians(parts: list[_Part]) -> pl.DataFrame:
    """Return the median duration of each category, per GPU and over all: gpu, category, median_ns."""
    lanes: list[pl.DataFrame] = []
    for part in parts:
        keys = pl.Series([gpu.key for gpu in part.trace.gpus], dtype=pl.String)
        found = part.medians.by(pl.col("group")).with_columns(_unpacked("group", "gpu", "category"))
        lanes.append(
            found.select(keys.gather(found["gpu"]).alias("gpu"), "category", pl.col("median").alias("median_ns"))
        )
    together = Medians.merged([part.medians for part in parts]).by(pl.col("group") % (1 << _LANE_BITS))
    lanes.append(
        together.select(
            pl.lit(ALL_GPUS).alias("gpu"),
            pl.col("group").cast(ID).alias("category"),
            pl.col("median").alias("median_ns"),
        )
    )
    for part in parts:
        part.medians.close()
    every = pl.concat(lanes)
    return every.with_columns(pl.Series(ALL_CATEGORIES).gather(every["category"]).alias("category"))


def _wall_rows(part: _Part) -> pl.DataFrame:
    """Return the rows that own time, and always ``idle``."""
    rows = [
        (gpu.key, row, account.wall[row], account.wall[row] / account.window_ns if account.window_ns else 0.0)
        for number, gpu in enumerate(part.trace.gpus)
        for account in (part.accounts.get(number, Account()),)
        for row in accounting.WALL_ROWS
        if account.wall[row] or row == accounting.IDLE
    ]
    schema = {"gpu": pl.String, "row": pl.String, "wall_ns": pl.Int64, "wall_share": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _range_rows(part: _Part) -> pl.DataFrame:
    """Return the report's range rows with keys and ids in the place of indices; equal paths become one row."""
    owned = part.ranges
    if owned is None:
        raise AssertionError("ranges were not attributed")
    keys = pl.Series([gpu.key for gpu in part.trace.gpus], dtype=pl.String)
    pids = pl.Series([process.pid for process in part.trace.processes], dtype=pl.Int64)
    categories = pl.Series(ALL_CATEGORIES)
    named = owned.with_columns(
        keys.gather(owned["gpu"]).alias("gpu"),
        pl.lit(part.trace.report, pl.Int64).alias("report"),
        pids.gather(owned["process"]).alias("process"),
        categories.gather(owned["category"]).alias("category"),
    )
    by = ["gpu", "report", "process", "kind", "via", "path", "domain", "category"]
    order = {gpu.key: i for i, gpu in enumerate(part.trace.gpus)}
    # Paths are compared as text, so that the order is one a reader can follow: by path, then by time.
    written = pl.col("path").list.join("\x1f")
    return (
        _summed(named, by)
        .select(*by, "kernel_count", "kernel_ns")
        .sort(
            pl.col("gpu").replace_strict(order, return_dtype=pl.Int64), pl.col("process"), pl.col("kind"), written,
            pl.col("kernel_ns"), pl.col("category"), pl.col("via"), pl.col("domain"),
            descending=[False, False, False, False, True, False, False, False], nulls_last=True,
        )
    )  # fmt: skip


def _inclusive(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return kernel time inside each range name, at any depth: a kernel counts once a name."""
    by = ["gpu", "report", "process", "range", "category"]
    named = (
        ranges.filter((pl.col("kind") == PUSH_POP) & pl.col("path").is_not_null())
        .with_columns(pl.col("path").list.unique().alias("range"))
        .explode("range")
    )
    return _summed(named, by).sort(
        "report",
        "gpu",
        "process",
        "kernel_ns",
        "range",
        "category",
        descending=[False, False, False, True, False, False],
    )


def _kernel_rows(names: pl.DataFrame) -> pl.DataFrame:
    by = ["name", "category", "family", "rule"]
    totals = [pl.col("kernel_count").sum(), pl.col("kernel_ns").sum(), pl.col("max_ns").max()]
    return (
        names.group_by(by)
        .agg(totals)
        .with_columns((pl.col("kernel_ns") // pl.col("kernel_count")).alias("mean_ns"))
        .select(*by, "kernel_count", "kernel_ns", "mean_ns", "max_ns")
        .sort("kernel_ns", "name", descending=[True, False])
    )


def _unclassified(names: pl.DataFrame) -> list[ReportWarning]:
    mine = _kernel_rows(names.filter(pl.col("category") == UNCLASSIFIED))
    if mine.height == 0:
        return []
    count = int(mine["kernel_count"].sum())
    shown = ", ".join(" ".join(name.split())[:60] for name in mine["name"].head(UNCLASSIFIED_SHOWN))
    return [warn("unclassified", count, f"{count} kernels of {mine.height} names, the longest-running {shown}")]


def _in_gpu_order(frame: pl.DataFrame, gpus: pl.DataFrame, then: list[str], descending: list[bool]) -> pl.DataFrame:
    order = {gpu: i for i, gpu in enumerate([*gpus["gpu"], ALL_GPUS])}
    place = pl.col("gpu").replace_strict(order, return_dtype=pl.Int64)
    return frame.sort(place, *(pl.col(c) for c in then), descending=[False, *descending])
