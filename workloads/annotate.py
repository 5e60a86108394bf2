"""NVTX ranges of the domain ``k25``, cheap enough to leave on, and the recording of a profiler.

Python's ``nvtx`` up to 0.2.11 emits what Nsight Systems of any age records; later ones call functions that
2023.4 does not know. Without it, `torch.cuda.nvtx` is used, which has no domains. ``off`` emits nothing.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType

import torch
from k25trace.workloads.world import World

from k25trace import ranges
from k25trace.errors import UsageError


class _Span:
    """One range, reused: entering pushes, leaving pops."""

    __slots__ = ("_pop", "_push")

    def __init__(self, push: Callable[[], object], pop: Callable[[], object]) -> None:
        self._push, self._pop = push, pop

    def __enter__(self) -> None:
        self._push()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pop()


class Annotator:
    """Emits the ranges of a workload, and remembers which names it emitted.

    Parameters
    ----------
    library
        ``nvtx``, ``torch``, ``off``, or ``auto``: the first of them that works.
    """

    def __init__(self, library: str = "auto") -> None:
        self.emitted: dict[str, None] = {}
        self._spans: dict[str, AbstractContextManager[None]] = {}
        self.library = library
        self._make = self._maker(library)

    def _maker(self, library: str) -> Callable[[str], AbstractContextManager[None]]:
        if library in {"auto", "nvtx"}:
            try:
                import nvtx
            except ImportError:
                if library == "nvtx":
                    raise UsageError("nvtx is not installed", "pip install 'nvtx<0.2.12'") from None
            else:
                self.library = "nvtx"
                # Made once a name: registering the text is the dear part.
                return lambda text: nvtx.annotate(text, domain=ranges.DOMAIN)
        if library in {"auto", "torch"} and torch.cuda.is_available():
            self.library = "torch"
            push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
            return lambda text: _Span(lambda: push(text), pop)
        if library == "torch":
            raise UsageError("torch's NVTX needs a CUDA build and a GPU", "--nvtx nvtx, or --nvtx off")
        self.library = "off"
        return lambda _text: contextlib.nullcontext()

    def __call__(self, kind: str, index: int | None = None, part: str | None = None) -> AbstractContextManager[None]:
        """Return the range of a kind, index and part (`k25trace.ranges`), to be entered."""
        text = ranges.name(kind, index, part)
        span = self._spans.get(text)
        if span is None:
            span = self._spans[text] = self._make(text)
            self.emitted[text] = None
        return span

    def label(self, rank: int) -> None:
        """Emit ``rank=N``, which tells readers whose process this is."""
        with self(ranges.RANK, rank):
            pass

    def cost_ns(self, pairs: int = 500) -> int:
        """Return what entering and leaving one range costs the host now, by measurement."""
        span = self(ranges.BENCH, part="range_cost")
        began = time.perf_counter_ns()
        for _ in range(pairs):
            with span:
                pass
        return (time.perf_counter_ns() - began) // pairs


@contextlib.contextmanager
def recording(world: World, annotator: Annotator) -> Iterator[None]:
    """Open and close the profiler's capture range around a block (``--capture-range=cudaProfilerApi``).

    All ranks under one profiler share one recording: the first to start opens it and the first to stop ends
    it for everyone. So they meet before both. The rank label is the first event inside.

    Inside, ``world.recording`` is set: an old profiler loses what it recorded around a call that it does not
    know. Nsight Systems 2023.4 does not know CUDA 13's ``cudaEventElapsedTime`` (times of events are read
    after the recording: `k25trace.workloads.timing`), nor what libraries call when they start (so they start
    before it).
    """
    _start_libraries(world)
    world.barrier("the start of the recording")
    if world.cuda:
        torch.cuda.profiler.start()
    world.recording = True
    annotator.label(world.rank)
    world.barrier("the recording")
    try:
        yield
    finally:
        world.barrier("the end of the recording")
        world.recording = False
        if world.cuda:
            torch.cuda.profiler.stop()
        world.barrier("after the recording")


def _start_libraries(world: World) -> None:
    """Let cuBLAS and NCCL start, which they do when they are first used."""
    if not world.cuda:
        return
    one = torch.ones(1, 16, 16, dtype=torch.bfloat16, device=world.device)
    torch.bmm(one, one)
    torch.matmul(one[0], one[0])
    world.all_reduce(one)
