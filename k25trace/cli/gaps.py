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
from k25trace.cli.progress import reading
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
    from k25trace.cli.asked import asked
    from k25trace.gaps import find_gaps
    from k25trace.report.answer import write
    from k25trace.report.gaps import answer

    ruleset, learned, never = asked(reports, rules, template, output, force=force)
    with reading(reports):
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
