"""Percentiles of integers: values that were seen, never values between two of them."""

from collections.abc import Sequence

import polars as pl


def nearest_rank(column: str, percent: int) -> pl.Expr:
    """Return the percentile of a column within its group: the smallest value that at least so many percent reach.

    Of n values in ascending order it is the one in place ceil(percent x n / 100), counted from 1 (the *nearest rank*).

    Examples
    --------
    >>> pl.DataFrame({"ns": [10, 30, 20]}).select(nearest_rank("ns", 50)).item()
    20
    """
    count = pl.col(column).count()
    place = ((count * percent + 99) // 100 - 1).cast(pl.Int64).clip(lower_bound=0)
    return pl.col(column).drop_nulls().sort().get(place, null_on_oob=True)


def summary(column: str, percents: Sequence[int] = (50, 95, 99)) -> list[pl.Expr]:
    """Return count, p50_ns, p95_ns, p99_ns, mean_ns (rounded down) and max_ns of a column within its group."""
    return [
        pl.col(column).count().cast(pl.Int64).alias("count"),
        *(nearest_rank(column, percent).alias(f"p{percent}_ns") for percent in percents),
        (pl.col(column).sum() // pl.col(column).count().cast(pl.Int64)).alias("mean_ns"),
        pl.col(column).max().alias("max_ns"),
    ]
