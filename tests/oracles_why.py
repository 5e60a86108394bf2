"""Brute-force answers to the questions about steps, collectives and gaps, from their written definitions alone.

Built on the reading of `oracles`, which shares no code with the product: every pair is looked at, every interval is
scanned. Slow and plain on purpose.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import oracles
from oracles import FAR, Call, Classify, Interval, Operation, Range, covered, os_pid


@dataclass
class Seen:
    """One report with everything that occupies a GPU; opaque replays are operations of kind ``replay``."""

    report: oracles._Report
    ranges: list[Range]
    operations: list[Operation]
    window: Interval

    @property
    def kernels(self) -> list[Operation]:
        """The kernels alone."""
        return [o for o in self.operations if o.kind == "kernel"]


def see(path: Path | str, classify: Classify, domains: Sequence[str] | None = None) -> Seen:
    """Read a report."""
    report = oracles._Report(path, classify)
    if not any(o.kind == "kernel" for o in report.operations):
        raise oracles.NoAnswer("no kernels")
    oracles._identify(report)
    ranges = oracles._chosen(report.ranges, domains)
    oracles._assign_paths(report, ranges)
    replays = []
    calls: dict[tuple[int, int | None], Call] = {}
    for call in report.calls:
        calls.setdefault((call.process, call.corr), call)
    intervals = [(o.process, o.corr, o.gpu, o.start, o.end) for o in report.replays]
    for launch in oracles._graph_launches(report):
        if launch.interval and launch.gpu:
            intervals.append((*launch.key, launch.gpu, *launch.interval))
    known = [o for o in report.operations if o.kind == "kernel"]
    bounds = [(o.start, o.end) for o in known] + [(s, e) for *_, s, e in intervals if e < FAR]
    window = (min(s for s, _ in bounds), max(e for _, e in bounds))
    for process, corr, gpu, start, stop in intervals:
        end = min(stop, window[1])
        if end >= start:
            call = calls.get((process, corr))
            replays.append(Operation("replay", start, end, process, 0, 0, corr, None, "", "", "", gpu, call))
    return Seen(report, ranges, [*report.operations, *replays], window)


def percentile(values: Sequence[int], percent: int) -> int:
    """Return the smallest value that at least so many percent of the values are not above."""
    return next(v for v in sorted(values) if 100 * sum(x <= v for x in values) >= percent * len(values))


# ---------------------------------------------------------------- steps


def step_of(seen: Seen, o: Operation, glob: str) -> Range | None:
    """Return the outermost matching range that was open on the launching thread at the launch."""
    if o.call is None:
        return None
    stacks = [r for r in seen.ranges if not r.startend]
    matching = [r for r in oracles._open(stacks, o.call.thread, o.call.start) if fnmatchcase(r.name, glob)]
    return matching[0] if matching else None


def numbered(seen: Seen, glob: str) -> dict[int, tuple[int, int]]:
    """Return id of a used step range -> (process, index)."""
    used = {id(r): r for o in seen.operations if (r := step_of(seen, o, glob)) is not None}
    by_process: dict[int, list[Range]] = defaultdict(list)
    for r in used.values():
        by_process[oracles._process(r.thread)].append(r)
    return {
        id(r): (process, index)
        for process, ranges in by_process.items()
        for index, r in enumerate(sorted(ranges, key=lambda r: (r.start, r.row)))
    }


def steps(seen: Seen, glob: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Return (gpu, pid, index) -> what the step took there."""
    numbers = numbered(seen, glob)
    members: dict[tuple[str, int, int], list[Operation]] = defaultdict(list)
    for o in seen.operations:
        r = step_of(seen, o, glob)
        if r is not None:
            process, index = numbers[id(r)]
            members[o.gpu, os_pid(process), index].append(o)
    out = {}
    for key, mine in members.items():
        gpu = key[0]
        span = (min(o.start for o in mine), max(o.end for o in mine))
        kernels = [o for o in mine if o.kind == "kernel"]
        comm = [o for o in kernels if o.category.startswith("comm.")]
        computing = [o for o in seen.kernels if o.gpu == gpu and not o.category.startswith("comm.")]
        both = covered(_times([*comm, *computing]), _everything(seen))
        categories: Counter[str] = Counter()
        for o in kernels:
            categories[o.category] += o.end - o.start
        out[key] = {
            "start_ns": span[0],
            "end_ns": span[1],
            "span_ns": span[1] - span[0],
            "busy_ns": covered(_times(kernels), _everything(seen)),
            "exposed_communication_ns": both - covered(_times(computing), _everything(seen)),
            "idle_ns": span[1] - span[0] - covered(_times([o for o in seen.operations if o.gpu == gpu]), [span]),
            "opaque_ns": covered(_times([o for o in mine if o.kind == "replay"]), _everything(seen)),
            "kernel_count": len(kernels),
            "kernel_ns": sum(o.end - o.start for o in kernels),
            "categories": dict(categories),
        }
    return out


