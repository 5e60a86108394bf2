"""A report made ready for SQL: read-only, with what the queries need beside it in memory.

Tables and views of the catalogue live in SQLite's temporary schema, in memory and private to a connection;
the report is opened as every other reader opens it. Three kinds of things are made, and only those that the
statement reads: tables that Python fills (names as the rules classify them, the GPU of every ordinal, kinds
of calls), steps (the files whose names begin with ``_``), and views that stand for what an export of another
version lacks or spells otherwise.
"""

import re
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from k25trace.catalog import (
    CATALOGUE_TABLES,
    Catalog,
    Query,
    Requirement,
    allow_reads_only,
    check,
    load_table_functions,
)
from k25trace.classify import RuleSet, load_rules
from k25trace.errors import BadQuery, BudgetExceeded, CannotAnswer, UsageError
from k25trace.taxonomy import is_communication, is_nccl
from k25trace.trace import Trace
from k25trace.trace.opening import open_sqlite
from k25trace.trace.source import Source, decode
from k25trace.trace.sqlite import SqliteSource
from k25trace.trace.tables import GRAPH_NODE_TABLES, KERNEL_TABLE, api_kind, os_pid
from k25trace.units import parse_ns

Value = int | float | str | bytes | None
Row = tuple[Value, ...]

_PROGRESS_STEPS = 20_000
"""SQLite's virtual instructions between two looks at the clock and at Ctrl-C: well under a millisecond."""

_FETCHED_ROWS = 1000
_WORD = re.compile(r"\w+")

_INTEGERS = frozenset({"pid", "rank", "device", "gpu_index", "is_communication", "is_nccl"})

_RECORDED_BY: tuple[tuple[str, str], ...] = (
    (GRAPH_NODE_TABLES[0], "capture with --cuda-graph-trace=node a program that captures CUDA graphs"),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "capture with --cuda-graph-trace=graph and nsys 2024 or newer"),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "capture with --trace=cuda a program that synchronises on what it started",
    ),
    ("CUPTI_ACTIVITY_KIND_MEM", "capture with --trace=cuda a program that copies or sets memory"),
    ("CUPTI_ACTIVITY_KIND_", "capture with --trace=cuda,nvtx, and open the capture range around GPU work"),
    ("NVTX_EVENTS", "capture with --trace=cuda,nvtx a program that has NVTX ranges"),
    ("DIAGNOSTIC_EVENT", "capture and export with nsys 2024 or newer, which record what they lost"),
    ("TARGET_INFO_", "capture with --trace=cuda, and export with nsys 2024 or newer"),
)
_ANALYSIS_TABLES = frozenset({"categories", "wall", "ranges", "gpus", "kernels", "families", "inclusive"})


@contextmanager
def prepared(
    path: Path, catalog: Catalog, *, rules: RuleSet | None = None, time_limit_s: float | None = None
) -> Generator["Session", None, None]:
    """Open a report (or any SQLite database) for queries, and close it when the block ends.

    Parameters
    ----------
    path
        A SQLite file, or an ``.nsys-rep`` where nsys is found.
    catalog
        The queries whose steps there are.
    rules
        Classification rules; None: the default ones.
    time_limit_s
        Seconds until a statement is given up; None: no limit.
    """
    session = Session(open_sqlite(path), catalog, rules, time_limit_s)
    try:
        yield session
    finally:
        session.close()


