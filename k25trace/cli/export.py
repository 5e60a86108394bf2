"""``k25trace export``."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import Force, NsysPath, Rules, Window
from k25trace.cli.progress import working
from k25trace.errors import UsageError
from k25trace.export import Kind, default_output
from k25trace.export import export as export_report
from k25trace.report.text import printable


def export(  # noqa: PLR0917 - typer takes options by position in the signature
    report: Annotated[
        Path,
        typer.Argument(metavar="REPORT", help="An .nsys-rep; with --perfetto any report.", show_default=False),
    ],
    kind: Annotated[
        Kind, typer.Option("--type", help="A SQLite database, or a folder of Parquet files.")
    ] = Kind.sqlite,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="PATH", help="Default: beside the report, as nsys itself would name it."
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead, write a trace that ui.perfetto.dev opens, such as decode.pftrace."),
    ] = None,
    chrome_json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead, write the same in Chrome's trace event format."),
    ] = None,
    window: Window = None,
    rules: Rules = None,
    nsys: NsysPath = None,
    force: Force = False,
) -> None:
    """Export a report through nsys, or its kernels, ranges and launches for Perfetto; whole or not at all.

    Example: k25trace export decode8.nsys-rep
    """
    if perfetto is None and chrome_json is None:
        if window is not None or rules:
            raise UsageError("--window and --rules go with --perfetto and --chrome-json")
        from k25trace.nsys import require_nsys

        found = require_nsys(f"{report}: to export it", f"nsys export --type {kind} {shlex.quote(str(report))}", nsys)
        made = export_report(report, output or default_output(report, kind), kind, found, force=force)
        sys.stdout.write(f"{made}\n")
        return
    if output is not None:
        raise UsageError("--output does not go with --perfetto and --chrome-json: they name their file themselves")
    from k25trace.perfetto.make import make_perfetto
    from k25trace.report.files import check_free

    for target, other in ((perfetto, chrome_json), (chrome_json, perfetto)):
        if target is not None:
            check_free(target, force=force, never=[report, *(rules or []), *filter(None, [other])])
    with working(f"writing the trace of {printable(str(report), 60)}"):
        make_perfetto(report, perfetto=perfetto, chrome=chrome_json, window=window, rules=rules or [], force=force)
