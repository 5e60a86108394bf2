"""``k25trace timeline``."""

from typing import Annotated

import typer

from k25trace.cli.options import Force, Gpus, Page, Reports, Rules, ShownDomain, Window
from k25trace.cli.progress import reading


def timeline(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    output: Page,
    window: Window = None,
    step: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Only the step with that number; `k25trace steps` lists them."),
    ] = None,
    gpu: Gpus = None,
    domain: ShownDomain = None,
    rules: Rules = None,
    force: Force = False,
) -> None:
    """Draw what ran when: an interactive page that needs nothing but a browser.

    Example: k25trace timeline decode8.sqlite -o decode8.html
    """
    from k25trace.pages.make import make_timeline
    from k25trace.report.files import check_free, text_output

    check_free(output, force=force, never=[*reports, *(rules or [])], streams=True)
    with reading(reports, "drawing"):
        page = make_timeline(reports, window=window, step=step, gpus=gpu, domains=domain, rules=rules or [])
    with text_output(output, force=force) as out:
        out.write(page)
