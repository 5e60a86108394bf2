"""CSV: the rows as they are, nanoseconds and all, below a header of ``#`` lines."""

import csv
from typing import TextIO

import polars as pl

from k25trace.report.header import facts, warnings
from k25trace.results import Analysis


def render(analysis: Analysis, frame: pl.DataFrame, out: TextIO, *, header: bool = True) -> None:
    """Write rows; lines that begin with ``#`` name reports, window, GPUs, denominators and warnings."""
    if header:
        out.writelines(f"# {what}: {text}\n" for what, text in [*facts(analysis), *warnings(analysis)])
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(frame.columns)
    writer.writerows(frame.iter_rows())
