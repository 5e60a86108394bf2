"""The contract of a query: it reads exactly what its header declares, writes nothing, returns what it names.

It is proved on empty tables made from the header alone: SQLite's authorizer reports every column that the
statement reads, and denies whatever is no read.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping

from k25trace.catalog import Query
from k25trace.errors import BadQuery

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer"}
_ROWID = "rowid"
TABLE_FUNCTIONS = ("json_each", "json_tree")
"""SQLite's own table-valued functions: what is read of them is an argument, no table."""
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)

SCHEMA = "changing the schema"
"""What `ReadsOnly` says was denied where a statement makes or drops something, or uses a virtual table."""

_ACTIONS: Mapping[int, str] = {
    getattr(sqlite3, f"SQLITE_{name}"): name.replace("_", " ")
    for name in (
        "INSERT", "UPDATE", "DELETE", "CREATE_TABLE", "CREATE_TEMP_TABLE", "CREATE_VIEW", "CREATE_TEMP_VIEW",
        "CREATE_INDEX", "CREATE_TEMP_INDEX", "CREATE_TRIGGER", "CREATE_TEMP_TRIGGER", "CREATE_VTABLE", "DROP_TABLE",
        "DROP_TEMP_TABLE", "DROP_VIEW", "DROP_TEMP_VIEW", "DROP_INDEX", "DROP_TEMP_INDEX", "DROP_TRIGGER",
        "DROP_TEMP_TRIGGER", "DROP_VTABLE", "ALTER_TABLE", "REINDEX", "ANALYZE", "PRAGMA", "ATTACH", "DETACH",
        "TRANSACTION", "SAVEPOINT",
    )
}  # fmt: skip


class ReadsOnly:
    """An authorizer for SQLite that denies all but reading.

    Parameters
    ----------
    read
        Called with table, column, and whether the statement reads it itself (and not through a view).

    Attributes
    ----------
    denied
        What was denied first, in the words of SQL; None: nothing.
    """

    def __init__(self, read: Callable[[str, str, bool], None] = lambda _table, _column, _direct: None) -> None:
        self._read = read
        self.denied: str | None = None

    def __call__(
        self, action: int, first: str | None, second: str | None, _schema: str | None, view: str | None
    ) -> int:
        """Answer SQLite."""
        if action not in _ALLOWED:
            # Statements that make or drop something first write into the schema.
            schema = (first or "").startswith("sqlite_") and action != sqlite3.SQLITE_PRAGMA
            self.denied = self.denied or (SCHEMA if schema else _ACTIONS.get(action, "this"))
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
            self.denied = self.denied or f"{second}()"
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ and first:
            self._read(first, second or "", view is None)
        return sqlite3.SQLITE_OK


def interrupted(error: Exception, denied: str | None) -> bool:
    """Whether SQLite stopped because Ctrl-C was pressed while it called back into Python.

    It clears what a callback raises: an authorizer that was interrupted has denied nothing itself.
    """
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH and denied is None


def load_table_functions(connection: sqlite3.Connection) -> None:
    """Use each table-valued function once: SQLite declares it then, which the authorizer would deny later."""
    for function in TABLE_FUNCTIONS:
        connection.execute(f"SELECT 1 FROM {function}('[]')").fetchall()  # noqa: S608 - names of our own


def check(query: Query, steps: Iterable[Query] = ()) -> None:
    """Prove that a query reads exactly what it declares, writes nothing, and returns the columns it names.

    Parameters
    ----------
    query
        The query.
    steps
        The steps that it stands on: their parameters are its own, too.

    Raises
    ------
    BadQuery
        It does not.
    """
    model = sqlite3.connect(":memory:")
    read: set[tuple[str, str]] = set()
    guard = ReadsOnly(lambda table, column, _: read.add((table, column)))
    try:
        for requirement in query.requires:
            columns = ", ".join(f'"{c}"' for c in requirement.columns if c != _ROWID) or "nothing"
            model.execute(f'CREATE TABLE "{requirement.table}" ({columns})')
        load_table_functions(model)
        model.set_authorizer(guard)
        cursor = model.execute(query.sql, {param.name: None for param in query.params})
        returned = [column[0] for column in cursor.description or ()]
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _disproved(query, error, guard.denied) from None
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
    inherited = {param.name: step.name for step in steps for param in step.params}
    taken = {param.name for param in query.params}
    used = set(re.findall(r":([a-z]\w*)", _QUOTED.sub(" ", query.sql)))
    if unused := sorted(taken - used - inherited.keys()):
        raise BadQuery(f"{query.file}: parameter :{unused[0]} is in the header and not in the SQL")
    undeclared = sorted(inherited.keys() - taken)
    if undeclared and not query.is_step:
        raise BadQuery(f"{query.file}: {inherited[undeclared[0]]} takes parameter :{undeclared[0]}: declare it, too")


def _disproved(query: Query, error: Exception, denied: str | None) -> BadQuery:
    if interrupted(error, denied):
        raise KeyboardInterrupt from None
    said = str(error)
    if denied is not None:
        return BadQuery(f"{query.file}: {denied} is more than reading", "only SELECT is allowed")
    if found := re.search(r"did not supply a value for binding (?:parameter )?:?(\w+)", said):
        return BadQuery(f"{query.file}: parameter :{found[1]} is in the SQL and not in the header")
    if "Binding" in said and "has no name" in said:
        return BadQuery(f"{query.file}: a parameter without a name (?)", "name it, and declare it: -- param: :name ...")
    if said.startswith("no such "):
        return BadQuery(f"{query.file}: {said} in the header", "requires: declares what it reads")
    return BadQuery(f"{query.file}: {said}")


def _check_tail(query: Query) -> None:
    """Compare the last ``ORDER BY`` of the statement with the header's; steps have none to compare."""
    if query.is_step:
        return
    tail = re.search(r"\bORDER BY\s+((?:(?!\bORDER BY\b)[^()])*);\Z", query.sql, re.IGNORECASE)
    bare = re.sub(r'\b\w+\.|"', "", tail[1]) if tail else ""
    parts = [
        re.sub(r" (asc|desc)$", _direction, " ".join(part.split()), flags=re.IGNORECASE) for part in bare.split(",")
    ]
    said = tuple(parts) if tail else ()
    if said != query.order:
        raise BadQuery(f"{query.file}: ordered by {', '.join(said) or 'nothing'}, not by {', '.join(query.order)}")


def _direction(found: re.Match[str]) -> str:
    return " DESC" if found[1].lower() == "desc" else ""
