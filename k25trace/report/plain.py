"""Rows of any query, written as they come: one row at a time is in memory, whatever the format.

The formats are those of sqlite-utils, so that what reads the one reads the other.
"""

import base64
import csv
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TextIO

from k25trace.report.text import printable

Value = int | float | str | bytes | None

_MEASURED_ROWS = 200
"""Rows by which a table's columns are as wide as they are; wider cells of later rows stick out."""

_WIDEST = 80


class RowFormat(StrEnum):
    """How rows of a query are written."""

    table = "table"
    json = "json"
    csv = "csv"
    tsv = "tsv"
    nl = "nl"
    markdown = "markdown"


FOR_PROGRAMS = frozenset({RowFormat.json, RowFormat.csv, RowFormat.tsv, RowFormat.nl})
"""Formats that hold values as they are, and are UTF-8 wherever they go."""


def render(columns: Sequence[str], rows: Iterable[Sequence[Value]], how: RowFormat, out: TextIO) -> None:
    """Write rows.

    Parameters
    ----------
    columns
        Their names.
    rows
        The rows; taken one by one.
    how
        ``table`` and ``markdown`` for people, the others for programs: values as they are, bytes as
        ``{"$base64": true, "encoded": ...}`` in JSON and as base64 in CSV.
    """
    if how is RowFormat.table:
        _table(columns, rows, out)
    elif how is RowFormat.markdown:
        lines = itertools.chain([list(columns), ["---"] * len(columns)], (map(_markdown, row) for row in rows))
        out.writelines(f"| {' | '.join(line)} |\n" for line in lines)
    elif how in {RowFormat.csv, RowFormat.tsv}:
        delimiter = "," if how is RowFormat.csv else "\t"
        # A line end of both characters makes the writer quote texts that hold either.
        writer = csv.writer(_LineFeeds(out), lineterminator="\r\n", delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(map(_cell, row) for row in rows)
    elif how is RowFormat.nl:
        out.writelines(f"{_object(columns, row)}\n" for row in rows)
    else:
        out.write("[")
        for number, row in enumerate(rows):
            out.write(f"{',' if number else ''}\n {_object(columns, row)}")
        out.write("\n]\n")


def render_fmt(columns: Sequence[str], rows: Iterable[Sequence[Value]], fmt: str, out: TextIO) -> None:
    """Write a table in one of the forms of tabulate (``--fmt``), which holds all rows at once.

    Raises
    ------
    ValueError
        It has no such form.
    """
    import tabulate  # noqa: PLC0415 - for this option alone

    if fmt not in tabulate.tabulate_formats:
        raise ValueError(f"{fmt} is not one of {', '.join(tabulate.tabulate_formats)}")
    texts = [[_text(value) for value in row] for row in rows]
    out.write(tabulate.tabulate(texts, headers=list(columns), tablefmt=fmt, disable_numparse=True) + "\n")


class _LineFeeds:
    """Takes the lines of a `csv.writer` that ends them with CR LF, and ends them with LF."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, line: str) -> int:
        return self._out.write(line.removesuffix("\r\n") + "\n")


def _table(columns: Sequence[str], rows: Iterable[Sequence[Value]], out: TextIO) -> None:
    remaining = iter(rows)
    first = list(itertools.islice(remaining, _MEASURED_ROWS))
    texts = [[_text(value) for value in row] for row in first]
    widths = [max([len(name), *(min(_WIDEST, len(row[i])) for row in texts)]) for i, name in enumerate(columns)]
    right = [
        any(row[i] is not None for row in first) and all(isinstance(row[i], int | float | None) for row in first)
        for i in range(len(columns))
    ]
    rest: Iterator[list[str]] = ([_text(value) for value in row] for row in remaining)
    for line in itertools.chain([list(columns), ["-" * width for width in widths]], texts, rest):
        cells = [
            cell.rjust(width) if on_right else cell.ljust(width)
            for cell, width, on_right in zip(line, widths, right, strict=True)
        ]
        out.write("  ".join(cells).rstrip() + "\n")


def _text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(_cell(value), _WIDEST) if isinstance(value, str | bytes) else str(value)


def _markdown(value: Value) -> str:
    text = _text(value)
    for character in "\\`*_[]|":
        text = text.replace(character, f"\\{character}")
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _cell(value: Value) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return "" if value is None else str(value)


def _object(columns: Sequence[str], row: Sequence[Value]) -> str:
    return json.dumps(
        {name: _json(value) for name, value in zip(columns, row, strict=True)},
        ensure_ascii=False,
        allow_nan=False,
    )


def _json(value: Value) -> object:
    if isinstance(value, bytes):
        return {"$base64": True, "encoded": _cell(value)}
    return None if isinstance(value, float) and not math.isfinite(value) else value
