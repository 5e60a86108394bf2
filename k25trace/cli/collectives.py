"""``k25trace collectives``."""

from k25trace.cli.options import (
    Domain,
    Force,
    Header,
    Output,
    OutputFormat,
    Reports,
    Rules,
    Step,
    Template,
    Top,
    Window,
)
from k25trace.cli.progress import reading
from k25trace.report.choices import Format


def collectives(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    step: Step = None,
    output_format: OutputFormat = Format.table,
    window: Window = None,
    domain: Domain = None,
    top: Top = 25,
    header: Header = True,
    rules: Rules = None,
    template: Template = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Match collectives across ranks: who waited, who was late and why, and what the transfer itself took.

    Example: k25trace collectives decode8.sqlite --step graph_step
    """
    from k25trace.cli.asked import asked
    from k25trace.collectives import match_collectives
    from k25trace.report.answer import write
    from k25trace.report.collectives import answer

    ruleset, learned, never = asked(reports, rules, template, output, force=force)
    with reading(reports):
        found = match_collectives(
            list(reports), step=step, window=window, domains=domain, rules=ruleset, template=learned
        )
    write(answer(found, top=top or None), output_format, output, force=force, header=header, never=never)
