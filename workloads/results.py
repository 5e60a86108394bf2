"""What a workload reports: one JSON object of schema ``k25trace.bench/1``, and a table."""

import argparse
import contextlib
import datetime
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from k25trace.workloads import machine
from k25trace.workloads.annotate import Annotator
from k25trace.workloads.machine import Snapshot
from k25trace.workloads.timing import Ceilings, Quantiles, Taken, Timing, time_calls
from k25trace.workloads.world import CannotRun, World, say
from rich.console import Console
from rich.table import Table

from k25trace.errors import UsageError
from k25trace.ranges import BENCH
from k25trace.ranges import name as range_name
from k25trace.units import format_count, format_ns, format_share

SCHEMA = "k25trace.bench/1"
RATES = ("GB/s", "of copy", "TFLOP/s", "of matmul", "Error")
COLLECTIVE = ("algbw GB/s", "busbw GB/s", "of link", "#wrong", "Start skew")


@dataclass
class Result:
    """One thing measured.

    Parameters
    ----------
    name, variant
        What was measured (a name of `k25trace.ranges`), and which way of doing it.
    shape, dtype
        Dimensions by name, and the type of the operands.
    samples
        Nanoseconds of one call, a sample each, on this rank; empty if it could not be measured.
    taken
        Samples that are not read yet; `read` does.
    bytes, flops
        The least that one call must move and compute on one rank.
    error, tolerance
        ‖out - reference‖ / ‖reference‖ against float64, and what was allowed.
    unavailable
        Why it was not measured; None if it was.
    extra
        Further figures, by name.
    """

    name: str
    variant: str
    shape: dict[str, int]
    dtype: str
    samples: list[int] = field(default_factory=list[int])
    taken: Taken | None = None
    bytes: int | None = None
    flops: int | None = None
    error: float | None = None
    tolerance: float | None = None
    unavailable: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def read(self) -> "Result":
        """Read the samples that were taken; not inside a recording."""
        if self.taken is not None:
            self.samples, self.taken = self.taken.read(), None
        return self


def check_error(result: Result) -> Result:
    """Return the result; raise `CannotRun` if its error is beyond its tolerance, or no number."""
    if result.error is not None and result.tolerance is not None and not result.error <= result.tolerance:
        raise CannotRun(
            f"{result.name} ({result.variant}) is wrong: relative error {result.error:.3g},"
            f" allowed {result.tolerance:.3g}"
        )
    return result


def guarded(result: Result, measure: Callable[[Result], None]) -> Result:
    """Measure; what this machine cannot do becomes the row's reason, so that the others are still measured.

    A row that is wrong says so there, too, and makes the run fail in the end (`failures`).
    """
    try:
        measure(result)
    except (RuntimeError, NotImplementedError, CannotRun) as error:
        result.samples, result.taken = [], None
        result.unavailable = str(error).splitlines()[0] if str(error) else type(error).__name__
    if result.error is not None and not math.isfinite(result.error):
        result.error = None
    return result


@dataclass(frozen=True)
class Job:
    """A measurement that is made ready before a recording, so that only what is timed is in it.

    Parameters
    ----------
    result
        The row, with its error where it is known already.
    call
        One call, given its number.
    label
        Of its range, ``bench.LABEL``.
    ready
        Called right before; None if nothing has to be.
    """

    result: Result
    call: Callable[[int], object]
    label: str
    ready: Callable[[], None] | None = None


def take(world: World, annotator: Annotator, timing: Timing, jobs: Sequence[Job]) -> None:
    """Time jobs, in their order; those that were found wrong or impossible are left out."""
    for job in jobs:
        if job.result.unavailable is None:
            guarded(job.result, lambda result, job=job: _take(world, annotator, timing, job))


def _take(world: World, annotator: Annotator, timing: Timing, job: Job) -> None:
    if job.ready is not None:
        job.ready()
    job.result.extra["range"] = range_name(BENCH, part=job.label)
    job.result.taken = time_calls(world, annotator, job.call, timing, job.label)


def failures(results: Sequence[Result]) -> int:
    """Return 1, after saying which, if a result was wrong; else 0."""
    wrong = [one.unavailable for one in results if one.unavailable and " is wrong: " in one.unavailable]
    for text in wrong:
        say(f"error: {text}")
    return CannotRun.exit_code if wrong else 0


def _beside(target: Path) -> Path:
    """Return the file that is written first, and then renamed to the target."""
    return target.with_name(f".k25trace-{os.getpid()}.json")


def refuse_unwritable(path: Path | None, *, force: bool) -> None:
    """Refuse a file for the results that exists or cannot be written, before anything is measured.

    Rank 0 writes, so it alone looks: on other machines the folder need not be there.
    """
    if path is None or os.environ.get("RANK", "0") != "0":
        return
    try:
        there = path.lstat()
    except FileNotFoundError:
        there = None
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror}") from None
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "name a file in it")
    if there is not None and not force:
        raise UsageError(f"{path} exists", "choose another name, or --force")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no folder", "make it first")
    try:
        _beside(path).touch()
        _beside(path).unlink()
    except OSError as error:
        raise CannotRun(f"{path}: cannot be written: {error.strerror}") from None


_Read = tuple[list[int], float | None, str | None]
"""A rank's samples, error and reason why there are none."""


