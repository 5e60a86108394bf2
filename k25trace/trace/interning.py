"""Small integers instead of repeated names, processes and threads."""

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Generic, TypeVar

import polars as pl

T = TypeVar("T", bound=Hashable)

ID = pl.UInt32
"""The dtype of every interned column."""


class Interner(Generic[T]):
    """Values ↔ dense integers, in order of first appearance."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._ids: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def id(self, value: T) -> int:
        """Return the integer of a value, a new one if it has none."""
        known = self._ids.get(value)
        if known is None:
            known = self._ids[value] = len(self.values)
            self.values.append(value)
        return known


def integers(values: pl.Series) -> list[int]:
    """Return a column of integers without nulls as a list."""
    return values.to_list()


_DENSE = 1 << 22
"""Raw integers from 0 to below this are looked up in a table, others in a hash table, at five times the cost."""


class Codes:
    """One raw column of an export ↔ interned integers; each distinct raw value is resolved once.

    Parameters
    ----------
    resolve
        Distinct raw values → their integers.
    lock
        Held while integers are given out; shared by all columns that share an `Interner`.
    """

    def __init__(self, dtype: pl.DataType, resolve: Callable[[list[Any]], list[int]], lock: RLock) -> None:
        self._known = pl.DataFrame(schema={"raw": dtype, "code": ID})
        self._table = pl.Series(dtype=ID)
        self._resolve = resolve
        self._lock = lock

    def of(self, raw: pl.Series) -> pl.Series:
        """Return the integers of a column; null stays null."""
        codes = self._look_up(raw)
        if codes.null_count() > raw.null_count():
            with self._lock:
                unknown = self._look_up(raw).is_null() & raw.is_not_null()
                self._learn(raw.filter(unknown).unique(maintain_order=True))
            codes = self._look_up(raw)
        return codes.alias(raw.name)

    def _look_up(self, raw: pl.Series) -> pl.Series:
        """Return the integers of the values that are known; null for others."""
        if self._known.schema["raw"] == pl.Int64:
            lowest, highest = raw.min(), raw.max()
            if isinstance(lowest, int) and isinstance(highest, int) and lowest >= 0 and highest < _DENSE:
                beyond = highest + 1 - self._table.len()
                return (self._table.extend_constant(None, beyond) if beyond > 0 else self._table).gather(raw)
        return raw.to_frame("raw").join(self._known, on="raw", how="left", maintain_order="left")["code"]

    def _learn(self, new: pl.Series) -> None:
        codes = pl.Series("code", self._resolve(new.to_list()), dtype=ID)
        self._known = pl.concat([self._known, pl.DataFrame([new.alias("raw"), codes])])
        if new.dtype == pl.Int64:
            dense = self._known.filter(pl.col("raw").is_between(0, _DENSE - 1))
            if dense.height:
                size = dense.select(pl.col("raw").max()).item() + 1
                self._table = pl.repeat(None, size, dtype=ID, eager=True).scatter(dense["raw"], dense["code"])
