"""``k25trace query``."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from k25trace.catalog import Catalog, find
from k25trace.cli.options import Force, Output, Rules
from k25trace.errors import UsageError
from k25trace.report.files import text_output
from k25trace.report.plain import RowFormat, Value, render, render_fmt
from k25trace.report.queries import description, document, listing, metadata

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""The parameters of a query are options that only the query knows."""


def query(  # noqa: PLR0917 - typer takes options by position in the signature
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A query; alone: what it does.", show_default=False)
    ] = None,
    trace: Annotated[
        str | None,
        typer.Argument(metavar="TRACE", help="A SQLite export, or an .nsys-rep.", show_default=False),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="SELECT", help="Run this instead of a query of the catalogue."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the queries.")] = False,
    datasette: Annotated[
        bool, typer.Option("--datasette", help="Write Datasette's metadata: the queries TRACE answers alone.")
    ] = False,
    output_format: Annotated[RowFormat, typer.Option("--format", "-f", help="How rows are written.")] = RowFormat.table,
    csv: Annotated[bool, typer.Option("--csv", help="The same as --format csv.")] = False,
    tsv: Annotated[bool, typer.Option("--tsv", help="The same as --format tsv.")] = False,
    nl: Annotated[bool, typer.Option("--nl", help="The same as --format nl: one JSON object a line.")] = False,
    table: Annotated[bool, typer.Option("--table", help="The same as --format table.")] = False,
    fmt: Annotated[
        str | None,
        typer.Option("--fmt", metavar="NAME", help="A table in a form of tabulate, such as github."),
    ] = None,
    queries: Annotated[
        list[Path] | None,
        typer.Option("--queries", metavar="DIR", help="A folder with queries of your own; repeatable."),
    ] = None,
    rules: Rules = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Give up after that; 0: never.")] = 600.0,
    output: Output = None,
    force: Force = False,
) -> None:
    """Run a query of the SQL library, or a SELECT of your own, over a report; the report is only read.

    Parameters of a query are options: --window-start-ns 1.5ms.

    Example: k25trace query kernel_sum decode8.sqlite --format csv
    """
    short = {RowFormat.csv: csv, RowFormat.tsv: tsv, RowFormat.nl: nl, RowFormat.table: table}
    how = _format(output_format, [chosen for chosen, given in short.items() if given])
    words, values = _parameters([word for word in (name, trace) if word is not None], context.args)
    catalog = find(queries or [])
    if list_:
        _list(catalog, how)
    elif datasette:
        _metadata(catalog, _words(words, 1)[0], output, force=force)
    elif sql is None and len(words) == 1:
        sys.stdout.write(description(catalog.get(words[0])))
    else:
        _run(
            catalog, sql, words, values,
            how=how, fmt=fmt, rules=rules, time_limit=time_limit, output=output, force=force,
        )  # fmt: skip


def _format(chosen: RowFormat, short: list[RowFormat]) -> RowFormat:
    if len(short) > 1:
        raise UsageError("one format at a time")
    return short[0] if short else chosen


def _parameters(words: list[str], more: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments, and the query's own options: ``--name VALUE`` or ``--name=VALUE``."""
    found: list[str] = []
    values: dict[str, str] = {}
    rest = [*words, *more]
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            found.append(word)
            continue
        option, has_value, value = word[2:].partition("=")
        if not (has_value or rest):
            raise UsageError(f"{word} needs a value")
        values[option.replace("-", "_")] = value if has_value else rest.pop(0)
    return found, values


def _words(words: list[str], count: int) -> list[str]:
    if len(words) != count:
        raise UsageError(
            f"{len(words)} arguments where {count} are needed",
            "k25trace query NAME TRACE, or --sql SELECT TRACE",
        )
    return words


def _list(catalog: Catalog, how: RowFormat) -> None:
    if how is RowFormat.json:
        sys.stdout.write(json.dumps(document(catalog), indent=1, ensure_ascii=False) + "\n")
    else:
        render(*listing(catalog), how, sys.stdout)


def _metadata(catalog: Catalog, trace: str, output: Path | None, *, force: bool) -> None:
    from k25trace.trace.opening import open_sqlite

    found = metadata(Path(trace).stem, catalog, open_sqlite(trace).tables)
    with text_output(output, force=force, never=[Path(trace)]) as out:
        out.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _run(
    catalog: Catalog, sql: str | None, words: list[str], values: dict[str, str], *, how: RowFormat,
    fmt: str | None, rules: list[Path] | None, time_limit: float, output: Path | None, force: bool,
) -> None:  # fmt: skip
    from k25trace.classify import load_rules
    from k25trace.prepared import prepared

    chosen = None if sql is not None else catalog.get(_words(words, 2)[0])
    if chosen is None and values:
        raise UsageError(f"--{next(iter(values)).replace('_', '-')}: --sql has no parameters")
    path = Path(_words(words, 1 if chosen is None else 2)[-1])
    ruleset = load_rules(rules) if rules else None
    with prepared(path, catalog, rules=ruleset, time_limit_s=time_limit or None) as session:
        found = session.sql(sql or "") if chosen is None else session.run(chosen, values)
        with text_output(output, force=force, never=[path, *(rules or [])]) as out:
            if fmt is None:
                render(found.columns, found, how, out)
            else:
                _tabulated(found.columns, found, fmt, out)


def _tabulated(columns: Sequence[str], rows: Iterable[Sequence[Value]], fmt: str, out: TextIO) -> None:
    try:
        render_fmt(columns, rows, fmt, out)
    except ValueError as error:
        raise UsageError(f"--fmt: {error}") from None
