"""Values of a frame as text for people: which columns a table shows, under which heading, in which unit."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import cast

import polars as pl

from k25trace.report.layout import Column
from k25trace.report.text import path_label, printable, range_label
from k25trace.units import format_count, format_ns, format_share

NAME_CHARACTERS = 600
"""Longest name of which nothing is left out; a terminal shows as much as tells names apart."""

NOTHING = "\N{EN DASH}"
"""What a cell without a value shows."""


def _or_dash(format_value: Callable[[float], str]) -> Callable[[object], str]:
    return lambda value: format_value(value) if isinstance(value, int | float) else NOTHING


def _name(value: object) -> str:
    return NOTHING if value is None else printable(str(value), NAME_CHARACTERS)


def _range(value: object) -> str:
    return printable(range_label(None if value is None else str(value)), NAME_CHARACTERS)


def _path(value: object) -> str:
    return printable(path_label(cast("Sequence[str] | None", value)), NAME_CHARACTERS)


_TIME, _COUNT, _SHARE = _or_dash(format_ns), _or_dash(lambda n: format_count(int(n))), _or_dash(format_share)

COLUMNS: dict[str, Column] = {
    "gpu": Column("GPU", _name, right=False),
    "category": Column("Category", _name, right=False),
    "family": Column("Family", _name, right=False),
    "range": Column("Range", _range, right=False),
    "path": Column("Path", _path, right=False),
    "kind": Column("Kind", _name, right=False),
    "via": Column("Via", _name, right=False),
    "row": Column("Wall row", _name, right=False),
    "kernel_count": Column("Kernels", _COUNT),
    "kernel_ns": Column("Kernel time", _TIME),
    "kernel_share": Column("Share", _SHARE),
    "busy_ns": Column("Busy", _TIME),
    "wall_ns": Column("Wall", _TIME),
    "wall_share": Column("Wall share", _SHARE),
    "mean_ns": Column("Mean", _TIME),
    "median_ns": Column("Median", _TIME),
    "max_ns": Column("Max", _TIME),
    "idle_ns": Column("Idle", _TIME),
    "communication_ns": Column("Communication", _TIME),
    "exposed_communication_ns": Column("Exposed", _TIME),
    "graph_launch_count": Column("Graph launches", _COUNT),
    "opaque_graph_count": Column("Opaque", _COUNT),
    "window_ns": Column("Window", _TIME),
    "top_category": Column("Mostly", _name, right=False),
    "name": Column("Name", _name, right=False),
}
"""Columns that tables show, in this order; the others are for programs."""


_GO = (
    *("median_ns", "mean_ns", "max_ns", "name", "opaque_graph_count", "graph_launch_count", "top_category", "family"),
    *("busy_ns", "wall_share", "window_ns", "idle_ns", "communication_ns", "exposed_communication_ns"),
    *("wall_ns", "kernel_count", "category", "via", "kind"),
)
"""Columns that make room for the others, in this order; what rows are about, kernel time and share stay."""


def cells(
    frame: pl.DataFrame, keys: Collection[str], without: Collection[str] = ()
) -> tuple[list[Column], list[list[str]]]:
    """Return the headings and the texts of the columns that people read.

    Parameters
    ----------
    frame
        Rows of an `k25trace.results.Analysis`.
    keys
        Columns that say what a row is about: they are never left out for want of room.
    without
        Columns that are not shown.
    """
    shown = [name for name in COLUMNS if name in frame.columns and name not in without]
    columns = [
        replace(COLUMNS[name], goes=None if name in keys or name not in _GO else _GO.index(name)) for name in shown
    ]
    texts = [
        [column.text(value) for column, value in zip(columns, row, strict=True)]
        for row in frame.select(shown).iter_rows()
    ]
    return columns, texts


def text_column(heading: str, goes: int | None = None) -> Column:
    """Return a column of names."""
    return Column(heading, _name, right=False, goes=goes)


def path_column(heading: str, empty: str = "") -> Column:
    """Return a column of paths: lists of range names; ``empty``: what stands for one of no name."""
    return Column(heading, lambda names: _path(names) or empty, right=False)


def time_column(heading: str, goes: int | None = None) -> Column:
    """Return a column of nanoseconds."""
    return Column(heading, _TIME, goes=goes)


def count_column(heading: str, goes: int | None = None) -> Column:
    """Return a column of counts."""
    return Column(heading, _COUNT, goes=goes)


def share_column(heading: str) -> Column:
    """Return a column of shares."""
    return Column(heading, _SHARE)


def texts(frame: pl.DataFrame, columns: dict[str, Column]) -> tuple[list[Column], list[list[str]]]:
    """Return the headings and the texts of chosen columns, in the order in which they are chosen."""
    rows = frame.select(list(columns)).iter_rows()
    return list(columns.values()), [[c.text(v) for c, v in zip(columns.values(), row, strict=True)] for row in rows]
