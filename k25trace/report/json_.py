"""The JSON of ``k25trace attribute``, schema ``k25trace.attribution/1`` (docs/reference/json.md)."""

import json
from collections.abc import Collection
from typing import Any, TextIO, cast

import polars as pl

from k25trace.results import ALL_GPUS, Analysis
from k25trace.warnings import ReportWarning

SCHEMA = "k25trace.attribution/1"

Document = dict[str, Any]


def build(analysis: Analysis, without: Collection[str] = ()) -> Document:
    """Return the document: plain dicts and lists, integers of nanoseconds, shares from 0 to 1, null for unknown.

    Parameters
    ----------
    analysis
        The results.
    without
        Keys that are left out.
    """
    found = tables(analysis)
    return {k: v.to_dicts() if isinstance(v, pl.DataFrame) else v for k, v in found.items() if k not in without}


def tables(analysis: Analysis) -> Document:
    """Return the document with its long tables as frames, which `render` writes many times faster than dicts."""
    used: dict[str, list[Document]] = {}
    for row in analysis.processes.iter_rows(named=True):
        used.setdefault(row.pop("gpu"), []).append(row)
    gpus = analysis.gpus.iter_rows(named=True)
    document: Document = {
        "schema": SCHEMA,
        "reports": analysis.reports,
        "windows": analysis.windows,
        "gpus": [row | {"processes": used.get(row["gpu"], [])} for row in gpus],
        "categories": analysis.categories,
        "families": analysis.families,
        "wall": analysis.wall,
    }
    if analysis.ranges is not None:
        document["ranges"] = analysis.ranges
    if analysis.inclusive is not None:
        document["inclusive"] = analysis.inclusive
    if analysis.templates is not None:
        document["templates"] = analysis.templates
    if analysis.estimates is not None:
        document["estimates"] = analysis.estimates
    kernels = analysis.kernels.select(pl.lit(ALL_GPUS).alias("gpu"), pl.all())
    return document | {"kernels": kernels, "warnings": [warning_row(w) for w in analysis.warnings]}


def render(document: Document, out: TextIO) -> None:
    """Write a document as one line a row, so that two of them can be compared by eye and by diff.

    Values are what `json` can write, or frames.
    """
    out.write("{\n")
    for number, key in enumerate(document):
        out.write(",\n" if number else "")
        out.write(f" {json.dumps(key)}: ")
        rows = _lines(document[key])
        if rows:
            out.write("[\n  ")
            out.write(",\n  ".join(rows))
            out.write("\n ]")
        else:
            out.write(_dumps([] if isinstance(document[key], pl.DataFrame) else document[key]))
    out.write("\n}\n")


def _lines(value: object) -> list[str]:
    """Return one text for each row of a list or a frame; nothing for what has no rows."""
    if isinstance(value, pl.DataFrame):
        # Floats of a frame are shares, and never NaN, which this would write as null.
        return value.write_ndjson().split("\n")[:-1]
    return [_dumps(row) for row in cast("list[object]", value)] if isinstance(value, list) else []


def warning_row(warning: ReportWarning) -> Document:
    """Return a warning as the documents of every verb hold it."""
    return {
        "code": warning.code,
        "level": warning.level,
        "message": warning.message,
        "count": warning.count,
        "unit": warning.unit,
    }


def _dumps(value: object) -> str:
    # Not ASCII alone: names are text. NaN is no JSON, and no figure here may be one.
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