def document(
    world: World,
    what: str,
    options: argparse.Namespace,
    results: Sequence[Result],
    before: Snapshot,
    ceilings: Ceilings | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the JSON object; every rank takes part, and all return the same.

    Times are the maximum over ranks, sample by sample, before quantiles are taken: a collective program is as
    slow as its slowest rank. Errors are the maximum over ranks.
    """
    after = machine.snapshot(world)
    states: list[tuple[Snapshot, Snapshot]] = world.gather((before, after))
    every: list[list[_Read]] = world.gather([(r.read().samples, r.error, r.unavailable) for r in results])
    rows = []
    for index, result in enumerate(results):
        of_ranks = [ranks[index] for ranks in every]
        # Where one rank could not, there is no slowest rank, and its reason is the row's.
        reason = next((reason for *_, reason in of_ranks if reason is not None), None)
        slowest = [] if reason else [max(each) for each in zip(*(samples for samples, *_ in of_ranks), strict=True)]
        errors = [error for _, error, _ in of_ranks if error is not None]
        rows.append(_row(result, slowest, max(errors) if errors else None, reason, ceilings))
    reasons = {reason: None for pair in states for reason in machine.dirt(*pair)}
    return {
        "schema": SCHEMA,
        "what": what,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "options": {key: _plain(value) for key, value in sorted(vars(options).items()) if key != "json"},
        "seed": options.seed,
        "device": world.device.type,
        "world_size": world.size,
        "under_profiler": "NSYS_PROFILING_SESSION_ID" in os.environ,
        "dirty": list(reasons),
        "versions": machine.versions(),
        "environment": machine.environment(),
        "machine": {
            "before": [asdict(first) for first, _ in states],
            "after": [asdict(last) for _, last in states],
            "topology": machine.topology(world),
        },
        "ceilings": None if ceilings is None else asdict(ceilings),
        "results": rows,
        **(extra or {}),
    }


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return value.name  # where it lies is this machine's affair
    return value if isinstance(value, str | int | float | bool | list | None) else str(value)


def _row(
    result: Result, slowest: Sequence[int], error: float | None, unavailable: str | None, ceilings: Ceilings | None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": result.name,
        "variant": result.variant,
        "shape": result.shape,
        "dtype": result.dtype,
        "time_ns": asdict(Quantiles.of(slowest)) if slowest else None,
        "bytes": result.bytes,
        "flops": result.flops,
        "bytes_per_s": None,
        "flops_per_s": None,
        "copy_ceiling_share": None,
        "matmul_ceiling_share": None,
        "error": error,
        "tolerance": result.tolerance,
        "unavailable": unavailable,
        **result.extra,
    }
    if slowest:
        seconds = max(1, Quantiles.of(slowest).p50) * 1e-9
        for key, amount, share, ceiling in (
            ("bytes_per_s", result.bytes, "copy_ceiling_share", ceilings and ceilings.copy_bytes_per_s),
            ("flops_per_s", result.flops, "matmul_ceiling_share", ceilings and ceilings.matmul_flops_per_s),
        ):
            if amount is not None:
                row[key] = amount / seconds
                row[share] = amount / seconds / ceiling if ceiling else None
    return row


def table(found: Mapping[str, Any]) -> None:
    """Print the results; sentences first that say what they are worth."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)
    for reason in found["dirty"]:
        console.print(f"warning: dirty machine: {reason}", markup=False)
    rows = Table(box=None, pad_edge=False, title=f"{found['what']}, {found['world_size']} x {found['device']}")
    for heading in ("What", "Variant", "Shape"):
        rows.add_column(heading, overflow="fold")
    collective = any("busbw_bytes_per_s" in row for row in found["results"])
    for heading in ("n", "Min", "Median", "p99", "Max", *(COLLECTIVE if collective else RATES)):
        rows.add_column(heading, justify="right", no_wrap=True)
    for row in found["results"]:
        shape = " ".join(f"{key}={value}" for key, value in row["shape"].items())
        time = row["time_ns"]
        if time is None:
            rows.add_row(row["name"], row["variant"], f"{shape}: {row['unavailable']}".removeprefix(": "))
            continue
        rows.add_row(
            row["name"],
            row["variant"],
            shape,
            format_count(time["n"]),
            *(format_ns(time[key]) for key in ("min", "p50", "p99", "max")),
            *(_of_collective(row) if collective else _rates(row)),
        )
    console.print(rows)


def _rates(row: Mapping[str, Any]) -> list[str]:
    return [
        _number(row["bytes_per_s"], 1e9),
        _share(row["copy_ceiling_share"]),
        _number(row["flops_per_s"], 1e12),
        _share(row["matmul_ceiling_share"]),
        "" if row["error"] is None else f"{row['error']:.1e}",
    ]


def _of_collective(row: Mapping[str, Any]) -> list[str]:
    skew = row["start_skew_ns"]
    return [
        _number(row["algbw_bytes_per_s"], 1e9),
        _number(row["busbw_bytes_per_s"], 1e9),
        _share(row["link_share"]),
        str(row["wrong"]) if "wrong" in row else "",
        "" if skew is None else format_ns(skew["p50"]),
    ]


def _share(value: float | None) -> str:
    return "" if value is None else format_share(value)


def _number(value: float | None, scale: float) -> str:
    return "" if value is None else f"{value / scale:,.3g}"


def publish(world: World, found: Mapping[str, Any], options: argparse.Namespace) -> None:
    """On rank 0, write the file and print the table; the file first, since a closed pipe ends the program."""
    if world.rank != 0:
        return
    if options.json is not None:
        write(options.json, found)
    table(found)


def write(target: Path, found: Mapping[str, Any]) -> None:
    """Write the object beside its target first, then rename it."""
    beside = _beside(target)
    try:
        beside.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise CannotRun(f"{target}: {error.strerror}") from None
    say(f"wrote {target}")
