"""SQLite exports, read through ADBC without touching the file.

ADBC hands over Arrow batches, so that no row becomes a Python object. Three of its habits shape this module:
it types a column by the first rows it sees and takes nulls for integers (hence a typed sentinel row first where
text is read), it decodes text strictly (hence text is read as BLOB), and a result must be released before its
statement.
"""

import re
import shlex
import sqlite3
import struct
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import adbc_driver_manager
import adbc_driver_sqlite
import polars as pl

from k25trace.errors import UnreadableReport
from k25trace.nsystables import STRING_TABLE
from k25trace.paths import read_only_uri
from k25trace.trace.source import CHUNK_ROWS, FOREIGN_TABLE, Col, Only

MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_LOOKUP_IDS = 10_000
_ROW = "k25trace_row"
_AROUND = re.compile(r"^[A-Z_]+: (?:\[SQLite\] )?(?:Failed to \w+ query: )?|\s*query: (?:SELECT|PRAGMA).*")


class SqliteSource:
    """An ``nsys export --type sqlite`` file. See `k25trace.trace.source.Source`.

    Parameters
    ----------
    path
        The file; its header has been seen to be SQLite's.
    shown_as
        The path to name in messages, where it is not `path`.
    """

    def __init__(self, path: Path, shown_as: Path | None = None) -> None:
        self.path = shown_as or path
        self._uri = _read_only_uri(path, self.path)
        self._meta = _connect(self._uri, self.path)
        self._meta_lock = threading.Lock()

    @cached_property
    def tables(self) -> Mapping[str, frozenset[str]]:
        """Table name → its column names."""
        names = self._rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return {
            name: frozenset(row[1].decode() for row in self._rows(f"PRAGMA table_xinfo({_quoted(name)})"))
            for name in (raw.decode("utf-8", "replace") for (raw,) in names)
        }

    def connect(self) -> sqlite3.Connection:
        """Return a connection of its own to the same file, read-only in the same way, for statements of others."""
        return _connect(self._uri, self.path)

    def scan(
        self, table: str, columns: Sequence[Col], only: Only | None = None, chunk_rows: int = CHUNK_ROWS
    ) -> Iterator[pl.DataFrame]:
        """Stream columns of a table in row order (see `Source.scan`).

        Chunks are cut by row id: each is a query of its own that starts where the last one ended, so memory
        does not grow with the table, and no index is needed but the table itself.
        """
        present = self.tables.get(table)
        if present is None or (only is not None and only.column not in present):
            return
        chosen = "" if only is None else f" AND {_quoted(only.column)} IN ({','.join(map(str, only.values))})"
        found = [column for column in columns if column.name in present]
        absent = [pl.lit(None, column.dtype).alias(column.name) for column in columns if column.name not in present]
        wanted = ", ".join(["rowid AS " + _ROW, *(f"{_expression(c)} AS {_quoted(c.name)}" for c in found)])
        sentinel = None
        if any(column.kind == "text" for column in found):
            sentinel = ", ".join(["0 AS " + _ROW, *(f"{_zero(c)} AS {_quoted(c.name)}" for c in found)])
        after = -(1 << 63)
        # ADBC's buffers double as they grow: with a sentinel, a chunk must not be one row over a power of two.
        most = max(1, chunk_rows - 1)
        with self._connected() as connection:
            while True:
                rows = f"FROM {_quoted(table)} WHERE rowid > {after}{chosen} ORDER BY rowid LIMIT {most}"
                sql = f"SELECT {wanted} {rows}"
                if sentinel is not None:
                    sql = f"SELECT {sentinel} UNION ALL SELECT * FROM ({sql})"  # noqa: S608 - quoted
                frame = self._query(connection, sql, most + 1).slice(0 if sentinel is None else 1)
                if frame.height == 0:
                    return
                after = frame[_ROW][-1]
                self._check_types(table, found, frame)
                yield frame.select(*(c.name for c in found), *absent).select(c.name for c in columns)
                if frame.height < most:
                    return

    def _check_types(self, table: str, columns: Sequence[Col], frame: pl.DataFrame) -> None:
        for column in columns:
            if frame.schema[column.name] != column.dtype:
                raise UnreadableReport(
                    f"{self.path}: column {column.name} of {table} holds other values than {column.kind}",
                    FOREIGN_TABLE,
                )

    def strings(self, ids: Iterable[int]) -> dict[int, bytes]:
        """Look up texts of ``StringIds``; an id without a text is absent from the answer."""
        if not {"id", "value"} <= self.tables.get(STRING_TABLE, frozenset()):
            return {}
        wanted = sorted(set(ids))
        found: dict[int, bytes] = {}
        for at in range(0, len(wanted), _LOOKUP_IDS):
            listed = ",".join(map(str, wanted[at : at + _LOOKUP_IDS]))
            rows = self._rows(f"SELECT id, CAST(value AS BLOB) FROM StringIds WHERE id IN ({listed})")  # noqa: S608 - integers
            found.update((id_, value) for id_, value in rows if value is not None)
        return found

    def strings_like(self, prefix: str) -> dict[int, bytes]:
        """Return the texts of ``StringIds`` that begin with an ASCII prefix (at least those)."""
        if not {"id", "value"} <= self.tables.get(STRING_TABLE, frozenset()):
            return {}
        rows = self._rows(f"SELECT id, CAST(value AS BLOB) FROM StringIds WHERE value GLOB '{prefix}*'")  # noqa: S608 - ours
        return {id_: value for id_, value in rows if value is not None}

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            with self._meta_lock:
                return self._meta.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise _explained(self.path, str(error)) from None

    @contextmanager
    def _connected(self) -> Generator[adbc_driver_manager.AdbcConnection, None, None]:
        """Give a connection of one scan's own: scans run in several threads at once."""
        driver = adbc_driver_sqlite._driver_path()  # pyright: ignore[reportPrivateUsage]
        try:
            database = adbc_driver_manager.AdbcDatabase(driver=driver, uri=self._uri)
            connection = adbc_driver_manager.AdbcConnection(database)
        except adbc_driver_manager.Error as error:
            raise _explained(self.path, str(error)) from None
        with closing(database), closing(connection):
            yield connection

    def _query(self, connection: adbc_driver_manager.AdbcConnection, sql: str, batch_rows: int) -> pl.DataFrame:
        statement = adbc_driver_manager.AdbcStatement(connection)
        stream = None
        try:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch_rows)})
            statement.set_sql_query(sql)  # pyright: ignore[reportUnknownMemberType]
            stream, _ = statement.execute_query()  # pyright: ignore[reportUnknownMemberType]
            return pl.DataFrame(stream)
        except (adbc_driver_manager.Error, pl.exceptions.PolarsError) as error:
            raise _explained(self.path, str(error)) from None
        finally:
            del stream
            statement.close()


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _zero(column: Col) -> str:
    return "0" if column.kind == "int" else "X''"


