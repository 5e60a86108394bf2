"""Options that several verbs share: one spelling, one help text."""

import math
from pathlib import Path
from typing import Annotated

import typer

from k25trace.errors import UsageError

Reports = Annotated[
    list[Path],
    typer.Argument(
        metavar="REPORT...",
        help="SQLite exports, parquetdir folders or .nsys-rep files.",
        show_default=False,
    ),
]
Rules = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FILE", help="Classification rules that come before the default ones; repeatable."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write there instead of to the terminal; never over an existing file without --force.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace output files that exist.")]
NsysPath = Annotated[
    Path | None,
    typer.Option(
        "--nsys",
        metavar="PATH",
        help="The nsys to use. Default: that of K25TRACE_NSYS, else the first on PATH.",
    ),
]


def seconds(option: str, value: float | None) -> float | None:
    """Return a length of time as it was given.

    Raises
    ------
    UsageError
        It is below 0, infinite or no number.
    """
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{option} {value:g}: not a number of seconds")
    return value
