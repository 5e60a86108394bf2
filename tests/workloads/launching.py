"""Running a workload as its users do: under torchrun, on a CPU, at tiny sizes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 150


class Ran(NamedTuple):
    """What a workload did, and the object it wrote."""

    code: int
    stdout: str
    stderr: str
    found: dict[str, Any]


def environment(**more: str) -> dict[str, str]:
    """The environment without what another torchrun may have left in it."""
    kept = {key: value for key, value in os.environ.items() if key not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}}
    return {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200", **more}


def command(module: str, *words: str | Path, ranks: int = 1, tiny: bool = True) -> list[str]:
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    few = ["--device", "cpu", "--preset", "tiny", "--timeout", "60"] if tiny else []
    return [sys.executable, *start, "-m", f"k25trace.workloads.{module}", *few, *map(str, words)]
