"""What a verb has to say, in every format: facts, warnings, tables for people, rows and a document for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from k25trace.report import json_, markdown, table
from k25trace.report.cells import Column, texts
from k25trace.report.choices import Format
from k25trace.report.files import text_output
from k25trace.report.json_ import Document, warning_row
from k25trace.report.rows import with_paths_written
from k25trace.report.sections import Section
from k25trace.report.text import printable
from k25trace.units import counted
from k25trace.warnings import ReportWarning


@dataclass(frozen=True)
class Answer:
    """The result of a verb, ready to be written.

    Attributes
    ----------
    facts
        What stands before everything: (what, text).
    warnings
        What to distrust, worst first.
    sections
        Tables for people.
    rows
        What CSV holds.
    document
        What JSON holds, from its schema's name on.
    """

    facts: list[tuple[str, str]]
    warnings: list[ReportWarning]
    sections: list[Section]
    rows: pl.DataFrame
    document: Document


def write(
    answer: Answer, how: Format, output: Path | None, *, force: bool, header: bool = True, never: Sequence[Path] = ()
) -> None:
    """Write an answer; a file appears whole or not at all.

    Raises
    ------
    OutputExists
        The target is there and ``force`` is not given.
    UsageError
        The target is one of ``never``.
    """
    said = [(f"{w.level}: {w.code}", printable(w.message)) for w in answer.warnings]
    exact = how in {Format.json, Format.csv}
    with text_output(output, force=force, never=never, exact=exact) as out:
        if how is Format.json:
            json_.render(answer.document | {"warnings": [warning_row(w) for w in answer.warnings]}, out)
        elif how is Format.csv:
            if header:
                out.writelines(f"# {what}: {text}\n" for what, text in [*answer.facts, *said])
            out.write(",".join(answer.rows.columns) + "\n")
            out.write(with_paths_written(answer.rows).write_csv(include_header=False, quote_style="non_numeric"))
        else:
            render = table.render if how is Format.table else markdown.render
            render(answer.facts, said, answer.sections, out)


def section(
    title: str, frame: pl.DataFrame, columns: dict[str, Column], *, top: int | None = None, note: str = ""
) -> Section:
    """Return a table of some columns of a frame; of long ones the first rows, and how many more there are."""
    shown = frame if top is None else frame.head(top)
    hidden = frame.height - shown.height
    more = f"{counted(hidden, 'more row')}; --top N shows more, --top 0 all." if hidden else ""
    return Section(title, *texts(shown, columns), " ".join(filter(None, [more, note])))


def reports(rows: Iterable[dict[str, object]]) -> list[tuple[str, str]]:
    """Return the facts about the reports that were read: columns report, file, nsys_version."""
    listed = list(rows)
    return [
        (
            f"report {row['report']}" if len(listed) > 1 else "report",
            f"{printable(str(row['file']))} (nsys {printable(str(row['nsys_version'] or 'version unknown'), 60)})",
        )
        for row in listed
    ]
