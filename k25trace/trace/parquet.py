"""Folders of ``nsys export --type parquetdir``: one ``TABLE.parquet`` a table.

The columns are those of SQLite, but ids are unsigned there: a globalTid with the highest bit set is the same
64 bits read the other way, and is read back as SQLite has it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from io import BytesIO
from itertools import islice
from pathlib import Path

import polars as pl

from k25trace.errors import CannotAnswer, UnreadableReport
from k25trace.nsystables import STRING_TABLE
from k25trace.quoting import shortened
from k25trace.trace.source import CHUNK_ROWS, FOREIGN_TABLE, Col, Only

_SUFFIX = ".parquet"


_TEXT, _BYTES = bytes.fromhex("2500 4c1c"), bytes.fromhex("2528 4cdc")
"""How a Parquet footer (Thrift's compact protocol) says that a column is text, and that it is bytes (BSON)."""


class _NotText(Exception):
    """A column that is declared as text holds bytes that are none."""


class ParquetSource:
    """A parquetdir export. See `k25trace.trace.source.Source`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._undecoded: dict[str, bytes] = {}
        self._files = {file.stem: file for file in sorted(path.glob(f"*{_SUFFIX}"))}
        if not self._files:
            raise CannotAnswer(
                f"{path}: a folder without {_SUFFIX} files, no export of nsys",
                "make one with: nsys export --type parquetdir REPORT.nsys-rep",
            )

    @cached_property
    def tables(self) -> Mapping[str, frozenset[str]]:
        """Table name → its column names."""
        return {table: frozenset(self._schema(table)) for table in self._files}

    def scan(
        self, table: str, columns: Sequence[Col], only: Only | None = None, chunk_rows: int = CHUNK_ROWS
    ) -> Iterator[pl.DataFrame]:
        """Stream columns of a table in row order (see `Source.scan`)."""
        given = 0
        try:
            for chunk in self._scan(table, columns, only, chunk_rows):
                yield chunk
                given += 1
        except _NotText:
            # nsys writes bytes as they are into columns declared as text; read them as bytes from here on.
            self._undecoded[table] = _without_text(self._files[table].read_bytes(), self._schema(table))
            yield from islice(self._scan(table, columns, only, chunk_rows), given, None)

    def _scan(self, table: str, columns: Sequence[Col], only: Only | None, chunk_rows: int) -> Iterator[pl.DataFrame]:
        present = self.tables.get(table)
        if present is None or (only is not None and only.column not in present):
            return
        found = [column for column in columns if column.name in present]
        absent = [pl.lit(None, column.dtype).alias(column.name) for column in columns if column.name not in present]
        schema = self._schema(table)
        undecoded = table in self._undecoded
        shown = [
            _as_asked(
                pl.col(column.name), pl.Binary() if undecoded and column.kind == "text" else schema[column.name], column
            ).alias(column.name)
            for column in found
        ]
        start = 0
        while True:
            rows = self._lazy(table).slice(start, chunk_rows)
            if only is not None:
                rows = rows.filter(
                    _as_asked(pl.col(only.column), schema[only.column], Col(only.column)).is_in(list(only.values))
                )
            frame = self._collect(table, rows.select(*shown, *absent).select(column.name for column in columns))
            if frame.height:
                yield frame
            start += chunk_rows
            if start >= self._height(table):
                return

    def strings(self, ids: Iterable[int]) -> dict[int, bytes]:
        """Look up texts of ``StringIds``; an id without a text is absent from the answer."""
        return {id_: self._strings[id_] for id_ in ids if id_ in self._strings}

    def strings_like(self, prefix: str) -> dict[int, bytes]:
        """Return the texts of ``StringIds`` that begin with an ASCII prefix."""
        return {id_: text for id_, text in self._strings.items() if text.startswith(prefix.encode())}

    @cached_property
    def _strings(self) -> dict[int, bytes]:
        frames = list(self.scan(STRING_TABLE, [Col("id"), Col("value", "text")]))
        return dict(pl.concat(frames).drop_nulls().iter_rows()) if frames else {}

    def _lazy(self, table: str) -> pl.LazyFrame:
        if table not in self._undecoded:
            return pl.scan_parquet(self._files[table])
        return pl.scan_parquet(BytesIO(self._undecoded[table]))

    def _schema(self, table: str) -> dict[str, pl.DataType]:
        try:
            return dict(pl.read_parquet_schema(self._files[table]))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise self._unreadable(table, error) from None

    def _height(self, table: str) -> int:
        return self._collect(table, self._lazy(table).select(pl.len())).item()

    def _collect(self, table: str, rows: pl.LazyFrame) -> pl.DataFrame:
        try:
            return rows.collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            if "UTF-8" in str(error) and table not in self._undecoded:
                raise _NotText from None
            raise self._unreadable(table, error) from None

    def _unreadable(self, table: str, error: Exception) -> UnreadableReport:
        said = " ".join(str(error).split())
        cast = re.search(r"conversion from .* failed in column '([^']*)'", said)
        if cast:
            return UnreadableReport(
                f"{self._files[table]}: column {cast[1]} of {table} holds other values than int", FOREIGN_TABLE
            )
        return UnreadableReport(
            f"{self._files[table]}: damaged or truncated: {shortened(said, 200)}", "export the report again"
        )


def _without_text(file: bytes, schema: Mapping[str, pl.DataType]) -> bytes:
    """Return a Parquet file whose text columns are declared as bytes: two bytes of the footer for each."""
    length = int.from_bytes(file[-8:-4], "little")
    footer = file[-8 - length : -8]
    for name, dtype in schema.items():
        if dtype == pl.String:
            field = b"\x18" + bytes([len(name.encode())]) + name.encode()
            footer = footer.replace(field + _TEXT, field + _BYTES)
    return file[: -8 - length] + footer + file[-8:]


def _as_asked(column: pl.Expr, stored: pl.DataType, asked: Col) -> pl.Expr:
    if asked.kind == "text":
        return column if stored == pl.Binary else column.cast(pl.String).cast(pl.Binary)
    return column.reinterpret(signed=True) if stored == pl.UInt64 else column.cast(pl.Int64)
