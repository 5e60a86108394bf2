"""Why a GPU is idle: every gap, with the first cause that fits.

A gap is a maximal interval of the wall row ``idle``: no kernel, no copy, no possible opaque replay. What ended the gap
(*after*) tells why it lasted: whether the host had launched it by the time the gap began, and what the host did.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from k25trace.classify import RuleSet
from k25trace.errors import UsageError
from k25trace.examined import NO_KERNEL, Examined, Report, examine
from k25trace.intervals import covered, subtract, union
from k25trace.nesting import NO_STACK, last_at
from k25trace.paths import path_text
from k25trace.results import gpu_order, together
from k25trace.selection import Bounds, select_range
from k25trace.stepping import Stepping, find_stepping
from k25trace.templates import Template
from k25trace.trace.interning import integers
from k25trace.units import parse_ns
from k25trace.warnings import ReportWarning, in_order

SHORT = "short"
EDGE, INTERNAL, PROFILER, SYNC = "edge", "graph-internal", "profiler", "sync"
DEPENDENCY, LAUNCH_BOUND, HOST_BOUND, UNKNOWN = "dependency", "launch-bound", "host-bound", "unknown"

CAUSES = {
    SHORT: "shorter than --min",
    EDGE: "it touches a border of the window",
    INTERNAL: "both neighbours are of one graph replay",
    PROFILER: "overhead that the profiler recorded of its own covers at least half of it",
    SYNC: "the launching thread was in a synchronising call when it began",
    DEPENDENCY: "the launch call of what follows had returned when it began: a stream or event was waited for",
    LAUNCH_BOUND: "the launch call of what follows was in progress when it began",
    HOST_BOUND: "what follows was launched after it began: the host came late",
    UNKNOWN: "the launch of what follows is not in the report",
}
"""The causes, in the order in which they are tried, and what each says."""

DEFAULT_MIN_NS = 1000

BINS_NS = tuple(m * 10**e for e in range(3, 10) for m in (1, 2, 5))
"""Lower bounds of the histogram's bins, below the first of which is one more."""

_KEY = ["gpu", "start_ns"]
_STEP = ["gpu", "process", "step"]
_PARTS = ("blocked_ns", "host_ns", "latency_ns")


@dataclass(frozen=True)
class Gaps:
    """The gaps of one or more reports, as frames. Times Int64 nanoseconds, counts Int64.

    Attributes
    ----------
    reports
        report, file, nsys_version, said: what the steps of each rest on, or why it has none.
    gaps
        Gaps of at least ``min_ns``: gpu, report, start_ns, end_ns, gap_ns, cause, before, after (names of what ends and
        begins there; null: nothing does), path (list of names: ranges around the launch of ``after``), process (that
        launched it), step (its number), blocked_ns, host_ns, latency_ns (parts of the gap: in a synchronising call; on
        the host until the launch; from the launch to the start), host_path (ranges in which the launching thread was
        when a host-bound gap began), host_call (the CUDA call it was in then, which is no launch).
    summary
        gpu, cause, gap_count, gap_ns, gap_share (of the idle time of the GPU), blocked_ns, host_ns, latency_ns; sums to
        the idle time.
    steps
        gpu, process, step, cause, gap_count, gap_ns: of the step to which ``after`` belongs, short gaps too.
    histogram
        gpu, from_ns, to_ns (null: no bound), gap_count, gap_ns: of all gaps, short ones too.
    gpus
        gpu, window_ns, idle_ns, step_count (steps that run in the window, wholly or in part).
    min_ns
        The shortest gap that gets a cause.
    warnings
        Worst first.
    templates
        How graphs that were captured before the recording go with the template (see `k25trace.Analysis`).
    """

    reports: pl.DataFrame
    gaps: pl.DataFrame
    summary: pl.DataFrame
    steps: pl.DataFrame
    histogram: pl.DataFrame
    gpus: pl.DataFrame
    min_ns: int
    warnings: list[ReportWarning] = field(default_factory=list[ReportWarning])
    templates: pl.DataFrame | None = None


