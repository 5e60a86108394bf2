"""Options that several verbs share: one spelling, one help text."""

import math
from pathlib import Path
from typing import Annotated

import typer

from k25trace.errors import UsageError
from k25trace.report.choices import Format

Reports = Annotated[
    list[Path],
    typer.Argument(
        metavar="REPORT...",
        help="SQLite exports, parquetdir folders or .nsys-rep files.",
        show_default=False,
    ),
]
Rules = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FILE", help="Classification rules that come before the default ones; repeatable."),
]


def _or_standard_output(path: Path | None) -> Path | None:
    return None if path == Path("-") else path


Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        callback=_or_standard_output,
        help="Write there instead of to standard output (-); never over an existing file without --force.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace output files that exist.")]
NsysPath = Annotated[
    Path | None,
    typer.Option(
        "--nsys",
        metavar="PATH",
        help="The nsys to use. Default: that of K25TRACE_NSYS, else the first on PATH.",
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", "-f", help="How the result is written.")]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="A:B",
        help="Only that part of the report's clock, such as 1.2s:1.5s; one side may be empty.",
    ),
]
RangeGlob = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="GLOB",
        help="Only kernels launched or captured inside ranges of that name, in the time they project onto each GPU",
    ),
]
Domain = Annotated[
    list[str] | None,
    typer.Option(
        "--domain",
        metavar="NAME",
        help="Only ranges of that NVTX domain own kernels; repeatable. Default: all but NCCL's.",
    ),
]
ShownDomain = Annotated[
    list[str] | None,
    typer.Option(
        "--domain", metavar="NAME", help="Only ranges of that NVTX domain; repeatable. Default: all but NCCL's."
    ),
]
Step = Annotated[
    str | None,
    typer.Option(
        "--step",
        metavar="GLOB",
        help="Names of the ranges that are steps. Default: the most regular of the outermost ranges that repeat, else"
        " cycles of graph launches, else of kernels.",
    ),
]
Template = Annotated[
    Path | None,
    typer.Option(
        "--template",
        metavar="FILE",
        help="What `k25trace template learn` wrote: names the kernels of graphs captured before the recording began.",
    ),
]
PerGpu = Annotated[bool, typer.Option("--per-gpu", help="Rows for each GPU instead of over all.")]
Top = Annotated[int, typer.Option("--top", metavar="N", min=0, help="Rows shown of long tables; 0: all.")]
Header = Annotated[
    bool, typer.Option("--header/--no-header", help="With --format csv: the # lines that say what it is about.")
]


def seconds(option: str, value: float | None) -> float | None:
    """Return a length of time as it was given.

    Raises
    ------
    UsageError
        It is below 0, infinite or no number.
    """
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{option} {value:g}: not a number of seconds")
    return value


Page = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="FILE", help="The page; never over an existing file without --force."),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="GPU", help="Only that GPU, such as 0:1; repeatable."),
]
