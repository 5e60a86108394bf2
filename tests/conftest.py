"""Fixtures and settings that every test shares."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SUBPROCESS_TIMEOUT_S = 120

_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("dev", max_examples=60, **_COMMON)
settings.register_profile("ci", max_examples=40, derandomize=True, **_COMMON)
settings.register_profile("long", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    stdout: str
    stderr: str


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file under a folder, by relative path."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture
def run_cli(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """Run the command line in a process of its own, with a new home and temporary folder."""

    def run(
        *args: str | Path,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes | None = None,
    ) -> Outcome:
        place = tmp_path_factory.mktemp("cli")
        for name in ("home", "tmp", "out"):
            (place / name).mkdir()
        environment = {
            **os.environ,
            "HOME": str(place / "home"),
            "XDG_CACHE_HOME": str(place / "home" / ".cache"),
            "XDG_CONFIG_HOME": str(place / "home" / ".config"),
            "TMPDIR": str(place / "tmp"),
            "NO_COLOR": "1",
            "TERM": "dumb",
            "COLUMNS": "200",
            "PYTHONIOENCODING": "utf-8",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            **(env or {}),
        }
        done = subprocess.run(
            [sys.executable, "-m", "k25trace", *map(str, args)],
            capture_output=True,
            env=environment,
            cwd=cwd or place / "out",
            timeout=SUBPROCESS_TIMEOUT_S,
            check=False,
            input=stdin if stdin is not None else b"",
        )
        return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    return run


@pytest.fixture
def run_in_process(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run the command line in this process: `run_cli` without the second that an interpreter takes."""

    def run(*args: str | Path) -> Outcome:
        from k25trace.cli import main

        monkeypatch.setattr(sys, "argv", ["k25trace", *map(str, args)])
        for name, value in (("NO_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "200")):
            monkeypatch.setenv(name, value)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        texts = [bytes(stream.buffer.getvalue()).decode("utf-8", "replace") for stream in (out, err)]  # type: ignore
        return Outcome(code, *texts)

    return run


@pytest.fixture
def unchanged() -> Callable[[Path], contextlib.AbstractContextManager[None]]:
    """Assert that a folder holds the same files with the same bytes after a block as before."""

    @contextlib.contextmanager
    def guard(folder: Path) -> Iterator[None]:
        before = digests(folder)
        yield
        assert digests(folder) == before

    return guard
