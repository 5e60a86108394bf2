"""``k25trace report``."""

from enum import StrEnum
from typing import Annotated

import typer

from k25trace.cli.options import Force, Output, RangeGlob, Reports, Rules, ShownDomain, Window
from k25trace.cli.progress import reading


class Format(StrEnum):
    """How the report is written."""

    html = "html"
    md = "md"


def report(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    output_format: Annotated[
        Format, typer.Option("--format", "-f", help="A page with figures, or Markdown for pull requests.")
    ] = Format.html,
    range_glob: RangeGlob = None,
    window: Window = None,
    domain: ShownDomain = None,
    rules: Rules = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Say in words, figures and tables where the time went: one page to send; several reports stand side by side.

    Example: k25trace report decode8.sqlite -o decode8.html
    """
    from k25trace.errors import UsageError
    from k25trace.pages import report as pages
    from k25trace.pages.make import analyses, asked
    from k25trace.report.files import check_free, text_output

    if output is not None:
        check_free(output, force=force, never=[*reports, *(rules or [])], streams=True)
    elif output_format is Format.html:
        raise UsageError("a page needs a file", "such as -o report.html; --format md goes to the terminal")
    with reading(reports):
        found = analyses(reports, window=window, range_glob=range_glob, domains=domain, rules=rules or [])
        request = asked(range_glob=range_glob, domains=domain, rules=rules or [])
        page = pages.html(found, request) if output_format is Format.html else None
    with text_output(output, force=force) as out:
        if page is None:
            pages.write_markdown(found, request, out)
        else:
            out.write(page)
