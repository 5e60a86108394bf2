"""``k25trace gaps``."""

from typing import Annotated

import typer

from k25trace.cli.options import (
    Domain,
    Force,
    Header,
    Output,
    OutputFormat,
    RangeGlob,
    Reports,
    Rules,
    Step,
    Template,
    Top,
    Window,
)
from k25trace.cli.progress import working
from k25trace.report.choices import Format


def gaps(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    minimum: Annotated[
        str, typer.Option("--min", metavar="TIME", help="Shortest gap that gets a cause; shorter ones are one row.")
    ] = "1us",
    step: Step = None,
    output_format: OutputFormat = Format.table,
    range_glob: RangeGlob = None,
    window: Window = None,
    domain: Domain = None,
    top: Top = 25,
    header: Header = True,
    rules: Rules = None,
    template: Template = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Say why the GPUs are idle: every gap with its cause, its neighbours, and where the host was.

    Example: k25trace gaps decode8.sqlite --range graph_step
    """
    from k25trace.classify import load_rules
    from k25trace.gaps import find_gaps
    from k25trace.report.answer import write
    from k25trace.report.files import check_free
    from k25trace.report.gaps import answer
    from k25trace.report.text import printable
    from k25trace.templates import read_template

    never = [*reports, *(rules or []), *filter(None, [template])]
    if output is not None:
        check_free(output, force=force, never=never, streams=True)
    ruleset = load_rules(rules or [])
    learned = None if template is None else read_template(template)
    with working("reading " + ", ".join(printable(str(report), 60) for report in reports)):
        found = find_gaps(
            list(reports),
            minimum=minimum,
            step=step,
            window=window,
            range_glob=range_glob,
            domains=domain,
            rules=ruleset,
            template=learned,
        )
    write(answer(found, top=top or None), output_format, output, force=force, header=header, never=never)
