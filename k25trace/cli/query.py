"""``k25trace query``."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand

from k25trace.catalog import Catalog, find
from k25trace.cli.options import Force, Output, Rules, seconds
from k25trace.errors import UsageError
from k25trace.parameters import option
from k25trace.report.files import text_output
from k25trace.report.plain import FOR_PROGRAMS, RowFormat, Value, render, render_fmt
from k25trace.report.queries import description, document, listing, metadata
from k25trace.report.text import printable

CONTEXT = {"help_option_names": list[str]()}
"""``--help`` is an option of the verb's own: with a query's name it tells of that query."""

_PARAMETERS = "k25trace.parameters"


class QueryCommand(TyperCommand):
    """A command whose unknown ``--name VALUE`` are parameters of the query, whatever the value looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's, which typer keeps private
        """Put the query's parameters aside, and parse the rest."""
        takes_value = {word: not getattr(p, "is_flag", False) for p in self.params for word in p.opts}
        rest, ctx.meta[_PARAMETERS] = _separated(args, takes_value)
        return super().parse_args(ctx, rest)


def _separated(args: Sequence[str], takes_value: Mapping[str, bool]) -> tuple[list[str], dict[str, str]]:
    """Return the words that are not parameters of the query, and those that are.

    Parameters
    ----------
    args
        The command line.
    takes_value
        Option of the command itself → whether a value follows it.
    """
    rest: list[str] = []
    values: dict[str, str] = {}
    words = list(args)
    while words:
        word = words.pop(0)
        name, has_value, value = word.partition("=")
        if word == "--":
            return [*rest, word, *words], values
        if name in takes_value or not word.startswith("--"):
            rest.append(word)
            if takes_value.get(word) and words:
                rest.append(words.pop(0))
            continue
        if not has_value:
            if not words or words[0].partition("=")[0] in takes_value:
                raise UsageError(f"{word} needs a value", f"one that looks like an option: {word}=VALUE")
            value = words.pop(0)
        parameter = name[2:].replace("-", "_")
        if parameter in values:
            raise UsageError(f"{name} is given twice")
        values[parameter] = value
    return rest, values


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
    help_: Annotated[
        bool, typer.Option("--help", "-h", help="Show this message, or what the query NAME does, and exit.")
    ] = False,
) -> None:
    """Run a query of the SQL library, or a SELECT of your own, over a report; the report is only read.

    Parameters of a query are options: --window-start-ns 1.5ms.

    Example: k25trace query kernel_sum decode8.sqlite --format csv
    """
    words = [word for word in (name, trace) if word is not None]
    values: dict[str, str] = context.meta[_PARAMETERS]
    mode = _mode(words, sql, list_=list_, datasette=datasette, help_=help_)
    _refuse_what_does_nothing(context, mode, values)
    if mode is _Mode.help:
        sys.stdout.write(context.get_help() + "\n")
        return
    short = {RowFormat.csv: csv, RowFormat.tsv: tsv, RowFormat.nl: nl, RowFormat.table: table}
    how = _format(output_format, [chosen for chosen, given in short.items() if given], fmt, context)
    time_limit = seconds("--time-limit", time_limit) or 0.0
    catalog = find(queries or [])
    if mode is not _Mode.describe:
        for stem, broken in catalog.broken.items():
            if stem not in words[:1]:
                sys.stderr.write(f"k25trace: left out: {printable(broken.message)}\n")
    if mode is _Mode.list:
        _list(catalog, how)
        # As with ls: what could be listed is, and the exit code tells of the rest.
        raise typer.Exit(int(bool(catalog.broken)))
    if mode is _Mode.datasette:
        _metadata(catalog, _words(words, 1)[0], output, force=force)
    elif mode is _Mode.describe:
        sys.stdout.write(description(catalog.get(words[0])))
    else:
        _run(
            catalog, sql, words, values,
            how=how, fmt=fmt, rules=rules, time_limit=time_limit, output=output, force=force,
        )  # fmt: skip


class _Mode(StrEnum):
    """What is asked for; each goes with options of its own."""

    help = "--help"
    list = "--list"
    datasette = "--datasette"
    describe = "NAME alone"
    sql = "--sql"
    run = "NAME TRACE"


