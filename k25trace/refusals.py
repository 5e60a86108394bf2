"""What SQLite says of a statement → an error that says what the user can do about it.

A table or column that nsys would have recorded under other flags is the report's lack, not the statement's: those
are told apart here.
"""

import difflib
import re
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from k25trace.catalog import CATALOGUE_TABLES, Catalog
from k25trace.contract import SCHEMA, TABLE_FUNCTIONS
from k25trace.errors import BadQuery, CannotAnswer, K25TraceError, UnreadableReport
from k25trace.nsystables import (
    API_TABLE,
    DIAGNOSTICS_TABLE,
    GRAPH_NODE_TABLES,
    GRAPH_TRACE_TABLE,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    MEMSET_TABLE,
    NVTX_TABLE,
    SYNCHRONIZATION_TABLE,
    TARGET_PREFIX,
)

_CUDA = "capture with --trace=cuda,nvtx, and open the capture range around GPU work"
_RECORDED_BY: tuple[tuple[str, str], ...] = (
    (GRAPH_NODE_TABLES[0], "capture with --cuda-graph-trace=node a program that captures CUDA graphs"),
    (GRAPH_NODE_TABLES[1], "capture with --cuda-graph-trace=node a program that captures CUDA graphs"),
    (GRAPH_TRACE_TABLE, "capture with --cuda-graph-trace=graph and nsys 2024 or newer"),
    (
        SYNCHRONIZATION_TABLE,
        "capture with --trace=cuda a program that synchronises on what it started",
    ),
    (MEMCPY_TABLE, "capture with --trace=cuda a program that copies or sets memory"),
    (MEMSET_TABLE, "capture with --trace=cuda a program that copies or sets memory"),
    (KERNEL_TABLE, _CUDA),
    (API_TABLE, _CUDA),
    ("CUPTI_ACTIVITY_KIND_OVERHEAD", _CUDA),
    ("CUDA_CALLCHAINS", "capture with --cudabacktrace=all"),
    ("CUDA_GPU_MEMORY_USAGE_EVENTS", "capture with --cuda-memory-usage=true"),
    ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "capture with --cuda-um-cpu-page-faults=true"),
    ("CUDA_UM_GPU_PAGE_FAULT_EVENTS", "capture with --cuda-um-gpu-page-faults=true"),
    (NVTX_TABLE, "capture with --trace=cuda,nvtx a program that has NVTX ranges"),
    ("NVTX_PAYLOAD_SCHEMAS", "capture with --trace=cuda,nvtx and nsys 2024 or newer"),
    ("OSRT_API", "capture with --trace=cuda,nvtx,osrt"),
    ("OSRT_CALLCHAINS", "capture with --trace=cuda,nvtx,osrt"),
    ("CUBLAS_EVENTS", "capture with --trace=cuda,nvtx,cublas"),
    ("CUDNN_EVENTS", "capture with --trace=cuda,nvtx,cudnn"),
    ("MPI_P2P_EVENTS", "capture with --trace=cuda,nvtx,mpi"),
    ("MPI_COLLECTIVES_EVENTS", "capture with --trace=cuda,nvtx,mpi"),
    ("COMPOSITE_EVENTS", "capture with --sample=process-tree"),
    ("SAMPLING_CALLCHAINS", "capture with --sample=process-tree"),
    ("SCHED_EVENTS", "capture with --cpuctxsw=process-tree"),
    ("GPU_METRICS", "capture with --gpu-metrics-device=all"),
    ("NET_NIC_METRIC", "capture with --nic-metrics=true"),
    (DIAGNOSTICS_TABLE, "capture and export with nsys 2024 or newer, which record what they lost"),
    (TARGET_PREFIX, "capture with --trace=cuda, and export with nsys 2024 or newer"),
)
"""Table of nsys (or, with a last _, how several begin) → what records it."""

_ANALYSIS_TABLES = frozenset({"categories", "wall", "ranges", "gpus", "kernels", "families", "inclusive"})
_SAVED = "make a database of an analysis with: k25trace attribute REPORT --save analysis.db"
_ANEW = "export the report again with the nsys that recorded it, or a newer one"
_UNREADABLE: Mapping[int, str] = {
    sqlite3.SQLITE_CORRUPT: "it is damaged: export the report again",
    sqlite3.SQLITE_NOTADB: "it is damaged: export the report again",
    sqlite3.SQLITE_IOERR: "the disk or network it lies on fails",
    sqlite3.SQLITE_CANTOPEN: "it was moved or removed meanwhile",
    sqlite3.SQLITE_BUSY: "another program writes to it: wait until it has finished",
    sqlite3.SQLITE_LOCKED: "another program writes to it: wait until it has finished",
}


