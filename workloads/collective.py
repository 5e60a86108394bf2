"""One collective whose sums are known, and iterations of it that every rank begins together."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from k25trace.workloads.annotate import Annotator
from k25trace.workloads.timing import Hold, Moment, elapsed_ns, moment
from k25trace.workloads.world import World, all_gather_into, reduce_scatter_into

from k25trace.ranges import ALLGATHER, ALLREDUCE, BENCH, REDUCESCATTER, name

OPERATIONS = {"all_reduce": ALLREDUCE, "all_gather": ALLGATHER, "reduce_scatter": REDUCESCATTER}
ONE_SHOT = "one_shot"
PATTERN = 7
"""Values cycle through so many small whole numbers; fewer where there are many ranks (`Pattern`)."""
EXACT = 256
"""Whole numbers up to this are exact in bf16."""


@dataclass(frozen=True)
class Pattern:
    """What ranks bring: a cycle of whole numbers, and to each of them the rank's own.

    Sums over up to 256 ranks, or over some of them, are exact in bf16.
    """

    cycle: torch.Tensor
    ranks: int

    @staticmethod
    def of(n: int, ranks: int, dtype: torch.dtype, device: torch.device) -> "Pattern":
        """Return the pattern of n elements."""
        most = EXACT // 2 // ranks + 1
        return Pattern((torch.arange(n, device=device) % max(2, min(PATTERN, most))).to(dtype), ranks)

    def own(self, rank: int) -> int:
        """Return what a rank adds to the cycle."""
        return rank % min(self.ranks, EXACT // 2 // self.ranks + 1)

    def brought(self, rank: int) -> torch.Tensor:
        """Return what a rank brings."""
        return self.cycle + self.own(rank)

    def total(self) -> torch.Tensor:
        """Return what all ranks bring, added up."""
        return self.cycle * self.ranks + sum(self.own(rank) for rank in range(self.ranks))


class Operation:
    """One collective on its own buffers, whose result is known.

    Parameters
    ----------
    kind
        One of `OPERATIONS`, or ``one_shot``: an all-reduce by torch's symmetric memory.
    size
        nccl-tests' S in bytes.
    """

    def __init__(self, world: World, kind: str, size: int, dtype: torch.dtype) -> None:
        self.world, self.kind = world, kind
        n, ranks = max(1, size // dtype.itemsize), world.size
        if kind in {"all_gather", "reduce_scatter"}:
            n = max(ranks, n // ranks * ranks)
        self.size = n * dtype.itemsize
        self._pattern = Pattern.of(n, ranks, dtype, world.device)
        mine = self._pattern.brought(world.rank)
        self._call: Callable[[], object]
        if kind == ONE_SHOT:
            self._call = self._one_shot(mine)
        elif kind == "all_reduce":
            self._source, self.out = mine, mine.clone()
            self._call = lambda: dist.all_reduce(self.out)
        elif kind == "all_gather":
            part = mine[: n // ranks].clone()
            self.out = torch.zeros(n, dtype=dtype, device=world.device)
            self._call = lambda: all_gather_into(self.out, part)
        else:
            self.out = torch.zeros(n // ranks, dtype=dtype, device=world.device)
            self._call = lambda: reduce_scatter_into(self.out, mine)

    def _one_shot(self, mine: torch.Tensor) -> Callable[[], object]:
        # Without multicast, which one-shot does not need.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        import torch.distributed._symmetric_memory as symmetric

        group = dist.group.WORLD.group_name  # type: ignore[union-attr]
        shared = symmetric.empty(mine.numel(), dtype=mine.dtype, device=mine.device)
        symmetric.rendezvous(shared, group)
        shared.copy_(mine)
        self.out = torch.empty_like(mine)

        def call() -> None:
            torch.ops.symm_mem.one_shot_all_reduce_out(shared, "sum", group, self.out)

        return call

    def __call__(self) -> None:
        """Do it once."""
        self._call()

    def wrong(self) -> int:
        """Do it once on fresh data, and return how many elements are wrong on any rank."""
        if self.kind == "all_reduce":
            self.out.copy_(self._source)
        else:
            self.out.fill_(-1)
        self()
        self.world.synchronize()
        ranks, rank = self.world.size, self.world.rank
        if self.kind == "all_gather":
            expected = torch.cat([self._pattern.brought(other).chunk(ranks)[0] for other in range(ranks)])
        elif self.kind == "reduce_scatter":
            expected = self._pattern.total().chunk(ranks)[rank]
        else:
            expected = self._pattern.total()
        wrong = int((self.out != expected).sum())
        # All-reduce works in place: sums of sums would overflow, so the calls that are timed add zeros.
        if self.kind == "all_reduce":
            self.out.zero_()
        return sum(self.world.gather(wrong))


class Clock:
    """Puts a device's moments on the host's clock, which the ranks of one machine share."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.synchronize()
        before = time.monotonic_ns()
        self._moment = moment(world)
        world.synchronize()
        after = time.monotonic_ns()
        self._base = self._moment if isinstance(self._moment, int) else (before + after) // 2
        self.uncertainty_ns = 0 if isinstance(self._moment, int) else after - before

    def host_ns(self, when: Moment) -> int:
        """Return the host's time of a moment that has passed; not inside a recording."""
        return self._base + elapsed_ns(self._world, self._moment, when)


@dataclass(frozen=True)
class Measured:
    """Iterations that ran, to be read after the recording: moments before and after each."""

    pairs: Sequence[tuple[Moment, Moment]]
    clock: Clock
    range: str | None = None


def iterate(
    world: World,
    annotator: Annotator,
    label: str,
    once: Callable[[], None],
    count: int,
    warmup: int,
    *,
    graph: bool,
) -> Measured:
    """Run iterations, each in a range ``bench.LABEL``, eager or as replays of a CUDA graph.

    Graphs are launched while the device is held, and ranks begin together, so their times are the devices';
    eager ones are as long as the hosts make them, as in an eager step.
    """
    world.barrier(label)
    for _ in range(max(1, warmup)):
        once()
    captured = None
    body = once
    if graph and world.cuda:
        world.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            once()
        body = captured.replay
        body()
    hold = None if captured is None else Hold(world, body, together=True)
    clock = Clock(world)
    world.barrier(f"{label}, timed")
    pairs: list[tuple[Moment, Moment]] = []
    for _ in range(count):
        if hold is not None:
            begin_together(world, hold)
        with annotator(BENCH, part=label):
            start = moment(world)
            body()
            pairs.append((start, moment(world)))
    world.synchronize()
    del captured, body
    return Measured(pairs, clock, name(BENCH, part=label))


def begin_together(world: World, hold: Hold) -> None:
    """Let every rank's device wait for its host, and then for the others."""
    hold()
    world.all_reduce(torch.zeros(1, device=world.device))
