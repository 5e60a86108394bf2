"""Several key columns as one integer column: what groups, joins and sorts several times faster than they do.

Knows nothing of what the columns mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

_BITS = 63
_DENSE = 1 << 16


@dataclass(frozen=True)
class Packing:
    """A one-to-one mapping of the rows of some key columns to Int64 numbers from 0 to below ``size``.

    Numbers are ordered as the rows are, column after column, nulls first. It is made of the frames whose rows are to
    be packed; a row that is in none of them has no number.

    Attributes
    ----------
    schema
        The key columns and their dtypes.
    lowest, widths
        Per column the lowest value, and how many there may be, null among them: where all are integers that fit.
    distinct
        Otherwise: the distinct rows, in order; a number is an index into them.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": [7, 5, None], "b": [1, 2, 1]})
    >>> packing = Packing.of([frame], ["a", "b"])
    >>> packing.unpack(packing.pack(frame)).equals(frame)
    True
    """

    schema: pl.Schema
    lowest: tuple[int, ...]
    widths: tuple[int, ...]
    distinct: pl.DataFrame | None

    @classmethod
    def of(cls, frames: Sequence[pl.DataFrame], columns: Sequence[str]) -> "Packing":
        """Return the packing of the rows of some frames, whose key columns have the same dtypes."""
        schema = frames[0].select(columns).schema
        if all(dtype.is_integer() for dtype in schema.values()):
            spans = [_span([frame[column] for frame in frames]) for column in columns]
            widths = tuple(high - low + 2 for low, high in spans)
            if math.prod(widths) < 1 << _BITS and all(abs(low) < 1 << (_BITS - 1) for low, _ in spans):
                return cls(schema, tuple(low for low, _ in spans), widths, None)
        distinct = pl.concat([frame.select(columns) for frame in frames]).unique().sort(columns)
        return cls(schema, (), (), distinct)

    @property
    def size(self) -> int:
        """One more than the highest number."""
        return math.prod(self.widths) if self.distinct is None else self.distinct.height

    def pack(self, frame: pl.DataFrame) -> pl.Series:
        """Return the number of each row: Int64, without nulls."""
        columns = list(self.schema)
        if self.distinct is not None:
            numbered = self.distinct.with_row_index("number")
            joined = frame.select(columns).join(
                numbered, on=columns, how="left", maintain_order="left", nulls_equal=True
            )
            return joined["number"].cast(pl.Int64)
        number: pl.Series | None = None
        for column, low, width in zip(columns, self.lowest, self.widths, strict=True):
            place = (frame[column].cast(pl.Int64) + (1 - low)).fill_null(0)
            number = place if number is None else number * width + place
        return (pl.repeat(0, frame.height, dtype=pl.Int64, eager=True) if number is None else number).alias("number")

    def unpack(self, numbers: pl.Series) -> pl.DataFrame:
        """Return the rows of some numbers."""
        if self.distinct is not None:
            return self.distinct[numbers]
        found: list[pl.Series] = []
        for column, low, width in reversed(list(zip(self.schema, self.lowest, self.widths, strict=True))):
            place = numbers % width
            found.append((place - 1 + low).set(place == 0, None).cast(self.schema[column]).alias(column))
            numbers = numbers // width
        return pl.DataFrame(found[::-1])

    def numbered(self, frame: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        """Return the rows as indices into a short table, and that table: the distinct rows, in order.

        The table may hold rows that the frame does not.
        """
        numbers = self.pack(frame)
        if self.size <= _DENSE:
            return numbers, self.unpack(pl.int_range(self.size, eager=True))
        present = numbers.unique().sort()
        return present.search_sorted(numbers).cast(pl.Int64), self.unpack(present)


def _span(columns: Sequence[pl.Series]) -> tuple[int, int]:
    """Return the lowest and highest value; (0, -1) without any."""
    ends = [(column.min(), column.max()) for column in columns]
    known = [(low, high) for low, high in ends if isinstance(low, int) and isinstance(high, int)]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else (0, -1)
