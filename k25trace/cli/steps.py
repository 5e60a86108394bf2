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
from k25trace.cli.progress import reading
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
    from k25trace.cli.asked import asked
    from k25trace.report.answer import write
    from k25trace.report.steps import answer
    from k25trace.steps import find_steps

    ruleset, learned, never = asked(reports, rules, template, output, force=force)
    with reading(reports):
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
