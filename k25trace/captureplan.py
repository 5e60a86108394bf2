"""What to capture and how: options become a `CapturePlan`, and a plan the command line of nsys.

Needs the standard library alone.
"""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from k25trace import manifest
from k25trace.errors import CaptureFailed, NsysFailed, OutputExists, UsageError
from k25trace.nsys import Nsys, escaped, find_nsys, long_names, profile_argv, profile_options, require_recent
from k25trace.presets import Preset, load_preset
from k25trace.report.files import check_free

REPORT, EXPORT, RECORDING, MANIFEST = ".nsys-rep", ".sqlite", ".qdstrm", ".k25.json"
SUFFIXES = (REPORT, EXPORT, RECORDING, MANIFEST)
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
"""Where torchrun, srun and mpirun tell a process its rank, in this order."""

_REGISTER_ALL = ("NSYS_NVTX_PROFILER_REGISTER_ONLY", "0")
_FORK = "--trace-fork-before-exec=true"


@dataclass(frozen=True)
class CapturePlan:
    """What to capture, and how. Made by `plan`.

    Attributes
    ----------
    output
        The target without its suffix, absolute.
    program
        The program and its arguments, as the user gave them.
    options
        Options of ``nsys profile`` and their values.
    extra
        Arguments passed to nsys as they are; an option of `options` that is among them is left out.
    flags
        Further arguments for an nsys that has them.
    environment
        Variables set beside those that are there.
    capture_range
        ``none``, ``cudaProfilerApi`` or ``nvtx=NAME``.
    duration_s
        How long nsys records; the program may outlive it.
    preset
        Name of the preset, or None.
    force
        Replace files that are there.
    overhead_runs
        How often the program is run without nsys afterwards.
    """

    output: Path
    program: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    extra: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    capture_range: str = "none"
    duration_s: float | None = None
    preset: str | None = None
    force: bool = False
    overhead_runs: int = 0

    def file(self, suffix: str) -> Path:
        """Return the target with one of `SUFFIXES`."""
        return self.output.with_name(self.output.name + suffix)

    @property
    def staging(self) -> Path:
        """The folder beside the target that nsys writes into."""
        return self.output.with_name(f".{self.output.name}.capture")


def plan(
    output: Path,
    program: Sequence[str],
    *,
    trace: str = "cuda,nvtx",
    graphs: str = "node",
    capture_range: str | None = None,
    delay_s: float | None = None,
    duration_s: float | None = None,
    session: str | None = None,
    nsys_args: Sequence[str] = (),
    preset: str | None = None,
    per_rank: bool = False,
    force: bool = False,
    overhead_runs: int = 0,
    environment: Mapping[str, str] | None = None,
) -> CapturePlan:
    """Return the plan that some options mean; reads nothing but ``environment``.

    Raises
    ------
    UsageError
        No program, an unknown preset, a capture range of no known kind, no rank where one is needed.
    """
    around: Mapping[str, str] = os.environ if environment is None else environment
    if not program:
        raise UsageError("no program to capture", "k25trace capture -o NAME -- PROGRAM ARGUMENTS...")
    known = load_preset(preset) if preset else None
    opened_by = capture_range or (known.capture_range if known else "none")
    if "output" in long_names(nsys_args):
        raise UsageError("--nsys-arg: the output is named with -o alone")
    options = [
        ("output", ""),  # filled in by `argv`
        ("trace", trace),
        ("cuda-graph-trace", graphs),
        ("sample", "none"),
        ("cpuctxsw", "none"),
        ("kill", "none"),
        ("export", "sqlite"),
        *_range_options(opened_by),
        *([("delay", _seconds(delay_s))] if delay_s else []),
        *([("duration", _seconds(duration_s))] if duration_s else []),
        *([("session-new", session)] if session else []),
    ]
    return CapturePlan(
        output=_stem(output, _rank(around) if per_rank else None),
        program=tuple(program),
        options=tuple(options),
        extra=tuple(nsys_args),
        flags=known.flags if known else (),
        environment=_environment(known, opened_by, around),
        capture_range=opened_by,
        duration_s=duration_s,
        preset=preset,
        force=force,
        overhead_runs=overhead_runs,
    )


def _seconds(length: float) -> str:
    """Return a number without an exponent, which nsys does not read."""
    return f"{length:.6f}".rstrip("0").rstrip(".")


def _range_options(opened_by: str) -> list[tuple[str, str]]:
    kind, _, name = opened_by.partition("=")
    if kind == "none" and not name:
        return []
    if kind == "cudaProfilerApi" and not name:
        return [("capture-range", kind), ("capture-range-end", "stop")]
    if kind == "nvtx" and name:
        return [("capture-range", kind), ("nvtx-capture", name), ("capture-range-end", "stop")]
    raise UsageError(f"--capture-range {opened_by}: not cudaProfilerApi, nvtx=NAME or none")