class Session:
    """A report that is open for queries; made by `prepared`."""

    def __init__(
        self, source: SqliteSource, catalog: Catalog, rules: RuleSet | None, time_limit_s: float | None
    ) -> None:
        self._source = source
        self._catalog = catalog
        self._rules = rules
        self._clock = _Clock(time_limit_s)
        self._made: set[str] = set()
        self._connection = source.connect()
        # Names may hold bytes that are no UTF-8; sorting and the steps stay out of the file system.
        self._connection.isolation_level = None
        self._connection.text_factory = decode
        self._connection.execute("PRAGMA temp_store = MEMORY")
        load_table_functions(self._connection)
        self._connection.set_progress_handler(self._clock.tick, _PROGRESS_STEPS)

    def close(self) -> None:
        """Close the connection; what was made in memory goes with it."""
        self._connection.close()

    def run(self, query: Query, values: Mapping[str, str | int | float | None] | None = None) -> "Rows":
        """Run a query of the catalogue.

        Parameters
        ----------
        values
            Parameter → value, as text or as it is; the others are NULL. Times may have units (``1.5ms``).

        Raises
        ------
        BadQuery
            The query breaks its own contract.
        CannotAnswer
            The report lacks a table or column that it needs.
        UsageError
            A parameter that it has not, or of another type.
        """
        bound = _bound(query, values or {})
        check(query)
        self._make(query.requires, query.name)
        return self._execute(query.sql, bound, query.file)

    def sql(self, statement: str) -> "Rows":
        """Run one SELECT of the user's; it may name tables of the report, of the catalogue, and steps.

        Raises
        ------
        BadQuery
            SQLite refuses it, or it would do something else than read.
        """
        named = sorted(set(_WORD.findall(statement)))
        steps = {*CATALOGUE_TABLES, *(name for name, q in self._catalog.queries.items() if q.is_step)}
        self._make([Requirement(name, False, (), frozenset()) for name in named if name in steps], "--sql")
        return self._execute(statement, {}, "--sql")

    def _execute(self, statement: str, values: Mapping[str, Value], what: str) -> "Rows":
        self._connection.set_authorizer(allow_reads_only())
        try:
            cursor = self._connection.execute(statement, dict(values))
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise self._explained(error, what) from None
        if cursor.description is None:
            raise BadQuery(f"{what}: no SELECT", "one statement that returns rows")
        return Rows([column[0] for column in cursor.description], self._fetched(cursor, what))

    def _fetched(self, cursor: sqlite3.Cursor, what: str) -> Iterator[Row]:
        while True:
            try:
                rows = cursor.fetchmany(_FETCHED_ROWS)
            except sqlite3.Error as error:
                raise self._explained(error, what) from None
            if not rows:
                return
            yield from rows

    def _explained(self, error: Exception, what: str) -> BaseException:
        if self._clock.interrupted:
            return KeyboardInterrupt()
        if self._clock.expired:
            return BudgetExceeded(
                f"{what}: not finished after {self._clock.limit_s:g} s",
                "give it more with --time-limit SECONDS",
            )
        said = str(error)
        if "not authorized" in said or "prohibited" in said:
            return BadQuery(f"{what}: it would do something else than read ({said})", "only SELECT is allowed")
        return BadQuery(f"{what}: {said}")

    # ---- what stands beside the report

    def _make(self, requires: Iterable[Requirement], what: str) -> None:
        """Make what the requirements name and the report lacks, steps and all."""
        wanted = list(requires)
        steps = self._catalog.with_steps(r.table for r in wanted)
        everything = [*wanted, *(r for step in steps for r in step.requires)]
        self._connection.set_authorizer(None)
        try:
            self._stand_in(everything, what)
            for table in sorted({r.table for r in everything} & CATALOGUE_TABLES.keys() - self._made):
                self._fill(table)
            for step in steps:
                if step.name not in self._made:
                    check(step)
                    self._step(step)
        except sqlite3.Error as error:
            raise self._explained(error, what) from None

    def _step(self, step: Query) -> None:
        if step.indexes:
            # Declared types, because an index serves a comparison only where both sides have one affinity.
            columns = ", ".join(f"{column.name} {column.type}" for column in step.columns)
            self._connection.execute(f"CREATE TEMP TABLE {step.name} ({columns})")
            self._connection.execute(f"INSERT INTO {step.name} {step.sql}")
        else:
            self._connection.execute(f"CREATE TEMP VIEW {step.name} AS {step.sql}")
        for number, columns in enumerate(step.indexes):
            index = f"temp.{step.name}_index{number}"
            self._connection.execute(f"CREATE INDEX {index} ON {step.name} ({', '.join(columns)})")
        self._made.add(step.name)

    def _stand_in(self, requires: list[Requirement], what: str) -> None:
        """Make views for what the export lacks or spells otherwise; raise where nothing can stand in."""
        wanted: dict[str, dict[str, bool]] = {}
        optional: dict[str, bool] = {}
        for r in requires:
            if r.table in CATALOGUE_TABLES or r.table in self._catalog.queries or not r.columns:
                continue
            optional[r.table] = optional.get(r.table, True) and r.optional
            columns = wanted.setdefault(r.table, {})
            for column in r.columns:
                columns[column] = columns.get(column, True) and column in r.optional_columns
        for table, columns in wanted.items():
            if table not in self._made:
                self._stand_in_for(table, columns, what, may_lack=optional[table])

    def _stand_in_for(self, table: str, columns: dict[str, bool], what: str, *, may_lack: bool) -> None:
        tables = self._source.tables
        actual = next((t for t in _spellings(table) if columns.keys() & tables.get(t, frozenset())), None)
        if actual is None:
            if not may_lack:
                raise _missing(self._source.path, table, what, empty=table in tables)
            listed = ", ".join(f'NULL AS "{column}"' for column in columns)
            self._view(table, f"SELECT {listed} WHERE 0")
            return
        lacking = [c for c in columns if c not in tables[actual] and c != "rowid"]
        needed = next((c for c in lacking if not columns[c]), None)
        if needed is not None:
            raise CannotAnswer(
                f"{self._source.path}: {what} needs column {needed} of {table}, which this export lacks",
                "export the report again with the nsys that recorded it, or a newer one",
            )
        if lacking or actual != table:
            listed = ", ".join(["rowid AS rowid", "*", *(f'NULL AS "{column}"' for column in lacking)])
            self._view(table, f'SELECT {listed} FROM main."{actual}"')  # noqa: S608 - tables of the export

    def _view(self, name: str, select: str) -> None:
        self._connection.execute(f'CREATE TEMP VIEW "{name}" AS {select}')
        self._made.add(name)

    # ---- tables that Python fills

    def _fill(self, table: str) -> None:
        columns = CATALOGUE_TABLES[table]
        key = f"{columns[0]} INTEGER" + (" PRIMARY KEY" if columns[0] == "name_id" else "")
        rows: Iterable[Row]
        if table == "k25_kernel_names":
            rows = self._kernel_names()
        elif table == "k25_call_kinds":
            texts = ((i, decode(raw)) for i, raw in self._source.strings_like("cu").items())
            rows = ((i, text, api_kind(text)) for i, text in texts)
        else:
            rows = self._gpus()
        typed = [f"{column} INTEGER" if column in _INTEGERS else column for column in columns[1:]]
        self._connection.execute(f"CREATE TEMP TABLE {table} ({', '.join([key, *typed])})")
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - names of our own
        if table == "k25_gpus":
            self._connection.execute("CREATE INDEX temp.k25_gpus_index ON k25_gpus (device, process)")
        self._made.add(table)

    def _kernel_names(self) -> Iterator[Row]:
        rules = self._rules or load_rules()
        if "demangledName" not in self._source.tables.get(KERNEL_TABLE, frozenset()):
            return
        ids = [
            i for (i,) in self._connection.execute(f"SELECT DISTINCT demangledName FROM {KERNEL_TABLE}")  # noqa: S608
            if i is not None
        ]  # fmt: skip
        texts = self._source.strings(ids)
        for i in ids:
            name = decode(texts[i]) if i in texts else f"<string {i}>"
            match = rules.classify(name)
            yield (
                i, name, match.category, match.family,
                int(is_communication(match.category)), int(is_nccl(match.family)),
            )  # fmt: skip

    def _gpus(self) -> Iterator[Row]:
        trace = Trace(cast("Source", self._source))
        ranks = {process.pid: process.rank for process in trace.processes}
        for number, gpu in enumerate(trace.gpus):
            for slot in gpu.slots:
                pid = None if slot.process is None else os_pid(slot.process)
                rank = ranks.get(pid)
                yield (slot.process, pid, rank, slot.device, gpu.key, number, trace.gpu_names[number])


