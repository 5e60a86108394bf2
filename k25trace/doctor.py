"""Is this machine fit to capture? A check list of nsys, driver, GPUs and what programs have installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k25trace.checks import Check, judged, missing, passed, unknown
from k25trace.errors import K25TraceError
from k25trace.export import flaw_of
from k25trace.gpustate import driver_version, gpu_state
from k25trace.nsys import (
    NVTX_FOR_OLD_NSYS,
    Nsys,
    find_importer,
    find_nsys,
    nvtx_is_too_new,
    profile_argv,
    profile_options,
    require_recent,
    run,
)

SPARE_BYTES = 5 << 30
"""Free space below which a capture of a few seconds on eight GPUs may not fit."""

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_GPUS = Path("/proc/driver/nvidia/gpus")
_CHILD_TIMEOUT_S = 120
_ASK = """
import importlib.metadata as metadata, json
said = {}
try:
    said["nvtx"] = metadata.version("nvtx")
except metadata.PackageNotFoundError:
    pass
try:
    import torch
    said["torch"] = torch.__version__
    said["cuda"] = torch.version.cuda
    said["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    said["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except Exception as error:
    said.setdefault("error", f"{type(error).__name__}: {error}"[:200])
print("k25trace" + json.dumps(said))
"""


def check_machine(path: Path | None = None, python: str | None = None) -> list[Check]:
    """Return the check list of this machine.

    Parameters
    ----------
    path
        The nsys to look at; None: the one a capture would take.
    python
        The interpreter that captured programs run in; None: this one. It is asked in a process of its own.

    Returns
    -------
    list of Check
        nsys, importer, export, driver, CUPTI, GPUs, CPU sampling, NVTX package, torch, NCCL, disk.
    """
    try:
        nsys, trouble = find_nsys(path), ""
    except K25TraceError as error:
        nsys, trouble = None, error.message
    told = _ask(python or sys.executable)
    gpus = _gpu_names(told)
    return [
        _nsys(nsys, path, trouble),
        _importer(nsys),
        _export(nsys),
        _driver(gpus),
        _cupti(nsys, told),
        judged(
            "GPUs",
            good=bool(gpus),
            seen=_counted(gpus),
            fix="captures here see no kernels: run where the GPUs are",
        ),
        _sampling(),
        _nvtx(nsys, told, python or sys.executable),
        _torch(told),
        _nccl(told),
        _disk(),
    ]


def _nsys(nsys: Nsys | None, path: Path | None, trouble: str) -> Check:
    name = "nsys"
    if nsys is None:
        seen = trouble or (f"not found at {path}" if path else "not found on PATH")
        return missing(name, seen, "install Nsight Systems; or --nsys PATH, or the variable K25TRACE_NSYS")
    try:
        require_recent(nsys, profile_options(nsys))
    except K25TraceError as error:
        return missing(name, error.message, error.hint or "")
    return passed(name, f"{nsys.version_text} at {nsys.path}")


def _importer(nsys: Nsys | None) -> Check:
    name = "importer"
    if nsys is None:
        return unknown(name, "no nsys")
    importer = find_importer(nsys)
    if importer is not None:
        return passed(name, str(importer))
    fix = "install all of Nsight Systems: the nsys inside Nsight Compute leaves a .qdstrm, and exits 0"
    return missing(name, f"no QdstrmImporter beside {nsys.path.resolve().parent} or on PATH", fix)


def _export(nsys: Nsys | None) -> Check:
    """Prove it: record a program that does nothing."""
    name = "export"
    program = shutil.which("true")
    if nsys is None or program is None:
        return unknown(name, "no nsys" if nsys is None else "no program `true` to try it with")
    with tempfile.TemporaryDirectory(prefix="k25trace-") as folder:
        target = Path(folder) / "nothing"
        options = [
            ("trace", "nvtx"),
            ("sample", "none"),
            ("cpuctxsw", "none"),
            ("export", "sqlite"),
            ("output", str(target)),
        ]
        done = run(profile_argv(nsys, options, (), [program]))
        wrong = flaw_of(target.with_suffix(".sqlite"))
    if wrong is None:
        return passed(name, "a program that does nothing was recorded and exported")
    said = " ".join((done.stderr or done.stdout).split())[:160]
    return missing(
        name,
        f"recording `true` left no export: {wrong}; nsys exited {done.returncode}: {said}",
        "see `importer`",
    )


def _driver(gpus: list[str]) -> Check:
    version = driver_version()
    if version:
        return passed("driver", f"NVIDIA {version}")
    seen = "no NVIDIA kernel driver is visible here"
    return unknown("driver", seen) if gpus else missing("driver", seen, "run where the GPUs are")


def _cupti(nsys: Nsys | None, told: Mapping[str, Any]) -> Check:
    name = "CUPTI"
    if nsys is None:
        return unknown(name, "no nsys")
    libraries = sorted(nsys.path.resolve().parent.glob("libcupti.so.*"))
    versions = [found[1] for path in libraries if (found := re.search(r"so\.(\d+(?:\.\d+)?)", path.name))]
    if not versions:
        return unknown(name, f"no libcupti beside {nsys.path.resolve()}")
    newest, cuda = max(versions, key=_numbers), told.get("cuda")
    if cuda and _numbers(str(cuda))[0] > _numbers(newest)[0]:
        return unknown(
            name, f"nsys brings {newest}; torch here is built for CUDA {cuda}",
            "an older CUPTI mostly records newer programs, too (12.4 did CUDA 13); the"
            " check list of a capture tells",
        )  # fmt: skip
    return passed(name, f"nsys brings {newest}" + (f"; torch here is built for CUDA {cuda}" if cuda else ""))


def _gpu_names(told: Mapping[str, Any]) -> list[str]:
    state = gpu_state()
    if state:
        return [str(gpu["name"]) for gpu in state["gpus"]]
    if told.get("gpus"):
        return list(map(str, told["gpus"]))
    try:
        return ["NVIDIA GPU" for _ in _GPUS.iterdir()]
    except OSError:
        return []


def _counted(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none is visible here"


def _sampling() -> Check:
    name = "CPU sampling"
    try:
        level = int(_PARANOID.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return unknown(name, f"{_PARANOID} cannot be read")
    if level <= 2:
        return passed(name, f"perf_event_paranoid is {level}; captures here do without sampling")
    return unknown(
        name, f"perf_event_paranoid is {level}: captures do without, --nsys-arg=--sample=process-tree fails",
        "to sample all the same: sudo sysctl kernel.perf_event_paranoid=2",
    )  # fmt: skip


def _nvtx(nsys: Nsys | None, told: Mapping[str, Any], python: str) -> Check:
    name = "NVTX package"
    version = told.get("nvtx")
    if not version:
        return unknown(name, f"nvtx is not installed for {python}", "look at that of the program with --python PATH")
    if nsys is not None and nvtx_is_too_new(_numbers(version), nsys.version):
        return missing(
            name,
            f"nvtx {version}: nsys {nsys.version_text} records none of its ranges",
            f"pip install nvtx=={NVTX_FOR_OLD_NSYS}, or take a newer nsys",
        )
    return passed(name, f"nvtx {version}")


def _torch(told: Mapping[str, Any]) -> Check:
    if "torch" in told:
        return passed("torch", f"{told['torch']}, CUDA {told.get('cuda')}, {_counted(list(told.get('gpus') or []))}")
    return unknown("torch", f"not importable: {told.get('error', 'no answer')}")


def _nccl(told: Mapping[str, Any]) -> Check:
    return passed("NCCL", str(told["nccl"])) if told.get("nccl") else unknown("NCCL", "torch does not tell")


def _disk() -> Check:
    places = {Path.cwd(), Path(tempfile.gettempdir())}
    free = {place: shutil.disk_usage(place).free for place in places}
    seen = ", ".join(f"{size / (1 << 30):.1f} GiB free in {place}" for place, size in sorted(free.items()))
    if min(free.values()) >= SPARE_BYTES:
        return passed("disk", seen)
    fix = "nsys records into the temporary folder and writes reports beside: make room, or set TMPDIR"
    return missing("disk", seen, fix)


def _ask(python: str) -> dict[str, Any]:
    """Ask an interpreter what it has; torch is imported there and never here."""
    try:
        done = subprocess.run(  # noqa: S603 - an argv, no shell
            [python, "-c", _ASK], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
            check=False, timeout=_CHILD_TIMEOUT_S, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": f"{python} did not answer: {error}"}
    answer = done.stdout.rpartition("k25trace")[2]
    try:
        found = json.loads(answer)
    except ValueError:
        return {"error": f"{python} did not answer"}
    return dict(found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)) or (0,)
