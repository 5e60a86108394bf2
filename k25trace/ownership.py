"""Kernel time by owner: which range, on what grounds, of which category."""

import polars as pl

from k25trace.attribution import VIAS, Attribution
from k25trace.intervals import union
from k25trace.ordering import SLAB_ROWS
from k25trace.tally import LANE_BITS, Classes, lane, unpacked
from k25trace.trace.interning import ID, integers

PUSH_POP, START_END = "pushpop", "startend"
_NO_PROCESS = (1 << LANE_BITS) - 1


def owned(attribution: Attribution, kernels: pl.DataFrame, classes: Classes) -> pl.DataFrame:
    """Return kernel counts and times by owner: gpu, process (index), kind, via, path, domain, category, ..."""
    start_end = attribution.owning.filter(~pl.col("push_pop")).sort("row")
    # Where a start/end range opens or closes: between two such instants all launches are alike.
    edges = pl.concat([start_end["start_ns"], start_end["end_ns"]]).unique().sort()
    by_path: list[pl.DataFrame] = []
    by_segment: list[pl.DataFrame] = []
    for part in kernels.iter_slices(4 * SLAB_ROWS) if kernels.height else [kernels]:
        placed = _placed(part, classes)
        by_path.append(_summed(placed, "owner"))
        if edges.len():
            launched = placed.filter(pl.col("launch_ns").is_not_null())
            segment = edges.search_sorted(launched["launch_ns"], side="right").cast(pl.Int64).alias("segment")
            by_segment.append(_summed(launched.with_columns(segment), "segment"))
    found = [_push_pop(attribution, _together(by_path, "owner"))]
    if edges.len():
        found.append(_start_end(attribution, start_end, edges, _together(by_segment, "segment")))
    return pl.concat(found)


def _placed(kernels: pl.DataFrame, classes: Classes) -> pl.DataFrame:
    """Return lane (gpu, process, category), owner (path and via in one number), launch_ns and duration_ns."""
    classed = kernels.with_columns(
        classes.of(kernels["name"])["category"],
        # A kernel without a process is of a process that no other kernel is of.
        pl.col("process").fill_null(_NO_PROCESS),
    )
    return classed.select(
        lane("gpu", "process", "category"),
        (pl.col("path").cast(pl.Int64) * len(VIAS) + pl.col("via")).alias("owner"),
        "launch_ns",
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
    )


def _summed(placed: pl.DataFrame, by: str) -> pl.DataFrame:
    return placed.group_by("lane", by).agg(
        pl.len().cast(pl.Int64).alias("kernel_count"), pl.col("duration_ns").sum().alias("kernel_ns")
    )


def _together(parts: list[pl.DataFrame], by: str) -> pl.DataFrame:
    """Return the sums of several slices as one: gpu, process, category, what they were added up by, and the sums."""
    return (
        pl.concat(parts)
        .group_by("lane", by)
        .agg(pl.col("kernel_count").sum(), pl.col("kernel_ns").sum())
        .with_columns(*unpacked("lane", "gpu", "process", "category"))
        .with_columns(pl.col("process").replace(_NO_PROCESS, None))
    )


def _push_pop(attribution: Attribution, by_path: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of push/pop ranges, and of none."""
    placed = by_path.with_columns(
        (pl.col("owner") // len(VIAS)).cast(ID).alias("path"), (pl.col("owner") % len(VIAS)).cast(ID).alias("via")
    )
    owners = {path: attribution.owner(path) for path in placed["path"].unique().to_list()}
    table = pl.DataFrame(
        [(path, list(o.names) if o else None, o.domain if o else None) for path, o in owners.items()],
        schema={"path": ID, "names": pl.List(pl.String), "domain": pl.String},
        orient="row",
    )
    named = placed.join(table, on="path", how="left")
    return named.select(
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


def _start_end(
    attribution: Attribution, ranges: pl.DataFrame, edges: pl.Series, by_segment: pl.DataFrame
) -> pl.DataFrame:
    """Return the rows of start/end ranges: a kernel once for each name of its process open at its launch."""
    names = attribution.trace.names
    lanes = by_segment.select("lane", "process", "gpu", "category").unique().sort("lane").with_row_index("number")
    ordered = by_segment.join(lanes.select("lane", "number"), on="lane")
    # Lane and segment as one number, ordered by both; what is launched before an instant is a running sum along it.
    width = edges.len() + 1
    ordered = ordered.with_columns((pl.col("number").cast(pl.Int64) * width + pl.col("segment")).alias("position"))
    ordered = ordered.sort("position")
    covered = union(ranges, ["process", "name"]).join(lanes, on="process")

    def launched_before(instant: str) -> list[pl.Series]:
        """Return counts and sums ahead of an instant of each covered interval, those of earlier lanes included."""
        segment = edges.search_sorted(covered[instant], side="right").cast(pl.Int64)
        place = ordered["position"].search_sorted(covered["number"].cast(pl.Int64) * width + segment, side="left")
        return [
            pl.concat([pl.Series([0], dtype=pl.Int64), ordered[total].cum_sum()]).gather(place).alias(total)
            for total in ("kernel_count", "kernel_ns")
        ]

    inside = [
        until - since for since, until in zip(launched_before("start_ns"), launched_before("end_ns"), strict=True)
    ]
    summed = (
        covered.with_columns(inside)
        .group_by("gpu", "process", "name", "category")
        .agg(pl.col("kernel_count", "kernel_ns").sum())
        .filter(pl.col("kernel_count") > 0)
    )
    first = ranges.sort("start_ns", descending=True, maintain_order=True)
    domains = first.unique(["process", "name"], keep="last").select("process", "name", "domain")
    known = summed.join(domains, on=["process", "name"], how="left")
    return known.select(
        "gpu",
        "process",
        pl.lit(START_END).alias("kind"),
        pl.lit("launch").alias("via"),
        _texts(known["name"], names).reshape((-1, 1)).cast(pl.List(pl.String)).alias("path"),
        _texts(known["domain"], names).alias("domain"),
        "category",
        "kernel_count",
        "kernel_ns",
    )


def _texts(ids: pl.Series, names: list[str]) -> pl.Series:
    distinct = ids.unique().sort()
    texts = pl.Series([names[id_] for id_ in integers(distinct)], dtype=pl.String)
    return texts.gather(distinct.search_sorted(ids))
