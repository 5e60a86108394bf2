"""Hypothesis strategies: sets of intervals, and small traces with everything that real ones surprise with.

Traces are drawn as a `TraceBuilder`. Numbers are tiny, so that everything touches, nests and collides. The
calls that begin and end a stream capture stand at odd instants and other API calls at even ones, because
calls of one thread cannot overlap in reality.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tracekit import KNOWN_KERNELS, LAUNCH_CALL, KernelName, TraceBuilder, unknown

FIRST_NODE = 1 << 32
INSTANTIATED_NODE = 2 << 32
GRAPH_TRACE_SINCE = (3, 16)

WEIRD_NAMES: tuple[str | bytes, ...] = (
    "",
    "nul\x00inside",
    "line\nbreak",
    b"\xff\xfe not text",
    "</script><b>bold</b>",
    "x" * 3000,
    "nccl:all_reduce",
    "*",
    "[a-z]",
    "\u202eright to left",
)
RANGE_NAMES: tuple[str | bytes | None, ...] = ("step", "layer", "attn", "layer", None, *WEIRD_NAMES)
DOMAIN_NAMES = ("NCCL", "engine", "default")

instants = st.integers(0, 60)
even_instants = st.integers(0, 30).map(lambda t: 2 * t)
odd_instants = st.integers(-10, 25).map(lambda t: 2 * t + 1)


def intervals(max_size: int = 8, lowest: int = -5, highest: int = 25) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Draw lists of half-open intervals; empty, touching, nested and equal ones are common."""
    bound = st.integers(lowest, highest)
    one = st.tuples(bound, bound).map(lambda x: (min(x), max(x)))
    return st.one_of(st.lists(one, max_size=max_size), _chains(max_size, lowest), _nests(max_size, lowest, highest))


