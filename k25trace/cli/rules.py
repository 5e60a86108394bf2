"""``k25trace rules``: list, explain, check and apply the classification rules."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from k25trace.classify import Explanation, Match, Rule, load_rules
from k25trace.cli.options import Rules
from k25trace.errors import UnreadableReport

app = typer.Typer(no_args_is_help=True, help="List, explain, check and apply the classification rules.")


class Format(StrEnum):
    """How rows are printed."""

    table = "table"
    json = "json"


class ListFormat(StrEnum):
    """How the rules are listed."""

    table = "table"
    json = "json"
    markdown = "markdown"


_UNPRINTABLE = re.compile(r"[^ -~\u00a0-\U0010ffff]|[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_RULE_COLUMNS = ("id", "category", "family", "source")

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the rows.")]


@app.command("list")
def list_rules(
    rules: Rules = None,
    format_: Annotated[ListFormat, typer.Option("--format", help="How to print the rows.")] = ListFormat.table,
) -> None:
    """List the rules in the order in which they are tried.

    Example: k25trace rules list --format json
    """
    rows = [_rule_row(rule) for rule in load_rules(rules or []).rules]
    if format_ is ListFormat.json:
        _print_json(rows)
    elif format_ is ListFormat.markdown:
        sys.stdout.write(_markdown(_RULE_COLUMNS, rows))
    else:
        _print_table(_RULE_COLUMNS, rows)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="The kernel's name, as a tool prints it.")],
    rules: Rules = None,
    format_: FormatOption = Format.table,
) -> None:
    """Say which rule decides about a kernel's name, and which others apply.

    Example: k25trace rules explain 'void marlin::Marlin<...>'
    """
    explanation = load_rules(rules or []).explain(name)
    if format_ is Format.json:
        _print_json(_explanation_json(explanation))
    else:
        sys.stdout.write(_explanation_text(explanation))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A file of rules.", show_default=False)],
    rules: Rules = None,
) -> None:
    """Check a file of rules: its grammar, its examples and its counterexamples.

    Example: k25trace rules check mine.toml
    """
    checked = load_rules([*(rules or []), file])
    own = [rule for rule in checked.rules if rule.file == str(file)]
    examples = sum(len(rule.examples) for rule in own)
    counterexamples = sum(len(rule.counterexamples) for rule in own)
    sys.stdout.write(f"ok: {len(own)} rules, {examples} examples, {counterexamples} counterexamples\n")


@app.command()
def classify(
    file: Annotated[str, typer.Argument(help="One kernel name a line; - reads standard input.")],
    rules: Rules = None,
    format_: FormatOption = Format.table,
    nul: Annotated[bool, typer.Option("-0", "--null", help="Names end in NUL instead of a newline.")] = False,
) -> None:
    """Classify names in bulk, in their order.

    Example: k25trace rules classify names.txt --format json
    """
    names = split_names(_read(file), nul=nul)
    matches = load_rules(rules or []).classify_many(names)
    rows = [_match_row(name, match) for name, match in zip(names, matches, strict=True)]
    if format_ is Format.json:
        _print_json(rows)
    else:
        _print_table(("category", "family", "rule", "name"), rows)


def split_names(data: bytes, *, nul: bool) -> list[str]:
    """Kernel names in a file's bytes: one a line (LF or CRLF), or one before each NUL.

    A last name without its end counts; an empty line is a name; bytes that are not UTF-8 are replaced.
    """
    text = data.decode("utf-8", errors="replace")
    names = text.split("\0" if nul else "\n")
    if names[-1] == "":
        names.pop()
    return names if nul else [name.removesuffix("\r") for name in names]


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise UnreadableReport(f"{printable(file)}: {getattr(error, 'strerror', None) or error}") from None


def printable(text: str) -> str:
    """Return the text with all that a terminal would act on, or not show, written as an escape."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _rule_row(rule: Rule) -> dict[str, str]:
    return {
        "id": rule.id,
        "category": rule.category,
        "family": rule.family,
        "source": rule.source,
        "file": Path(rule.file).name,
    }


def _match_row(name: str, match: Match) -> dict[str, str | None]:
    return {"name": name, "category": match.category, "family": match.family, "rule": match.rule}


def _explanation_json(explanation: Explanation) -> dict[str, object]:
    return {
        **_match_row(explanation.raw, explanation.match),
        "normalised": explanation.normalised.name,
        "function": explanation.normalised.function,
        "runners_up": [_rule_row(rule) for rule in explanation.runners_up],
    }


def _explanation_text(explanation: Explanation) -> str:
    match, winner = explanation.match, explanation.winner
    lines = [
        f"name      {explanation.normalised.name}",
        f"function  {explanation.normalised.function}",
        f"category  {match.category}",
        f"family    {match.family}",
        f"rule      {match.rule or 'none applies'}",
    ]
    if winner is not None:
        lines.append(f"source    {winner.source}")
    lines += [f"also      {rule.id} ({rule.category}, {rule.family})" for rule in explanation.runners_up]
    return "".join(f"{printable(line)}\n" for line in lines)


def _markdown(columns: Sequence[str], rows: Iterable[dict[str, str]]) -> str:
    cells = [[printable(row[column]).replace("|", r"\|") for column in columns] for row in rows]
    lines = [list(columns), ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def _print_table(columns: Sequence[str], rows: Iterable[Mapping[str, str | None]]) -> None:
    """Print rows for people: names escaped, never read as markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(row[column] or "")) for column in columns))
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


__all__ = ["app", "printable", "split_names"]
