"""``k25trace capture``."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import Force, NsysPath, seconds


class Graphs(StrEnum):
    """How nsys records CUDA graph replays."""

    node = "node"
    graph = "graph"


class PresetName(StrEnum):
    """The presets; what each says is data of the package."""

    torchrun = "torchrun"
    vllm = "vllm"
    sglang = "sglang"
    trtllm = "trtllm"


def capture(  # noqa: PLR0917 - options
    program: Annotated[
        list[str],
        typer.Argument(metavar="-- PROGRAM...", help="The program and its arguments, untouched.", show_default=False),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="NAME", help="NAME.nsys-rep, NAME.sqlite and NAME.k25.json."),
    ],
    preset: Annotated[
        PresetName | None,
        typer.Option(help="What is known about a launcher or engine: range, flags, environment."),
    ] = None,
    capture_range: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            help="What opens the recording: cudaProfilerApi, nvtx=NAME (or nvtx=NAME@DOMAIN),"
            " none. Default: the preset's,"
            " else none.",
        ),
    ] = None,
    trace: Annotated[str, typer.Option(metavar="API,...", help="What nsys traces.")] = "cuda,nvtx",
    graphs: Annotated[Graphs, typer.Option(help="CUDA graph replays kernel by kernel, or as wholes.")] = Graphs.node,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Begin to record that long after the start.")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Record that long; the program then runs on."),
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the nsys session.")] = None,
    per_rank: Annotated[
        bool,
        typer.Option(
            "--per-rank",
            help="A report a rank, NAME.rankN, where torchrun, srun or mpirun starts this command.",
        ),
    ] = False,
    measure_overhead: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Then run the program N times without nsys, and tell the slowdown."),
    ] = 0,
    nsys: NsysPath = None,
    nsys_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="ARG", help="Pass to nsys profile as it is, in place of a default; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the exact command line of nsys, and run nothing.")
    ] = False,
    force: Force = False,
) -> None:
    """Run a program under nsys, export the report, and check that it holds what it should.

    Example: k25trace capture -o decode8 --preset torchrun -- torchrun --nproc-per-node 8 decode.py
    """
    from k25trace import captureplan
    from k25trace.capture import capture as capture_program
    from k25trace.capture import closing_lines
    from k25trace.checks import as_lines

    plan = captureplan.plan(
        output, program, trace=trace, graphs=graphs, capture_range=capture_range, delay_s=seconds("--delay", delay),
        duration_s=seconds("--duration", duration), session=session, nsys_args=nsys_arg or (), preset=preset,
        per_rank=per_rank, force=force, overhead_runs=measure_overhead,
    )  # fmt: skip
    found = captureplan.ready_nsys(nsys)
    if dry_run:
        sys.stdout.write(captureplan.dry_run(plan, found) + "\n")
        return
    result = capture_program(plan, found, _say)
    for line in (*as_lines(result.checks), *closing_lines(plan, result)):
        sys.stderr.write(line + "\n")
    raise typer.Exit(result.exit_code)


def _say(line: str) -> None:
    sys.stderr.write(f"k25trace: {line}\n")
    sys.stderr.flush()
