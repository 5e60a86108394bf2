"""Options that every workload has."""

import argparse
import math
from pathlib import Path
from typing import NoReturn

from k25trace.workloads.annotate import Annotator
from k25trace.workloads.results import refuse_unwritable
from k25trace.workloads.shapes import PRESETS, Preset
from k25trace.workloads.timing import Timing
from k25trace.workloads.world import World, open_world

from k25trace.errors import UsageError

MOST = 2**31 - 1
"""No count, width or seed is above this: products of them still fit into torch's 64 bits."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, as every other error, and that takes no abbreviations."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the command line."""
        raise UsageError(message, f"{self.prog} --help lists the options")


def natural(text: str) -> int:
    """Return a whole number from 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    if value > MOST:
        raise argparse.ArgumentTypeError(f"{text} is above {MOST:,}")
    return value


def positive(text: str) -> int:
    """Return a whole number above 0."""
    value = natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def rate(text: str) -> float:
    """Return a finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no rate")
    return value


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is no time")
    return value


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options."""
    made = Parser(
        allow_abbrev=False,
        prog=f"python -m k25trace.workloads.{name}",
        description=(description or "").partition("\n\n")[0],
        epilog=f"On N GPUs: torchrun --nproc-per-node N -m k25trace.workloads.{name} ...",
    )
    common = made.add_argument_group("common options")
    common.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo, for tests")
    common.add_argument("--preset", choices=sorted(PRESETS), default="kimi-k2.5", help="the model's dimensions")
    common.add_argument("--json", type=Path, metavar="FILE", help="write one JSON object (k25trace.bench/1)")
    common.add_argument("--force", action="store_true", help="overwrite FILE")
    common.add_argument("--seed", type=natural, default=0)
    common.add_argument("--timeout", type=seconds, default=300.0, metavar="S", help="longest time without progress")
    common.add_argument("--nvtx", choices=("auto", "nvtx", "torch", "off"), default="auto")
    common.add_argument("--on-dirty", choices=("mark", "refuse"), default="mark", help="other users, throttling")
    return made


def add_timing(made: argparse.ArgumentParser) -> None:
    """Add how often and how to measure."""
    group = made.add_argument_group("timing")
    group.add_argument("-n", "--samples", type=positive, default=20, metavar="N")
    group.add_argument("-w", "--warmup", type=positive, default=3, metavar="N")
    group.add_argument("--calls", type=positive, default=20, metavar="N", help="calls in one sample")
    group.add_argument("--no-graph", action="store_true", help="launch one by one instead of as a CUDA graph")


def timing(options: argparse.Namespace) -> Timing:
    """Return what `add_timing` was told."""
    return Timing(options.samples, options.warmup, options.calls, graph=not options.no_graph)


def preset(options: argparse.Namespace) -> Preset:
    """Return the chosen preset."""
    return PRESETS[options.preset]


def tokens(text: str) -> list[int]:
    """Return a list of numbers of tokens: ``1,4,16``; each once."""
    try:
        return list(dict.fromkeys(positive(part) for part in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers, such as 1,4,16") from None


def begin(options: argparse.Namespace) -> tuple[World, Annotator]:
    """Join the run and emit the rank label."""
    refuse_unwritable(options.json, force=options.force)
    world = open_world(options.device, options.timeout)
    annotator = Annotator(options.nvtx)
    annotator.label(world.rank)
    return world, annotator
