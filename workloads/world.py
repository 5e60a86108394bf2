"""Where a workload runs: ranks, devices, the process group, and what happens when a rank is missing.

Started by torchrun, or as a single process. Hosts synchronise through torch's store, not through
collectives: a barrier leaves no kernel in a trace, and one that fails can say which rank is missing.
"""

import datetime
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from k25trace.errors import K25TraceError, UsageError

PATIENCE_S = 20.0
"""How long a barrier waits before it looks whether the others still make progress."""


class CannotRun(K25TraceError):
    """The machine lacks what the workload needs, or a rank went missing (exit 1)."""


def say(text: str) -> None:
    """Write a line to stderr at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def names_of(ranks: Sequence[int]) -> str:
    """Return ``rank 1`` or ``ranks 1, 3``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


@dataclass
class World:
    """The ranks of one run, seen from one of them.

    Parameters
    ----------
    rank, size, local_rank, local_size
        As torchrun counts.
    device
        This rank's device.
    timeout_s
        Longest time without progress; after it the process says who is missing, and ends.
    store
        Shared by all ranks; None if there is one.
    recording
        Whether a profiler's capture range is open (`k25trace.workloads.annotate.recording`).
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    timeout_s: float
    store: dist.Store | None = None
    recording: bool = False
    _meetings: int = 0
    _watch: "_Watch | None" = field(default=None, repr=False)

    @property
    def cuda(self) -> bool:
        """Whether this runs on a GPU."""
        return self.device.type == "cuda"

    @property
    def backend(self) -> str:
        """The library of the collectives."""
        return "nccl" if self.cuda else "gloo"

    def at(self, what: str) -> None:
        """Note progress: the rank begins ``what``."""
        if self._watch is not None:
            self._watch.at(what)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def barrier(self, what: str) -> None:
        """Wait until every rank is here; raise `CannotRun` naming those that are not.

        Devices are synchronised first, so that no rank's GPU still works on what came before.
        """
        self.at(what)
        self.synchronize()
        self._meet(what, what)

    def _meet(self, what: str, brought: str) -> list[str]:
        """Leave something in the store, and return the keys of what every rank left, once all have."""
        if self.store is None:
            return []
        keys = [f"meeting/{self._meetings}/{rank}" for rank in range(self.size)]
        self._meetings += 1
        self.store.set(keys[self.rank], brought)
        deadline = time.monotonic() + self.timeout_s
        before: dict[int, bytes | None] = {}
        while True:
            left = max(0.1, deadline - time.monotonic())
            try:
                self.store.wait(keys, datetime.timedelta(seconds=min(left, PATIENCE_S)))
            except RuntimeError as error:  # DistStoreError is one
                try:
                    missing = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
                    now = {rank: self._progress(rank) for rank in missing}
                except RuntimeError:
                    raise CannotRun(f"the ranks lost each other at {what!r}: {str(error).splitlines()[0]}") from None
                if any(now[rank] != before.get(rank) for rank in missing if rank in before):
                    # Those that are missing work on: what counts is the time without progress.
                    self.at(what)
                    deadline = time.monotonic() + self.timeout_s
                before = now
                if missing and time.monotonic() >= deadline:
                    raise CannotRun(
                        f"{names_of(missing)} did not reach {what!r} within {self.timeout_s:g} s",
                        "look at the output of that rank, or give more time with --timeout",
                    ) from None
            else:
                return keys

    def _progress(self, rank: int) -> bytes | None:
        """Return what another rank has noted of its progress."""
        key = f"at/{rank}"
        return self.store.get(key) if self.store is not None and self.store.check([key]) else None

    def gather(self, what: Any) -> list[Any]:  # noqa: ANN401 - any object that can be pickled
        """Return every rank's object, in the order of ranks, on every rank; through the store."""
        if self.store is None:
            return [what]
        keys = self._meet("an exchange", pickle.dumps(what).hex())
        # From this program's own processes.
        return [pickle.loads(bytes.fromhex(self.store.get(key).decode())) for key in keys]  # noqa: S301

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add a tensor up over the ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def close(self) -> None:
        """Leave the process group. Graphs that captured NCCL must be gone: it hangs otherwise."""
        if self.size > 1 and dist.is_initialized():
            self.barrier("the end")
            dist.destroy_process_group()
        if self._watch is not None:
            self._watch.stop()


def all_gather_into(out: torch.Tensor, part: torch.Tensor) -> None:
    """Gather every rank's part into out; torch renamed the function."""
    getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(out, part)


def reduce_scatter_into(out: torch.Tensor, whole: torch.Tensor) -> None:
    """Add the ranks' tensors up and keep this rank's part; torch renamed the function."""
    getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(out, whole)


class _Watch(threading.Thread):
    """Ends the process if it makes no progress: a rank stuck in a collective cannot end itself."""

    def __init__(self, world: World, store: "dist.Store | None") -> None:
        # A connection of its own: that of the world may be waiting when it is needed.
        super().__init__(daemon=True)
        self._world, self._store = world, store
        self._lock = threading.Lock()
        self._count, self._what, self._since = 0, "start", time.monotonic()
        self._ended = threading.Event()

    def at(self, what: str) -> None:
        with self._lock:
            self._count, self._what, self._since = self._count + 1, what, time.monotonic()
            count = self._count
        if self._world.store is not None:
            self._world.store.set(f"at/{self._world.rank}", f"{count}")

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        # A barrier that fails says more, and is let go first.
        limit = self._world.timeout_s + 2
        while not self._ended.wait(min(1.0, limit / 4)):
            with self._lock:
                late, count, what = time.monotonic() - self._since, self._count, self._what
            if late > limit:
                say(f"error: rank {self._world.rank}: no progress for {late:.0f} s in {what!r}{self._behind(count)}")
                say("hint: look at the output of the other ranks, or give more time with --timeout")
                _linger()
                os._exit(CannotRun.exit_code)

    def _behind(self, count: int) -> str:
        store = self._store
        if store is None:
            return ""
        try:
            behind = []
            for rank in range(self._world.size):
                key = f"at/{rank}"
                if not store.check([key]) or int(store.get(key)) < count:
                    behind.append(rank)
        except (RuntimeError, ValueError):
            return "; the other ranks cannot be asked"
        return f"; {names_of(behind)} missing" if behind else "; every rank is in it"