class Rows:
    """The result of a statement: the names of its columns, and its rows as they come."""

    def __init__(self, columns: list[str], rows: Iterator[Row]) -> None:
        self.columns = columns
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows, once."""
        return self._rows


class _Clock:
    """Stops a statement when its time is up, or when the user presses Ctrl-C.

    Python runs signal handlers between its own instructions only: without this, a long statement would not
    hear of Ctrl-C until its first row.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s or 0.0
        self._end = time.monotonic() + self.limit_s if limit_s else None
        self.expired = False
        self.interrupted = False

    def tick(self) -> int:
        try:
            self.expired = self._end is not None and time.monotonic() > self._end
        except KeyboardInterrupt:
            self.interrupted = True
        return int(self.expired or self.interrupted)


def _spellings(table: str) -> tuple[str, ...]:
    return GRAPH_NODE_TABLES if table == GRAPH_NODE_TABLES[0] else (table,)


def _missing(path: Path, table: str, what: str, *, empty: bool) -> CannotAnswer:
    how = next((hint for prefix, hint in _RECORDED_BY if table.startswith(prefix)), None)
    if table in _ANALYSIS_TABLES:
        how = "make a database of an analysis with: k25trace attribute REPORT --save analysis.db"
    lacks = "has none of the columns it needs" if empty else "is not in it"
    return CannotAnswer(f"{path}: {what} needs table {table}, which {lacks}", how)


def _bound(query: Query, values: Mapping[str, str | int | float | None]) -> dict[str, Value]:
    """Return every parameter's value, converted to its type."""
    types = {param.name: param for param in query.params}
    bound: dict[str, Value] = dict.fromkeys(types)
    for name, value in values.items():
        param = types.get(name)
        if param is None:
            known = ", ".join(f"--{p.replace('_', '-')}" for p in types) or "none"
            raise UsageError(f"{query.name} has no parameter --{name.replace('_', '-')}", f"its parameters: {known}")
        try:
            if not isinstance(value, str) or param.type == "TEXT":
                bound[name] = value
            elif param.unit == "ns":
                bound[name] = parse_ns(value)
            else:
                bound[name] = int(value) if param.type == "INTEGER" else float(value)
        except ValueError:
            raise UsageError(f"--{name.replace('_', '-')} {value}: no {param.type}") from None
    return bound
