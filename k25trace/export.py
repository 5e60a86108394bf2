"""From a report to a database: through nsys, renamed when it is whole. Standard library only."""

import os
import shutil
import sqlite3
import struct
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path

from k25trace.errors import NsysFailed, UnreadableReport
from k25trace.nsys import Nsys, export_argv, run
from k25trace.paths import behind_links, read_only_uri
from k25trace.report.files import check_free


class Kind(StrEnum):
    """What a report can be exported to."""

    sqlite = "sqlite"
    parquetdir = "parquetdir"


_SUFFIX = {Kind.sqlite: ".sqlite", Kind.parquetdir: "_pqtdir"}
_HEADER_BYTES = 100


def default_output(report: Path, kind: Kind) -> Path:
    """Return where nsys itself would put the export of a report."""
    stem = report.name.removesuffix(".nsys-rep")
    return report.with_name(stem + _SUFFIX[kind])


def export(report: Path, output: Path, kind: Kind, nsys: Nsys, *, force: bool) -> Path:
    """Export a report so that the target is there whole or not at all.

    Parameters
    ----------
    report
        An ``.nsys-rep``.
    output
        The database, or the folder of Parquet files.
    kind
        Which of the two.
    nsys
        Who does it.
    force
        Replace what is there.

    Returns
    -------
    Path
        ``output``.

    Raises
    ------
    UnreadableReport
        There is no such report, or nsys cannot read it.
    OutputExists
        The target is there and ``force`` is not given.
    NsysFailed
        nsys left nothing usable.
    """
    if not report.is_file():
        raise UnreadableReport(f"{report}: no such file")
    check_free(output, force=force, never=[report], folders=kind is Kind.parquetdir)
    with staging(output) as folder:
        made = folder / output.name
        with _progress(made, f"exporting {report.name}"):
            done = run(export_argv(nsys, report, made, kind))
        said = " ".join((done.stderr or done.stdout).split())[-200:]
        if done.returncode:
            raise UnreadableReport(
                f"{report}: nsys export failed: {said or f'exit code {done.returncode}'}",
                "copy or capture it again",
            )
        wrong = flaw_of(made)
        if wrong:
            raise NsysFailed(
                f"{report}: nsys export exited 0 and left no whole export: {wrong}",
                "is there room on the disk?",
            )
        replace(made, output)
    return output


def flaw_of(export_: Path) -> str | None:
    """Return what is wrong with an export (header, size, contents), or None for one that can be opened."""
    if export_.is_dir():
        return None if any(export_.glob("*.parquet")) else "a folder without Parquet files"
    try:
        with export_.open("rb") as file:
            wrong = _flaw_of_header(file.read(_HEADER_BYTES), export_.stat().st_size)
    except OSError as error:
        wrong = (error.strerror or "cannot be read").lower()
    if wrong:
        return wrong
    journal = export_.with_name(export_.name + "-journal")
    if journal.exists() and journal.stat().st_size:
        return "interrupted, its journal is beside it"
    try:
        with closing(sqlite3.connect(read_only_uri(export_), uri=True)) as db:
            tables = db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0]
    except sqlite3.Error as error:
        return str(error)
    return None if tables else "a database without tables"


def _flaw_of_header(header: bytes, size: int) -> str | None:
    if len(header) < _HEADER_BYTES or not header.startswith(b"SQLite format 3\x00"):
        return f"not a database ({size} bytes)"
    page = struct.unpack_from(">H", header, 16)[0]
    page = 1 << 16 if page == 1 else page
    change, pages, valid_for = (struct.unpack_from(">I", header, at)[0] for at in (24, 28, 92))
    if change == valid_for and pages * page > size:
        return f"truncated, {size:,} of {pages * page:,} bytes"
    return None


@contextmanager
def staging(output: Path) -> Generator[Path]:
    """Give a folder beside a target, to build it in; it goes away afterwards.

    Raises
    ------
    NsysFailed
        The folder of the target is not there or cannot be written.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=".k25trace-", dir=behind_links(output).parent))
    except OSError as error:
        raise NsysFailed(f"{output}: cannot be written: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace(made: Path, target: Path) -> None:
    """Give a finished file or folder its name, in place of what has it; a symbolic link stays, and leads to it.

    Raises
    ------
    NsysFailed
        The system does not let us.
    """
    place = behind_links(target)
    try:
        if made.stat().st_dev != place.parent.stat().st_dev:
            with staging(place) as near:
                replace(Path(shutil.move(made, near / made.name)), place)
            return
        if place.is_dir():
            place.rename(made.with_name(made.name + ".old"))
        made.replace(place)
    except OSError as error:
        raise NsysFailed(f"{target}: cannot be written: {error.strerror}") from None


@contextmanager
def _progress(growing: Path, what: str) -> Generator[None]:
    """On a terminal, show how far the export is, by its size."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        while not done.wait(0.5):
            sys.stderr.write(f"\r{what}: {_size(growing) >> 20:,} MiB written")
            sys.stderr.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(entry.stat().st_size for entry in os.scandir(path))
        return path.stat().st_size
    except OSError:
        return 0