START = "start with torchrun --nproc-per-node N -m ..."


def _number(key: str, otherwise: int) -> int:
    text = os.environ.get(key, str(otherwise))
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{key}={text!r} is no number", START)
    return int(text)


def open_world(device: str, timeout_s: float) -> World:
    """Join the run that the environment describes (torchrun's), or be alone.

    Raises
    ------
    CannotRun
        No GPU, fewer GPUs than ranks on this machine, or a rank that does not come within the timeout.
    """
    size, rank = _number("WORLD_SIZE", 1), _number("RANK", 0)
    local_rank, local_size = _number("LOCAL_RANK", rank), _number("LOCAL_WORLD_SIZE", size)
    if not 0 <= rank < size:
        raise UsageError(f"RANK={rank} and WORLD_SIZE={size}: ranks are 0 to WORLD_SIZE - 1", START)
    if device == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if found == 0:
            raise CannotRun("no GPU: torch sees no CUDA device", "--device cpu runs the same program with gloo")
        if found < local_size or local_rank >= found:
            raise CannotRun(
                f"{local_size} ranks on this machine need {local_size} GPUs, and it has {found}",
                f"torchrun --nproc-per-node {found}, or --device cpu",
            )
        torch.cuda.set_device(local_rank)
        where = torch.device("cuda", local_rank)
    else:
        where = torch.device("cpu")
        # For tests: ranks that spin on each other's cores would wait for the scheduler in every operation.
        torch.set_num_threads(1)
    world = World(rank, size, local_rank, local_size, where, timeout_s)
    if size == 1:
        world._watch = _Watch(world, None)
        world._watch.start()
        return world
    reach = _reach(rank, timeout_s)
    world.store = reach(first=True)
    world._watch = _Watch(world, reach(first=False))
    world._watch.start()
    world.barrier("the start")
    dist.init_process_group(
        world.backend,
        store=dist.PrefixStore("group", world.store),
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=timeout_s),
    )
    return world


_hosting: list[bool] = []
"""Holds something if this process hosts the store that the other ranks use."""
LINGER_S = 3.0
MAX_PORT = 65535


def _linger() -> None:
    """Before the host of the store ends with an error, let the others find out what is wrong."""
    if _hosting:
        time.sleep(LINGER_S)


def _reach(rank: int, timeout_s: float) -> Callable[..., dist.Store]:
    """Return a function that connects to the run's store."""
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), _number("MASTER_PORT", 29500)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if port > MAX_PORT:
        raise UsageError(f"MASTER_PORT={port} is no port", START)

    def connect(*, first: bool) -> dist.Store:
        try:
            store = dist.TCPStore(
                host,
                port,
                is_master=first and rank == 0 and not hosted,
                wait_for_workers=False,
                timeout=datetime.timedelta(seconds=timeout_s),
            )
        except RuntimeError:
            raise CannotRun(
                f"nothing answers at {host}:{port} within {timeout_s:g} s: rank 0 is missing",
                "start every rank, or use torchrun",
            ) from None
        if first and rank == 0 and not hosted:
            _hosting.append(True)
        return dist.PrefixStore(f"k25/{attempt}", store)

    return connect


INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a shell."""
SMALLER = "fewer tokens, a shorter context, smaller sizes, or more ranks"


def refusal(error: BaseException) -> K25TraceError | None:
    """Return what a user can do something about, in one line, of an error that torch raised; None of others.

    Torch tells a lack of memory, a tensor that no memory could hold and a lost connection apart by their words
    alone, where they are not of a class of their own.
    """
    text = next(iter(str(error).splitlines()), "")
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return CannotRun(f"not enough GPU memory: {text}", SMALLER)
    if isinstance(error, MemoryError) or re.search(
        r"can't allocate memory|out of memory|not enough memory|size .*overflow", text
    ):
        found = re.search(r"allocate (\d+) bytes", text)
        return CannotRun(f"not enough memory{f': {int(found[1]):,} B in one piece' if found else ''}", SMALLER)
    if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in text):
        return CannotRun(f"the other ranks cannot be reached: {text}", "look at their output; one may have ended")
    return None


def run(main: Callable[[], int | None]) -> None:
    """Run a workload's main: errors that a user can do something about are one line, and end the process."""
    code = 0
    try:
        code = main() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("error: interrupted")
        code = INTERRUPTED
    except OSError as error:
        # The table: what is read from or written to files is dealt with where it is.
        say(f"error: standard output: {error.strerror}")
        code = CannotRun.exit_code
    except (K25TraceError, RuntimeError, MemoryError) as error:
        known = error if isinstance(error, K25TraceError) else refusal(error)
        if known is None:
            raise
        who = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        say(f"error: {who}{known.message}")
        if known.hint:
            say(f"hint: {known.hint}")
        code = known.exit_code
    sys.stderr.flush()
    if code:
        for thread in threading.enumerate():
            if isinstance(thread, _Watch):
                thread.stop()
        _linger()
        # Threads of a broken process group would keep the interpreter.
        os._exit(code)
