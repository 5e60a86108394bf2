"""``k25trace view``."""

import sys
from typing import Annotated

import typer

from k25trace.cli.options import Gpus, Reports, Rules, ShownDomain, Window
from k25trace.cli.progress import reading


def view(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    window: Window = None,
    gpu: Gpus = None,
    domain: ShownDomain = None,
    rules: Rules = None,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
) -> None:
    """Look at traces of any size in a browser on this machine, until Ctrl-C.

    Example: k25trace view decode8.sqlite
    """
    from k25trace.pages.make import shown
    from k25trace.report.text import printable
    from k25trace.view.start import start

    with reading(reports):
        found = shown(reports, window=window, gpus=gpu, domains=domain, rules=rules or [])
        names = [printable(report.name, 60) for report in reports]
        served = start(found.scene, found.analysis, names, answers=found.answers, port=port)
    sys.stdout.write(f"{served.address}\n")
    sys.stdout.flush()
    sys.stderr.write("Only this machine can open it, and only with this address. Ctrl-C ends it.\n")
    if browser:
        typer.launch(served.address)
    try:
        served.run()
    except KeyboardInterrupt:
        served.server.server_close()
