"""``k25trace timeline``."""

from typing import Annotated

import typer

from k25trace.cli.options import Force, Gpus, Page, Reports, Rules, Window
from k25trace.cli.progress import working


def timeline(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    output: Page,
    window: Window = None,
    step: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Only the step with that number; `k25trace steps` lists them."),
    ] = None,
    gpu: Gpus = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only ranges of that NVTX domain; repeatable. Default: all but NCCL's."),
    ] = None,
    rules: Rules = None,
    force: Force = False,
) -> None:
    """Draw what ran when: an interactive page that needs nothing but a browser.

    Example: k25trace timeline decode8.sqlite -o decode8.html
    """
    from k25trace.pages.make import make_timeline
    from k25trace.report.files import check_free, text_output
    from k25trace.report.text import printable

    check_free(output, force=force, never=[*reports, *(rules or [])], streams=True)
    with working("drawing " + ", ".join(printable(str(report), 60) for report in reports)):
        page = make_timeline(reports, window=window, step=step, gpus=gpu, domains=domain, rules=rules or [])
    with text_output(output, force=force) as out:
        out.write(page)
