"""The SQL library: find and parse the queries of ``queries/`` and of users' folders.

One file is one SELECT is one name. The comment at its head is a contract (docs/reference/queries.md): what
the query reads, its parameters, its columns, its order. `k25trace.contract` proves it, `k25trace.prepared` runs
the query; this module imports nothing heavy.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    "k25_tables": ("name",),
}
"""Tables that the catalogue fills in memory: kernel names with what the rules say of them, the GPU of every
ordinal of every process, what kind of call an API name is, and which tables of nsys the report has."""

RESERVED_PARAMS = frozenset({
    "csv", "datasette", "fmt", "force", "format", "help", "list", "nl", "output", "queries", "rules", "sql", "table",
    "time_limit", "tsv",
})  # fmt: skip
"""Names that no parameter may have: they are options of ``k25trace query`` itself."""

BUILT_IN = "k25trace/queries/"
"""How the files of this package are named in messages."""

_UNITS = {"_ns": "ns", "_bytes": "bytes", "_count": "count", "_share": "share"}
_KEYS = ("standalone", "requires", "param", "column", "order", "index", "oracle")
_REQUIRED = ("standalone", "requires", "column")
_KEY = re.compile(r"-- ([a-z]+):[ \t]+(\S.*)")
_TITLE = re.compile(r"-- (_?[a-z][a-z0-9_]*): (\S.*\.)")
_TABLE = re.compile(r"(\w+)(\??)\(([^()]+)\)")
_TYPED = re.compile(r"(\S+)\s+(INTEGER|REAL|TEXT)(\s+NULL)?(?:\s+\[(\w+)\])?(?:\s+>=\s*(-?\d+))?\s+(\S.*)")


@dataclass(frozen=True)
class Column:
    """A column or parameter of a query: its name, type, unit (``""``: none) and meaning.

    ``least`` is the least value that a parameter may have, or None.
    """

    name: str
    type: Type
    nullable: bool
    unit: str
    meaning: str
    least: int | None = None


@dataclass(frozen=True)
class Requirement:
    """A table that a query reads, and which of its columns.

    Attributes
    ----------
    table
        Its name.
    optional
        Where the report lacks it, or lacks what a step needs, it is empty.
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
    """The queries of some folders, by name.

    Attributes
    ----------
    queries
        Name → query.
    broken
        Name → what is wrong with the file of that name in a user's folder. The others can be used.
    """

    queries: dict[str, Query] = field(default_factory=dict[str, Query])
    broken: dict[str, BadQuery] = field(default_factory=dict[str, BadQuery])

    def __iter__(self) -> Iterator[Query]:
        """Iterate over the queries in the order of their names, steps left out."""
        return (query for _, query in sorted(self.queries.items()) if not query.is_step)

    def get(self, name: str) -> Query:
        """Return the query of a name.

        Raises
        ------
        BadQuery
            Its file is broken.
        UsageError
            There is none.
        """
        if name in self.broken:
            raise self.broken[name]
        query = self.queries.get(name)
        if query is None or query.is_step:
            near = difflib.get_close_matches(name.lower(), [q.name for q in self], n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "k25trace query --list names them all"
            if query is not None:
                hint = f"it is a step: --sql 'SELECT * FROM {name}'"  # noqa: S608 - words for the user
            raise UsageError(f"no query {name}", hint)
        return query

    def with_steps(self, roots: Iterable[str]) -> list[Query]:
        """Return the steps among some tables, each after those that it reads itself.

        Raises
        ------
        BadQuery
            A step is broken, is not there, or needs itself.
        """
        found: dict[str, Query] = {}

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in self.broken and name.startswith("_"):
                raise self.broken[name]
            step = self.queries.get(name)
            if step is None and name.startswith("_"):
                raise BadQuery(
                    f"requires {name}, and no step has that name", "its file has to be in a --queries folder"
                )
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

    A file in a user's folder that cannot be read, breaks the grammar, or has the name of another query leaves the
    rest alone: it is among `Catalog.broken`.

    Parameters
    ----------
    folders
        Folders with ``.sql`` files of the same grammar.

    Raises
    ------
    UsageError
        A folder is none.
    """
    catalog = Catalog()
    for resource in files("k25trace.queries").iterdir():
        if resource.name.endswith(".sql"):
            _add(catalog, parse(resource.read_text(encoding="utf-8"), BUILT_IN + resource.name))
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--queries {folder}: no such folder")
        for path in sorted(folder.glob("*.sql")):
            try:
                _add(catalog, parse(path.read_text(encoding="utf-8"), str(path)))
            except (OSError, UnicodeDecodeError) as error:
                catalog.broken[path.stem] = BadQuery(f"{path}: cannot be read: {error}")
            except BadQuery as error:
                catalog.broken[path.stem] = error
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
    if not sql.endswith(";") or not re.match(r"(?:SELECT|WITH)\b", sql, re.IGNORECASE):
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
        taken = next((p for p in params if p.name in RESERVED_PARAMS), None)
        if taken is not None:
            at = self._said["param"][params.index(taken)][0]
            raise self._error(at, f"param: --{taken.name.replace('_', '-')} is an option of k25trace query itself")
        order = self._names("order", columns, with_direction=True) if "order" in self._said else ()
        indexes = tuple(self._names("index", columns, at) for at in range(len(self._said.get("index", []))))
        if indexes and not self._name.startswith("_"):
            raise self._error(self._said["index"][0][0], "an index is for steps, whose names begin with _")
        if params and self._name.startswith("_") and not indexes:
            raise self._error(self._said["param"][0][0], "a step with parameters is kept as a table: give it an index")
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
        form = "name TYPE [unit] meaning" if column else ":name TYPE [unit] >=LEAST meaning"
        if match is None or not re.fullmatch(r"[a-z][a-z0-9_]*" if column else r":[a-z][a-z0-9_]*", match[1]):
            raise self._error(index, f"{key}: {said} is not of the form {form} (INTEGER, REAL or TEXT)")
        if not column and match[3]:
            raise self._error(index, f"param: {match[1]}: every parameter may be NULL, leave that out")
        if match[5] and (column or match[2] == "TEXT"):
            raise self._error(index, f"{key}: {match[1]}: a least value is for parameters that are numbers")
        name, unit = match[1].lstrip(":"), match[4] or ""
        wanted = next((u for suffix, u in _UNITS.items() if name.endswith(suffix)), "")
        if unit != wanted:
            raise self._error(index, f"{key}: {name} is in [{wanted}] by its name, not [{unit}]")
        kinds: dict[str, Type] = {"INTEGER": "INTEGER", "REAL": "REAL", "TEXT": "TEXT"}
        return Column(name, kinds[match[2]], not column or match[3] is not None, unit, match[6],
                      None if match[5] is None else int(match[5]))  # fmt: skip

    def _names(self, key: str, columns: list[Column], at: int = 0, *, with_direction: bool = False) -> tuple[str, ...]:
        index, said = self._said[key][at]
        listed = tuple(part.strip() for part in said.split(","))
        known = {column.name for column in columns}
        for part in listed:
            name = part.removesuffix(" DESC") if with_direction else part
            if name not in known:
                raise self._error(index, f"{key}: {name} is no column")
        return listed
