"""An ``.nsys-rep`` read through a temporary export; nothing is left beside it."""

import shlex
import shutil
import tempfile
import weakref
from pathlib import Path

from k25trace.errors import UnreadableReport
from k25trace.nsys import export_argv, require_nsys, run
from k25trace.trace.sqlite import SqliteSource


def exported_source(report: Path) -> SqliteSource:
    """Return the tables of a report, exported into a folder that goes away with the source.

    Raises
    ------
    CannotAnswer
        No nsys is found.
    UnreadableReport
        nsys cannot export it.
    """
    by_hand = f"nsys export --type sqlite {shlex.quote(str(report))}"
    nsys = require_nsys(f"{report}: a report that is not exported yet; to read it", by_hand)
    folder = Path(tempfile.mkdtemp(prefix="k25trace-"))
    output = folder / f"{report.stem}.sqlite"
    try:
        done = run(export_argv(nsys, report, output))
        if done.returncode or not output.exists():
            said = " ".join((done.stderr or done.stdout).split())[-200:] or f"exit code {done.returncode}"
            raise UnreadableReport(f"{report}: nsys export failed: {said}", "copy or capture it again")
        source = SqliteSource(output, shown_as=report)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(source, shutil.rmtree, folder, ignore_errors=True)
    return source
