"""Every result as a SQLite table, ready for Datasette: ``--save analysis.db``."""

import json
from pathlib import Path

import polars as pl
import sqlite_utils

from k25trace import __version__
from k25trace.report.json_ import SCHEMA, warning_row
from k25trace.results import Analysis

_KEYS: dict[str, tuple[str, ...]] = {
    "reports": ("report",),
    "windows": ("report",),
    "gpus": ("gpu",),
    "categories": ("gpu", "category"),
    "families": ("gpu", "category", "family"),
    "wall": ("gpu", "row"),
}

_VIEWS = {
    "category_shares": (
        "SELECT gpu, category, kernel_count, kernel_ns, round(100 * kernel_share, 2) AS kernel_percent,"
        " wall_ns, round(100 * wall_share, 2) AS wall_percent FROM categories ORDER BY gpu, kernel_ns DESC"
    ),
    "wall_by_gpu": (
        "SELECT gpu, row, wall_ns, round(100 * wall_share, 2) AS wall_percent FROM wall ORDER BY gpu, wall_ns DESC"
    ),
    "range_totals": (
        "SELECT path, kind, via, sum(kernel_count) AS kernel_count, sum(kernel_ns) AS kernel_ns"
        " FROM ranges GROUP BY path, kind, via ORDER BY kernel_ns DESC"
    ),
    "kernel_totals": "SELECT category, family, name, kernel_count, kernel_ns FROM kernels ORDER BY kernel_ns DESC",
}


def write(analysis: Analysis, path: Path) -> None:
    """Write the results into a new SQLite file.

    Tables carry the names and columns of `Analysis`; ``path`` of a range is a JSON array. ``metadata`` says what
    wrote it. Views hold percentages.
    """
    database = sqlite_utils.Database(str(path))
    try:
        metadata = {"schema": SCHEMA, "k25trace_version": __version__, "time_unit": "ns", "shares": "0 to 1"}
        database.table("metadata").insert_all(({"key": k, "value": v} for k, v in metadata.items()), pk="key")
        for name in (
            "reports",
            "windows",
            "gpus",
            "processes",
            "categories",
            "families",
            "wall",
            "ranges",
            "inclusive",
            "kernels",
            "templates",
            "estimates",
        ):
            frame: pl.DataFrame | None = getattr(analysis, name)
            if frame is not None:
                _insert(database, name, frame)
        rows = [warning_row(warning) for warning in analysis.warnings]
        columns = {"code": str, "level": str, "message": str, "count": int, "unit": str}
        database.table("warnings").create(columns)
        database.table("warnings").insert_all(rows)
        for name, sql in _VIEWS.items():
            if name != "range_totals" or analysis.ranges is not None:
                database.create_view(name, sql)
    finally:
        database.close()


def _insert(database: sqlite_utils.Database, name: str, frame: pl.DataFrame) -> None:
    types = {
        c: int if dtype.is_integer() or dtype == pl.Boolean else float if dtype.is_float() else str
        for c, dtype in frame.schema.items()
    }
    table = database.table(name)
    table.create(types, pk=_KEYS.get(name))
    table.insert_all(
        {c: json.dumps(v, ensure_ascii=False) if isinstance(v, list) else v for c, v in row.items()}
        for row in frame.iter_rows(named=True)
    )