def find_gaps(
    reports: Report | Sequence[Report],
    *,
    minimum: int | str = DEFAULT_MIN_NS,
    step: str | None = None,
    window: Bounds | str | None = None,
    range_glob: str | None = None,
    domains: Sequence[str] | None = None,
    rules: RuleSet | None = None,
    template: Template | None = None,
) -> Gaps:
    """Find every gap and its cause (`CAUSES`).

    Parameters
    ----------
    reports
        Opened reports or paths.
    minimum
        Shortest gap that gets a cause (nanoseconds, or text such as ``1us``); shorter ones are summed as `SHORT`.
    step
        Pattern of the names of the step ranges; None: found, if there are any.
    window, range_glob, domains, rules, template
        As for `k25trace.attribute`.

    Raises
    ------
    CannotAnswer
        A report holds no kernels, or nothing that was asked for.
    """
    min_ns = parse_ns(minimum) if isinstance(minimum, str) else minimum
    if min_ns < 1:
        raise UsageError(f"--min {minimum}: not a time above 0")
    bounds = Bounds.parse(window) if isinstance(window, str) else window
    parts: list[_Part] = []
    for each in examine(reports, window=bounds, domains=domains, rules=rules, template=template):
        pieces = each.window.pieces
        if range_glob is not None:
            pieces = select_range(each.attribution, range_glob, bounds)[0].pieces
        parts.append(_part(each, find_stepping(each, step), pieces, min_ns))
    gaps = pl.concat([part.gaps for part in parts])
    gpus = pl.concat([part.gpus for part in parts])
    short = pl.concat([part.short for part in parts])
    return Gaps(
        reports=pl.concat([part.report for part in parts]),
        gaps=gaps.sort("gap_ns", gpu_order(), "start_ns", descending=[True, False, False]),
        summary=_summary(gaps, short, gpus),
        steps=_by_step(gaps, short),
        histogram=pl.concat([part.histogram for part in parts]),
        gpus=gpus,
        min_ns=min_ns,
        warnings=in_order([w for part in parts for w in part.warnings]),
        templates=together([part.templates for part in parts]),
    )


@dataclass(frozen=True)
class _Part:
    """What one report contributes."""

    report: pl.DataFrame
    gaps: pl.DataFrame
    short: pl.DataFrame
    histogram: pl.DataFrame
    gpus: pl.DataFrame
    warnings: list[ReportWarning]
    templates: pl.DataFrame | None


def _part(examined: Examined, stepping: Stepping, pieces: pl.DataFrame, min_ns: int) -> _Part:
    every = subtract(pieces, examined.occupied, ["gpu"]).with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("gap_ns")
    )
    length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("window_ns")
    idle = every.group_by("gpu").agg(pl.col("gap_ns").sum().alias("idle_ns"))
    counts = _steps_of_gpus(examined, stepping, pieces)
    gpus = (
        pieces.group_by("gpu")
        .agg(length)
        .join(idle, on="gpu", how="left")
        .join(counts, on="gpu", how="left")
        .with_columns(pl.col("idle_ns", "step_count").fill_null(0))
        .sort("gpu")
    )
    every = every.with_columns(_following(examined, every).alias("after"))
    every = every.with_columns(_step_numbers(stepping, every["after"]).alias("step"))
    below = every.filter(pl.col("gap_ns") < min_ns)
    short = (
        below.with_columns(examined.operations["process"].gather(below["after"]).alias("process"))
        .group_by(_STEP)
        .agg(pl.len().cast(pl.Int64).alias("gap_count"), pl.col("gap_ns").sum())
    )
    long = every.filter(pl.col("gap_ns") >= min_ns)
    trace = examined.trace
    report = (trace.report, path_text(trace.path), trace.facts.get("EXPORT_PRODUCT_VERSION"), stepping.said)
    schema = {"report": pl.Int64, "file": pl.String, "nsys_version": pl.String, "said": pl.String}
    return _Part(
        pl.DataFrame([report], schema=schema, orient="row"),
        _told(examined, _caused(examined, long, pieces)),
        examined.named(short),
        examined.named(_histogram(every)),
        examined.named(gpus),
        examined.warnings,
        examined.attribution.template_rows,
    )


