"""CSV: the rows as they are, nanoseconds and all, below a header of ``#`` lines.

Every text of a row is quoted, so that no row begins with ``#`` and a reader that knows quotes gets back the names
that the program had, whatever they hold. A cell without quotes and without a value is null.
"""

from typing import TextIO

import polars as pl

from k25trace.report.choices import Request
from k25trace.report.header import facts, warnings
from k25trace.report.rows import with_paths_written
from k25trace.results import Analysis


def render(analysis: Analysis, request: Request, frame: pl.DataFrame, out: TextIO) -> None:
    """Write rows; lines that begin with ``#`` name reports, window, GPUs, denominators and warnings."""
    if request.header is not False:
        out.writelines(f"# {what}: {text}\n" for what, text in [*facts(analysis, request), *warnings(analysis)])
    out.write(",".join(frame.columns) + "\n")
    out.write(with_paths_written(frame).write_csv(include_header=False, quote_style="non_numeric"))