def _times(operations: Sequence[Operation]) -> list[Interval]:
    return [(o.start, o.end) for o in operations]


def _everything(seen: Seen) -> list[Interval]:
    return [(min(o.start for o in seen.operations), max(o.end for o in seen.operations))]


# ---------------------------------------------------------------- collectives


def collectives(seen: Seen, glob: str | None) -> tuple[dict[Any, dict[str, Any]], dict[Any, int]]:
    """Return (step, family, ordinal) -> the collective with its ranks, and (step, family) -> kernels left out.

    ``glob``: only what was launched inside matching ranges; None: the report without steps. All ranks are taken for
    one communicator.
    """
    numbers = numbered(seen, glob) if glob is not None else {}
    step_start: dict[tuple[str, int], int] = {}
    kernels: dict[tuple[Any, str], dict[tuple[str, int], list[Operation]]] = defaultdict(lambda: defaultdict(list))
    members: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for o in seen.operations:
        r = step_of(seen, o, glob) if glob is not None else None
        if glob is not None and r is None:
            continue
        step = None if r is None else numbers[id(r)][1]
        if r is not None:
            key = (o.gpu, id(r))
            step_start[key] = min(step_start.get(key, o.start), o.start)
        if o.category.startswith("comm."):
            rank = (o.gpu, os_pid(o.process))
            kernels[step, o.family][rank].append(o)
            members[o.family].add(rank)
            o.path = (*o.path, r) if r is not None else o.path  # remembered for the start of its step
    out: dict[Any, dict[str, Any]] = {}
    unmatched: dict[Any, int] = {}
    for (step, family), by_rank in kernels.items():
        counts = {len(by_rank.get(rank, [])) for rank in members[family]}
        if len(counts) > 1 or len(members[family]) < 2:
            unmatched[step, family] = sum(map(len, by_rank.values()))
            continue
        for ordinal in range(counts.pop()):
            ranks = {
                rank: sorted(mine, key=lambda o: (o.start, o.end))[ordinal] for rank, mine in sorted(by_rank.items())
            }
            out[step, family, ordinal] = _collective(seen, ranks)
    _compute(seen, out, step_start, glob is not None)
    return out, unmatched


def _collective(seen: Seen, ranks: dict[tuple[str, int], Operation]) -> dict[str, Any]:
    first, last = min(o.start for o in ranks.values()), max(o.start for o in ranks.values())
    rows = {}
    for rank, o in ranks.items():
        wait = max(0, min(o.end, last) - o.start)
        rows[rank] = {"start_ns": o.start, "end_ns": o.end, "wait_ns": wait, "transfer_ns": o.end - o.start - wait}
    late = next(rank for rank, o in ranks.items() if o.start == last) if last > first else None
    ran = cause = None
    if late is not None:
        call = ranks[late].call
        cause = None if call is None else "launch" if call.start > first else "gpu"
        ran = _running(seen, late[0], first)
    return {
        "operations": ranks,
        "ranks": rows,
        "skew_ns": last - first,
        "late": late,
        "late_cause": cause,
        "late_ran": ran,
        "ended_early_count": sum(o.end < last for o in ranks.values()),
    }


def _running(seen: Seen, gpu: str, t: int) -> str:
    """Return what ran on a GPU at an instant: what started last, or if that is over what ends last."""
    kinds = {"kernel": 0, "memcpy": 1, "memset": 2, "replay": 3}

    def order(o: Operation) -> tuple[int, ...]:
        known = o.kind == "kernel"
        return (o.start, o.end, kinds[o.kind], oracles.ALL_CATEGORIES.index(o.category) if known else -1)

    begun = sorted((o for o in seen.operations if o.gpu == gpu and o.start <= t), key=order)
    if not begun:
        return "idle"
    latest, longest = begun[-1], max(enumerate(begun), key=lambda pair: (pair[1].end, pair[0]))[1]
    for o in (latest, longest):
        if o.end > t:
            return {"kernel": o.category, "replay": oracles.OPAQUE}.get(o.kind, o.kind)
    return "idle"


