"""How long a call takes: CUDA events around it, warm, on weights that are not in the cache."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from k25trace.workloads.annotate import Annotator
from k25trace.workloads.world import World

CPU_CACHE_BYTES = 1 << 20
MAX_COPIES = 64
HOLD_NS = 100_000
MAX_HOLD_NS = 1_000_000
CYCLES_PER_NS = 2.0
"""Of a GPU's multiprocessors, at most about: a slower clock holds for longer."""


@dataclass(frozen=True)
class Quantiles:
    """Whole nanoseconds; quantiles are samples (nearest rank)."""

    n: int
    min: int
    p50: int
    p99: int
    max: int
    mean: int

    @staticmethod
    def of(samples: Sequence[int]) -> "Quantiles":
        """Return the quantiles of at least one sample."""
        ordered = sorted(samples)
        n = len(ordered)
        p50, p99 = (ordered[-(-n * percent // 100) - 1] for percent in (50, 99))
        return Quantiles(n, ordered[0], p50, p99, ordered[-1], sum(ordered) // n)


def cache_bytes(world: World) -> int:
    """Return the size of the device's last cache (L2)."""
    if not world.cuda:
        return CPU_CACHE_BYTES
    return int(torch.cuda.get_device_properties(world.device).L2_cache_size)


def copies_for(world: World, one_bytes: int, spare_bytes: int | None = None) -> int:
    """Return how many copies of an operand of ``one_bytes`` cycle through more than twice the cache.

    A weight read again and again from L2 would be faster than any model can be. Never more than
    ``spare_bytes`` hold, nor than 64.
    """
    wanted = 2 * cache_bytes(world) // max(1, one_bytes) + 2
    if spare_bytes is not None:
        wanted = min(wanted, max(1, spare_bytes // max(1, one_bytes)))
    return max(1, min(MAX_COPIES, wanted))


Moment = torch.cuda.Event | int
"""A moment on the device: an event in its stream, or the host's monotonic clock where the host is the device."""


def moment(world: World) -> Moment:
    """Return this moment, in the current stream of a GPU; on a CPU, now."""
    if not world.cuda:
        return time.monotonic_ns()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def elapsed_ns(world: World, start: Moment, end: Moment) -> int:
    """Return the time between two moments that have passed.

    Raises
    ------
    RuntimeError
        A recording is open: the profiler would lose events around the call that reads the times.
    """
    if world.recording:
        raise RuntimeError("the times of events are read after the recording, not in it")
    if isinstance(start, int) or isinstance(end, int):
        return int(end) - int(start)  # type: ignore[arg-type] # both are
    return round(start.elapsed_time(end) * 1e6)


class Hold:
    """Keeps the device busy until the host has launched what is timed, so that launching is not timed.

    Else a GPU that is faster than its host waits for it between two events: a graph of 122 all-reduces takes
    longer to launch than to run. On a CPU nothing is launched, and nothing held.

    Parameters
    ----------
    launch
        What will be timed; done once here, to know how long the host needs.
    together
        Every rank takes part and is held equally long.
    """

    def __init__(self, world: World, launch: Callable[[], object], *, together: bool = False) -> None:
        self._cycles = 0
        if not world.cuda:
            return
        world.synchronize()
        began = time.monotonic_ns()
        launch()
        took = time.monotonic_ns() - began
        world.synchronize()
        if together:
            took = max(world.gather(took))
        self._cycles = round(min(2 * took + HOLD_NS, MAX_HOLD_NS) * CYCLES_PER_NS)

    def __call__(self) -> None:
        """Hold the current stream, from now on."""
        if self._cycles:
            torch.cuda._sleep(self._cycles)


@dataclass(frozen=True)
class Taken:
    """Samples that were taken and are not read yet: moments before and after each, of so many calls."""

    world: World
    pairs: Sequence[tuple[Moment, Moment]]
    calls: int = 1

    def read(self) -> list[int]:
        """Return the nanoseconds of one call in each sample; not inside a recording."""
        return [elapsed_ns(self.world, start, end) // self.calls for start, end in self.pairs]


@dataclass(frozen=True)
class Timing:
    """How to time: samples of ``calls`` calls each after ``warmup``, as a CUDA graph or one by one."""

    samples: int = 20
    warmup: int = 3
    calls: int = 20
    graph: bool = True


def time_calls(
    world: World,
    annotator: Annotator,
    call: Callable[[int], object],
    timing: Timing,
    label: str,
) -> Taken:
    """Return the samples, to be read after the recording; ``call(i)`` works on the i-th copy of its operands.

    A sample is ``calls`` calls between two events, in one range ``bench.LABEL``, and its time is divided by
    them: on a GPU as replays of a CUDA graph unless ``timing`` says otherwise. The device is held before each
    until the host has launched it. Nothing synchronises inside. On a CPU the host's clock is read.
    """
    world.at(f"the timing of {label}")
    calls = max(1, timing.calls)

    def several() -> None:
        for index in range(calls):
            call(index)

    for _ in range(max(1, timing.warmup)):
        several()
    world.synchronize()
    graph = None
    replay: Callable[[], None] = several
    if timing.graph and world.cuda:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            several()
        replay = graph.replay
        replay()
    hold = Hold(world, replay)
    pairs: list[tuple[Moment, Moment]] = []
    for _ in range(timing.samples):
        hold()
        with annotator("bench", part=label):
            start = moment(world)
            replay()
            pairs.append((start, moment(world)))
    world.synchronize()
    del graph, replay
    return Taken(world, pairs, calls)


@dataclass(frozen=True)
class Ceilings:
    """What the device reached in this run: bytes read and written by a copy, bf16 FLOPs; a second."""

    copy_bytes_per_s: float
    matmul_flops_per_s: float


def measure_ceilings(world: World, annotator: Annotator, timing: Timing) -> Ceilings:
    """Measure the two ceilings on random data."""
    size = 1 << (30 if world.cuda else 22)
    side = 8192 if world.cuda else 256
    one = Timing(samples=min(timing.samples, 10), warmup=2, calls=2, graph=False)
    copy = Quantiles.of(time_calls(world, annotator, _copier(world, size), one, "ceiling_copy").read())
    product = Quantiles.of(time_calls(world, annotator, _multiplier(world, side), one, "ceiling_matmul").read())
    return Ceilings(2 * size / (copy.p50 * 1e-9), 2 * side**3 / (product.p50 * 1e-9))


def _copier(world: World, size: int) -> Callable[[int], object]:
    source = torch.randint(-128, 127, (size,), dtype=torch.int8, device=world.device)
    target = torch.empty_like(source)
    return lambda _: target.copy_(source)


def _multiplier(world: World, side: int) -> Callable[[int], object]:
    a, b = (torch.randn(side, side, device=world.device, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return lambda _: torch.matmul(a, b, out=out)
