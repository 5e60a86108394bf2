"""The catalogue of queries as text: its list, one query's documentation, and Datasette's metadata."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from k25trace.catalog import Column, Query

SCHEMA = "k25trace.queries/1"


def document(queries: Iterable[Query]) -> dict[str, Any]:
    """Return the catalogue as JSON holds it: schema ``k25trace.queries/1``."""
    return {"schema": SCHEMA, "queries": [_query(query) for query in queries]}


def listing(queries: Iterable[Query]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return columns and rows of the list that people read."""
    rows = [(q.name, "yes" if q.standalone else "no", q.summary) for q in queries]
    return ["name", "standalone", "summary"], rows


def description(query: Query) -> str:
    """Return the documentation of one query, for a terminal."""
    lines = [f"{query.name}: {query.summary}", "", query.doc, ""]
    for title, columns, prefix in (("parameters", query.params, "--"), ("columns", query.columns, "")):
        lines += [f"{title}:"] if columns else []
        for column in columns:
            name = column.name.replace("_", "-") if prefix else column.name
            lines.append(f"  {prefix}{name}  {_type(column)}  {column.meaning}")
    lines += ["reads:", *(f"  {r.table}({', '.join(r.columns)})" for r in query.requires)]
    lines.append(f"order: {', '.join(query.order)}")
    if query.oracle:
        lines.append(f"the same in Python: {query.oracle}")
    return "\n".join(lines) + "\n"


def metadata(database: str, queries: Iterable[Query], tables: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return Datasette's metadata for one database: the queries that it can answer alone.

    Parameters
    ----------
    database
        Datasette's name of it: the file's name without its suffix.
    queries
        The catalogue; only standalone queries are taken.
    tables
        The tables of the database and their columns.
    """
    answerable = [
        q for q in queries
        if q.standalone
        and all(set(r.columns) - {"rowid"} <= set(tables.get(r.table, ())) for r in q.requires)
    ]  # fmt: skip
    canned = {
        q.name: {"sql": q.sql, "title": q.summary, "description": _described(q.doc, q.columns, q.params)}
        for q in answerable
    }
    return {"databases": {database: {"queries": canned}}}


def _described(doc: str, columns: Sequence[Column], params: Sequence[Column]) -> str:
    said = [f":{p.name}: {p.meaning}{_plain(p)}" for p in params] + [f"{c.name}: {c.meaning}" for c in columns]
    return "; ".join([" ".join(doc.split()), *said])


def _plain(param: Column) -> str:
    """Say what Datasette, which hands text over as it is, cannot check."""
    unit = {"ns": " of nanoseconds"}.get(param.unit, "")
    least = "" if param.least is None else f", at least {param.least}"
    return "" if param.type == "TEXT" else f" (a plain number{unit}, without a unit{least})"


def _type(column: Column) -> str:
    least = "" if column.least is None else f" >={column.least}"
    return column.type + (f" [{column.unit}]" if column.unit else "") + least


def _query(query: Query) -> dict[str, Any]:
    return {
        "name": query.name,
        "summary": query.summary,
        "doc": query.doc,
        "standalone": query.standalone,
        "requires": [
            {
                "table": r.table,
                "optional": r.optional,
                "columns": [{"name": c, "optional": c in r.optional_columns} for c in r.columns],
            }
            for r in query.requires
        ],
        "params": [{**_column(param), "least": param.least} for param in query.params],
        "columns": [_column(column) for column in query.columns],
        "order": list(query.order),
        "oracle": query.oracle or None,
        "file": query.file,
    }


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "nullable": column.nullable,
        "unit": column.unit or None,
        "meaning": column.meaning,
    }
