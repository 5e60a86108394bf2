"""Kernel time by owner: which range, on what grounds, of which category."""

from collections.abc import Iterator

import polars as pl

from k25trace.attribution import VIAS, Attribution
from k25trace.intervals import union
from k25trace.ordering import SLAB_ROWS
from k25trace.tally import LANE_BITS, Classes, lane, unpacked
from k25trace.trace.interning import ID

PUSH_POP, START_END = "pushpop", "startend"
_NO_PROCESS = (1 << LANE_BITS) - 1


def owned(attribution: Attribution, kernels: pl.DataFrame, classes: Classes) -> pl.DataFrame:
    """Return kernel counts and times by owner: gpu, process (index), kind, via, path, domain, category, ..."""
    totals = [pl.col("kernel_count").sum(), pl.col("kernel_ns").sum()]
    keys = ["lane", "owner"]
    parts = [_by_owner(part, classes) for part in kernels.iter_slices(4 * SLAB_ROWS)] or [_by_owner(kernels, classes)]
    by_path = (
        pl.concat(parts)
        .group_by(keys)
        .agg(totals)
        .with_columns(
            *unpacked("lane", "gpu", "process", "category"),
            (pl.col("owner") // len(VIAS)).cast(ID).alias("path"),
            (pl.col("owner") % len(VIAS)).cast(ID).alias("via"),
        )
        .with_columns(pl.col("process").replace(_NO_PROCESS, None))
    )
    owners = {path: attribution.owner(path) for path in by_path["path"].unique().to_list()}
    table = pl.DataFrame(
        [(path, list(o.names) if o else None, o.domain if o else None) for path, o in owners.items()],
        schema={"path": ID, "names": pl.List(pl.String), "domain": pl.String},
        orient="row",
    )
    named = by_path.join(table, on="path", how="left")
    push_pop = named.select(
        "gpu",
        "process",
        pl.lit(PUSH_POP).alias("kind"),
        pl.Series("via", VIAS).gather(named["via"]).alias("via"),
        pl.col("names").alias("path"),
        "domain",
        "category",
        "kernel_count",
        "kernel_ns",
    )
    return pl.concat([push_pop, *_start_end(attribution, kernels, classes)])


def _by_owner(kernels: pl.DataFrame, classes: Classes) -> pl.DataFrame:
    """Return kernels added up by lane (gpu, process, category) and owner (path and via in one number)."""
    classed = kernels.with_columns(
        classes.of(kernels["name"])["category"],
        # A kernel without a process is of a process that no other kernel is of.
        pl.col("process").fill_null(_NO_PROCESS),
    )
    owner = pl.col("path").cast(pl.Int64) * len(VIAS) + pl.col("via")
    return classed.group_by(lane("gpu", "process", "category"), owner.alias("owner")).agg(
        pl.len().cast(pl.Int64).alias("kernel_count"),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("kernel_ns"),
    )


def _start_end(attribution: Attribution, kernels: pl.DataFrame, classes: Classes) -> Iterator[pl.DataFrame]:
    """Yield, per process, the rows of start/end ranges: a kernel once for each name open at its launch."""
    kernels = kernels.select("process", "gpu", "name", "launch_ns", "start_ns", "end_ns")
    for ranges in attribution.owning.filter(~pl.col("push_pop")).partition_by("process", maintain_order=True):
        mine = kernels.filter((pl.col("process") == ranges["process"][0]) & pl.col("launch_ns").is_not_null())
        if mine.height:
            yield _open_at_launch(attribution, mine, ranges.sort("row"), classes)


def _open_at_launch(
    attribution: Attribution, kernels: pl.DataFrame, ranges: pl.DataFrame, classes: Classes
) -> pl.DataFrame:
    """Return the rows of the start/end ranges of one process."""
    names = attribution.trace.names
    by = ["process", "gpu", "category"]
    classed = kernels.with_columns(classes.of(kernels["name"])["category"])
    lanes = classed.select(*by, lane(*by), "launch_ns", (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    covered = union(ranges, ["process", "name"]).join(lanes.select(*by, "lane").unique(), on="process")
    # Instants count by their rank among the launches: times of calls may be anything, and far apart.
    instants = lanes["launch_ns"].unique().sort()
    numbers = {lane: i for i, lane in enumerate(lanes["lane"].unique().sort().to_list())}

    def position(lane: pl.Series, instant: pl.Series) -> pl.Series:
        """Lane and instant as one number, ordered by both; instants with the same launches ahead are one."""
        rank = instants.search_sorted(instant, side="left").cast(pl.Int64)
        return lane.replace_strict(numbers, return_dtype=pl.Int64) * (instants.len() + 1) + rank

    ordered = pl.DataFrame([position(lanes["lane"], lanes["launch_ns"]).alias("position"), lanes["duration_ns"]]).sort(
        "position"
    )
    running = pl.concat([pl.Series([0], dtype=pl.Int64), ordered["duration_ns"].cum_sum()])

    def launched_before(instant: str) -> pl.Series:
        """How many launches are ahead of an instant of each covered interval, earlier lanes included."""
        return ordered["position"].search_sorted(position(covered["lane"], covered[instant]), side="left")

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
