"""The results of an analysis as frames, put together from what each report adds up to."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from k25trace import accounting
from k25trace.accounting import Account
from k25trace.errors import UnreadableReport
from k25trace.medians import Medians
from k25trace.ownership import PUSH_POP
from k25trace.paths import path_text
from k25trace.quoting import shortened
from k25trace.replays import Replays
from k25trace.selection import Window
from k25trace.tally import LANE_BITS, Classes, Sums, unpacked
from k25trace.taxonomy import ALL_CATEGORIES, UNCLASSIFIED
from k25trace.trace import Trace
from k25trace.trace.gpus import Gpu
from k25trace.trace.interning import ID
from k25trace.trace.report import Process
from k25trace.units import counted
from k25trace.warnings import ReportWarning, warn

ALL_GPUS = "all"
"""The ``gpu`` of rows over all GPUs."""

_UNCLASSIFIED_SHOWN = 5
_MOST_NS = 1 << 62
"""Sums below this cannot wrap around in an Int64: 146 years."""


@dataclass(frozen=True)
class Analysis:
    """The results of one analysis, as frames. Column units: ``_ns`` Int64, ``_count`` Int64, ``_share`` Float64.

    Attributes
    ----------
    reports
        report, file, nsys_version, export_schema.
    windows
        report, start_ns, end_ns, piece_count, selector, pattern: first and last instant of any GPU's window, and of
        how many pieces the windows of all its GPUs consist (``gpus`` has their lengths).
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
    templates
        How graphs that were captured before the recording go with the template: report, process, kernel_count (of a
        replay), replay_count, graph (index of the learned one), score (0 to 1), applied. None without a template.
    estimates
        gpu, path, category, estimate_ns: the wall row ``opaque graph`` of each GPU, divided as the template's graphs
        divided their time. An estimate; None without a template or opaque replays.
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
    templates: pl.DataFrame | None = None
    estimates: pl.DataFrame | None = None


@dataclass(frozen=True)
class Part:
    """What one report contributes; ``gpu`` is an index into the report's GPUs."""

    trace: Trace
    window: Window
    replays: Replays
    sums: Sums
    ranges: pl.DataFrame | None
    classes: Classes
    warnings: list[ReportWarning]
    templates: pl.DataFrame | None = None
    gpus: Sequence[int] | None = None
    """The GPUs that it is about; None: all of the report."""

    def each_gpu(self) -> Iterator[tuple[int, Gpu]]:
        """Yield the GPUs that it is about, with their numbers in the report."""
        return ((n, gpu) for n, gpu in enumerate(self.trace.gpus) if self.gpus is None or n in self.gpus)


def combine(parts: list[Part], traces: list[Trace], *, ranges: bool, chosen: Collection[str] | None = None) -> Analysis:
    """Return the analysis of several reports from what each adds up to; ``traces`` also holds those without kernels.

    ``chosen`` are the keys of the GPUs that it is about; None: all.

    Raises
    ------
    UnreadableReport
        Their times add up to more than nanoseconds in an Int64 can.
    """
    _refuse_overflow(parts)
    said = [w for part in parts for w in _said_of(part, several=len(traces) > 1)]
    if chosen is not None:
        parts = [only for part in parts if (only := _only(part, chosen))]
    gpus = pl.concat([_gpu_rows(part) for part in parts])
    names = pl.concat([_named(part) for part in parts])
    categories = _categories(parts, gpus, names)
    families = with_kernel_share(_summed(names, ["gpu", "category", "family"]), gpus)
    wall = pl.concat([_wall_rows(part) for part in parts])
    owned = pl.concat([_range_rows(part) for part in parts]) if ranges else None
    return Analysis(
        reports=pl.concat([_report_row(trace) for trace in traces]),
        windows=pl.concat([_window_row(part) for part in parts]),
        gpus=gpus,
        processes=pl.concat([_process_rows(part) for part in parts]),
        categories=categories,
        families=_in_gpu_order(families, ["kernel_ns", "family"], [True, False]),
        wall=wall,
        ranges=owned,
        inclusive=_inclusive(owned) if owned is not None else None,
        kernels=_kernel_rows(names),
        warnings=said + _unclassified(names),
        templates=together([part.templates for part in parts]),
    )


