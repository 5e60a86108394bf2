"""The SQL library: find, parse and check the queries of ``queries/`` and of users' folders.

One file is one SELECT is one name. The comment at its head is a contract (docs/reference/queries.md): what
the query reads, its parameters, its columns, its order. `check` proves the contract on empty tables made from
the header alone: SQLite's authorizer reports every column that the statement reads, and denies whatever is no
read.
Running them is the matter of `k25trace.prepared`; this module imports nothing heavy.
"""

import difflib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Literal

from k25trace.errors import BadQuery, UsageError

Type = Literal["INTEGER", "REAL", "TEXT"]

CATALOGUE_TABLES: Mapping[str, tuple[str, ...]] = {
    "k25_kernel_names": ("name_id", "name", "category", "family", "is_communication", "is_nccl"),
    "k25_gpus": ("process", "pid", "rank", "device", "gpu", "gpu_index", "gpu_name"),
    "k25_call_kinds": ("name_id", "name", "kind"),
}
"""Tables that the catalogue fills in memory: kernel names with what the rules say of them, the GPU of every
ordinal of every process, and what kind of call an API name is."""

_UNITS = {"_ns": "ns", "_bytes": "bytes", "_count": "count", "_share": "share"}
_KEYS = ("standalone", "requires", "param", "column", "order", "index", "oracle")
_REQUIRED = ("standalone", "requires", "column")
_KEY = re.compile(r"-- ([a-z]+):[ \t]+(\S.*)")
_TITLE = re.compile(r"-- (_?[a-z][a-z0-9_]*): (\S.*\.)")
_TABLE = re.compile(r"(\w+)(\??)\(([^()]+)\)")
_TYPED = re.compile(r"(\S+)\s+(INTEGER|REAL|TEXT)(\s+NULL)?(?:\s+\[(\w+)\])?\s+(\S.*)")
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer"}
_ROWID = "rowid"
TABLE_FUNCTIONS = ("json_each", "json_tree")
"""SQLite's own table-valued functions: what is read of them is an argument, no table."""


@dataclass(frozen=True)
class Column:
    """A column or parameter of a query: its name, type, unit (``""``: none) and meaning."""

    name: str
    type: Type
    nullable: bool
    unit: str
    meaning: str


@dataclass(frozen=True)
class Requirement:
    """A table that a query reads, and which of its columns.

    Attributes
    ----------
    table
        Its name.
    optional
        Where the report lacks it, it is empty.
    columns
        What is read of it; ``rowid`` is every table's own.
    optional_columns
        Those of them that are NULL where the report lacks them.
    """

    table: str
    optional: bool
    columns: tuple[str, ...]
    optional_columns: frozenset[str]


@dataclass(frozen=True)
class Query:
    """One query, as its file declares it.

    Attributes
    ----------
    name, summary, doc
        The name, one sentence, and the prose below it.
    standalone
        Whether it runs without the catalogue: ``sqlite3 trace.sqlite < NAME.sql``.
    requires, params, columns
        What it reads, takes and returns. Every parameter may be NULL.
    order
        The columns that its rows are ordered by, each perhaps with `` DESC``.
    indexes
        For a step (a name that begins with ``_``) that is kept as a table: the columns of its indexes.
    oracle
        What computes the same in Python, or ``""``.
    sql
        The statement.
    file
        Where it was read.
    """

    name: str
    summary: str
    doc: str
    standalone: bool
    requires: tuple[Requirement, ...]
    params: tuple[Column, ...]
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...]
    oracle: str
    sql: str
    file: str

    @property
    def is_step(self) -> bool:
        """Whether it is a step of other queries and no query of its own."""
        return self.name.startswith("_")


