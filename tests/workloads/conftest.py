"""The fixture that runs a workload."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from launching import TIMEOUT_S, Ran, command, environment


@pytest.fixture
def workload(tmp_path):
    """Run a workload and read what it wrote."""

    def run(module: str, *words: str | Path, ranks: int = 1, tiny: bool = True, **env: str) -> Ran:
        target = tmp_path / f"{module}.json"
        done = subprocess.run(
            [*command(module, *words, ranks=ranks, tiny=tiny), "--json", str(target), "--force"],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            cwd=tmp_path,
            env=environment(**env),
        )
        found = json.loads(target.read_text()) if target.exists() else {}
        return Ran(done.returncode, done.stdout, done.stderr, found)

    return run
