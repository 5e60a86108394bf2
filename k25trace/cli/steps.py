"""``k25trace steps``."""

from typing import Annotated

import typer

from k25trace.cli.options import (
    Domain,
    Force,
    Header,
    Output,
    OutputFormat,
    PerGpu,
    Reports,
    Rules,
    Step,
    Template,
    Top,
    Window,
)
from k25trace.cli.progress import working
from k25trace.report.choices import Format


def steps(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    step: Step = None,
    per_layer: Annotated[
        bool, typer.Option("--per-layer", help="Also each layer's time in a step, by category.")
    ] = False,
    warmup: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Leave the first N steps of each process out. Default: leading slow ones."
        ),
    ] = None,
    output_format: OutputFormat = Format.table,
    window: Window = None,
    domain: Domain = None,
    per_gpu: PerGpu = False,
    top: Top = 25,
    header: Header = True,
    rules: Rules = None,
    template: Template = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """How long the steps take, per GPU and kind of step, what they hold, and which of them are outliers.

    Example: k25trace steps decode8.sqlite --step 'execute_context_*'
    """
    from k25trace.classify import load_rules
    from k25trace.report.answer import write
    from k25trace.report.files import check_free
    from k25trace.report.steps import answer
    from k25trace.report.text import printable
    from k25trace.steps import find_steps
    from k25trace.templates import read_template

    never = [*reports, *(rules or []), *filter(None, [template])]
    if output is not None:
        check_free(output, force=force, never=never, streams=True)
    ruleset = load_rules(rules or [])
    learned = None if template is None else read_template(template)
    with working("reading " + ", ".join(printable(str(report), 60) for report in reports)):
        found = find_steps(
            list(reports),
            step=step,
            window=window,
            domains=domain,
            rules=ruleset,
            template=learned,
            per_layer=per_layer,
            warmup=warmup,
        )
    write(
        answer(found, top=top or None, per_gpu=per_gpu), output_format, output, force=force, header=header, never=never
    )