_FORMATS = frozenset({"output_format", "csv", "tsv", "nl", "table"})
_ROWS = _FORMATS | {"name", "trace", "fmt", "queries", "rules", "time_limit", "output", "force"}
_GO_WITH: Mapping[_Mode, frozenset[str]] = {
    _Mode.help: frozenset({"help_"}),
    _Mode.list: _FORMATS | {"list_", "queries"},
    _Mode.datasette: frozenset({"datasette", "name", "trace", "queries", "output", "force"}),
    _Mode.describe: frozenset({"help_", "name", "trace", "queries"}),
    _Mode.sql: _ROWS | {"sql"},
    _Mode.run: _ROWS,
}
"""The parameters of the command that mean something in each mode; the others are refused."""


def _mode(words: list[str], sql: str | None, *, list_: bool, datasette: bool, help_: bool) -> _Mode:
    if help_:
        return _Mode.describe if words else _Mode.help
    if list_:
        return _Mode.list
    if datasette:
        return _Mode.datasette
    if sql is not None:
        return _Mode.sql
    return _Mode.describe if len(words) == 1 else _Mode.run


def _refuse_what_does_nothing(context: typer.Context, mode: _Mode, values: Mapping[str, str]) -> None:
    spelled = {p.name: p.opts[0] if p.opts[0].startswith("-") else p.opts[0].upper() for p in context.command.params}
    given = [name for name in context.params if _is_given(context, name)]
    idle = [spelled[name] for name in given if name not in _GO_WITH[mode]]
    idle += [] if mode is _Mode.run else [option(name) for name in values]
    if idle:
        raise UsageError(f"{idle[0]} does nothing with {mode}", "leave one of the two out")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _format(chosen: RowFormat, short: list[RowFormat], fmt: str | None, context: typer.Context) -> RowFormat:
    if len(short) + (fmt is not None) + _is_given(context, "output_format") > 1:
        raise UsageError("one format at a time")
    return short[0] if short else chosen


def _words(words: list[str], count: int) -> list[str]:
    if len(words) != count:
        raise UsageError(
            f"{len(words)} arguments where {count} are needed",
            "k25trace query NAME TRACE, or --sql SELECT TRACE, or --datasette TRACE",
        )
    return words


def _list(catalog: Catalog, how: RowFormat) -> None:
    with text_output(None, force=False, exact=how in FOR_PROGRAMS) as out:
        if how is RowFormat.json:
            out.write(json.dumps(document(catalog), indent=1, ensure_ascii=False) + "\n")
        else:
            render(*listing(catalog), how, out)


def _metadata(catalog: Catalog, trace: str, output: Path | None, *, force: bool) -> None:
    from k25trace.trace.opening import open_sqlite

    found = metadata(Path(trace).stem, catalog, open_sqlite(trace).tables)
    with text_output(output, force=force, never=[Path(trace)], exact=True) as out:
        out.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _run(
    catalog: Catalog, sql: str | None, words: list[str], values: dict[str, str], *, how: RowFormat,
    fmt: str | None, rules: list[Path] | None, time_limit: float, output: Path | None, force: bool,
) -> None:  # fmt: skip
    from k25trace.classify import load_rules
    from k25trace.prepared import prepared

    chosen = None if sql is not None else catalog.get(_words(words, 2)[0])
    path = Path(_words(words, 1 if chosen is None else 2)[-1])
    ruleset = load_rules(rules) if rules else None
    with prepared(path, catalog, rules=ruleset, time_limit_s=time_limit or None) as session:
        found = session.sql(sql or "") if chosen is None else session.run(chosen, values)
        with text_output(
            output, force=force, never=[path, *(rules or [])], exact=fmt is None and how in FOR_PROGRAMS
        ) as out:
            if fmt is None:
                render(found.columns, found, how, out)
            else:
                _tabulated(found.columns, found, fmt, out)


def _tabulated(columns: Sequence[str], rows: Iterable[Sequence[Value]], fmt: str, out: TextIO) -> None:
    try:
        render_fmt(columns, rows, fmt, out)
    except ValueError as error:
        raise UsageError(f"--fmt: {error}") from None