def _compute(seen: Seen, found: dict[Any, dict[str, Any]], step_start: dict[Any, int], in_steps: bool) -> None:
    """Set compute_ns of every rank: time other kernels ran since the collective before, or since the step began."""
    by_rank: dict[Any, list[tuple[Any, Operation]]] = defaultdict(list)
    for (step, family, ordinal), one in found.items():
        for rank, o in one["operations"].items():
            by_rank[rank, step].append(((o.start, o.end, family, ordinal), o))
    for (rank, step), several in by_rank.items():
        reach = None
        for (start, end, family, ordinal), o in sorted(several, key=lambda pair: pair[0]):
            since = reach
            if since is None and in_steps:
                since = step_start[o.gpu, id(o.path[-1])]
            others = [x for x in seen.kernels if x.gpu == rank[0] and not x.category.startswith("comm.")]
            compute = None if since is None else covered(_times(others), [(min(since, start), start)])
            found[step, family, ordinal]["ranks"][rank]["compute_ns"] = compute
            reach = end if reach is None else max(reach, end)


# ---------------------------------------------------------------- gaps


SYNCHRONIZING = re.compile(r"cu(da)?(Device|Ctx|Stream|Thread|Event)Synchronize|cu(da)?Memcpy(?!.*Async)")


def gaps(
    seen: Seen, least: int, window: Interval | None = None, overhead: Sequence[tuple[int, int, int]] = ()
) -> tuple[dict[tuple[str, int, int], list[dict[str, Any]]], dict[str, tuple[int, int]]]:
    """Return (gpu, start, end) -> what may be said of the gap, and gpu -> (count, ns) of shorter ones.

    Several answers are allowed where neighbours cannot be told apart by launch and time. ``overhead``: (pid, start,
    end) of what the profiler recorded of its own.
    """
    lo, hi = window or seen.window
    out: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    short: Counter[str] = Counter()
    short_ns: Counter[str] = Counter()
    for gpu in {o.gpu for o in seen.operations}:
        mine = [o for o in seen.operations if o.gpu == gpu]
        bounds = sorted({lo, hi, *(t for o in mine for t in (o.start, o.end) if lo < t < hi)})
        idle = [(a, b) for a, b in pairwise(bounds) if not any(o.start <= a and b <= o.end for o in mine)]
        for a, b in oracles._merged(idle):
            if b - a < least:
                short[gpu] += 1
                short_ns[gpu] += b - a
                continue
            earlier = _best([o for o in mine if o.end == a], lambda o: (_launch(o, -FAR), o.start), max)
            afters = _best([o for o in mine if o.start == b], lambda o: (_launch(o, FAR), o.end), min)
            out[gpu, a, b] = [
                _told(seen, a, b, before, after, (lo, hi), overhead)
                for before in earlier or [None]
                for after in afters or [None]
            ]
    return out, {gpu: (short[gpu], short_ns[gpu]) for gpu in short}


def _launch(o: Operation, unknown: int) -> int:
    return unknown if o.call is None else o.call.start


def _best(several: list[Operation], key: Any, choose: Any) -> list[Operation]:
    return [o for o in several if key(o) == choose(map(key, several))]


def _told(
    seen: Seen, a: int, b: int, before: Operation | None, after: Operation | None, window: Interval,
    overhead: Sequence[tuple[int, int, int]],
) -> dict[str, Any]:  # fmt: skip
    call = after.call if after is not None else None
    reach = a
    if call is not None:
        waits = [c for c in seen.report.calls if c.thread == call.thread and SYNCHRONIZING.match(c.name)]
        while nexts := [c.end for c in waits if c.start <= reach < c.end]:
            reach = max(nexts)
    own = [(s, e) for pid, s, e in overhead if after is not None and pid == os_pid(after.process)]
    lost = covered([(max(s, a), min(e, b)) for s, e in own if s < b and e > a], [(a, b)])
    if a == window[0] or b == window[1]:
        cause = "edge"
    elif (
        before and after and before.node is not None and after.node is not None
        and (before.process, before.corr) == (after.process, after.corr)
    ):  # fmt: skip
        cause = "graph-internal"
    elif lost and 2 * lost >= b - a:
        cause = "profiler"
    elif call is None:
        cause = "unknown"
    elif reach > a:
        cause = "sync"
    elif call.end <= a:
        cause = "dependency"
    elif call.start <= a:
        cause = "launch-bound"
    else:
        cause = "host-bound"
    free = min(reach, b) if cause == "sync" else a
    host = max(0, min(call.start, b) - free) if cause in {"sync", "host-bound"} and call else 0
    names = {"kernel": None, "replay": oracles.OPAQUE}
    return {
        "cause": cause,
        "before": None if before is None else names.get(before.kind, before.kind) or before.name,
        "after": None if after is None else names.get(after.kind, after.kind) or after.name,
        "blocked_ns": free - a,
        "host_ns": host,
        "latency_ns": b - free - host,
    }
