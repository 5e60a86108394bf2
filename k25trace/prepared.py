"""A report made ready for SQL: read-only, with what the queries need beside it in memory.

Tables and views of the catalogue live in SQLite's temporary schema, in memory and private to a connection;
the report is opened as every other reader opens it. Three kinds of things are made, and only those that the
statement reads: tables that Python fills (names as the rules classify them, the GPU of every ordinal, kinds
of calls), steps (the files whose names begin with ``_``), and views that stand for what an export of another
version lacks or spells otherwise.
"""

import itertools
import re
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from k25trace.catalog import BUILT_IN, CATALOGUE_TABLES, Catalog, Query, Requirement
from k25trace.classify import RuleSet, load_rules
from k25trace.contract import ReadsOnly, check, interrupted, load_table_functions
from k25trace.errors import BadQuery, BudgetExceeded, CannotAnswer, UsageError
from k25trace.nsystables import GRAPH_NODE_TABLES, KERNEL_TABLE
from k25trace.parameters import Given, bound
from k25trace.refusals import Asked, missing_column, missing_table, refusal
from k25trace.taxonomy import is_communication, is_nccl
from k25trace.trace import Trace
from k25trace.trace.opening import open_sqlite
from k25trace.trace.source import Source, decode
from k25trace.trace.sqlite import SqliteSource
from k25trace.trace.tables import api_kind, os_pid

Value = int | float | str | bytes | None
Row = tuple[Value, ...]

_PROGRESS_STEPS = 20_000
"""SQLite's virtual instructions between two looks at the clock and at Ctrl-C: well under a millisecond."""

_FETCHED_ROWS = 1000
_WORD = re.compile(r"\w+")

