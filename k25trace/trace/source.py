"""What every kind of export looks like to the rest of the package: tables, columns, chunks of rows.

A source knows nothing of kernels or ranges. It answers which tables and columns there are and streams the
asked-for columns of a table as polars frames of bounded size. `k25trace.trace.tables` gives them meaning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, TypeVar, cast

import polars as pl

T = TypeVar("T")

FOREIGN_TABLE = "this is not how nsys writes the table; export the report again"
"""What to do about a table that was changed after nsys had written it."""

CHUNK_ROWS = 1 << 17
"""Rows of one chunk: 131,072 rows of eight integers are 8 MiB."""


@dataclass(frozen=True)
class Col:
    """A column to read: ``Int64`` for ``"int"``, ``Binary`` for ``"text"`` (undecoded, it may be no UTF-8)."""

    name: str
    kind: Literal["int", "text"] = "int"

    @property
    def dtype(self) -> pl.DataType:
        """The dtype in which the column arrives."""
        return pl.Int64() if self.kind == "int" else pl.Binary()


@dataclass(frozen=True)
class Only:
    """Rows whose integer ``column`` is one of ``values``."""

    column: str
    values: frozenset[int]


class Source(Protocol):
    """One export, opened for reading only."""

    path: Path
    """What the user named."""

    @cached_property
    def tables(self) -> Mapping[str, frozenset[str]]:
        """Table name → its column names. Exports create tables lazily: ask before reading."""
        ...

    def scan(
        self, table: str, columns: Sequence[Col], only: Only | None = None, chunk_rows: int = CHUNK_ROWS
    ) -> Iterator[pl.DataFrame]:
        """Stream columns of a table in row order.

        Parameters
        ----------
        table
            A table of `tables`; one that is absent streams nothing.
        columns
            What to read; a column that the table lacks arrives as nulls.
        only
            Which rows; None: all.
        chunk_rows
            Upper bound for the rows of one frame.

        Yields
        ------
        pl.DataFrame
            The columns, named and typed as asked for, in the order of the rows; never empty.

        Raises
        ------
        UnreadableReport
            The file is damaged or locked, or a column holds another type.
        """
        ...

    def strings(self, ids: Iterable[int]) -> dict[int, bytes]:
        """Look up texts of ``StringIds``; an id without a text is absent from the answer."""
        ...

    def strings_like(self, prefix: str) -> dict[int, bytes]:
        """Return the texts of ``StringIds`` that begin with an ASCII prefix (at least those)."""
        ...


def read(source: Source, table: str, columns: Sequence[Col], only: Only | None = None) -> pl.DataFrame:
    """Return a whole table at once (see `Source.scan`); an absent table is an empty frame."""
    frames = list(source.scan(table, columns, only))
    if frames:
        return pl.concat(frames, rechunk=False)
    return pl.DataFrame(schema={column.name: column.dtype for column in columns})


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items, the next one being made in another thread while the last one is used."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="k25trace-read") as pool:
        pending = pool.submit(next, items, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, items, end)
            yield cast("T", item)


def decode(raw: bytes) -> str:
    """Return text for display and comparison: UTF-8, with U+FFFD where the bytes are none."""
    return raw.decode("utf-8", "replace")
