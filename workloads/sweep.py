"""A benchmark once for each combination of settings that NCCL reads when a process starts."""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from k25trace.workloads.results import SCHEMA, refuse_unwritable, table, write
from k25trace.workloads.world import CannotRun, say

from k25trace.errors import UsageError


def combinations(settings: Sequence[str]) -> list[dict[str, str]]:
    """Return every combination of ``NAME=V,...``.

    Examples
    --------
    >>> combinations(["NCCL_PROTO=LL,Simple", "NCCL_ALGO=Ring"])
    [{'NCCL_PROTO': 'LL', 'NCCL_ALGO': 'Ring'}, {'NCCL_PROTO': 'Simple', 'NCCL_ALGO': 'Ring'}]
    """
    names, values = [], []
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.replace("_", "").isalnum() or not key.startswith("NCCL_"):
            raise UsageError(f"{setting!r} is no setting", "such as NCCL_PROTO=LL,Simple")
        if key in names:
            raise UsageError(f"{key} is given twice", f"--sweep {key}=V,... takes all its values")
        names.append(key)
        values.append(text.split(","))
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]


def sweep(chosen: argparse.Namespace, words: Sequence[str]) -> int:
    """Run this program under torchrun for each combination of settings, and join the results."""
    if "WORLD_SIZE" in os.environ:
        raise UsageError("--sweep starts torchrun itself", "run it without torchrun, with --nproc N")
    refuse_unwritable(chosen.json, force=chosen.force)
    settings_of_each = combinations(chosen.sweep)
    nproc = chosen.nproc or max(1, torch.cuda.device_count())
    joined: dict[str, Any] | None = None
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        for number, settings in enumerate(settings_of_each):
            shown = " ".join(f"{key}={value or '(unset)'}" for key, value in settings.items())
            say(f"[{number + 1}] {shown}")
            environment = {key: value for key, value in os.environ.items() if key not in settings}
            environment |= {key: value for key, value in settings.items() if value}
            target = Path(place) / f"{number}.json"
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(nproc),
            ]
            command += ["-m", "k25trace.workloads.allreduce", *words, "--json", str(target)]
            done = subprocess.run(
                command,
                env=environment,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            if done.returncode or not target.exists():
                said = [line[7:] for line in done.stderr.splitlines() if line.startswith("error: ")]
                failed.append(f"{shown}: {said[0] if said else f'exit code {done.returncode}'}")
                say(failed[-1])
                continue
            found = json.loads(target.read_text(encoding="utf-8"))
            for row in found["results"]:
                row["settings"] = settings
                row["variant"] = f"{row['variant']}, {shown}"
            if joined is None:
                joined = found
            else:
                joined["results"] += found["results"]
                joined["dirty"] = list(dict.fromkeys(joined["dirty"] + found["dirty"]))
    if joined is None:
        raise CannotRun("no setting worked: " + (failed[0] if failed else "none was given"))
    joined |= {"schema": SCHEMA, "sweep": settings_of_each, "failed": failed}
    if chosen.json is not None:
        write(chosen.json, joined)
    table(joined)
    return 1 if failed else 0


def without_sweep(words: Sequence[str]) -> list[str]:
    """Return the command line for one setting: without what only the sweep itself needs."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in {"--sweep", "--nproc", "--json"}:
            skip = True
        elif not word.startswith(("--sweep=", "--nproc=", "--json=")):
            kept.append(word)
    return kept