_INTEGERS = frozenset({"pid", "rank", "device", "gpu_index", "is_communication", "is_nccl"})


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
        self._values: dict[str, dict[str, Value]] = {}
        self._empty: list[str] = []
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

    def run(self, query: Query, values: Mapping[str, Given] | None = None) -> "Rows":
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
        given = bound(query, values or {})
        check(query, self._catalog.with_steps(r.table for r in query.requires))
        built_in = query.file.startswith(BUILT_IN)
        self._make(query.requires, query.name, given)
        return self._execute(query.sql, given, query.name if built_in else query.file, built_in=built_in)

    def sql(self, statement: str) -> "Rows":
        """Run one SELECT of the user's; it may name tables of the report, of the catalogue, and steps.

        Raises
        ------
        BadQuery
            SQLite refuses it, or it would do something else than read.
        CannotAnswer
            The report lacks a table or column of nsys that it names.
        UsageError
            It is no text that SQLite could be given.
        """
        try:
            statement.encode()
        except UnicodeEncodeError:
            raise UsageError("--sql: not UTF-8") from None
        named = {word.lower() for word in _WORD.findall(statement)}
        steps = {*CATALOGUE_TABLES, *(name for name, q in self._catalog.queries.items() if q.is_step)}
        self._make([Requirement(name, False, (), frozenset()) for name in sorted(named & steps)], "--sql", {})
        return self._execute(statement, {}, "--sql")

    def _execute(self, statement: str, values: Mapping[str, Value], what: str, *, built_in: bool = False) -> "Rows":
        guard = ReadsOnly()
        self._connection.set_authorizer(guard)
        try:
            cursor = self._connection.execute(statement, dict(values))
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise self._explained(error, what, guard, statement, built_in=built_in) from None
        if cursor.description is None:
            raise BadQuery(f"{what}: no SELECT", "one statement that returns rows")
        rows = self._fetched(cursor, what, statement, built_in)
        # The first rows at once: what fails early fails before anything is written.
        first = list(itertools.islice(rows, 1))
        return Rows(_distinct([column[0] for column in cursor.description]), itertools.chain(first, rows))

    def _fetched(self, cursor: sqlite3.Cursor, what: str, statement: str, built_in: bool) -> Iterator[Row]:
        while True:
            try:
                rows = cursor.fetchmany(_FETCHED_ROWS)
            except sqlite3.Error as error:
                raise self._explained(error, what, ReadsOnly(), statement, built_in=built_in) from None
            if not rows:
                return
            yield from rows

    def _explained(
        self, error: Exception, what: str, guard: ReadsOnly, statement: str = "", *, built_in: bool = False
    ) -> BaseException:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            # The clock alone interrupts; where its time is not up, Ctrl-C was pressed while it looked.
            if not self._clock.expired:
                return KeyboardInterrupt()
            return BudgetExceeded(
                f"{what}: not finished after {self._clock.limit_s:g} s",
                "give it more with --time-limit SECONDS",
            )
        if interrupted(error, guard.denied):
            return KeyboardInterrupt()
        asked = Asked(what, self._source.path, self._source.tables, self._catalog, statement, built_in)
        return refusal(error, asked, guard.denied)

    # ---- what stands beside the report

    def _make(self, requires: Iterable[Requirement], what: str, values: Mapping[str, Value]) -> None:
        """Make what the requirements name and the report lacks, steps and all."""
        wanted = list(requires)
        self._refuse_if_nothing_is_there(wanted, what)
        absent = [r for r in wanted if r.optional and self._is_step(r.table) and not self._can_make(r.table)]
        steps = self._catalog.with_steps(r.table for r in wanted if r not in absent)
        everything = [*wanted, *(r for step in steps for r in step.requires)]
        self._connection.set_authorizer(None)
        try:
            self._forget(steps, values)
            self._stand_in(everything, what)
            for table in sorted({r.table for r in everything} & CATALOGUE_TABLES.keys() - self._made):
                self._fill(table)
            for r in absent:
                if r.table not in self._made:
                    self._empty_view(r.table, r.columns)
            for step in steps:
                if step.name not in self._made:
                    check(step, self._catalog.with_steps(r.table for r in step.requires))
                    self._step(step, values)
        except sqlite3.Error as error:
            raise self._explained(error, what, ReadsOnly(), built_in=True) from None

    def _is_step(self, name: str) -> bool:
        query = self._catalog.queries.get(name)
        return query is not None and query.is_step

    def _refuse_if_nothing_is_there(self, requires: list[Requirement], what: str) -> None:
        """Raise where every table of a query may be absent, and every one is."""
        own = [r for r in requires if r.table not in CATALOGUE_TABLES]
        if own and all(r.optional and not self._can_make(r.table) for r in own):
            raise CannotAnswer(f"{self._source.path}: {what} finds none of the tables that it reads")

    def _can_make(self, table: str) -> bool:
        """Whether the report has a table, or all that a step needs."""
        if not self._is_step(table):
            return any(spelling in self._source.tables for spelling in _spellings(table))
        try:
            for step in self._catalog.with_steps([table]):
                for r in step.requires:
                    if r.table not in CATALOGUE_TABLES and not self._is_step(r.table) and not r.optional:
                        self._actual(r.table, {c: c in r.optional_columns for c in r.columns}, table)
        except CannotAnswer:
            return False
        return True

    def _forget(self, steps: list[Query], values: Mapping[str, Value]) -> None:
        """Drop what an earlier query could do without, and steps that other values of their parameters made."""
        while self._empty:
            name = self._empty.pop()
            self._connection.execute(f'DROP VIEW temp."{name}"')
            self._made.remove(name)
        stale: list[str] = []
        for step in steps:
            given = {param.name: values.get(param.name) for param in step.params}
            if any(r.table in stale for r in step.requires) or (given and self._values.get(step.name) != given):
                stale.append(step.name)
            if given:
                self._values[step.name] = given
        for name in reversed(stale):
            if name in self._made:
                kind = "TABLE" if self._catalog.queries[name].indexes else "VIEW"
                self._connection.execute(f"DROP {kind} temp.{name}")
                self._made.remove(name)

    def _step(self, step: Query, values: Mapping[str, Value]) -> None:
        if step.indexes:
            # Declared types, because an index serves a comparison only where both sides have one affinity.
            columns = ", ".join(f"{column.name} {column.type}" for column in step.columns)
            self._connection.execute(f"CREATE TEMP TABLE {step.name} ({columns})")
            given = {param.name: values.get(param.name) for param in step.params}
            self._connection.execute(f"INSERT INTO {step.name} {step.sql}", given)
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
        if may_lack and not any(columns.keys() & tables.get(t, frozenset()) for t in _spellings(table)):
            self._empty_view(table, columns)
            return
        actual = self._actual(table, columns, what)
        lacking = [c for c in columns if c not in tables[actual] and c != "rowid"]
        if lacking or actual != table:
            listed = ", ".join(["rowid AS rowid", "*", *(f'NULL AS "{column}"' for column in lacking)])
            self._view(table, f'SELECT {listed} FROM main."{actual}"')  # noqa: S608 - tables of the export

    def _actual(self, table: str, columns: Mapping[str, bool], what: str) -> str:
        """Return the name that a table has in the report; ``columns`` says which may be absent."""
        tables = self._source.tables
        actual = next((t for t in _spellings(table) if columns.keys() & tables.get(t, frozenset())), None)
        if actual is None:
            raise missing_table(self._source.path, table, what, empty=table in tables)
        lacking = (c for c in columns if c not in tables[actual] and c != "rowid" and not columns[c])
        needed = next(lacking, None)
        if needed is not None:
            raise missing_column(self._source.path, table, needed, what)
        return actual

    def _empty_view(self, name: str, columns: Iterable[str]) -> None:
        self._view(name, _no_rows(columns))
        self._empty.append(name)

    def _view(self, name: str, select: str) -> None:
        self._connection.execute(f'CREATE TEMP VIEW "{name}" AS {select}')
        self._made.add(name)

    # ---- tables that Python fills

    def _fill(self, table: str) -> None:
        columns = CATALOGUE_TABLES[table]
        key = f"{columns[0]} {'TEXT' if columns[0] == 'name' else 'INTEGER'}"
        key += " PRIMARY KEY" if columns[0] == "name_id" else ""
        rows: Iterable[Row]
        if table == "k25_kernel_names":
            rows = self._kernel_names()
        elif table == "k25_tables":
            rows = ((name,) for name in sorted(self._source.tables))
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
    hear of Ctrl-C until its first row. What a handler raises in here, SQLite takes for an answer to stop.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s or 0.0
        self._end = time.monotonic() + self.limit_s if limit_s else None
        self.expired = False

    def tick(self) -> int:
        self.expired = self._end is not None and time.monotonic() > self._end
        return int(self.expired)


def _distinct(names: list[str]) -> list[str]:
    """Return names with those that come again numbered (``n``, ``n_2``): as keys they would hide a value."""
    found: list[str] = []
    for name in names:
        candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        found.append(next(c for c in candidates if c not in found and (c == name or c not in names)))
    return found


def _no_rows(columns: Iterable[str]) -> str:
    listed = ", ".join(f'NULL AS "{column}"' for column in columns)
    return f"SELECT {listed} WHERE 0"


def _spellings(table: str) -> tuple[str, ...]:
    return GRAPH_NODE_TABLES if table == GRAPH_NODE_TABLES[0] else (table,)
