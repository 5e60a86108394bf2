"""Classification rules and what they decide, as text: lists in the formats of tables, explanations for people."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from k25trace.classify import Explanation, Match, Rule
from k25trace.report.choices import Format
from k25trace.report.layout import Column, Section
from k25trace.report.text import printable

RULE_COLUMNS = ("id", "category", "family", "source")
MATCH_COLUMNS = ("category", "family", "rule", "name")
_GOES = {"source": 0, "rule": 1, "family": 2}

Row = dict[str, str | None]


def render(columns: Sequence[str], rows: Sequence[Row], how: Format, out: TextIO) -> None:
    """Write rows.

    Parameters
    ----------
    columns
        What tables and CSV show of them.
    rows
        Of `rule_row` or `match_row`; JSON has all that is in them.
    how
        The format.
    out
        Where to.
    """
    if how is Format.json:
        out.write(json.dumps(rows, indent=1) + "\n")
        return
    if how is Format.csv:
        writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        writer.writerows([row[column] for column in columns] for row in rows)
        return
    from k25trace.report import markdown, table  # noqa: PLC0415 - Rich, for tables alone

    shown = [Column(column, str, right=False, goes=_GOES.get(column)) for column in columns]
    section = Section("", shown, [[printable(row[column] or "") for column in columns] for row in rows])
    (markdown if how is Format.markdown else table).render([], [], [section], out)


def rule_row(rule: Rule) -> Row:
    """Return a rule as a row: id, category, family, source, file."""
    return {
        "id": rule.id,
        "category": rule.category,
        "family": rule.family,
        "source": rule.source,
        "file": Path(rule.file).name,
    }


def match_row(name: str, match: Match) -> Row:
    """Return what a name is as a row: name, category, family, rule (null: none applies)."""
    return {"name": name, "category": match.category, "family": match.family, "rule": match.rule}


def explanation_document(explanation: Explanation) -> dict[str, object]:
    """Return why a name is what it is, as JSON holds it."""
    return {
        **match_row(explanation.raw, explanation.match),
        "normalised": explanation.normalised.name,
        "function": explanation.normalised.function,
        "runners_up": [rule_row(rule) for rule in explanation.runners_up],
    }


def explanation_text(explanation: Explanation) -> str:
    """Return why a name is what it is, for people."""
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
