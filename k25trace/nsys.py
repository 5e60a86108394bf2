"""Nsight Systems on this machine: where it is, which one it is, and one way to run it."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k25trace.errors import CannotAnswer

VARIABLE = "K25TRACE_NSYS"
"""Environment variable with the nsys to use; else the first on PATH."""


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


def find_nsys(path: Path | None = None) -> Nsys | None:
    """Return the nsys at ``path``, else the one `VARIABLE` names, else the first on PATH; None without one."""
    wanted = str(path) if path else os.environ.get(VARIABLE) or "nsys"
    found = shutil.which(wanted)
    if found is None:
        return None
    said = run([found, "--version"]).stdout
    numbers = re.search(r"(\d+(?:\.\d+)+)", said)
    return Nsys(Path(found), tuple(int(n) for n in numbers[1].split(".")) if numbers else ())


def require_nsys(purpose: str, by_hand: str, path: Path | None = None) -> Nsys:
    """Return an nsys, or raise with what to run on a machine that has one.

    Raises
    ------
    CannotAnswer
        There is none.
    """
    nsys = find_nsys(path)
    if nsys is None:
        raise CannotAnswer(f"{purpose} needs nsys, and none is on PATH", f"where there is one, run: {by_hand}")
    return nsys


def export_argv(nsys: Nsys, report: Path, output: Path, kind: str = "sqlite") -> list[str]:
    """Return the command that exports a report; nsys itself refuses to overwrite."""
    return [str(nsys.path), "export", "--type", kind, "--output", str(output), str(report)]


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run nsys and return its exit code and what it said; it never reads the terminal."""
    return subprocess.run(  # noqa: S603 - an argv, no shell
        list(argv), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False
    )
