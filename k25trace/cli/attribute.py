"""``k25trace attribute``."""

from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import (
    Domain,
    Force,
    Output,
    OutputFormat,
    PerGpu,
    RangeGlob,
    Reports,
    Rules,
    Template,
    Window,
)
from k25trace.cli.progress import reading
from k25trace.report.choices import ROWS_SHOWN, By, Format, Request


def attribute(  # noqa: PLR0917 - typer takes options by position in the signature
    reports: Reports,
    by: Annotated[By, typer.Option(help="What a row is about; json holds all of them.")] = By.category,
    output_format: OutputFormat = Format.table,
    range_glob: RangeGlob = None,
    window: Window = None,
    domain: Domain = None,
    depth: Annotated[int | None, typer.Option(metavar="N", help="With --by path: keep the N outermost ranges.")] = None,
    inclusive: Annotated[
        bool, typer.Option("--inclusive", help="With --by range: time inside a range at any depth.")
    ] = False,
    per_gpu: PerGpu = False,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"Rows shown, 0: all. Default: {ROWS_SHOWN} of long tables, all of others."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also the longest-running kernels of each category.")
    ] = False,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="With --format csv: the # lines that say what it is about. Default: with them.",
            show_default=False,
        ),
    ] = None,
    rules: Rules = None,
    template: Template = None,
    max_unclassified: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Exit 4 if more kernel time than that is unclassified, such as 2%."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write every result as a table of a SQLite file.")
    ] = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Where the time went: kernel-category shares, ranges, and what of the wall time they are.

    Example: k25trace attribute decode8.sqlite --range decode_step
    """
    from k25trace.analysis import attribute as analyse
    from k25trace.classify import load_rules
    from k25trace.report.files import check_free
    from k25trace.report.output import check_unclassified, write
    from k25trace.templates import read_template
    from k25trace.units import parse_share

    most = None if max_unclassified is None else parse_share(max_unclassified, "--max-unclassified")
    request = Request(
        by, output_format, per_gpu, inclusive, depth, top, verbose, header,
        range_glob, tuple(domain or ()), tuple(map(str, rules or ())), save is not None,
    )  # fmt: skip
    ruleset = load_rules(rules or [])
    learned = None if template is None else read_template(template)
    read = [*reports, *(rules or []), *filter(None, [template])]
    for target, others in (
        (output, [*read, *filter(None, [save])]),
        (save, read),
    ):
        if target is not None:
            check_free(target, force=force, never=others, streams=target is output)
    with reading(reports):
        analysis = analyse(
            list(reports), window=window, range_glob=range_glob, domains=domain, rules=ruleset,
            ranges=request.needs_ranges or request.save or learned is not None, template=learned,
        )  # fmt: skip
    write(analysis, request, output, save, force=force)
    check_unclassified(analysis, most)