def missing_table(path: Path, table: str, what: str, *, empty: bool = False) -> CannotAnswer:
    """Return the error for a table that the report lacks, with the capture flag that records it.

    Parameters
    ----------
    path, table, what
        The report, its table, and what needs it.
    empty
        Whether the table is there, with none of the columns that are needed.
    """
    lacks = "has none of the columns it needs" if empty else "is not in it"
    return CannotAnswer(f"{path}: {what} needs table {table}, which {lacks}", how_recorded(table))


def missing_column(path: Path, table: str, column: str, what: str) -> CannotAnswer:
    """Return the error for a column that the report's table lacks."""
    return CannotAnswer(f"{path}: {what} needs column {column} of {table}, which this export lacks", _ANEW)


def how_recorded(table: str) -> str | None:
    """Return what makes a table, or None where none of nsys' or of a saved analysis has that name."""
    if table.lower() in _ANALYSIS_TABLES:
        return _SAVED
    name = table.upper()
    for known, how in _RECORDED_BY:
        if name == known or (known.endswith("_") and name.startswith(known)):
            return how
    return None


@dataclass(frozen=True)
class Asked:
    """A statement that was put to a report.

    Attributes
    ----------
    what
        Its name in messages.
    path, tables
        The report, and its tables with their columns.
    catalog
        Whose queries tell which columns nsys has.
    text
        The statement.
    built_in
        Whether it is a query of this package: then the report is at fault.
    """

    what: str
    path: Path
    tables: Mapping[str, Collection[str]]
    catalog: Catalog
    text: str = ""
    built_in: bool = False


def refusal(error: Exception, asked: Asked, denied: str | None) -> K25TraceError:
    """Return what an error of SQLite's means for the user.

    Parameters
    ----------
    error
        What sqlite3 raised.
    asked
        For which statement.
    denied
        What the authorizer denied, where it did.
    """
    said, what, path = str(error), asked.what, asked.path
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if denied is not None:
        return _denied(denied, asked)
    if code in _UNREADABLE:
        return UnreadableReport(f"{path}: {said}", _UNREADABLE[code])
    if table := re.search(r"no such table: (?:main\.|temp\.)?(\S+)", said):
        return _without_table(table[1], asked)
    if column := re.search(r"no such column: (?:\w+\.)?(\w+)$", said):
        return _without_column(column[1], asked)
    if said == "integer overflow" and asked.built_in:
        return UnreadableReport(
            f"{path}: {what}: times in it add up to more than 64 bits hold", "they cannot be true: export it again"
        )
    return BadQuery(f"{what}: {_in_plain_words(said)}")


def _denied(denied: str, asked: Asked) -> BadQuery:
    if denied == SCHEMA and re.match(r"\s*(?:SELECT|WITH|VALUES|EXPLAIN)\b", asked.text, re.IGNORECASE):
        allowed = " and ".join(TABLE_FUNCTIONS)
        return BadQuery(f"{asked.what}: of table-valued functions and virtual tables, {allowed} alone can be read")
    return BadQuery(f"{asked.what}: {denied} is more than reading", "only SELECT is allowed")


def _without_table(name: str, asked: Asked) -> K25TraceError:
    nodes = [table for table in asked.tables if table.upper() in GRAPH_NODE_TABLES]
    if name.upper() in GRAPH_NODE_TABLES and nodes:
        return BadQuery(f"{asked.what}: no such table: {name}", f"this export calls it {nodes[0]}")
    if how_recorded(name) is not None:
        return missing_table(asked.path, name, asked.what)
    near = difflib.get_close_matches(name, asked.tables, n=3)
    return BadQuery(f"{asked.what}: no such table: {name}", f"did you mean {' or '.join(near)}?" if near else None)


def _without_column(name: str, asked: Asked) -> K25TraceError:
    """Tell a column that nsys has, and this export of it lacks, from one that nobody has."""
    words = {word.lower() for word in re.findall(r"\w+", asked.text)}
    having = {
        r.table.lower()
        for query in asked.catalog.queries.values()
        for r in query.requires
        if r.table not in CATALOGUE_TABLES and name.lower() in (c.lower() for c in r.columns)
    }
    for table, columns in sorted(asked.tables.items()):
        if table.lower() in words & having and name.lower() not in (c.lower() for c in columns):
            return missing_column(asked.path, table, name, asked.what)
    return BadQuery(f"{asked.what}: no such column: {name}")


def _in_plain_words(said: str) -> str:
    if found := re.search(r"did not supply a value for binding (?:parameter )?(:?\w+)", said):
        return f"parameter {found[1]} has no value: write the value itself in its place"
    if "has no name" in said or "Incorrect number of bindings" in said:
        return "a parameter without a name (?): write the value itself in its place"
    if "one statement at a time" in said:
        return "more than one statement"
    return said
