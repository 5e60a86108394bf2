"""Run nsys in the open: output passes through, signals go to the program, nsys always finishes.

nsys ends as soon as its program does and then makes the report; signalled itself, it lets the program run
on and loses its exit code. So it gets a session of its own, out of reach of the terminal's Ctrl-C, and what
arrives here is passed to the program.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEPT_BYTES = 1 << 16
_COLLECTED = (b"Generating '", b"Generated:", b"Processing [")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Ended:
    """How a run of nsys went.

    Attributes
    ----------
    code
        Its exit code; negative: killed by that signal.
    said
        The end of what it and the program wrote.
    elapsed_ns
        Until the program had ended and nsys began to write its report, where it says so; else until nsys
        ended.
    signals
        What arrived here in the meantime and was passed on.
    program
        Process id of the program, where it was looked for and seen.
    """

    code: int
    said: str
    elapsed_ns: int
    signals: tuple[int, ...]
    program: int | None


class _Tee(threading.Thread):
    """Copies a stream to one of ours and keeps its end."""

    def __init__(self, stream: IO[bytes], to: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream, self._to = stream, to
        self.kept = b""
        self.collected_ns: int | None = None

    def run(self) -> None:
        with self._stream:
            self._copy()

    def _copy(self) -> None:
        deaf = False
        while chunk := os.read(self._stream.fileno(), _KEPT_BYTES):
            before = len(self.kept)
            self.kept += chunk
            if self.collected_ns is None and any(
                self.kept.find(mark, max(0, before - len(mark))) >= 0 for mark in _COLLECTED
            ):
                self.collected_ns = time.monotonic_ns()
            self.kept = self.kept[-_KEPT_BYTES:]
            if not deaf:
                try:
                    self._to.write(chunk)
                    self._to.flush()
                except (OSError, ValueError):
                    deaf = True  # nobody reads any more; the program must not notice


def run_live(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    find_program: bool = False,
) -> Ended:
    """Run nsys until it ends, whatever signals arrive.

    Parameters
    ----------
    argv
        Its command line.
    environment
        What to set beside the environment that is there.
    say
        Takes one line for the user.
    find_program
        Look for the program's process id while it runs.
    """
    began = time.monotonic_ns()
    home = Path(argv[0]).resolve().parent
    signals: list[int] = []
    process: subprocess.Popen[bytes] | None = None
    program: int | None = None

    def pass_on(number: int, _: FrameType | None) -> None:
        signals.append(number)
        if process is not None:
            say(_stop(process.pid, home, number, len(signals)))

    with _handling(pass_on):
        process = subprocess.Popen(  # noqa: S603 - an argv, no shell
            list(argv),
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        assert process.stderr is not None  # noqa: S101
        tees = [_Tee(process.stdout, sys.stdout.buffer), _Tee(process.stderr, sys.stderr.buffer)]
        for tee in tees:
            tee.start()
        if signals:  # one came before there was anything to pass it to
            process.terminate()
        while find_program and program is None and process.poll() is None:
            roots = program_roots(process.pid, home)
            program = roots[0] if roots else None
            time.sleep(0.05)
        code = process.wait()
        for tee in tees:
            # A program that outlives nsys holds the pipes; what nsys itself said has been read by then.
            tee.join(timeout=1.0)
    ended = min((t.collected_ns for t in tees if t.collected_ns is not None), default=time.monotonic_ns())
    said = b"\n".join(tee.kept for tee in tees).decode("utf-8", "replace")
    return Ended(code, said, ended - began, tuple(signals), program)


def time_plain(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """Run a program by itself; return its exit code and how long it took in nanoseconds."""
    began = time.monotonic_ns()
    done = subprocess.run(list(argv), env={**os.environ, **environment}, check=False)  # noqa: S603 - an argv
    return done.returncode, time.monotonic_ns() - began


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored here, as under nohup, stays ignored.
    before = {n: signal.signal(n, handler) for n in STOPPING if signal.getsignal(n) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stop(nsys: int, home: Path, number: int, times: int) -> str:
    """Pass a signal to the program; from the third on, end it. Return what to tell the user."""
    name = signal.Signals(number).name
    roots = program_roots(nsys, home)
    if not roots:
        return f"{name}: the program has ended; waiting for nsys to finish the report"
    sent = number if times < 3 else signal.SIGKILL
    for root in roots:
        _signal_tree(root, nsys, sent)
    if times < 3:
        return f"{name} passed to the program; nsys then finishes the report"
    return "the program is killed; nsys then finishes the report"


def _signal_tree(root: int, nsys: int, number: int) -> None:
    """Signal a program: its process group, as a terminal would; in nsys' own group, it and its offspring."""
    with suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(root)
        if group != os.getpgid(nsys):
            os.killpg(group, number)
            return
    for pid in [root, *_descendants(root, _children())]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def program_roots(nsys: int, home: Path) -> list[int]:
    """Return the topmost processes under an nsys that are not parts of nsys itself (those under ``home``)."""
    children = _children()
    roots: list[int] = []
    below = list(children.get(nsys, []))
    while below:
        pid = below.pop()
        if _is_part_of_nsys(pid, home):
            below += children.get(pid, [])
        else:
            roots.append(pid)
    return sorted(roots)


def _is_part_of_nsys(pid: int, home: Path) -> bool:
    with suppress(OSError):
        if (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").startswith("nsys"):
            return True
        program = Path(os.readlink(_PROC / str(pid) / "exe"))
        # An nsys in a folder of many programs, such as /usr/bin, says nothing about its neighbours.
        return home.name.startswith("target-linux") and home.parent in program.parents
    return False


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                state, parent = stat.rpartition(")")[2].split()[:2]
                if state != "Z":
                    found.setdefault(int(parent), []).append(int(folder.name))
    return found


def _descendants(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    below = list(children.get(pid, []))
    for child in below:
        below += children.get(child, [])
    return below