def _steps_of_gpus(examined: Examined, stepping: Stepping, pieces: pl.DataFrame) -> pl.DataFrame:
    """Return how many steps run in the window of each GPU."""
    placed = examined.operations.select("gpu", "start_ns", "end_ns").hstack([stepping.of_operations.alias("step")])
    # One more, so that a step without any length counts where it is.
    spans = placed.drop_nulls("step").group_by("gpu", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max() + 1)
    inside = spans.filter(covered(spans, union(pieces, ["gpu"]), ["gpu"]) > 0)
    return inside.group_by("gpu").agg(pl.len().cast(pl.Int64).alias("step_count"))


def _step_numbers(stepping: Stepping, operations: pl.Series) -> pl.Series:
    """Return the number of the step, in its process, of operations (indices; null: none)."""
    if not stepping.found:
        return pl.repeat(None, operations.len(), dtype=pl.Int64, eager=True)
    return stepping.steps["index"].gather(stepping.of_operations.gather(operations))


# ---- causes


def _caused(examined: Examined, gaps: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Add what ended before each gap, its cause and its parts."""
    found = _neighbours(examined, gaps)
    borders = [
        found.join(
            pieces.select("gpu", pl.col(c), pl.lit(value=True).alias("at")),
            on=["gpu", c],
            how="left",
            maintain_order="left",
        )["at"]
        for c in ("start_ns", "end_ns")
    ]
    sync_end = _end_of(union(_synchronising(examined), ["thread"]), found)
    overhead = union(examined.trace.profiler_overhead, ["process"])
    busy = covered(found.select("process", "start_ns", "end_ns"), overhead, ["process"])
    start, end, launch, returned = (pl.col(c) for c in ("start_ns", "end_ns", "launch_ns", "launch_end_ns"))
    known = found.with_columns(
        (borders[0].fill_null(value=False) | borders[1].fill_null(value=False)).alias("edge"),
        sync_end.alias("sync_end"),
        busy.alias("overhead_ns"),
    )
    internal = (
        pl.col("graph_node").is_not_null()
        & pl.col("before_graph_node").is_not_null()
        & (pl.col("process") == pl.col("before_process"))
        & (pl.col("correlation") == pl.col("before_correlation"))
    )
    cause = (
        pl.when("edge").then(pl.lit(EDGE))
        .when(internal).then(pl.lit(INTERNAL))
        .when((pl.col("overhead_ns") > 0) & (2 * pl.col("overhead_ns") >= pl.col("gap_ns"))).then(pl.lit(PROFILER))
        .when(launch.is_null()).then(pl.lit(UNKNOWN))
        .when(pl.col("sync_end").is_not_null()).then(pl.lit(SYNC))
        .when(returned <= start).then(pl.lit(DEPENDENCY))
        .when(launch <= start).then(pl.lit(LAUNCH_BOUND))
        .otherwise(pl.lit(HOST_BOUND))
    )  # fmt: skip
    known = known.with_columns(cause.alias("cause"))
    free = pl.when(pl.col("cause") == SYNC).then(pl.min_horizontal("sync_end", end)).otherwise(start)
    on_host = (pl.min_horizontal(launch, end) - free).clip(lower_bound=0)
    known = known.with_columns(
        (free - start).alias("blocked_ns"),
        pl.when(pl.col("cause").is_in([SYNC, HOST_BOUND])).then(on_host).otherwise(0).alias("host_ns"),
    )
    return known.with_columns((pl.col("gap_ns") - pl.col("blocked_ns") - pl.col("host_ns")).alias("latency_ns"))


def _following(examined: Examined, gaps: pl.DataFrame) -> pl.Series:
    """Return the operation that begins where a gap ends (of several, what was launched first); null: none does."""
    operations = examined.operations.with_row_index("operation")
    begins = gaps.select("gpu", "end_ns").join(
        operations.select(
            "gpu", pl.col("start_ns").alias("end_ns"), "operation", "launch_ns", pl.col("end_ns").alias("ended")
        ),
        on=["gpu", "end_ns"],
    )
    after = begins.sort("launch_ns", "ended", "operation", nulls_last=True).unique(
        ["gpu", "end_ns"], keep="first", maintain_order=True
    )
    return gaps.join(after, on=["gpu", "end_ns"], how="left", maintain_order="left")["operation"]


def _neighbours(examined: Examined, gaps: pl.DataFrame) -> pl.DataFrame:
    """Add what ends where a gap begins (of several, what was launched last), and what is known of both neighbours."""
    operations = examined.operations.with_row_index("operation")
    ends = gaps.select("gpu", "start_ns").join(
        operations.select(
            "gpu", pl.col("end_ns").alias("start_ns"), "operation", "launch_ns", pl.col("start_ns").alias("began")
        ),
        on=_KEY,
    )
    before = ends.sort("launch_ns", "began", "operation", descending=True, nulls_last=True).unique(
        _KEY, keep="first", maintain_order=True
    )
    found = gaps.join(
        before.select(*_KEY, pl.col("operation").alias("before")), on=_KEY, how="left", maintain_order="left"
    )
    columns = ["process", "correlation", "graph_node"]
    previous = operations.select(columns)[found["before"].fill_null(0)].rename({c: f"before_{c}" for c in columns})
    following = operations.select(*columns, "thread", "launch_ns", "path")[found["after"].fill_null(0)]
    nothing = [(previous, found["before"].is_null()), (following, found["after"].is_null())]
    blanked = [
        frame.with_columns(pl.when(~absent).then(pl.col(c)).alias(c) for c in frame.columns)
        for frame, absent in nothing
    ]
    joined = found.hstack(blanked[0]).hstack(blanked[1])
    return joined.with_columns(examined.attribution.launch_ends(joined).alias("launch_end_ns"))


def _synchronising(examined: Examined) -> pl.DataFrame:
    """Return the calls in which a thread waits for a GPU: thread, start_ns, end_ns."""
    calls = examined.trace.calls("synchronize", "synchronize_event", "blocking_copy")
    return calls.select("thread", "start_ns", "end_ns").drop_nulls()


def _end_of(intervals: pl.DataFrame, gaps: pl.DataFrame) -> pl.Series:
    """Return the end of the interval of the gap's thread in which the gap begins, null where there is none."""
    changes = intervals.select("thread", pl.col("start_ns").alias("at_ns"), "end_ns")
    end = last_at(gaps.select("thread", pl.col("start_ns").alias("at_ns")), changes)["end_ns"]
    return end.set((end <= gaps["start_ns"]).fill_null(value=True), None)


# ---- in words


def _told(examined: Examined, gaps: pl.DataFrame) -> pl.DataFrame:
    """Replace indices by names, and say where the host was when a host-bound gap began."""
    at = gaps.select("thread", pl.col("start_ns").alias("at_ns"))
    host_bound = gaps["cause"] == HOST_BOUND
    stacks = examined.attribution.nesting.at(at)
    stacks = stacks.set(~host_bound, NO_STACK)
    paths = {path: list(names) or None for path, names in examined.path_names(gaps["path"]).items()}
    found = gaps.with_columns(
        _names(examined, gaps["before"]).alias("before"),
        _names(examined, gaps["after"]).alias("after"),
        _looked_up(gaps["path"], paths).alias("path"),
        _host_paths(examined, stacks).alias("host_path"),
        _host_calls(examined, at, host_bound).alias("host_call"),
        pl.lit(examined.trace.report, pl.Int64).alias("report"),
    )
    return examined.named(found).select(
        "gpu", "report", "start_ns", "end_ns", "gap_ns", "cause", "before", "after", "path", "process", "step", *_PARTS,
        "host_path", "host_call",
    )  # fmt: skip


def _names(examined: Examined, operations: pl.Series) -> pl.Series:
    """Return the names of operations; copies, sets and opaque replays are called what they are."""
    known = examined.operations.select("name", "what")[operations.fill_null(0)]
    texts = pl.Series(examined.trace.names, dtype=pl.String).gather(known["name"])
    others = known["what"].replace_strict(NO_KERNEL, default=None, return_dtype=pl.String)
    return texts.fill_null(others).set(operations.is_null(), None)


def _host_paths(examined: Examined, stacks: pl.Series) -> pl.Series:
    names, ranges = examined.trace.names, examined.attribution.push_pop["name"]
    nesting = examined.attribution.nesting
    told: dict[int, list[str]] = {
        node: [names[ranges[r]] for r in nesting.ancestors(node)]
        for node in integers(stacks.unique())
        if node != NO_STACK
    }
    return _looked_up(stacks, told)


def _host_calls(examined: Examined, at: pl.DataFrame, host_bound: pl.Series) -> pl.Series:
    """Return the CUDA call in which the launching thread of each host-bound gap was when it began."""
    threads = at.filter(host_bound)["thread"].unique()
    calls = examined.trace.launches.filter(pl.col("thread").is_in(threads.to_list()))
    changes = calls.select("thread", pl.col("start_ns").alias("at_ns"), "end_ns", "name")
    found = last_at(at, changes)
    inside = host_bound & (found["end_ns"] > at["at_ns"]).fill_null(value=False)
    return pl.Series(examined.trace.names, dtype=pl.String).gather(found["name"]).set(~inside, None)


def _looked_up(keys: pl.Series, lists: Mapping[int, list[str] | None]) -> pl.Series:
    """Return the list of names of each key, null where it has none."""
    schema = {"key": keys.dtype, "names": pl.List(pl.String)}
    table = pl.DataFrame({"key": list(lists), "names": list(lists.values())}, schema=schema)
    return keys.to_frame("key").join(table, on="key", how="left", maintain_order="left")["names"]


# ---- sums


def _histogram(gaps: pl.DataFrame) -> pl.DataFrame:
    bounds = pl.Series([0, *BINS_NS], dtype=pl.Int64)
    upper = pl.Series([*BINS_NS, None], dtype=pl.Int64)
    place = (bounds.search_sorted(gaps["gap_ns"], side="right").cast(pl.Int64) - 1).alias("bin")
    counted = (
        gaps.with_columns(place)
        .group_by("gpu", "bin")
        .agg(pl.len().cast(pl.Int64).alias("gap_count"), pl.col("gap_ns").sum())
    )
    ordered = counted.sort("gpu", "bin")
    return ordered.select(
        "gpu",
        bounds.gather(ordered["bin"]).alias("from_ns"),
        upper.gather(ordered["bin"]).alias("to_ns"),
        "gap_count",
        "gap_ns",
    )


def _summary(gaps: pl.DataFrame, short: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    sums = [pl.len().cast(pl.Int64).alias("gap_count"), pl.col("gap_ns", *_PARTS).sum()]
    rest = (
        short.group_by("gpu")
        .agg(pl.col("gap_count", "gap_ns").sum())
        .select(
            "gpu",
            pl.lit(SHORT).alias("cause"),
            "gap_count",
            "gap_ns",
            *(pl.lit(0, pl.Int64).alias(p) for p in _PARTS[:2]),
            pl.col("gap_ns").alias("latency_ns"),
        )
    )
    rows = pl.concat([rest, gaps.group_by("gpu", "cause").agg(sums).select(rest.columns)])
    share = pl.when(pl.col("idle_ns") > 0).then(pl.col("gap_ns") / pl.col("idle_ns")).otherwise(0.0)
    order = pl.col("cause").replace_strict({cause: i for i, cause in enumerate(CAUSES)}, return_dtype=pl.Int64)
    found = rows.join(gpus.select("gpu", "idle_ns"), on="gpu", how="left").with_columns(share.alias("gap_share"))
    return found.sort(gpu_order(), order).select("gpu", "cause", "gap_count", "gap_ns", "gap_share", *_PARTS)


def _by_step(gaps: pl.DataFrame, short: pl.DataFrame) -> pl.DataFrame:
    order = pl.col("cause").replace_strict({cause: i for i, cause in enumerate(CAUSES)}, return_dtype=pl.Int64)
    found = gaps.group_by(*_STEP, "cause").agg(pl.len().cast(pl.Int64).alias("gap_count"), pl.col("gap_ns").sum())
    rest = short.select(*_STEP, pl.lit(SHORT).alias("cause"), "gap_count", "gap_ns")
    return pl.concat([rest, found]).drop_nulls("step").sort(gpu_order(), "process", "step", order)
