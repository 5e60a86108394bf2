"""NVTX ranges: on the threads that launched work, across threads, and where their kernels ran."""

import polars as pl

from k25trace.attribution import VIAS
from k25trace.nesting import NO_STACK, of_nodes
from k25trace.palette import PROJECTED, RANGE
from k25trace.scene.lanes import HOST, ON_GPU, PART, START_END
from k25trace.scene.source import Source
from k25trace.trace.interning import ID, Interner

MOST_DEPTH = 6
"""Levels of nested ranges that have a lane; deeper ones are counted and not drawn."""

MOST_THREADS = 2


def host_ranges(source: Source) -> pl.DataFrame:
    """Return the push/pop ranges on the threads that launched most on each GPU, those that launched nothing, too."""
    depths = source.attribution.nesting.nodes.group_by("range").agg(pl.col("depth").min()).sort("range")
    instance = ("row", "process", "thread", "name", "start_ns", "end_ns")
    ranges = source.attribution.push_pop.select(instance)[depths["range"]].hstack(depths.select("depth"))
    busiest = (
        _launches(source)
        .drop_nulls("thread")
        .group_by("gpu", "thread")
        .agg(pl.col("kernel_ns").sum())
        .join(ranges.select("thread").unique(), on="thread", how="semi")
        .sort("gpu", "kernel_ns", "thread", descending=[False, True, False])
        .with_columns(pl.int_range(pl.len()).over("gpu").alias("place"))
    )
    shown = busiest.filter(pl.col("place") < MOST_THREADS)
    if shown.height < busiest.height:
        source.notes.append(f"host ranges of more than {MOST_THREADS} threads a GPU: the busiest threads are drawn")
    launched = source.attribution.projected_spans().select("row", "gpu", "operation_count", "kernel_ns")
    every = (
        ranges.join(shown.select("gpu", "thread"), on="thread", how="inner")
        .join(launched, on=["row", "gpu"], how="left")
        .with_columns(pl.col("operation_count", "kernel_ns").fill_null(0))
        .sort("row", "gpu")
    )
    _note_depth(source, every["depth"])
    inside = source.inside(every.filter(pl.col("depth") <= MOST_DEPTH))
    return inside.select(
        "gpu",
        pl.lit(HOST).alias("kind"),
        pl.col("thread").cast(pl.Int64).alias("who"),
        pl.col("depth").cast(pl.Int64).alias("row"),
        "start_ns",
        "end_ns",
        pl.lit(PART[RANGE]).alias("part"),
        source.text_of(inside["name"]).alias("text"),
        "process",
        pl.col("operation_count").alias("kernel_count"),
        "kernel_ns",
    )


def _launches(source: Source) -> pl.DataFrame:
    """Return how each kernel and copy was launched, and the kernel's duration: process, gpu, thread, at, kernel_ns."""
    kept = ["process", "gpu", "thread", pl.col("launch_ns").alias("at")]
    kernel_ns = (pl.col("end_ns") - pl.col("start_ns")).alias("kernel_ns")
    return pl.concat(
        [
            source.attribution.kernels.select(*kept, kernel_ns),
            source.attribution.copies.select(*kept, pl.lit(0, pl.Int64).alias("kernel_ns")),
        ]
    )


def start_end_ranges(source: Source) -> pl.DataFrame:
    """Return the start/end ranges of the processes that used each GPU; they belong to no thread and may overlap."""
    across = source.attribution.owning.filter(~pl.col("push_pop")).drop_nulls(["process", "start_ns"]).sort("row")
    users = source.trace.slots.select("process", "gpu").drop_nulls().unique().sort("process", "gpu")
    every = across.join(users, on="process", how="inner", maintain_order="left_right")
    inside = source.inside(every.hstack(_launched_inside(source, every)))
    return inside.select(
        "gpu",
        pl.lit(START_END).alias("kind"),
        "start_ns",
        "end_ns",
        pl.lit(PART[RANGE]).alias("part"),
        source.text_of(inside["name"]).alias("text"),
        "process",
        "kernel_count",
        "kernel_ns",
    )