def _environment(known: Preset | None, opened_by: str, around: Mapping[str, str]) -> dict[str, str]:
    wanted = dict(known.environment) if known else {}
    if opened_by.startswith("nvtx="):
        # Without it only registered strings open the range; torch.cuda.nvtx registers none.
        wanted.update([_REGISTER_ALL])
    return {name: value for name, value in wanted.items() if name not in around}


def _rank(around: Mapping[str, str]) -> int:
    for name in RANK_VARIABLES:
        if around.get(name, "").isdigit():
            return int(around[name])
    raise UsageError(
        f"--per-rank: no rank here (none of {', '.join(RANK_VARIABLES)} is set)",
        "start one capture a rank: torchrun --nproc-per-node 8 --no-python"
        " k25trace capture --per-rank -o NAME -- python PROGRAM",
    )


def _stem(output: Path, rank: int | None) -> Path:
    name = output.name
    for suffix in (REPORT, EXPORT):
        name = name.removesuffix(suffix)
    if not name or output.name in {"", ".", ".."}:
        raise UsageError(f"-o {output}: not the name of a report")
    return Path(os.path.abspath(output)).with_name(name if rank is None else f"{name}.rank{rank}")


def argv(plan_: CapturePlan, nsys: Nsys, options: frozenset[str]) -> list[str]:
    """Return the exact command line of nsys.

    Parameters
    ----------
    plan_
        What to capture.
    nsys
        Which nsys.
    options
        What its help lists; empty: unknown. Fork tracing and the flags of a preset are left out where it
        lacks them.
    """
    target = plan_.staging / plan_.output.name
    # nsys fills in `%` anew for the export, which then lands elsewhere: it is exported afterwards.
    own = {"output": escaped(target), **({"export": "none"} if "%" in str(target) else {})}
    filled = [(name, own.get(name, value)) for name, value in plan_.options]
    given = long_names(plan_.extra)
    flags = [
        flag
        for flag in dict.fromkeys((_FORK, *plan_.flags))
        if long_names([flag]) <= options and not long_names([flag]) & given
    ]
    return profile_argv(nsys, filled, [*flags, *plan_.extra], plan_.program)


def dry_run(plan_: CapturePlan, nsys: Nsys) -> str:
    """Return what would be run as a line for a shell."""
    words = [f"{name}={value}" for name, value in plan_.environment.items()]
    words += argv(plan_, nsys, profile_options(nsys))
    return " ".join(map(shlex.quote, words))


def ready_nsys(path: Path | None) -> Nsys:
    """Return the nsys to capture with.

    Raises
    ------
    NsysFailed
        There is none, or it is too old.
    """
    nsys = find_nsys(path)
    if nsys is None:
        what = f"{path}: nsys not found there" if path else "nsys not found on PATH"
        raise NsysFailed(
            what,
            "install Nsight Systems, or name it with --nsys PATH or K25TRACE_NSYS; `k25trace doctor` looks for it",
        )
    require_recent(nsys, profile_options(nsys))
    return nsys


def refuse_early(plan_: CapturePlan) -> None:
    """Refuse what cannot end well, before the program runs.

    Raises
    ------
    CaptureFailed
        No such program, no such folder.
    OutputExists
        A file of that name is there and ``force`` is not given.
    """
    folder = plan_.output.parent
    if not folder.is_dir():
        raise CaptureFailed(
            f"{folder}: no such directory, where nsys would leave no report and exit 0",
            f"mkdir -p {shlex.quote(str(folder))}",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CaptureFailed(f"{folder}: permission denied, no report can be written there")
    there = [plan_.file(suffix) for suffix in SUFFIXES if plan_.file(suffix).exists()]
    if there == [plan_.file(MANIFEST)] and manifest.is_of_a_capture_without_files(there[0]):
        there = []
    if there and not plan_.force:
        raise OutputExists(f"{there[0]}: exists already", "name another with -o, or replace it with --force")
    for path in there:
        check_free(path, force=True)
    program = plan_.program[0]
    # nsys looks into the current folder, too.
    if shutil.which(program) is None and shutil.which(os.path.join(".", program)) is None:
        exists = Path(program).exists()
        raise CaptureFailed(
            f"{program}: {'not executable (permission denied)' if exists else 'program not found'}",
            "start a script through its interpreter, such as: -- python PROGRAM" if exists else None,
        )
