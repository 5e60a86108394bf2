"""The JSON of ``k25trace attribute``, schema ``k25trace.attribution/1`` (docs/reference/json.md)."""

import json
from typing import Any, TextIO, cast

import polars as pl

from k25trace.results import ALL_GPUS, Analysis
from k25trace.warnings import ReportWarning

SCHEMA = "k25trace.attribution/1"

Document = dict[str, Any]


def build(analysis: Analysis) -> Document:
    """Return the document: plain dicts and lists, integers of nanoseconds, shares from 0 to 1, null for unknown."""
    used: dict[str, list[Document]] = {}
    for row in analysis.processes.iter_rows(named=True):
        used.setdefault(row.pop("gpu"), []).append(row)
    document: Document = {
        "schema": SCHEMA,
        "reports": _rows(analysis.reports),
        "windows": _rows(analysis.windows),
        "gpus": [row | {"processes": used.get(row["gpu"], [])} for row in _rows(analysis.gpus)],
        "categories": _rows(analysis.categories),
        "families": _rows(analysis.families),
        "wall": _rows(analysis.wall),
    }
    if analysis.ranges is not None:
        document["ranges"] = _rows(analysis.ranges)
    if analysis.inclusive is not None:
        document["inclusive"] = _rows(analysis.inclusive)
    kernels = analysis.kernels.select(pl.lit(ALL_GPUS).alias("gpu"), pl.all())
    return document | {"kernels": _rows(kernels), "warnings": [warning_row(w) for w in analysis.warnings]}


def render(document: Document, out: TextIO) -> None:
    """Write a document as one line a row, so that two of them can be compared by eye and by diff."""
    out.write("{\n")
    for number, key in enumerate(document):
        value: object = document[key]
        out.write(",\n" if number else "")
        out.write(f" {json.dumps(key)}: ")
        if isinstance(value, list) and value:
            rows = cast("list[object]", value)
            out.write("[\n  ")
            out.write(",\n  ".join(_dumps(row) for row in rows))
            out.write("\n ]")
        else:
            out.write(_dumps(document[key]))
    out.write("\n}\n")


def warning_row(warning: ReportWarning) -> Document:
    """Return a warning as the documents of every verb hold it."""
    return {
        "code": warning.code,
        "level": warning.level,
        "message": warning.message,
        "count": warning.count,
        "unit": warning.unit,
    }


def _rows(frame: pl.DataFrame) -> list[Document]:
    return frame.to_dicts()


def _dumps(value: object) -> str:
    # Not ASCII alone: names are text. NaN is no JSON, and no figure here may be one.
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