def _only(part: Part, chosen: Collection[str]) -> Part | None:
    """Return what some GPUs contribute; None: none of them is of this report."""
    wanted = [number for number, gpu in enumerate(part.trace.gpus) if gpu.key in chosen]
    if not wanted:
        part.sums.medians.close()
        return None
    is_wanted = pl.col("gpu").is_in(wanted)
    return replace(
        part,
        gpus=wanted,
        window=replace(part.window, pieces=part.window.pieces.filter(is_wanted)),
        sums=replace(
            part.sums,
            names=part.sums.names.filter(is_wanted),
            medians=part.sums.medians.of((pl.col("group") // (1 << LANE_BITS)).is_in(wanted)),
        ),
        ranges=None if part.ranges is None else part.ranges.filter(is_wanted),
    )


def together(frames: Sequence[pl.DataFrame | None]) -> pl.DataFrame | None:
    """Return frames of several reports as one; None where none has any."""
    present = [frame for frame in frames if frame is not None]
    return pl.concat(present) if present else None


def _refuse_overflow(parts: list[Part]) -> None:
    """Raise where sums would wrap around: no kernel ran for centuries, so its times are not what was measured."""
    windows = [sum(account.window_ns for account in part.sums.accounts.values()) for part in parts]
    if sum(windows) >= _MOST_NS or sum(part.sums.at_most_ns for part in parts) >= _MOST_NS:
        longest = max(range(len(parts)), key=lambda i: (windows[i], parts[i].sums.at_most_ns))
        raise UnreadableReport(
            f"{parts[longest].trace.path}: kernel times that cannot be true: they add up to centuries",
            "export the report again, or name the part to look at with --window",
        )


def _said_of(part: Part, *, several: bool) -> list[ReportWarning]:
    """Return the warnings about one report, which of several they name."""
    which = f"report {part.trace.report}: " if several else ""
    return [replace(warning, message=which + warning.message) for warning in part.warnings]


def _report_row(trace: Trace) -> pl.DataFrame:
    facts = trace.facts
    return pl.DataFrame(
        {
            "report": [trace.report],
            "file": [path_text(trace.path)],
            "nsys_version": [facts.get("EXPORT_PRODUCT_VERSION")],
            "export_schema": [facts.get("EXPORT_SCHEMA_VERSION")],
        },
        schema={"report": pl.Int64, "file": pl.String, "nsys_version": pl.String, "export_schema": pl.String},
    )


def _window_row(part: Part) -> pl.DataFrame:
    w = part.window
    row = (part.trace.report, w.start_ns, w.end_ns, w.pieces.height, w.selector, w.pattern)
    schema = {
        "report": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "piece_count": pl.Int64,
        "selector": pl.String,
        "pattern": pl.String,
    }
    return pl.DataFrame([row], schema=schema, orient="row")


def _gpu_rows(part: Part) -> pl.DataFrame:
    totals = {
        gpu: (count, ns)
        for gpu, count, ns in part.sums.names.group_by("gpu")
        .agg(pl.col("kernel_count").sum(), pl.col("kernel_ns").sum())
        .iter_rows()
    }
    visible = _overlapping(part.replays.visible.rename({"first_ns": "start_ns", "last_ns": "end_ns"}), part.window)
    opaque = _overlapping(part.replays.opaque, part.window)
    rows: list[dict[str, object]] = []
    for number, gpu in part.each_gpu():
        account = part.sums.accounts.get(number, Account())
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


def _process_rows(part: Part) -> pl.DataFrame:
    trace = part.trace
    keys, processes = {number: gpu.key for number, gpu in part.each_gpu()}, trace.processes
    rows = [
        (keys[int(gpu)], known.pid, device, known.rank)
        for process, device, gpu in trace.slots.iter_rows()
        if gpu in keys
        for known in (Process(None, None) if process is None else processes[int(process)],)
    ]
    schema = {"gpu": pl.String, "process": pl.Int64, "device": pl.Int64, "rank": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _named(part: Part) -> pl.DataFrame:
    """Gpu (key), name (text), category, family, rule, kernel_count, kernel_ns, max_ns."""
    keys = [gpu.key for gpu in part.trace.gpus]
    rows = [
        (keys[int(gpu)], part.trace.names[int(name)], m.category, m.family, m.rule, count, ns, longest)
        for gpu, name, count, ns, longest in part.sums.names.iter_rows()
        for m in (part.classes.match(name),)
    ]
    text = dict.fromkeys(("gpu", "name", "category", "family", "rule"), pl.String)
    numbers = dict.fromkeys(("kernel_count", "kernel_ns", "max_ns"), pl.Int64)
    return pl.DataFrame(rows, schema={**text, **numbers}, orient="row")


def _summed(frame: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    return frame.group_by(by).agg(pl.col("kernel_count").sum(), pl.col("kernel_ns").sum())


def with_kernel_share(frame: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    """Add kernel_share: kernel time ÷ kernel time of all kernels of the same GPU."""
    whole = gpus.select("gpu", pl.col("kernel_ns").alias("whole"))
    joined = frame.join(whole, on="gpu", how="left", maintain_order="left")
    return joined.with_columns(share("kernel_ns", "whole").alias("kernel_share")).drop("whole")


def share(part: str, whole: str) -> pl.Expr:
    """Return part ÷ whole, and 0 of nothing: a share is never NaN."""
    return pl.when(pl.col(whole) > 0).then(pl.col(part) / pl.col(whole)).otherwise(0.0)


def place_of_gpu(key: str) -> tuple[int, int, str]:
    """Return what sorts the keys of GPUs as `Analysis.gpus` does: 0:10 after 0:9, those of processes, then all GPUs."""
    last = 1 << 62
    report, _, own = key.partition(":")
    if key == ALL_GPUS:
        return last, last, ""
    return int(report), int(own) if own.isdecimal() else last, own


def gpu_order() -> pl.Expr:
    """Return the place of a row's ``gpu`` in the order of `Analysis.gpus`; rows over all GPUs come last."""
    return pl.col("gpu").map_batches(_places, return_dtype=pl.Int64)


def _places(keys: pl.Series) -> pl.Series:
    ordered = sorted(keys.unique().drop_nulls().to_list(), key=place_of_gpu)
    return keys.replace_strict({key: i for i, key in enumerate(ordered)}, default=None, return_dtype=pl.Int64)


def _categories(parts: list[Part], gpus: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    per_gpu = _summed(names, ["gpu", "category"])
    unions = pl.DataFrame(
        [
            (gpu.key, category, account.category_ns(category), account.wall[accounting.WALL_ROWS[i]])
            for part in parts
            for number, gpu in part.each_gpu()
            for account in (part.sums.accounts.get(number, Account()),)
            for i, category in enumerate(ALL_CATEGORIES)
        ],
        schema={"gpu": pl.String, "category": pl.String, "busy_ns": pl.Int64, "wall_ns": pl.Int64},
        orient="row",
    )
    per_gpu = per_gpu.join(unions, on=["gpu", "category"], how="left")
    measures = ["kernel_count", "kernel_ns", "busy_ns", "wall_ns"]
    overall = per_gpu.group_by("category").agg(pl.col(measures).sum()).with_columns(pl.lit(ALL_GPUS).alias("gpu"))
    every = pl.concat([per_gpu.select("gpu", "category", *measures), overall.select("gpu", "category", *measures)])
    total = gpus.select(pl.lit(ALL_GPUS).alias("gpu"), pl.col("kernel_ns").sum(), pl.col("window_ns").sum())
    wholes = pl.concat([gpus.select("gpu", "kernel_ns", "window_ns"), total.unique()])
    shown = with_kernel_share(every, wholes).join(wholes.select("gpu", "window_ns"), on="gpu", how="left")
    longest = names.group_by("gpu", "category").agg(pl.col("max_ns").max())
    overall_longest = (
        longest.group_by("category").agg(pl.col("max_ns").max()).with_columns(pl.lit(ALL_GPUS).alias("gpu"))
    )
    longest = pl.concat([longest, overall_longest.select(longest.columns)])
    joined = (
        shown.with_columns(
            share("wall_ns", "window_ns").alias("wall_share"),
            (pl.col("kernel_ns") // pl.col("kernel_count")).alias("mean_ns"),
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
    return _in_gpu_order(joined, ["kernel_ns", "category"], [True, False])


def _medians(parts: list[Part]) -> pl.DataFrame:
    """Return the median duration of each category, per GPU and over all: gpu, category, median_ns."""
    lanes: list[pl.DataFrame] = []
    for part in parts:
        keys = pl.Series([gpu.key for gpu in part.trace.gpus], dtype=pl.String)
        found = part.sums.medians.by(pl.col("group")).with_columns(unpacked("group", "gpu", "category"))
        lanes.append(
            found.select(keys.gather(found["gpu"]).alias("gpu"), "category", pl.col("median").alias("median_ns"))
        )
    together = Medians.merged([part.sums.medians for part in parts]).by(pl.col("group") % (1 << LANE_BITS))
    lanes.append(
        together.select(
            pl.lit(ALL_GPUS).alias("gpu"),
            pl.col("group").cast(ID).alias("category"),
            pl.col("median").alias("median_ns"),
        )
    )
    for part in parts:
        part.sums.medians.close()
    every = pl.concat(lanes)
    return every.with_columns(pl.Series(ALL_CATEGORIES).gather(every["category"]).alias("category"))


def _wall_rows(part: Part) -> pl.DataFrame:
    """Return the rows that own time, and always ``idle``."""
    rows = [
        (gpu.key, row, account.wall[row], account.wall[row] / account.window_ns if account.window_ns else 0.0)
        for number, gpu in part.each_gpu()
        for account in (part.sums.accounts.get(number, Account()),)
        for row in accounting.WALL_ROWS
        if account.wall[row] or row == accounting.IDLE
    ]
    schema = {"gpu": pl.String, "row": pl.String, "wall_ns": pl.Int64, "wall_share": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _range_rows(part: Part) -> pl.DataFrame:
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
        gpu_order(),
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
    names_shown = mine["name"].head(_UNCLASSIFIED_SHOWN)
    shown = [shortened(" ".join(name.split()), 60) or "one without a name" for name in names_shown]
    seen = f"{counted(count, 'kernel')} of {counted(mine.height, 'name')}, the longest-running {', '.join(shown)}"
    return [warn("unclassified", count, seen)]


def _in_gpu_order(frame: pl.DataFrame, then: list[str], descending: list[bool]) -> pl.DataFrame:
    return frame.sort(gpu_order(), *(pl.col(c) for c in then), descending=[False, *descending])