def _launched_inside(source: Source, every: pl.DataFrame) -> pl.DataFrame:
    """Return what each range's process launched on its GPU while it was open: kernel_count, kernel_ns."""
    if every.height == 0:  # most reports have none, and many kernels
        return pl.DataFrame(schema={"kernel_count": pl.Int64, "kernel_ns": pl.Int64})
    by = ["process", "gpu"]
    steps = (
        _launches(source)
        .drop_nulls("at")
        .sort(*by, "at")
        .with_columns(
            pl.int_range(1, pl.len() + 1).over(by).alias("kernel_count"), pl.col("kernel_ns").cum_sum().over(by)
        )
        .sort("at", maintain_order=True)
    )

    def before(instant: str) -> pl.DataFrame:
        asked = every.select(*by, pl.col(instant).alias("at")).with_row_index("place").sort("at")
        found = asked.join_asof(steps, on="at", by=by, allow_exact_matches=False, check_sortedness=False).sort("place")
        return found.select(pl.col("kernel_count", "kernel_ns").fill_null(0))

    return before("end_ns") - before("start_ns")


def projected(source: Source) -> pl.DataFrame:
    """Return the spans of ranges on the GPU, capture-time ranges included: one span an instance and replay."""
    kernels = source.window.chosen(source.attribution.kernels)
    by_node = pl.col("via") != VIAS.index("launch")
    replay = pl.when(by_node).then("correlation").otherwise(pl.lit(None, pl.Int64)).alias("replay")
    groups = kernels.group_by("gpu", "process", "stack", "path", replay).agg(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        pl.len().cast(pl.Int64).alias("kernel_count"),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("kernel_ns"),
    )
    prefixes, lengths = _prefixes(source, groups["path"])
    depth = source.attribution.nesting.nodes["depth"]
    groups = groups.join(lengths, on="path", how="left", maintain_order="left").with_columns(
        of_nodes(depth, groups["stack"]).fill_null(0).alias("launch_depth"), pl.col("stack").cast(pl.Int64).alias("at")
    )
    _note_depth(source, groups["length"])
    deepest = groups["launch_depth"].max()
    parents = source.attribution.nesting.nodes["parent"]
    found: list[pl.DataFrame] = []
    for level in range(deepest if isinstance(deepest, int) else 0, MOST_DEPTH, -1):
        groups = _climbed(groups, parents, level)
    for level in range(MOST_DEPTH, 0, -1):
        groups = _climbed(groups, parents, level)
        mine = groups.filter(pl.col("length") >= level)
        captured = pl.col("launch_depth") < level
        spans = (
            mine.join(prefixes.filter(pl.col("level") == level), on="path", how="left", maintain_order="left")
            .with_columns(pl.when(captured).then("replay").otherwise(pl.lit(None, pl.Int64)).alias("replay"))
            .group_by("gpu", "process", "at", "replay", "prefix", "text")
            .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("kernel_count", "kernel_ns").sum())
        )
        found.append(spans.with_columns(pl.lit(level, pl.Int64).alias("row")))
    together = pl.concat(found).sort("gpu", "row", "start_ns", "end_ns", "prefix", "process", "at", "replay")
    return together.select(
        "gpu",
        pl.lit(ON_GPU).alias("kind"),
        "row",
        "start_ns",
        "end_ns",
        pl.lit(PART[PROJECTED]).alias("part"),
        "text",
        "process",
        "kernel_count",
        "kernel_ns",
    )


def _prefixes(source: Source, paths: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return path, level, prefix, text (of each level of each path), and path, length."""
    known = Interner[tuple[str, ...]]()
    rows: list[tuple[int, int, int, int]] = []
    lengths: list[tuple[int, int]] = []
    for path in paths.unique().sort().to_list():
        owner = source.attribution.owner(path)
        names = owner.names if owner else ()
        lengths.append((path, len(names)))
        rows += [
            (path, level, known.id(names[:level]), source.words.texts.id(names[level - 1]))
            for level in range(1, min(len(names), MOST_DEPTH) + 1)
        ]
    schema = {"path": ID, "level": pl.Int64, "prefix": pl.Int64, "text": ID}
    return (
        pl.DataFrame(rows, schema=schema, orient="row"),
        pl.DataFrame(lengths, schema={"path": ID, "length": pl.Int64}, orient="row"),
    )


def _note_depth(source: Source, depths: pl.Series) -> None:
    deeper = f"ranges nested deeper than {MOST_DEPTH} are not drawn"
    if depths.len() and (depths > MOST_DEPTH).any() and deeper not in source.notes:
        source.notes.append(deeper)


def _climbed(groups: pl.DataFrame, parents: pl.Series, level: int) -> pl.DataFrame:
    """Return the groups with ``at`` moved up to the range of this depth, where their launch was below it."""
    below = pl.col("launch_depth") > level
    above = of_nodes(parents, groups["at"]).fill_null(NO_STACK).alias("above")
    return groups.with_columns(above).with_columns(
        pl.when(below).then("above").otherwise("at").alias("at"),
        pl.when(below).then(pl.lit(level)).otherwise("launch_depth").alias("launch_depth"),
    )
