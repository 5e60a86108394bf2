"""``k25trace export``."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import Force, NsysPath
from k25trace.export import Kind, default_output
from k25trace.export import export as export_report


def export(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="An .nsys-rep.", show_default=False)],
    kind: Annotated[
        Kind, typer.Option("--type", help="A SQLite database, or a folder of Parquet files.")
    ] = Kind.sqlite,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="PATH", help="Default: beside the report, as nsys itself would name it."
        ),
    ] = None,
    nsys: NsysPath = None,
    force: Force = False,
) -> None:
    """Export a report through nsys; the target is there whole or not at all.

    Example: k25trace export decode8.nsys-rep
    """
    from k25trace.nsys import require_nsys

    found = require_nsys(f"{report}: to export it", f"nsys export --type {kind} {shlex.quote(str(report))}", nsys)
    made = export_report(report, output or default_output(report, kind), kind, found, force=force)
    sys.stdout.write(f"{made}\n")
