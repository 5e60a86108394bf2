"""``k25trace scrub``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import Force


def scrub(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="A SQLite export.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The copy.")],
    names: Annotated[
        bool, typer.Option("--names", help="Also replace the texts of NVTX ranges and marks, consistently.")
    ] = False,
    force: Force = False,
) -> None:
    """Copy an export without environment, host, user, paths, processes, GPU identifiers and dates.

    Example: k25trace scrub decode8.sqlite -o decode8-public.sqlite
    """
    from k25trace.scrub import as_lines
    from k25trace.scrub import scrub as scrub_report

    result = scrub_report(report, output, names=names, force=force)
    sys.stdout.writelines(line + "\n" for line in as_lines(result, output))
