"""The key that joins what a process launched to what ran: (process, correlation id) as one integer."""

import polars as pl

_CORRELATION_BITS = 40


def with_key(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``key``, equal exactly where (process, correlation) is: correlation ids are unique within a process only."""
    correlation = pl.col("correlation")
    narrow = frame.select(correlation.is_between(0, (1 << _CORRELATION_BITS) - 1).all()).item()
    # CUPTI's ids are 32-bit; a wider one (no nsys writes it) is hashed into the bits beside theirs.
    wide = correlation.hash() % (1 << (_CORRELATION_BITS - 1)) + (1 << (_CORRELATION_BITS - 1))
    low = (
        correlation
        if narrow
        else pl.when(correlation.is_between(0, (1 << (_CORRELATION_BITS - 1)) - 1))
        .then(correlation)
        .otherwise(wide.cast(pl.Int64))
    )
    return frame.with_columns((pl.col("process").cast(pl.Int64) * (1 << _CORRELATION_BITS) + low).alias("key"))
