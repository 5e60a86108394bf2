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
        self._resolve = resolve
        self._lock = lock

    def of(self, raw: pl.Series) -> pl.Series:
        """Return the integers of a column; null stays null."""
        values = raw.to_frame("raw")
        distinct = values.unique(maintain_order=True).drop_nulls()
        with self._lock:
            new = distinct.join(self._known, on="raw", how="anti", maintain_order="left")
            if new.height:
                codes = pl.Series("code", self._resolve(new["raw"].to_list()), dtype=ID)
                self._known = pl.concat([self._known, new.with_columns(codes)])
            known = self._known
        return values.join(known, on="raw", how="left", maintain_order="left")["code"].alias(raw.name)
