"""A stand-in for nsys whose failures are chosen by the test, the real one, and programs to capture."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tracekit

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT / ".nsys" / "target-linux-x64" / "nsys"

_STAND_IN = r"""#!{python}
import os, shutil, signal, subprocess, sys, tempfile
EXPORT, VERSION, HELP = {export!r}, {version!r}, {help!r}
words = sys.argv[1:]
if "--version" in words:
    print("NVIDIA Nsight Systems version " + VERSION)
    sys.exit(0)
if words[:2] == ["profile", "--help"]:
    print(HELP)
    sys.exit(0)
options, rest = {{}}, words[1:]
while rest and rest[0].startswith("--"):
    name, equals, value = rest.pop(0).partition("=")
    options[name[2:]] = value if equals else rest.pop(0)
out = options.get("output", "").replace("%%", "%")


def report(path=None):
    path = path or out + ".nsys-rep"
    with open(path, "wb") as file:
        file.write(b"NVIDIA Tegra Profiler Report stand-in\n" * 20)
    return path


def export(path=None):
    shutil.copyfile(EXPORT, path or out + ".sqlite")
    return path or out + ".sqlite"


def run():
    return subprocess.call(rest)


def generated(*paths):
    print("Generated:" + "".join("\n    " + os.path.abspath(p) for p in paths), flush=True)


if words[:1] == ["profile"]:
{profile}
elif words[:1] == ["export"]:
{on_export}
"""

GOOD = """
code = run()
generated(report(), export())
sys.exit(code)
"""
EXPORTS = """
export(out)
"""


@pytest.fixture
def whole(tmp_path):
    """A database of one process on one GPU, of which nothing is missing."""
    trace = tracekit.TraceBuilder()
    for at in range(0, 60_000_000, 1_000_000):
        trace.push_pop("decode", at, at + 900_000)
        trace.kernel(tracekit.MARLIN, at + 1_000, 600, launch=at + 900)
    trace.duration(80_000_000)
    return trace.write(tmp_path / "whole.sqlite")


@pytest.fixture
def stand_in(tmp_path, whole) -> Callable[..., dict[str, str]]:
    """Put a stand-in on PATH; the test says what it does when it profiles and exports."""

    def make(
        profile: str = GOOD,
        on_export: str = EXPORTS,
        *,
        export: Path | None = None,
        version: str = "2023.4.4.54-234433681190v0",
        help: str = "",  # noqa: A002
    ) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        body = _STAND_IN.format(
            python=sys.executable,
            export=str(export or whole),
            version=version,
            help=help,
            profile=textwrap.indent(profile.strip(), "    "),
            on_export=textwrap.indent(on_export.strip(), "    "),
        )
        program = folder / "nsys"
        program.write_text(body, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]]), "K25TRACE_NSYS": ""}

    return make


@pytest.fixture
def run_here(run_in_process, monkeypatch, tmp_path) -> Callable[..., object]:
    """Run the command line in this process, with other variables and folders."""

    def run(*words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> object:
        (tmp_path / "temporary").mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        for name, value in {"TMPDIR": str(tmp_path / "temporary"), **(env or {})}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(cwd or tmp_path)
        return run_in_process(*words)

    return run


@pytest.fixture(scope="session")
def nsys() -> Path:
    """The real nsys."""
    found = os.environ.get("K25TRACE_NSYS") or shutil.which("nsys") or (str(REAL) if REAL.exists() else None)
    if found is None:
        pytest.skip("no nsys on the PATH or in .nsys/ (.ci/get-nsys.sh puts one there)")
    return Path(found)


@pytest.fixture(scope="session")
def new_nvtx(tmp_path_factory) -> Path:
    """A folder with an nvtx that nsys 2023.4 does not record."""
    folder = tmp_path_factory.mktemp("nvtx")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, "nvtx==0.2.14"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("nvtx 0.2.14 cannot be installed here")
    return folder


TWO_PROCESSES = """
import multiprocessing, sys, time
import nvtx

def rank(number):
    nvtx.mark(f"rank={number}")
    for step in range(30):
        with nvtx.annotate("step"), nvtx.annotate(f"layer{step % 2}", domain="k25"):
            time.sleep(0.001)

if __name__ == "__main__":
    with nvtx.annotate("outer"):
        ranks = [multiprocessing.get_context("spawn").Process(target=rank, args=(i,)) for i in range(2)]
        [r.start() for r in ranks]
        [r.join() for r in ranks]
    sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""

SLEEPER = """
import signal, sys, time
import nvtx

def stop(number, frame):
    print("stopping after", number, flush=True)
    sys.exit(5)

signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
with nvtx.annotate("early"):
    time.sleep(0.01)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def program(tmp_path) -> Callable[[str], list[str]]:
    """Write a Python program; return the command that runs it."""

    def write(source: str) -> list[str]:
        path = tmp_path / "program.py"
        path.write_text(source, encoding="utf-8")
        return [sys.executable, str(path)]

    return write


def status_of(manifest: dict[str, object], name: str) -> str:
    """The status of one line of a manifest's check list."""
    (found,) = [c["status"] for c in manifest["checks"] if c["name"] == name]  # type: ignore
    return found


@pytest.fixture(autouse=True)
def _one_nsys_at_a_time(request, tmp_path_factory) -> Iterator[None]:
    """Let the tests that run the real nsys wait for each other: several at once starve on a small machine."""
    if request.node.get_closest_marker("nsys") is None:
        yield
        return
    # The base folder of all workers of one run is the parent of each worker's.
    lock = tmp_path_factory.getbasetemp().parent / "nsys.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
