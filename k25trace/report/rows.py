"""The rows that each ``--by`` asks for: one frame, whatever prints it."""

import json

import polars as pl

from k25trace.errors import UsageError
from k25trace.ownership import PUSH_POP
from k25trace.report.choices import By, check_options
from k25trace.results import ALL_GPUS, Analysis, gpu_order, share, with_kernel_share
from k25trace.taxonomy import ALL_CATEGORIES

_SUMMED = ("kernel_count", "kernel_ns")


def rows(
    analysis: Analysis, by: By, *, per_gpu: bool = False, inclusive: bool = False, depth: int | None = None
) -> pl.DataFrame:
    """Return the rows of one output, longest kernel time first.

    Parameters
    ----------
    by
        What a row is.
    per_gpu
        One row a GPU instead of one over all (kernels have rows over all GPUs alone).
    inclusive
        For ranges: time inside a range at any depth, instead of what it owns as the innermost.
    depth
        For paths: outermost ranges that are kept.

    Returns
    -------
    pl.DataFrame
        Columns named and measured as in the JSON, ``kernel_share`` among them. ``path`` is a list of names, and
        ``range`` a name; null: launched under no range, ``""``: a range without a name.

    Raises
    ------
    UsageError
        An option that these rows do not know.
    """
    check_options(by, per_gpu=per_gpu, inclusive=inclusive, depth=depth)
    if by is By.gpu:
        return analysis.gpus
    if by is By.kernel:
        return _shared(analysis.kernels, analysis, per_gpu=False)
    if by is By.category:
        return analysis.categories.filter((pl.col("gpu") == ALL_GPUS) != per_gpu)
    if by is By.family:
        return _by_gpu_or_all(analysis.families.drop("kernel_share"), ["category", "family"], analysis, per_gpu=per_gpu)
    return _ranges(analysis, by, per_gpu=per_gpu, inclusive=inclusive, depth=depth)


def top_kernels(analysis: Analysis, category: str, count: int) -> pl.DataFrame:
    """Return the kernels of a category with the most time."""
    return _shared(analysis.kernels.filter(pl.col("category") == category).head(count), analysis, per_gpu=False)


def rest_of_wall(analysis: Analysis) -> pl.DataFrame:
    """Return the wall rows that are no category, over all GPUs: row, wall_ns, wall_share."""
    categories = {*ALL_CATEGORIES, *(f"exposed {c}" for c in ALL_CATEGORIES)}
    total = analysis.gpus["window_ns"].sum()
    return (
        analysis.wall.filter(~pl.col("row").is_in(list(categories)))
        .group_by("row", maintain_order=True)
        .agg(pl.col("wall_ns").sum())
        .with_columns((pl.col("wall_ns") / total if total else pl.lit(0.0)).alias("wall_share"))
    )


def _ranges(analysis: Analysis, by: By, *, per_gpu: bool, inclusive: bool, depth: int | None) -> pl.DataFrame:
    owned = analysis.ranges
    if owned is None or analysis.inclusive is None:
        raise UsageError(f"--by {by.value} needs the ranges, and they were left out of this analysis")
    if inclusive:
        named, keys = analysis.inclusive.with_columns(pl.lit(PUSH_POP).alias("kind")), ["range", "kind"]
    elif by is By.range:
        named, keys = owned.with_columns(pl.col("path").list.last().alias("range")), ["range", "kind"]
    else:
        kept = pl.col("path") if depth is None else pl.col("path").list.head(depth)
        named, keys = owned.with_columns(kept.alias("path")), ["path", "kind", "via"]
    owner = [*(["gpu"] if per_gpu else []), *keys]
    by_category = (
        named.group_by(*owner, "category")
        .agg(pl.col(_SUMMED).sum())
        .sort("kernel_ns", "category", descending=[True, False])
    )
    summed = by_category.group_by(owner, maintain_order=True).agg(
        pl.col(_SUMMED).sum(), pl.col("category").first().alias("top_category")
    )
    return _ordered(summed, keys, analysis, per_gpu=per_gpu).select(*owner, *_SUMMED, "kernel_share", "top_category")


def _by_gpu_or_all(frame: pl.DataFrame, keys: list[str], analysis: Analysis, *, per_gpu: bool) -> pl.DataFrame:
    by = [*(["gpu"] if per_gpu else []), *keys]
    return _ordered(frame.group_by(by).agg(pl.col(_SUMMED).sum()), keys, analysis, per_gpu=per_gpu)


def _ordered(summed: pl.DataFrame, keys: list[str], analysis: Analysis, *, per_gpu: bool) -> pl.DataFrame:
    """Order rows by kernel time, equal ones by their keys, and add their shares."""
    place = [gpu_order()] if per_gpu else []
    # Paths are lists, which have no order of their own; written as JSON, different ones are different texts.
    written = [_written(summed[key]).alias(key) for key in keys if summed.schema[key] == pl.List]
    order = summed.with_columns(written).select(
        pl.arg_sort_by(
            *place, pl.col("kernel_ns"), *keys,
            descending=[*(False for _ in place), True, *(False for _ in keys)], nulls_last=True,
        )
    )  # fmt: skip
    return _shared(summed[order.to_series()], analysis, per_gpu=per_gpu)


def _shared(frame: pl.DataFrame, analysis: Analysis, *, per_gpu: bool) -> pl.DataFrame:
    """Add kernel_share: of the kernel time of the row's GPU, or of all."""
    if per_gpu:
        return with_kernel_share(frame, analysis.gpus)
    whole = pl.lit(analysis.gpus["kernel_ns"].sum(), pl.Int64).alias("whole")
    return frame.with_columns(whole).with_columns(share("kernel_ns", "whole").alias("kernel_share")).drop("whole")


def with_paths_written(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows with each path as a JSON array, for formats that know no lists."""
    return frame.with_columns(
        _written(frame[column]) for column, dtype in frame.schema.items() if isinstance(dtype, pl.List)
    )


def _written(paths: pl.Series) -> pl.Series:
    texts = [None if path is None else json.dumps(path, ensure_ascii=False) for path in paths.to_list()]
    return pl.Series(paths.name, texts, dtype=pl.String)
