"""Nsight Systems on this machine: where it is, which one it is, what it can do, and ways to run it.

Command lines are built by pure functions; `run` and `k25trace.child.run_live` are all that starts one.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k25trace.errors import CannotAnswer, NsysFailed

VARIABLE = "K25TRACE_NSYS"
"""Environment variable with the nsys to use; else the first on PATH."""

OLDEST = (2022, 1)
"""The oldest nsys that captures as this package needs it: CUDA graphs by node, ends of capture ranges."""

LAST_WITHOUT_NEW_NVTX = (2023, 4)
FIRST_NEW_NVTX = (0, 2, 12)
"""The Python package nvtx from here on emits what nsys up to `LAST_WITHOUT_NEW_NVTX` does not record."""

NVTX_FOR_OLD_NSYS = "0.2.11"

_NEEDED_OPTIONS = ("cuda-graph-trace", "capture-range-end")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")


@dataclass(frozen=True)
class Nsys:
    """An nsys that was found.

    Attributes
    ----------
    path
        The program.
    version
        Its version as numbers, such as (2023, 4, 4); empty if it does not tell.
    """

    path: Path
    version: tuple[int, ...]

    @property
    def version_text(self) -> str:
        """The version as people write it; ``of unknown version`` where it does not tell."""
        return ".".join(map(str, self.version)) or "of unknown version"


def find_nsys(path: Path | None = None) -> Nsys | None:
    """Return the nsys at ``path``, else the one `VARIABLE` names, else the first on PATH; None without one.

    Raises
    ------
    NsysFailed
        It is there and cannot be started.
    """
    wanted = str(path) if path else os.environ.get(VARIABLE) or "nsys"
    found = shutil.which(wanted)
    if found is None:
        return None
    try:
        said = run([found, "--version"]).stdout
    except OSError as error:
        raise NsysFailed(
            f"{found}: nsys cannot be started: {error.strerror}", "name another with --nsys PATH"
        ) from None
    numbers = re.search(r"(\d+(?:\.\d+)+)", said)
    return Nsys(Path(found), tuple(int(n) for n in numbers[1].split(".")) if numbers else ())


def require_nsys(purpose: str, by_hand: str, path: Path | None = None) -> Nsys:
    """Return an nsys, or raise with what to run on a machine that has one.

    Raises
    ------
    CannotAnswer
        There is none.
    NsysFailed
        It is there and cannot be started.
    """
    nsys = find_nsys(path)
    if nsys is None:
        raise CannotAnswer(f"{purpose} needs nsys, and none is on PATH", f"where there is one, run: {by_hand}")
    return nsys


def profile_options(nsys: Nsys) -> frozenset[str]:
    """Return the long options that its ``profile --help`` lists; empty where it lists none."""
    return frozenset(_OPTION.findall(run([str(nsys.path), "profile", "--help"]).stdout))


def require_recent(nsys: Nsys, options: frozenset[str]) -> None:
    """Refuse an nsys that cannot capture what is needed: by its options, else by its version.

    Raises
    ------
    NsysFailed
        It is too old.
    """
    lacking = [f"--{name}" for name in _NEEDED_OPTIONS if name not in options] if options else []
    if lacking or (nsys.version and nsys.version[:2] < OLDEST):
        why = f" (it has no {', '.join(lacking)})" if lacking else ""
        oldest = ".".join(map(str, OLDEST))
        raise NsysFailed(
            f"{nsys.path}: nsys {nsys.version_text} is too old to capture with{why}; {oldest} or newer is needed",
            "install a newer Nsight Systems, or name another with --nsys PATH",
        )


def profile_argv(
    nsys: Nsys, options: Sequence[tuple[str, str]], extra: Sequence[str], program: Sequence[str]
) -> list[str]:
    """Return the command that profiles a program; options that ``extra`` names too are left to it.

    nsys 2023.4 takes ``--`` for an ambiguous option, so the program follows the options directly.
    """
    given = long_names(extra)
    own = [f"--{name}={value}" for name, value in options if name not in given]
    return [str(nsys.path), "profile", *own, *extra, *program]


def export_argv(nsys: Nsys, report: Path, output: Path, kind: str = "sqlite") -> list[str]:
    """Return the command that exports a report; nsys itself refuses to overwrite."""
    return [str(nsys.path), "export", "--type", kind, "--output", str(output), str(report)]


def import_argv(importer: Path, recording: Path, report: Path) -> list[str]:
    """Return the command that makes a report of a raw recording (``.qdstrm``)."""
    return [str(importer), "--input-file", str(recording), "--output-file", str(report)]


def find_importer(nsys: Nsys) -> Path | None:
    """Return the importer that belongs to an nsys, else the first on PATH; None without one."""
    home = nsys.path.resolve().parent
    for folder in sorted(home.parent.glob("host-linux-*")):
        candidate = folder / "QdstrmImporter"
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which("QdstrmImporter")
    return Path(found) if found else None


def escaped(path: Path) -> str:
    """Return a path as nsys wants it after ``--output``: it fills in ``%p``, ``%h`` and ``%q{NAME}``."""
    return str(path).replace("%", "%%")


def nvtx_is_too_new(nvtx: tuple[int, ...], nsys: tuple[int, ...]) -> bool:
    """Whether that nsys records nothing of what that Python package nvtx emits."""
    return bool(nvtx and nsys) and nvtx >= FIRST_NEW_NVTX and nsys[:2] <= LAST_WITHOUT_NEW_NVTX


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run nsys and return its exit code and what it said; it never reads the terminal."""
    return subprocess.run(  # noqa: S603 - an argv, no shell
        list(argv), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False
    )


_SHORT = {
    "b": "backtrace", "c": "capture-range", "d": "duration", "e": "env-var", "f": "force-overwrite",
    "o": "output", "p": "nvtx-capture", "s": "sample", "t": "trace", "w": "show-output",
    "x": "stop-on-exit", "y": "delay",
}  # fmt: skip


def _long_name(argument: str) -> str:
    name = argument.partition("=")[0]
    return name[2:] if name.startswith("--") else _SHORT.get(name[1:2], name)


def long_names(arguments: Sequence[str]) -> set[str]:
    """Return which options of ``profile`` some arguments give, by their long names."""
    return {_long_name(argument) for argument in arguments if argument.startswith("-")}