def _expression(column: Col) -> str:
    quoted = _quoted(column.name)
    return quoted if column.kind == "int" else f"CAST({quoted} AS BLOB)"


def _read_only_uri(path: Path, shown: Path) -> str:
    """Return a URI that opens the file without ever creating anything beside it."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    size = path.stat().st_size
    if len(header) < _HEADER_BYTES:
        raise _damaged(shown, f"it ends within the {_HEADER_BYTES}-byte header")
    page = struct.unpack_from(">H", header, 16)[0]
    page = 1 << 16 if page == 1 else page
    change, pages, valid_for = (struct.unpack_from(">I", header, at)[0] for at in (24, 28, 92))
    if change == valid_for and pages * page > size:
        raise _damaged(shown, f"{size:,} of its {pages * page:,} bytes are here")
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        raise UnreadableReport(
            f"{shown}: not closed by the program that wrote it, part of it is in {wal.name}",
            f"close that program, or run: sqlite3 {shlex.quote(str(shown))} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )
    journal = path.with_name(path.name + "-journal")
    if journal.exists() and journal.stat().st_size and _is_hot(journal):
        raise UnreadableReport(
            f"{shown}: incomplete, the export was interrupted ({journal.name} is beside it)",
            "export the report again",
        )
    # SQLite would create -shm beside a file in WAL mode, even to read it; nothing can be in a log that is not there.
    write_ahead = header[18] == 2 or header[19] == 2
    return read_only_uri(path, immutable=write_ahead)


def _is_hot(journal: Path) -> bool:
    with journal.open("rb") as file:
        return any(file.read(8))


def _connect(uri: str, shown: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=1.0, check_same_thread=False)
        connection.text_factory = bytes
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise _explained(shown, str(error)) from None
    return connection


def _damaged(shown: Path, how: str) -> UnreadableReport:
    return UnreadableReport(f"{shown}: damaged or truncated, {how}", "copy or export it again")


def _explained(shown: Path, error: str) -> UnreadableReport:
    """Say in the user's words what SQLite said in its own."""
    # ADBC puts its own code before what SQLite says, and the whole statement behind it.
    said = _AROUND.sub("", " ".join(error.split()))
    if said.endswith("no such column: rowid"):
        return UnreadableReport(f"{shown}: a table of it is a view, or has no row ids", FOREIGN_TABLE)
    if "locked" in said or "busy" in said:
        return UnreadableReport(f"{shown}: locked by another program", "wait until the export has finished")
    if "malformed" in said or "not a database" in said or "disk I/O error" in said or "corrupt" in said:
        return _damaged(shown, said)
    return UnreadableReport(f"{shown}: cannot be read: {said}")
