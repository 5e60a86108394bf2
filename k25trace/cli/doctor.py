"""``k25trace doctor``."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import NsysPath
from k25trace.errors import UsageError
from k25trace.report.choices import BriefFormat


def doctor(
    report: Annotated[
        Path | None,
        typer.Argument(metavar="[REPORT]", help="A report; without one, this machine is checked.", show_default=False),
    ] = None,
    nsys: NsysPath = None,
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The interpreter that captured programs run in. Default: this one."),
    ] = None,
    output_format: Annotated[
        BriefFormat, typer.Option("--format", "-f", help="How the check list is printed.")
    ] = BriefFormat.table,
) -> None:
    """Check that a report holds what it should, or that this machine can capture; exit 1 if not.

    Example: k25trace doctor decode8.sqlite
    """
    from k25trace.checks import any_missing, as_lines

    idle = [option for option, value in (("--nsys", nsys), ("--python", python)) if value is not None]
    if report is not None and idle:
        hint = "leave one of the two out; what opens an .nsys-rep is the nsys of K25TRACE_NSYS, or on PATH"
        raise UsageError(f"{idle[0]} does nothing with a report", hint)
    if report is None:
        from k25trace.doctor import check_machine

        checks = check_machine(nsys, python)
    else:
        from k25trace.checkup import check_report

        checks = check_report(report)
    if output_format is BriefFormat.json:
        document = {"schema": "k25trace.doctor/1", "checks": [check.row() for check in checks]}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        sys.stdout.writelines(line + "\n" for line in as_lines(checks))
    raise typer.Exit(int(any_missing(checks)))
