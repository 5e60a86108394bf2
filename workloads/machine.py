"""The state of the machine before and after, and whether it was fit to be measured.

Read through ``nvidia-ml-py`` where that is installed; nothing is ever set.
"""

import contextlib
import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from k25trace.workloads.world import CannotRun, World
from torch.cuda.nccl import version as nccl_version

from k25trace import __version__

FOREIGN_BYTES = 1 << 30
"""Memory in use by others, above which someone else is taken to be working."""
CONTEXT_BYTES = 2 << 30
"""What a process has of a GPU's memory beside its tensors, at most: driver, CUDA context, NCCL (1.2 GB on an H200)."""

# Reasons for lower clocks, by bit, of nvmlDeviceGetCurrentClocksEventReasons; those that spoil a measurement.
THROTTLE = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
SPOILS = 0x8 | 0x20 | 0x40 | 0x80
"""The software power cap is how a loaded GPU lives, and is reported but spoils nothing."""


@dataclass(frozen=True)
class Snapshot:
    """One device at one moment. None where it cannot be read, with the reason under ``unknown``."""

    device: str
    driver: str | None = None
    memory_used_bytes: int | None = None
    memory_foreign_bytes: int | None = None
    memory_total_bytes: int | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_mw: int | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()
    spoiled: bool = False
    unknown: str | None = None


def snapshot(world: World) -> Snapshot:
    """Return the state of this rank's device."""
    if not world.cuda:
        return Snapshot(platform.processor() or platform.machine(), unknown="a CPU: nothing is read")
    properties = torch.cuda.get_device_properties(world.device)
    try:
        import pynvml
    except ImportError:
        return Snapshot(properties.name, unknown="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        reasons = int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return Snapshot(
            device=properties.name,
            driver=str(pynvml.nvmlSystemGetDriverVersion()),
            memory_used_bytes=int(memory.used),
            memory_foreign_bytes=foreign_bytes(
                {one.pid: one.usedGpuMemory for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)},
                os.getpid(),
                int(memory.used) - torch.cuda.memory_reserved(world.device),
            ),
            memory_total_bytes=int(memory.total),
            sm_mhz=int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            memory_mhz=int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            power_mw=int(pynvml.nvmlDeviceGetPowerUsage(handle)),
            temperature_c=int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            throttle=tuple(text for bit, text in THROTTLE.items() if reasons & bit),
            spoiled=bool(reasons & SPOILS),
        )
    except (pynvml.NVMLError, AttributeError) as error:
        return Snapshot(properties.name, unknown=f"NVML: {error}")


def available_bytes(said: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes of the machine's memory that a program may still have: the kernel's own estimate.

    What holds copies of files counts, since it is given up when wanted. Without an estimate: pages that hold nothing.
    """
    with contextlib.suppress(OSError):
        if found := re.search(r"^MemAvailable:\s+(\d+) kB", said.read_text(encoding="ascii"), re.MULTILINE):
            return int(found[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def foreign_bytes(processes: Mapping[int, int | None], own: int, beside_tensors: int) -> int:
    """Return the bytes of a GPU's memory that other processes use.

    Parameters
    ----------
    processes
        Bytes by process id, as the driver tells; None where it does not.
    own
        This process.
    beside_tensors
        Everything in use, by anyone, but this process's tensors.

    The list settles it if this process is in it. It is not where process ids are another's (a container):
    then what is in use beside the tensors, less `CONTEXT_BYTES` for this process itself, is taken for others'.
    """
    others = [used for pid, used in processes.items() if pid != own]
    if own in processes and None not in others:
        return sum(used or 0 for used in others)
    return max(0, beside_tensors - CONTEXT_BYTES)


def dirt(before: Snapshot, after: Snapshot | None = None) -> list[str]:
    """Return why results taken between two snapshots are not to be trusted."""
    reasons = []
    for when, state in (("at the start", before), ("at the end", after)):
        if state is None:
            continue
        foreign = state.memory_foreign_bytes
        if foreign is not None and foreign > FOREIGN_BYTES:
            reasons.append(f"{foreign:,} B of GPU memory in use by others {when}")
        if state.spoiled:
            reasons.append(f"{', '.join(state.throttle)} {when}")
    return reasons


def topology(world: World) -> str | None:
    """Return what ``nvidia-smi topo -m`` says of the GPUs; None where it cannot be asked."""
    if not world.cuda:
        return None
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"],  # noqa: S607 - the driver's tool, wherever it lies
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)  # it underlines its heading, terminal or not
    rows = [line.strip() for line in plain.partition("Legend")[0].splitlines() if line.strip()]
    return "\n".join(rows) if done.returncode == 0 else None


def versions() -> dict[str, str | None]:
    """Return the versions of what the results depend on."""
    nccl = None
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        nccl = ".".join(map(str, nccl_version()))
    return {
        "k25trace": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": nccl,
    }


def environment() -> dict[str, str]:
    """Return the settings of NCCL and CUDA that are set; not those that name places or networks of the machine."""
    told = ("NCCL_", "CUDA_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")
    kept_back = ("NCCL_SOCKET_IFNAME", "NCCL_DEBUG_FILE")
    return {
        key: value
        for key, value in sorted(os.environ.items())
        if key.startswith(told) and not key.startswith(kept_back) and "/" not in value
    }


def one_host(world: World) -> bool:
    """Whether all ranks run on one machine, whose clock they share."""
    return len({str(name) for name in world.gather(socket.gethostname())}) == 1


def look_before(world: World, on_dirty: str) -> Snapshot:
    """Return the snapshot at the start; with ``refuse``, raise `CannotRun` on a machine that is in use."""
    before = snapshot(world)
    reasons: list[Any] = [reason for found in world.gather(dirt(before)) for reason in found]
    if reasons and on_dirty == "refuse":
        raise CannotRun(f"the machine is not fit to be measured: {reasons[0]}", "--on-dirty mark measures anyway")
    return before
