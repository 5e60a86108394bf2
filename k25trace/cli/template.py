"""``k25trace template``."""

from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import Domain, Force, Reports
from k25trace.cli.progress import reading

app = typer.Typer(
    help="Graph templates: the ranges of a captured CUDA graph, for reports that do not show its capture.",
    no_args_is_help=True,
)


@app.command("learn")
def learn(
    reports: Reports,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The template, such as decode.k25tpl.")
    ],
    domain: Domain = None,
    force: Force = False,
) -> None:
    """Learn the kernel sequences of graphs, and the ranges that they were captured in, from whole recordings.

    Example: k25trace template learn decode8.sqlite -o decode.k25tpl
    """
    from k25trace.learning import learn_template
    from k25trace.report.files import check_free, text_output
    from k25trace.report.text import printable
    from k25trace.templates import written
    from k25trace.units import counted

    check_free(output, force=force, never=reports)
    with reading(reports):
        template = learn_template(list(reports), domains=domain)
    with text_output(output, force=force, never=reports, exact=True) as out:
        out.write(written(template))
    kernels = ", ".join(str(len(graph.names)) for graph in template.graphs)
    typer.echo(f"{printable(str(output))}: {counted(len(template.graphs), 'graph')} of {kernels} kernels", err=True)
