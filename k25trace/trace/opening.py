"""From a path to a `Trace`: find out what the file is, say plainly what it is not."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from k25trace.errors import CannotAnswer, UnreadableReport, UsageError
from k25trace.nsystables import ACTIVITY_PREFIX, DETAILS_TABLE, EXPORT_TABLE, NVTX_TABLE, TARGET_PREFIX
from k25trace.trace.report import Trace
from k25trace.trace.source import Source
from k25trace.trace.sqlite import MAGIC, SqliteSource

_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_EXPORT_TABLES = (
    ACTIVITY_PREFIX,
    TARGET_PREFIX,
    EXPORT_TABLE,
    NVTX_TABLE,
    DETAILS_TABLE,
)


def open_trace(path: str | os.PathLike[str], report: int = 0) -> Trace:
    """Open a report for reading; the file and its folder are never changed.

    Parameters
    ----------
    path
        A SQLite export, a folder of ``nsys export --type parquetdir``, or an ``.nsys-rep`` (exported through
        nsys into a temporary folder, where one is found).
    report
        Index of the report in a run over several: the first part of its GPU keys.

    Returns
    -------
    Trace
        Frames load when they are first asked for.

    Raises
    ------
    UnreadableReport
        There is no such file, or it is empty, damaged, locked, or of another kind.
    CannotAnswer
        It needs nsys and none is found, or it is a database that nsys did not export.
    """
    source = _source(Path(path))
    if not any(table.startswith(_EXPORT_TABLES) for table in source.tables):
        raise CannotAnswer(
            f"{path}: not an nsys export, it has none of its tables",
            "make one with: nsys export --type sqlite REPORT.nsys-rep",
        )
    return Trace(source, report)


def open_traces(reports: Trace | str | os.PathLike[str] | Sequence[Trace | str | os.PathLike[str]]) -> list[Trace]:
    """Return the reports of an analysis, opened; paths are numbered as they come.

    Raises
    ------
    UsageError
        There is none, one is given twice (all that is summed would be doubled), or two have one index.
    """
    given = [reports] if isinstance(reports, Trace | str | os.PathLike) else list(reports)
    refuse_twice(given)
    traces = [item if isinstance(item, Trace) else open_trace(item, number) for number, item in enumerate(given)]
    if len({trace.report for trace in traces}) < len(traces):
        raise UsageError("two of the reports have one index", "open each with open_trace(path, report=N)")
    return traces


def refuse_twice(reports: Sequence[Trace | str | os.PathLike[str]]) -> None:
    """Raise unless there are reports and each is given once.

    Raises
    ------
    UsageError
        There is none, or one is given twice.
    """
    if not reports:
        raise UsageError("no report given")
    seen: set[Path] = set()
    for path in (Path(item.path if isinstance(item, Trace) else item) for item in reports):
        if path.resolve() in seen:
            raise UsageError(f"{path}: given twice", "name each report once")
        seen.add(path.resolve())


def open_sqlite(path: str | os.PathLike[str]) -> SqliteSource:
    """Open any SQLite database, or an ``.nsys-rep`` through one, for reading only.

    Raises
    ------
    UnreadableReport
        There is no such file, or it is empty, damaged, locked, or of another kind.
    CannotAnswer
        It is an export of another kind, or it needs nsys and none is found.
    """
    source = _source(Path(path))
    if not isinstance(source, SqliteSource):
        raise CannotAnswer(
            f"{path}: SQL runs on SQLite exports, and this is an export of another kind",
            "make one with: nsys export --type sqlite REPORT.nsys-rep",
        )
    return source


def _source(path: Path) -> Source:
    if not path.exists():
        raise UnreadableReport(f"{path}: no such file")
    if path.is_dir():
        from k25trace.trace.parquet import ParquetSource  # noqa: PLC0415 - rarely needed

        return ParquetSource(path)
    if not path.is_file():
        raise UnreadableReport(
            f"{path}: a pipe or device, and a report is read from more than one place at a time",
            "write it to a file first",
        )
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise UnreadableReport(f"{path}: cannot be read: {error.strerror}") from None
    if not head:
        raise UnreadableReport(f"{path}: empty (0 bytes)", "the export or copy failed; make it again")
    if head.startswith(MAGIC):
        return SqliteSource(path)
    if head.startswith(_REPORT_MAGIC) or path.suffix == ".nsys-rep":
        from k25trace.trace.exported import exported_source  # noqa: PLC0415 - starts nsys

        return exported_source(path)
    if path.suffix == ".qdstrm":
        raise CannotAnswer(
            f"{path}: a raw recording that was never imported",
            f"import it with the nsys that recorded it: QdstrmImporter --input-file {shlex.quote(str(path))}",
        )
    raise UnreadableReport(
        f"{path}: not a SQLite database, nor any other export of nsys",
        "make one with: nsys export --type sqlite REPORT.nsys-rep",
    )
