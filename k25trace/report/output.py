"""From an analysis and a request to text: the one place that knows all formats."""

from pathlib import Path

from k25trace.errors import BudgetExceeded
from k25trace.report import csv_, json_, markdown
from k25trace.report.choices import Format, Request
from k25trace.report.files import replacing, text_output
from k25trace.report.header import facts, warnings
from k25trace.report.rows import rows
from k25trace.report.sections import sections
from k25trace.results import ALL_GPUS, Analysis
from k25trace.taxonomy import UNCLASSIFIED
from k25trace.units import format_share


def write(analysis: Analysis, request: Request, output: Path | None, save: Path | None, *, force: bool) -> None:
    """Write an analysis as asked for, and save it as a database if asked for; files appear whole or not at all.

    Raises
    ------
    OutputExists
        A target is there and ``force`` is not given.
    UsageError
        Options that do not go together.
    """
    if save is not None:
        from k25trace.report import database  # sqlite-utils and what it imports take longer to load than to use

        with replacing(save, force=force) as temporary:
            database.write(analysis, temporary)
    with text_output(output, force=force, exact=request.output_format in {Format.json, Format.csv}) as out:
        if request.output_format is Format.json:
            json_.render(json_.tables(analysis), out)
            return
        frame = rows(analysis, request.by, per_gpu=request.per_gpu, inclusive=request.inclusive, depth=request.depth)
        if request.output_format is Format.csv:
            csv_.render(analysis, request, frame, out)
            return
        from k25trace.report import table  # Rich

        found = sections(analysis, request, frame)
        render = table.render if request.output_format is Format.table else markdown.render
        render(facts(analysis, request), warnings(analysis), found, out)


def check_unclassified(analysis: Analysis, most: float | None) -> None:
    """Raise if more of the kernel time than a share is unclassified.

    Raises
    ------
    BudgetExceeded
        It is.
    """
    total = int(analysis.gpus["kernel_ns"].sum())
    mine = analysis.categories.filter(
        (analysis.categories["gpu"] == ALL_GPUS) & (analysis.categories["category"] == UNCLASSIFIED)
    )
    share = int(mine["kernel_ns"].sum()) / total if total else 0.0
    if most is not None and share > most:
        raise BudgetExceeded(
            f"{format_share(share)} of the kernel time is unclassified, more than {format_share(most)}",
            "see the warning for the names, and `k25trace rules explain NAME`; add rules with --rules",
        )
