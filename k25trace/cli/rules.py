"""``k25trace rules``: list, explain, check and apply the classification rules."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from k25trace.classify import load_rules
from k25trace.cli.options import Rules
from k25trace.errors import UnreadableReport
from k25trace.report.choices import BriefFormat, Format
from k25trace.report.files import text_output
from k25trace.report.rules import (
    MATCH_COLUMNS,
    RULE_COLUMNS,
    Row,
    explanation_document,
    explanation_text,
    match_row,
    render,
    rule_row,
)
from k25trace.units import counted

app = typer.Typer(no_args_is_help=True, help="List, explain, check and apply the classification rules.")

FormatOption = Annotated[Format, typer.Option("--format", "-f", help="How the rows are written.")]


@app.command("list")
def list_rules(rules: Rules = None, output_format: FormatOption = Format.table) -> None:
    """List the rules in the order in which they are tried.

    Example: k25trace rules list --format json
    """
    _print(RULE_COLUMNS, [rule_row(rule) for rule in load_rules(rules or []).rules], output_format)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="The kernel's name, as a tool prints it.")],
    rules: Rules = None,
    output_format: Annotated[
        BriefFormat, typer.Option("--format", "-f", help="How the explanation is written.")
    ] = BriefFormat.table,
) -> None:
    """Say which rule decides about a kernel's name, and which others apply.

    Example: k25trace rules explain 'void marlin::Marlin<...>'
    """
    explanation = load_rules(rules or []).explain(name)
    if output_format is BriefFormat.json:
        sys.stdout.write(json.dumps(explanation_document(explanation), indent=1) + "\n")
    else:
        sys.stdout.write(explanation_text(explanation))


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
    counts = (counted(len(own), "rule"), counted(examples, "example"), counted(counterexamples, "counterexample"))
    sys.stdout.write(f"ok: {', '.join(counts)}\n")


@app.command()
def classify(
    file: Annotated[str, typer.Argument(help="One kernel name a line; - reads standard input.")],
    rules: Rules = None,
    output_format: FormatOption = Format.table,
    nul: Annotated[bool, typer.Option("-0", "--null", help="Names end in NUL instead of a newline.")] = False,
) -> None:
    """Classify names in bulk, in their order.

    Example: k25trace rules classify names.txt --format json
    """
    names = split_names(_read(file), nul=nul)
    matches = load_rules(rules or []).classify_many(names)
    rows = [match_row(name, match) for name, match in zip(names, matches, strict=True)]
    _print(MATCH_COLUMNS, rows, output_format)


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
        raise UnreadableReport(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def _print(columns: tuple[str, ...], rows: list[Row], how: Format) -> None:
    with text_output(None, force=False, exact=how in {Format.json, Format.csv}) as out:
        render(columns, rows, how, out)


__all__ = ["app", "split_names"]