def _chains(max_size: int, lowest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Intervals of which each starts where the one before it ends."""

    def chain(lengths: list[int]) -> list[tuple[int, int]]:
        out, at = [], lowest
        for length in lengths:
            out.append((at, at + length))
            at += length
        return out

    return st.lists(st.integers(0, 5), max_size=max_size).map(chain)


def _nests(max_size: int, lowest: int, highest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Intervals of which each lies inside the one before it, perhaps sharing a bound."""

    def nest(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
        out, (a, b) = [], (lowest, highest)
        for left, right in steps:
            a, b = min(a + left, b), max(b - right, min(a + left, b))
            out.append((a, b))
        return out

    return st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=max_size).map(nest)


kernel_names: st.SearchStrategy[KernelName] = st.one_of(
    st.sampled_from(KNOWN_KERNELS),
    st.sampled_from([unknown(n) for n in WEIRD_NAMES] + [unknown("my_kernel(int)")]),
)


@st.composite
def traces(draw: st.DrawFn, *, max_processes: int = 3, graphs: bool = True, unusable: bool = True) -> TraceBuilder:
    """Draw a trace of at most about 40 kernels, with one kernel of usable times at least."""
    schema = draw(st.sampled_from(["3.7.2", "3.28.1", "3.16.1", "2.9.1"]))
    t = TraceBuilder(
        schema=schema,
        shuffle=draw(st.one_of(st.none(), st.integers(0, 3))),
        without=draw(st.sampled_from(_LACKING)),
    )
    duration = draw(st.sampled_from([None, 100, 10_000_000]))
    if duration is not None:
        t.duration(duration)
    pids = [1000 * (i + 1) for i in range(draw(st.integers(1, max_processes)))]
    layout = draw(st.sampled_from(["zero", "spread", "two", "mapped"]))
    for i, pid in enumerate(pids):
        t.process(pid, hw=draw(st.sampled_from([0, 0, 33, 128, 255])))
        t.first_correlation = 100  # the ids of every process start at the same number
        ordinals = {"zero": [0], "mapped": [0], "spread": [i], "two": [i, i + 1]}[layout]
        if layout == "mapped":
            t.cuda_device(pid, 0, draw(st.integers(0, 2)))
        _process(draw, t, pid, ordinals, graphs=graphs, first=i == 0)
    if unusable:
        for start, length in draw(st.lists(st.sampled_from(_unusable_times(duration)), max_size=2)):
            t.first_correlation += 500
            if draw(st.booleans()):
                t.kernel(draw(kernel_names), start, length, pid=pids[0], device=0)
            else:
                t.memcpy(start, length, pid=pids[0])
    if draw(st.booleans()):
        for index in range(3):
            t.gpu(index)
    return t


_LACKING: list[tuple[str, ...]] = [
    *[()] * 12,
    ("TARGET_INFO_GPU", "ThreadNames", "ProcessStreams"),
    ("CUPTI_ACTIVITY_KIND_KERNEL.sharedMemoryExecuted", "NVTX_EVENTS.category", "NVTX_EVENTS.color"),
    ("NVTX_EVENTS.endGlobalTid", "CUPTI_ACTIVITY_KIND_RUNTIME.callchainId"),
    ("META_DATA_EXPORT",),
    ("PROCESSES", "ENUM_NSYS_EVENT_TYPE"),
    ("NVTX_EVENTS",),
    ("CUPTI_ACTIVITY_KIND_RUNTIME",),
    ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"),
    ("CUPTI_ACTIVITY_KIND_KERNEL.graphNodeId",),
    ("NVTX_EVENTS.textId",),
    ("NVTX_EVENTS.domainId",),
]


def _unusable_times(duration: int | None) -> list[tuple[int, int]]:
    """Return (start, length) that no event of the capture can have."""
    common = [(0, 0), (50, -20), (1 << 62, 5)]
    if duration is None:
        return [*common, (-(1 << 62), 5)]
    return [*common, (duration + 60 * 10**9 + 1, 5), (-60 * 10**9 - 1, 5), (10, duration + 60 * 10**9)]


def _process(draw: st.DrawFn, t: TraceBuilder, pid: int, ordinals: list[int], *, graphs: bool, first: bool) -> None:
    tids = [pid, pid + 1][: draw(st.integers(1, 2))]
    domains = draw(st.lists(st.sampled_from(DOMAIN_NAMES[:2]), max_size=2, unique=True))
    for number, name in enumerate(domains, 1):
        t.domain(name, number, pid=pid, registered=draw(st.booleans()))
    _ranges(draw, t, pid, tids, len(domains))
    _operations(draw, t, pid, tids, ordinals, first=first)
    if graphs and draw(st.sampled_from([True, True, False])):
        _graph(draw, t, pid, tids, ordinals[0])
    _other_calls(draw, t, pid, tids)


def _ranges(draw: st.DrawFn, t: TraceBuilder, pid: int, tids: list[int], domains: int) -> None:
    lengths = st.one_of(st.integers(0, 40), st.none(), st.sampled_from([100, 100]))
    # One domain number more than were created: a domain whose creation the recording missed.
    where = st.integers(0, domains + 1)
    for tid in tids:
        for start, length, name, domain, registered in draw(
            st.lists(
                st.tuples(st.integers(-20, 50), lengths, st.sampled_from(RANGE_NAMES), where, st.booleans()),
                max_size=6,
            )
        ):
            end = None if length is None else start + length
            t.push_pop(name, start, end, pid=pid, tid=tid, domain=domain, registered=registered)
    for start, length, name, domain, tid in draw(
        st.lists(
            st.tuples(instants, lengths, st.sampled_from(RANGE_NAMES), where, st.sampled_from(tids)),
            max_size=2,
        )
    ):
        end = None if length is None else start + length
        t.start_end(name, start, end, pid=pid, tid=tid, end_tid=tids[-1], domain=domain)
    if draw(st.booleans()):
        t.mark("a mark", draw(instants), pid=pid, tid=tids[0])


def _operations(
    draw: st.DrawFn, t: TraceBuilder, pid: int, tids: list[int], ordinals: list[int], *, first: bool
) -> None:
    one = st.tuples(
        st.sampled_from(["kernel", "kernel", "kernel", "memcpy", "memset"]),
        st.one_of(st.integers(1, 90), st.integers(-9, -1)),
        st.sampled_from([0, 1, 2, 3, 7, 10, 20]),
        st.sampled_from(ordinals),
        st.sampled_from([7, 20]),
        st.one_of(even_instants, even_instants, even_instants, st.none()),
        st.sampled_from(tids),
        st.booleans(),
    )
    for i, (kind, start, length, device, stream, launch, tid, doubled) in enumerate(
        draw(st.lists(one, min_size=draw(st.sampled_from([int(first), 3, 6])), max_size=10))
    ):
        where: dict[str, Any] = {"device": device, "stream": stream, "pid": pid, "launch": launch, "tid": tid}
        if kind == "kernel" or (first and i == 0):
            corr = t.kernel(draw(kernel_names), start, length, **where)
            if doubled and launch is not None and draw(st.integers(0, 3)) == 0:
                t.api("cuLaunchKernel", launch + 1, 1, pid=pid, tid=tid, corr=corr)
        elif kind == "memcpy":
            t.memcpy(start, length, **where)
        else:
            t.memset(start, length, **where)


def _graph(draw: st.DrawFn, t: TraceBuilder, pid: int, tids: list[int], device: int) -> None:
    """Draw a graph: its capture, its instances, and replays of which some are opaque."""
    tid = draw(st.sampled_from(tids))
    moments = draw(st.lists(st.integers(-20, 40), min_size=1, max_size=3))
    if draw(st.booleans()):
        begin = 2 * ((min(moments) - draw(st.integers(1, 10))) // 2) - 1
        t.capture(begin, 2 * (max(moments) // 2) + 3, pid=pid, tid=tid)
    # Ranges around the capture, in it, and around a single node.
    for before, length, name in draw(
        st.lists(st.tuples(st.integers(-3, 12), st.integers(1, 90), st.sampled_from(RANGE_NAMES)), max_size=3)
    ):
        t.push_pop(name, min(moments) - before, min(moments) - before + length, pid=pid, tid=tid)
    for i, at in enumerate(moments):
        t.node(at, FIRST_NODE + i, pid=pid, tid=tid)
    instances = draw(st.integers(0, 2))
    ids = [[FIRST_NODE + i for i in range(len(moments))]]
    for n in range(instances):
        base = INSTANTIATED_NODE + 100 * n
        # An instance is made from the captured graph, or cloned from the instance before it.
        originals = ids[-1] if draw(st.booleans()) else ids[0]
        twice, later = draw(st.booleans()), draw(st.integers(40, 60))
        for i, original in enumerate(originals):
            if twice:
                t.node(later + i, base + i, pid=pid, tid=tid)
            t.node(later + 5 + i, base + i, original, pid=pid, tid=tid)
            if twice and draw(st.booleans()):
                t.node(later + 9 + i, base + i, original, pid=pid, tid=tid)
        ids.append([base + i for i in range(len(moments))])
    rows_possible = tuple(map(int, t.schema.split("."))) >= GRAPH_TRACE_SINCE
    replays = draw(
        st.lists(
            st.tuples(
                even_instants,
                st.sampled_from(tids),
                st.sampled_from(ids),
                st.sampled_from(["node", "node", "opaque"]),
            ),
            min_size=1,
            max_size=3,
        )
    )
    has_rows = rows_possible and draw(st.booleans())
    for at, launcher, nodes, how in replays:
        corr = t.graph_launch(at, 4, pid=pid, tid=launcher)
        if how == "node":
            for i, node in enumerate(nodes):
                start = at + draw(st.integers(1, 40))
                t.kernel(
                    draw(kernel_names),
                    start,
                    draw(st.integers(0, 9)),
                    pid=pid,
                    device=device,
                    corr=corr,
                    node=node,
                    stream=7 + i % 2,
                )
        elif has_rows:
            t.graph_trace(at + draw(st.integers(1, 30)), draw(st.integers(0, 30)), corr=corr, device=device, pid=pid)


def _other_calls(draw: st.DrawFn, t: TraceBuilder, pid: int, tids: list[int]) -> None:
    names = [
        LAUNCH_CALL,
        "cuLaunchKernelEx",
        "cudaDeviceSynchronize_v3020",
        "cudaLaunchHostFunc_v10000",
        "cudaMalloc_v3020",
    ]
    for name, at, tid, returned in draw(
        st.lists(
            st.tuples(st.sampled_from(names), even_instants, st.sampled_from(tids), st.sampled_from([0, 0, 1])),
            max_size=3,
        )
    ):
        t.api(name, at, 2, pid=pid, tid=tid, returned=returned)


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what is asked of a trace, as keywords of the oracle: at most one of window and range."""
    out: dict[str, Any] = {}
    kind = draw(st.sampled_from(["default", "default", "window", "range"]))
    if kind == "window":
        start = draw(st.integers(-10, 80))
        out["window"] = (start, start + draw(st.integers(1, 60)))
    elif kind == "range":
        out["range_glob"] = draw(st.sampled_from(["*", "layer", "s*", "", "nccl*"]))
    out["domains"] = draw(st.sampled_from([None, None, ["default"], ["NCCL"], ["engine"], ["NCCL", "default"]]))
    return out
