"""Presets of `k25trace capture`: what is known about profiling a launcher or engine, as data (``*.toml``)."""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files

from k25trace.errors import UsageError


@dataclass(frozen=True)
class Preset:
    """What a preset says.

    Attributes
    ----------
    name
        Its name: that of the file.
    summary
        What it is for, one line.
    capture_range
        What opens the recording: ``cudaProfilerApi``, ``nvtx=NAME`` or ``none``.
    flags
        Further arguments of ``nsys profile``, for an nsys that has them.
    environment
        Variables that are set where the user has not set them.
    open_range, close_range
        How to make the program open and close the recording.
    nvtx
        Ranges of the program that can open it in place of the CUDA profiler, and how their names get
        registered.
    notes
        What else to know.
    """

    name: str
    summary: str
    capture_range: str
    flags: tuple[str, ...]
    environment: dict[str, str]
    open_range: str
    close_range: str
    nvtx: dict[str, str]
    notes: str


def preset_names() -> list[str]:
    """Return the names of the presets."""
    return sorted(f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml"))


def load_preset(name: str) -> Preset:
    """Return a preset by name.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    if not re.fullmatch(r"\w+", name) or name not in preset_names():
        raise UsageError(f"--preset {name}: no such preset", f"there are: {', '.join(preset_names())}")
    data = tomllib.loads(files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    return Preset(
        name=name,
        summary=data["summary"],
        capture_range=data["capture_range"],
        flags=tuple(data["flags"]),
        environment=dict(data["environment"]),
        open_range=" ".join(data["open_range"].split()),
        close_range=" ".join(data["close_range"].split()),
        nvtx=dict(data["nvtx"]),
        notes=" ".join(data["notes"].split()),
    )