@dataclass
class Catalog:
    """The queries of some folders, by name."""

    queries: dict[str, Query] = field(default_factory=dict[str, Query])

    def __iter__(self) -> Iterator[Query]:
        """Iterate over the queries in the order of their names, steps left out."""
        return (query for _, query in sorted(self.queries.items()) if not query.is_step)

    def get(self, name: str) -> Query:
        """Return the query of a name.

        Raises
        ------
        UsageError
            There is none.
        """
        query = self.queries.get(name)
        if query is None or query.is_step:
            near = difflib.get_close_matches(name, [q.name for q in self], n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "k25trace query --list names them all"
            raise UsageError(f"no query {name}", hint)
        return query

    def with_steps(self, roots: Iterable[str]) -> list[Query]:
        """Return the steps among some tables, each after those that it reads itself."""
        found: dict[str, Query] = {}

        def visit(name: str, path: tuple[str, ...]) -> None:
            step = self.queries.get(name)
            if step is None or not step.is_step or name in found:
                return
            if name in path:
                raise BadQuery(f"{step.file}: step {name} needs itself")
            for requirement in step.requires:
                visit(requirement.table, (*path, name))
            found[name] = step

        for root in roots:
            visit(root, ())
        return list(found.values())


def find(folders: Sequence[Path] = ()) -> Catalog:
    """Return the built-in queries and those of users' folders.

    Parameters
    ----------
    folders
        Folders with ``.sql`` files of the same grammar.

    Raises
    ------
    BadQuery
        A file breaks the grammar, or two files have one name.
    UsageError
        A folder is none.
    """
    catalog = Catalog()
    for resource in files("k25trace.queries").iterdir():
        if resource.name.endswith(".sql"):
            _add(catalog, parse(resource.read_text(encoding="utf-8"), f"k25trace/queries/{resource.name}"))
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--queries {folder}: no such folder")
        for path in sorted(folder.glob("*.sql")):
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise BadQuery(f"{path}: cannot be read: {error}") from None
            _add(catalog, parse(text, str(path)))
    return catalog


def _add(catalog: Catalog, query: Query) -> None:
    known = catalog.queries.get(query.name)
    if known is not None:
        raise BadQuery(f"{query.file}: query {query.name} is already in {known.file}", "give it another name")
    catalog.queries[query.name] = query


# ---- the header


def parse(text: str, file: str) -> Query:
    """Return the query that a file's text declares.

    Parameters
    ----------
    text
        The header (lines that begin with ``--``) and one statement.
    file
        Its path; the name without ``.sql`` is the query's.

    Raises
    ------
    BadQuery
        The header breaks the grammar; the message names file and line.
    """
    lines = text.splitlines()
    height = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header = _Header(lines[:height], file)
    sql = "\n".join(lines[height:]).strip()
    if not sql.endswith(";") or not re.match(r"(SELECT|WITH)\b", sql):
        raise BadQuery(f"{file}:{height + 1}: no SELECT that ends with ; below the header")
    query = header.query(sql)
    stem = re.split(r"[/\\]", file)[-1].removesuffix(".sql")
    if query.name != stem:
        raise BadQuery(f"{file}:1: query {query.name} in a file named {stem}.sql")
    return query


class _Header:
    """The header's lines, read in order."""

    def __init__(self, lines: list[str], file: str) -> None:
        self._file = file
        title = _TITLE.fullmatch(lines[0]) if lines else None
        if title is None:
            raise self._error(0, "the first line is not of the form: -- name: one sentence.")
        self._name, self._summary = title[1], title[2]
        self._doc: list[str] = []
        self._said: dict[str, list[tuple[int, str]]] = {}
        self._read(lines)

    def _error(self, index: int, what: str) -> BadQuery:
        return BadQuery(f"{self._file}:{index + 1}: {what}")

    def _read(self, lines: list[str]) -> None:
        last = -1
        for index, line in enumerate(lines[1:], 1):
            key = _KEY.fullmatch(line)
            if key is not None and (last >= 0 or key[1] in _KEYS):
                if key[1] not in _KEYS:
                    raise self._error(index, f"unknown key {key[1]}, not one of {', '.join(_KEYS)}")
                if _KEYS.index(key[1]) < last:
                    raise self._error(index, f"{key[1]} after {_KEYS[last]}; the order is {', '.join(_KEYS)}")
                last = _KEYS.index(key[1])
                self._said.setdefault(key[1], []).append((index, key[2].strip()))
            elif last < 0:
                self._doc.append(line[2:].strip())
            elif re.match(r"--   +\S", line):
                at, said = self._said[_KEYS[last]].pop()
                self._said[_KEYS[last]].append((at, f"{said} {line[2:].strip()}"))
            else:
                raise self._error(index, "neither a key nor, indented by three blanks, the rest of the one above")
        is_step = self._name.startswith("_")
        for key in (*_REQUIRED, *(() if is_step else ("order",))):
            if key not in self._said:
                raise self._error(len(lines) - 1, f"no line {key}: in the header")

    def query(self, sql: str) -> Query:
        """Return the query; what its parts say of each other is checked."""
        columns = [self._typed(i, said, column=True) for i, said in self._said["column"]]
        params = [self._typed(i, said, column=False) for i, said in self._said.get("param", [])]
        standalone = self._one_of("standalone", ("yes", "no")) == "yes"
        requires = [self._requirement(i, said) for i, said in self._said["requires"]]
        self._distinct("requires", [r.table for r in requires])
        self._distinct("column", [c.name for c in columns])
        self._distinct("param", [p.name for p in params])
        private = [r.table for r in requires if r.table in CATALOGUE_TABLES or r.table.startswith("_")]
        if standalone and private:
            raise self._error(self._said["standalone"][0][0], f"not standalone: {private[0]} is no table of nsys")
        if not (standalone or private or self._name.startswith("_")):
            raise self._error(self._said["standalone"][0][0], "standalone: every table of it is one of nsys")
        order = self._names("order", columns, with_direction=True) if "order" in self._said else ()
        indexes = tuple(self._names("index", columns, at) for at in range(len(self._said.get("index", []))))
        if indexes and not self._name.startswith("_"):
            raise self._error(self._said["index"][0][0], "an index is for steps, whose names begin with _")
        return Query(
            name=self._name, summary=self._summary, doc="\n".join(self._doc).strip(), standalone=standalone,
            requires=tuple(requires), params=tuple(params), columns=tuple(columns), order=order,
            indexes=indexes, oracle=self._said.get("oracle", [(0, "")])[0][1], sql=sql, file=self._file,
        )  # fmt: skip

    def _one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        (index, said), *more = self._said[key]
        if more or said not in allowed:
            raise self._error((more or [(index, "")])[0][0], f"{key}: {said} is not one of {', '.join(allowed)}")
        return said

    def _distinct(self, key: str, names: list[str]) -> None:
        for (index, _), name, before in zip(
            self._said.get(key, []), names, (names[:i] for i in range(len(names))), strict=True
        ):
            if name in before:
                raise self._error(index, f"{key}: {name} a second time")

    def _requirement(self, index: int, said: str) -> Requirement:
        match = _TABLE.fullmatch(said)
        if match is None:
            raise self._error(index, f"requires: {said} is not of the form TABLE(column, column)")
        listed = [column.strip() for column in match[3].split(",")]
        names = tuple(column.removesuffix("?") for column in listed)
        for position, name in enumerate(names):
            if not re.fullmatch(r"\w+", name):
                raise self._error(index, f"requires: {name!r} is no column of {match[1]}")
            if name in names[:position]:
                raise self._error(index, f"requires: {match[1]}.{name} a second time")
        optional = frozenset(column[:-1] for column in listed if column.endswith("?"))
        return Requirement(match[1], match[2] == "?", names, optional)

    def _typed(self, index: int, said: str, *, column: bool) -> Column:
        key = "column" if column else "param"
        match = _TYPED.fullmatch(said)
        form = "name TYPE [unit] meaning" if column else ":name TYPE [unit] meaning"
        if match is None or not re.fullmatch(r"[a-z][a-z0-9_]*" if column else r":[a-z][a-z0-9_]*", match[1]):
            raise self._error(index, f"{key}: {said} is not of the form {form} (INTEGER, REAL or TEXT)")
        if not column and match[3]:
            raise self._error(index, f"param: {match[1]}: every parameter may be NULL, leave that out")
        name, unit = match[1].lstrip(":"), match[4] or ""
        wanted = next((u for suffix, u in _UNITS.items() if name.endswith(suffix)), "")
        if unit != wanted:
            raise self._error(index, f"{key}: {name} is in [{wanted}] by its name, not [{unit}]")
        kinds: dict[str, Type] = {"INTEGER": "INTEGER", "REAL": "REAL", "TEXT": "TEXT"}
        return Column(name, kinds[match[2]], not column or match[3] is not None, unit, match[5])

    def _names(self, key: str, columns: list[Column], at: int = 0, *, with_direction: bool = False) -> tuple[str, ...]:
        index, said = self._said[key][at]
        listed = tuple(part.strip() for part in said.split(","))
        known = {column.name for column in columns}
        for part in listed:
            name = part.removesuffix(" DESC") if with_direction else part
            if name not in known:
                raise self._error(index, f"{key}: {name} is no column")
        return listed


# ---- the contract


def allow_reads_only(
    read: Callable[[str, str, bool], None] = lambda _table, _column, _direct: None,
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """Return an authorizer for SQLite that denies all but reading.

    Parameters
    ----------
    read
        Called with table, column, and whether the statement reads it itself (and not through a view).
    """

    def authorize(action: int, first: str | None, second: str | None, _schema: str | None, view: str | None) -> int:
        if action not in _ALLOWED:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ and first:
            read(first, second or "", view is None)
        return sqlite3.SQLITE_OK

    return authorize


def load_table_functions(connection: sqlite3.Connection) -> None:
    """Use each table-valued function once: SQLite declares it then, which the authorizer would deny later."""
    for function in TABLE_FUNCTIONS:
        connection.execute(f"SELECT 1 FROM {function}('[]')").fetchall()  # noqa: S608 - names of our own


def check(query: Query) -> None:
    """Prove that a query reads exactly what it declares, writes nothing, and returns the columns it names.

    Raises
    ------
    BadQuery
        It does not.
    """
    model = sqlite3.connect(":memory:")
    try:
        for requirement in query.requires:
            columns = ", ".join(f'"{c}"' for c in requirement.columns if c != _ROWID) or "nothing"
            model.execute(f'CREATE TABLE "{requirement.table}" ({columns})')
        load_table_functions(model)
        read: set[tuple[str, str]] = set()
        model.set_authorizer(allow_reads_only(lambda table, column, _: read.add((table, column))))
        cursor = model.execute(query.sql, {param.name: None for param in query.params})
        returned = [column[0] for column in cursor.description or ()]
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise BadQuery(f"{query.file}: {error}", "the header declares what it may read and take") from None
    finally:
        model.close()
    read = {(table, _ROWID if column == "ROWID" else column) for table, column in read
            if column and table not in TABLE_FUNCTIONS}  # fmt: skip
    declared = {(r.table, column) for r in query.requires for column in r.columns}
    unread = sorted(declared - read)
    if unread:
        raise BadQuery(f"{query.file}: declares {unread[0][0]}({unread[0][1]}) and does not read it")
    if returned != [column.name for column in query.columns]:
        raise BadQuery(f"{query.file}: returns {', '.join(returned)}, not the columns of its header")
    _check_tail(query)
    unknown = sorted(set(re.findall(r":([a-z]\w*)", query.sql)) ^ {param.name for param in query.params})
    if unknown:
        raise BadQuery(f"{query.file}: parameter :{unknown[0]} is in the header alone, or in the SQL alone")


def _check_tail(query: Query) -> None:
    """Compare the last ``ORDER BY`` of the statement with the header's; steps have none to compare."""
    if query.is_step:
        return
    tail = re.search(r"\bORDER BY\s+((?:(?!\bORDER BY\b)[^()])*);\Z", query.sql)
    bare = re.sub(r'\b\w+\.|"', "", tail[1]) if tail else ""
    said = tuple(" ".join(part.split()) for part in bare.split(",")) if tail else ()
    if said != query.order:
        raise BadQuery(f"{query.file}: ordered by {', '.join(said) or 'nothing'}, not by {', '.join(query.order)}")
