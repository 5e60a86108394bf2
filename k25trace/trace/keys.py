"""The key that joins what a process launched to what ran: (process, correlation id) as one integer."""

import polars as pl

_CORRELATION_BITS = 40
_PLAIN = 1 << (_CORRELATION_BITS - 1)
"""Ids from 0 to below this stand as they are, whatever else a frame holds: frames that are joined must agree."""


def with_key(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``key``, equal exactly where (process, correlation) is: correlation ids are unique within a process only."""
    correlation = pl.col("correlation")
    plain = correlation.is_between(0, _PLAIN - 1)
    # CUPTI's ids are 32-bit; a wider one (no nsys writes it) is hashed into the bits beside theirs.
    wide = (correlation.hash() % _PLAIN + _PLAIN).cast(pl.Int64)
    all_plain = frame.select(plain.all()).item()
    low = correlation if all_plain else pl.when(plain | correlation.is_null()).then(correlation).otherwise(wide)
    return frame.with_columns((pl.col("process").cast(pl.Int64) * (1 << _CORRELATION_BITS) + low).alias("key"))
