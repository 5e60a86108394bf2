"""What ran on the GPUs: kernels by stream, copies, graph replays whose kernels were not recorded; and marks."""

import polars as pl

from k25trace import accounting
from k25trace.report.text import path_label
from k25trace.scene.lanes import COPIES, OPAQUE, OTHERS, PART, STREAM
from k25trace.scene.source import Source, mapped
from k25trace.trace.interning import ID

MOST_STREAMS = 8

_COPY_KINDS = {1: "host to device", 2: "device to host", 8: "device to device", 10: "peer to peer"}


def kernels(source: Source) -> pl.DataFrame:
    """Return the kernels in the window, on the lanes of their streams."""
    began = source.attribution.kernels.with_columns(pl.col("start_ns").alias("began_ns"))
    chosen = source.window.chosen(began.hstack([_kernel_shapes(source)]))
    return chosen.select(
        "gpu",
        pl.lit(STREAM).alias("kind"),
        pl.col("process").cast(pl.Int64).alias("who"),
        _stream_rows(source, chosen),
        "start_ns",
        "end_ns",
        source.classes.of(chosen["name"])["category"].alias("part"),
        source.text_of(chosen["name"]).alias("text"),
        _path_of(source, chosen["path"]).alias("path"),
        "shape",
        "process",
        (pl.col("began_ns") - pl.col("launch_ns")).alias("latency_ns"),
    )


def _stream_rows(source: Source, chosen: pl.DataFrame) -> pl.Series:
    """Return the stream of each kernel; of a GPU with very many streams, the less busy ones share a lane."""
    keys = ["gpu", "process", "stream"]
    span = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    busy = chosen.group_by(keys).agg(span).sort("gpu", -pl.col("ns"), "process", "stream")
    order = busy.with_columns(pl.int_range(pl.len()).over("gpu").alias("place"))
    few = order.filter(pl.col("place") < MOST_STREAMS)
    if few.height < order.height:
        source.notes.append(f"GPUs with more than {MOST_STREAMS} streams: the less busy streams share one row")
    known = few.select(*keys, pl.col("stream").cast(pl.Int64).alias("row"))
    joined = chosen.select(keys).join(known, on=keys, how="left", maintain_order="left", nulls_equal=True)
    return joined["row"].fill_null(OTHERS)


def _path_of(source: Source, paths: pl.Series) -> pl.Series:
    def text(path: int) -> int:
        owner = source.attribution.owner(path)
        return source.words.paths.id(path_label(owner.names)) if owner else 0

    return mapped(paths, text)


def _kernel_shapes(source: Source) -> pl.Series:
    """Return the shape of each kernel, aligned with the trace's."""
    shapes = source.trace.kernel_shapes()
    distinct = shapes.drop_nulls("grid").unique(maintain_order=True)
    ids = [source.words.shapes.id(f"grid {grid}, block {block}") for grid, block in distinct.iter_rows()]
    distinct = distinct.with_columns(pl.Series("shape", ids, dtype=ID))
    found = shapes.join(distinct, on=["grid", "block"], how="left", nulls_equal=True, maintain_order="left")
    return found["shape"].fill_null(0)


def copies(source: Source) -> pl.DataFrame:
    """Return the copies and sets in the window."""
    inside = source.inside(source.trace.copies)
    distinct = inside.select("is_set", "kind").unique(maintain_order=True)
    texts = source.words.texts
    names = [texts.id("memset" if s else f"memcpy {_COPY_KINDS.get(k, '')}".strip()) for s, k in distinct.rows()]
    named = inside.join(
        distinct.with_columns(pl.Series("text", names, dtype=ID)),
        on=["is_set", "kind"],
        how="left",
        maintain_order="left",
        nulls_equal=True,
    )
    part = pl.when("is_set").then(PART[accounting.MEMSET]).otherwise(PART[accounting.MEMCPY])
    return named.select(
        "gpu", pl.lit(COPIES).alias("kind"), "start_ns", "end_ns", part.alias("part"), "text", "process", "bytes"
    )


def opaque(source: Source) -> pl.DataFrame:
    """Return the graph replays in the window whose kernels were not recorded."""
    inside = source.inside(source.found.opaque.filter(pl.col("gpu").is_not_null()))
    text = source.words.texts.id("graph replay whose kernels were not recorded")
    return inside.select(
        "gpu",
        pl.lit(OPAQUE).alias("kind"),
        "start_ns",
        "end_ns",
        pl.lit(PART[accounting.OPAQUE]).alias("part"),
        pl.lit(text, ID).alias("text"),
    )


def marked(source: Source, marks: pl.DataFrame) -> pl.DataFrame:
    """Return what of some marks (`MARK_SCHEMA`) is of this report and in the window."""
    keys = pl.DataFrame({"key": [gpu.key for gpu in source.trace.gpus]}).with_row_index("number")
    mine = source.inside(marks.join(keys, left_on="gpu", right_on="key", how="inner", maintain_order="left"))
    texts, paths = source.words.texts, source.words.paths
    return mine.select(
        pl.col("number").alias("gpu"),
        "kind",
        "start_ns",
        "end_ns",
        "part",
        mapped(mine["text"], lambda text: texts.id(str(text))).alias("text"),
        mapped(mine["note"], lambda note: paths.id(str(note))).alias("path"),
    )
