"""Clocks, power, throttle reasons and topology of the GPUs here, where nvidia-ml-py is importable."""

import importlib
import re
from pathlib import Path
from typing import Any

_DRIVER = Path("/proc/driver/nvidia/version")
_THROTTLE = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
_LEVELS = {
    0: "same board",
    10: "PCIe switch",
    20: "PCIe switches",
    30: "host bridge",
    40: "NUMA node",
    50: "system",
}


def driver_version() -> str | None:
    """Return the version of the NVIDIA kernel driver, or None where there is none."""
    try:
        found = re.search(r"(?:Module|for \S+)\s+(\d+\.\d[\d.]*)", _DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return None
    return found[1] if found else None


def gpu_state() -> dict[str, Any] | None:
    """Return driver, GPUs with their clocks, and topology; None where NVML cannot be asked.

    No UUIDs, serial numbers or bus ids. Clocks in MHz, power in mW, temperature in degrees Celsius, memory
    in bytes.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - absent, or no driver: whatever it raises, there is nothing to tell
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return {
            "driver": _ask(nvml.nvmlSystemGetDriverVersion),
            "cuda": _ask(nvml.nvmlSystemGetCudaDriverVersion_v2),
            "gpus": [_gpu(nvml, i, handle) for i, handle in enumerate(handles)],
            "topology": _topology(nvml, handles),
        }
    except Exception:  # noqa: BLE001
        return None
    finally:
        _ask(nvml.nvmlShutdown)


def _gpu(nvml: Any, index: int, handle: Any) -> dict[str, Any]:  # noqa: ANN401 - a library without types
    reasons = _ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    return {
        "index": index,
        "name": _ask(nvml.nvmlDeviceGetName, handle),
        "sm_clock_mhz": _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        "sm_clock_max_mhz": _ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        "power_mw": _ask(nvml.nvmlDeviceGetPowerUsage, handle),
        "power_limit_mw": _ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        "temperature_c": _ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle": None
        if reasons is None
        else [text for bit, text in _THROTTLE.items() if reasons & bit]
        + [hex(reasons & ~sum(_THROTTLE))] * bool(reasons & ~sum(_THROTTLE)),
        "memory_used_bytes": None if memory is None else int(memory.used),
    }


def _topology(nvml: Any, handles: list[Any]) -> list[dict[str, Any]]:  # noqa: ANN401
    pairs = [(a, b) for a in range(len(handles)) for b in range(a + 1, len(handles))]
    level, link = nvml.nvmlDeviceGetTopologyCommonAncestor, nvml.nvmlDeviceGetP2PStatus
    return [
        {
            "gpus": [a, b],
            "path": _LEVELS.get(_ask(level, handles[a], handles[b]), "unknown"),
            "nvlink": _ask(link, handles[a], handles[b], nvml.NVML_P2P_CAPS_INDEX_NVLINK) == 0,
        }
        for a, b in pairs
    ]


def _ask(function: Any, *arguments: Any) -> Any:  # noqa: ANN401
    """Call it; None where this GPU, driver or container does not answer."""
    try:
        answer = function(*arguments)
    except Exception:  # noqa: BLE001
        return None
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
