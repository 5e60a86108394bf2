"""Brute-force answers to what k25trace computes, from the written definitions alone.

Nothing here shares code with the product: rows come through `sqlite3`, sets are scanned pairwise, the wall
partition walks every elementary interval. Slow and plain on purpose; the only import is the taxonomy's order.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from k25trace.taxonomy import ALL_CATEGORIES

Interval = tuple[int, int]
Classify = Callable[[str], tuple[str, str]]

FAR = 1 << 62
MINUTE_NS = 60 * 10**9
NEAR_THE_END_NS = 10**6
OPAQUE, IDLE, OUTSIDE = "opaque graph", "idle", "outside selection"
PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75

GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch(?![a-z])")
LAUNCH = re.compile(r"cu(da)?Launch(?!HostFunc)")
BEGIN_CAPTURE = re.compile(r"cu(da)?StreamBeginCapture")
END_CAPTURE = re.compile(r"cu(da)?StreamEndCapture")
SYNCHRONIZE = re.compile(r"cu(da)?(Device|Ctx|Stream|Thread)Synchronize")


class NoAnswer(Exception):
    """The report is sound and cannot say (exit code 3)."""


# ---------------------------------------------------------------- intervals


def ns_of(intervals: Iterable[Interval]) -> set[int]:
    """Return every nanosecond that an interval covers; for tiny numbers."""
    return {t for start, end in intervals for t in range(start, end)}


def runs(instants: Iterable[int]) -> list[Interval]:
    """Return a set of nanoseconds as maximal half-open intervals."""
    out: list[list[int]] = []
    for t in sorted(instants):
        if out and out[-1][1] == t:
            out[-1][1] = t + 1
        else:
            out.append([t, t + 1])
    return [(a, b) for a, b in out]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the maximal intervals that together cover what these cover; touching ones become one."""
    return runs(ns_of(intervals))


def intersect(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Return what both cover."""
    return runs(ns_of(a) & ns_of(b))


def subtract(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Return what the first cover and the second do not."""
    return runs(ns_of(a) - ns_of(b))


def covered(intervals: Iterable[Interval], windows: Iterable[Interval]) -> int:
    """Return the length of the union inside the windows, bound by bound: for large numbers."""
    intervals, windows = list(intervals), list(windows)
    total = 0
    for a, b in _pieces(intervals, windows):
        inside = any(s <= a and b <= e for s, e in windows)
        total += (b - a) * (inside and any(s <= a and b <= e for s, e in intervals))
    return total


def _pieces(*groups: Iterable[Interval]) -> list[Interval]:
    bounds = sorted({t for group in groups for interval in group for t in interval})
    return list(pairwise(bounds))


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    out: list[list[int]] = []
    for start, end in sorted(i for i in intervals if i[0] < i[1]):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return [(a, b) for a, b in out]


# ---------------------------------------------------------------- wall partition


def wall(
    windows: Sequence[Interval],
    compute: Sequence[tuple[int, int, str]],
    opaque: Sequence[Interval],
    communication: Sequence[tuple[int, int, str]],
    copies: Sequence[tuple[int, int, str]],
) -> Counter[str]:
    """Give every nanosecond of the windows to one row by walking each elementary interval.

    ``compute``, ``communication`` and ``copies`` are (start, end, row); the rows of communication are as they
    shall be shown. Shared nanoseconds go round in taxonomy order.
    """
    order = [
        *ALL_CATEGORIES,
        *(f"exposed {c}" for c in ALL_CATEGORIES),
        OUTSIDE,
        OPAQUE,
        "memcpy",
        "memset",
        IDLE,
    ]
    rows: Counter[str] = Counter()
    for window in _merged(windows):
        elementary: list[tuple[int, frozenset[str]]] = []  # length, owners
        everything = [(x[0], x[1]) for group in (compute, opaque, communication, copies) for x in group]
        for a, b in _pieces(everything, [window]):
            if a < window[0] or b > window[1]:
                continue
            owners = _owners(a, b, compute, opaque, communication, copies)
            if elementary and elementary[-1][1] == owners:
                elementary[-1] = (elementary[-1][0] + b - a, owners)
            else:
                elementary.append((b - a, owners))
        for length, owners in elementary:
            share, odd = divmod(length, len(owners))
            for i, row in enumerate(sorted(owners, key=order.index)):
                rows[row] += share + (i < odd)
    return Counter({row: ns for row, ns in rows.items() if ns})


def _owners(a: int, b: int, compute: Any, opaque: Any, communication: Any, copies: Any) -> frozenset[str]:
    def running(group: Iterable[tuple[int, int, str]]) -> frozenset[str]:
        return frozenset(row for start, end, row in group if start <= a and b <= end)

    if own := running(compute):
        return own
    if any(start <= a and b <= end for start, end in opaque):
        return frozenset({OPAQUE})
    return running(communication) or running(copies) or frozenset({IDLE})


# ---------------------------------------------------------------- reading


@dataclass
class Call:
    """One API call."""

    start: int
    end: int
    thread: int
    corr: int | None
    name: str
    failed: bool
    row: int

    @property
    def process(self) -> int:
        """The globalPid of the calling process."""
        return _process(self.thread)


@dataclass(eq=False)
class Operation:
    """One GPU operation."""

    kind: str  # kernel, memcpy, memset
    start: int
    end: int
    process: int
    ordinal: int
    stream: int
    corr: int | None
    node: int | None
    name: str
    category: str
    family: str
    gpu: str = ""
    call: Call | None = None
    path: tuple[Range, ...] = ()
    via: str = "launch"


@dataclass(eq=False)
class Range:
    """One NVTX range."""

    start: int
    end: int
    closed: bool
    thread: int
    name: str
    domain: int
    row: int
    startend: bool
    domain_name: str | None = None

    def open_at(self, t: int) -> bool:
        """Whether start ≤ t < end."""
        return self.start <= t < self.end

    @property
    def sort_key(self) -> tuple[int, int, int]:
        """Outermost first: by start, longer first, then row."""
        return (self.start, -self.end, self.row)


def _process(serialised: int) -> int:
    return serialised & ~0xFFFFFF


def os_pid(process: int) -> int:
    """Return the operating system's process id of a globalPid."""
    return (process >> 24) & 0xFFFFFF


class _Report:
    """Everything of one export that the definitions speak of, as plain Python objects."""

    def __init__(self, path: Path | str, classify: Classify) -> None:
        self.db = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
        self.db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self.tables = {name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.strings = {r["id"]: r["value"] for r in self._rows("StringIds")}
        self.duration = max(
            (r["duration"] for r in self._rows("ANALYSIS_DETAILS") if r["duration"] is not None), default=None
        )
        self.classify = classify
        self.unusable = {"kernel": 0, "copy": 0}
        self.kernel_keys: set[tuple[int, int | None]] = set()
        self.operations = [
            *self._operations("CUPTI_ACTIVITY_KIND_KERNEL", "kernel"),
            *self._operations("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy"),
            *self._operations("CUPTI_ACTIVITY_KIND_MEMSET", "memset"),
        ]
        self.replays = [
            o
            for o in self._operations("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph")
            if (o.process, o.corr) not in self.kernel_keys
        ]
        self.graph_rows = bool(self._rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"))
        self.calls = self._calls()
        self.ranges = self._ranges()
        self.nodes = self._nodes()
        self.device_map = {
            (r["pid"], r["cudaId"]): r["gpuId"] for r in self._rows("TARGET_INFO_CUDA_DEVICE") if r["gpuId"] is not None
        }
        self.db.close()

    def _rows(self, table: str) -> list[dict[str, Any]]:
        if table not in self.tables:
            return []
        cursor = self.db.execute(f"SELECT rowid AS row_number, * FROM {table}")
        names = [d[0] for d in cursor.description]
        return [dict(zip(names, values, strict=True)) for values in cursor]

    def _string(self, number: int | None) -> str:
        return "" if number is None else self.strings.get(number, f"<string {number}>")

    def _usable(self, start: int, end: int) -> bool:
        if start == end == 0 or end < start:
            return False
        if self.duration is None:
            return abs(start) < FAR and abs(end) < FAR
        return all(-MINUTE_NS <= t <= self.duration + MINUTE_NS for t in (start, end))

    def _operations(self, table: str, kind: str) -> list[Operation]:
        out = []
        for r in self._rows(table):
            process = _process(r["globalPid"])
            if kind == "kernel":
                self.kernel_keys.add((process, r["correlationId"]))
            if not self._usable(r["start"], r["end"]):
                self.unusable["kernel" if kind == "kernel" else "copy"] += 1
                continue
            name, category, family = "", kind, kind
            if kind == "kernel":
                name = self._string(r["demangledName"])
                category, family = self.classify(name)
            out.append(
                Operation(
                    kind,
                    r["start"],
                    r["end"],
                    process,
                    r["deviceId"],
                    r["streamId"],
                    r["correlationId"],
                    r.get("graphNodeId") or None,
                    name,
                    category,
                    family,
                )
            )
        return out

    def _calls(self) -> list[Call]:
        return sorted(
            (
                Call(
                    r["start"],
                    r["end"],
                    r["globalTid"],
                    r["correlationId"],
                    self._string(r["nameId"]),
                    bool(r["returnValue"]),
                    r["row_number"],
                )
                for r in self._rows("CUPTI_ACTIVITY_KIND_RUNTIME")
            ),
            key=lambda c: (c.start, -c.end, c.row),
        )

    def _ranges(self) -> list[Range]:
        created: dict[tuple[int, int], str] = {}
        out = []
        for r in self._rows("NVTX_EVENTS"):
            if r["globalTid"] is None:
                continue
            name = r["text"] if r["text"] is not None else self._string(r.get("textId"))
            domain = r.get("domainId") or 0
            if r["eventType"] == DOMAIN_CREATE:
                created[_process(r["globalTid"]), domain] = name
            elif r["eventType"] in (PUSH_POP, START_END):
                end = FAR * 4 if r["end"] is None else r["end"]
                out.append(
                    Range(
                        r["start"],
                        end,
                        r["end"] is not None,
                        r["globalTid"],
                        name,
                        domain,
                        r["row_number"],
                        r["eventType"] == START_END,
                    )
                )
        names = defaultdict(set)
        for x in out:
            names[_process(x.thread), x.domain].add(x.name)
        for x in out:
            key = (_process(x.thread), x.domain)
            if key in created:
                x.domain_name = created[key]
            elif x.domain == 0:
                x.domain_name = "default"
            elif all(n.startswith("nccl") for n in names[key]):
                x.domain_name = "NCCL"
        return out

    def _nodes(self) -> dict[tuple[int, int], tuple[int, int, int | None]]:
        """Return (process, node) -> (thread, start, original), one row a node."""
        table = "CUDA_GRAPH_NODE_EVENTS" if "CUDA_GRAPH_NODE_EVENTS" in self.tables else "CUDA_GRAPH_EVENTS"
        rows: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for r in self._rows(table):
            if r.get("graphNodeId") is not None:
                rows[_process(r["globalTid"]), r["graphNodeId"]].append(r)
        out = {}
        for key, several in rows.items():
            best = min(several, key=lambda r: (r["originalGraphNodeId"] is None, r["start"], r["row_number"]))
            out[key] = (best["globalTid"], best["start"], best["originalGraphNodeId"])
        return out

    def captured_at(self, process: int, node: int) -> tuple[int, int] | None:
        """Return (thread, moment) of a node's capture; None if the node has no row."""
        seen = set()
        row = self.nodes.get((process, node))
        while row is not None and row[2] is not None and node not in seen:
            seen.add(node)
            node = row[2]
            following = self.nodes.get((process, node))
            if following is None:
                return None  # the clone's own moment is not when anything was captured
            row = following
        return None if row is None else row[:2]

    def capture_begin(self, thread: int, moment: int) -> int | None:
        """Return when the stream capture in progress on a thread began."""
        open_captures: list[int] = []
        for call in self.calls:
            if call.thread != thread or call.failed or call.start > moment:
                continue
            if BEGIN_CAPTURE.match(call.name):
                open_captures.append(call.start)
            elif END_CAPTURE.match(call.name) and open_captures:
                open_captures.pop()
        return open_captures[-1] if open_captures else None


# ---------------------------------------------------------------- identity of GPUs


def _identify(report: _Report) -> set[str]:
    """Set ``gpu`` on every operation; return the warnings that this took."""
    operations = [*report.operations, *report.replays]
    ordinals: dict[int, set[int]] = defaultdict(set)
    for o in operations:
        ordinals[o.process].add(o.ordinal)
    used = set().union(*ordinals.values())
    said = set()
    for o in operations:
        mapped = report.device_map.get((os_pid(o.process), o.ordinal))
        if mapped is not None:
            o.gpu = f"0:{mapped}"
        elif len(used) > 1:
            said.add("assumed-device")
            o.gpu = f"0:{o.ordinal}"
        elif len(ordinals) > 1 and used == {0}:
            said.add("ambiguous-device")
            o.gpu = f"0:pid{os_pid(o.process)}/{o.ordinal}"
        else:
            o.gpu = f"0:{o.ordinal}"
            if len(ordinals) > 1:
                said.add("assumed-device")
    return said


# ---------------------------------------------------------------- NVTX


def _chosen(ranges: list[Range], domains: Sequence[str] | None) -> list[Range]:
    if domains is None:
        return [r for r in ranges if r.domain_name != "NCCL"]
    return [r for r in ranges if r.domain_name in domains]


def _assign_paths(report: _Report, ranges: list[Range]) -> int:
    """Set call, path and via of every operation; return how many kernels lack capture-time ranges."""
    first_call: dict[tuple[int, int | None], Call] = {}
    for call in report.calls:
        first_call.setdefault((call.process, call.corr), call)
    stacks = [r for r in ranges if not r.startend]
    every_stack = [r for r in report.ranges if not r.startend]
    missing = 0
    for o in report.operations:
        o.call = first_call.get((o.process, o.corr))
        launch = _open(stacks, o.call.thread, o.call.start) if o.call else []
        captured: list[Range] = []
        if o.node is not None:
            moment = report.captured_at(o.process, o.node)
            if moment is not None:
                thread, t = moment
                begin = report.capture_begin(thread, t)
                captured = [
                    r
                    for r in _open(stacks, thread, t)
                    if not (begin is not None and r.open_at(begin)) and r not in launch
                ]
            unknown = moment is None or (moment[1] < 0 and not _open(every_stack, *moment))
            missing += o.kind == "kernel" and unknown
        o.path = (*launch, *captured)
        o.via = "capture" if captured else "launch"
    return missing


def _open(ranges: list[Range], thread: int, t: int) -> list[Range]:
    return sorted((r for r in ranges if r.thread == thread and r.open_at(t)), key=lambda r: r.sort_key)


def _covering(ranges: list[Range], o: Operation) -> list[Range]:
    """Return the start/end ranges of the process that cover an operation's launch."""
    if o.call is None:
        return []
    return [r for r in ranges if r.startend and _process(r.thread) == o.process and r.open_at(o.call.start)]


# ---------------------------------------------------------------- opaque replays


@dataclass
class GraphLaunch:
    """One launch of a CUDA graph."""

    key: tuple[int, int | None]
    call: Call | None
    gpu: str | None
    opaque: bool
    interval: Interval | None = None  # end None-like FAR: open to the end of the window


def _graph_launches(report: _Report) -> list[GraphLaunch]:
    kernels: dict[tuple[int, int | None], list[Operation]] = defaultdict(list)
    for o in report.operations:
        if o.kind == "kernel":
            kernels[o.process, o.corr].append(o)
    rows = {(o.process, o.corr): o for o in report.replays}
    out, seen = [], set()
    for call in report.calls:
        key = (call.process, call.corr)
        if not GRAPH_LAUNCH.match(call.name) or call.failed or key in seen:
            continue
        seen.add(key)
        if key in report.kernel_keys:
            own = kernels.get(key)
            out.append(GraphLaunch(key, call, own[0].gpu if own else _gpu_of_bare(report, call), opaque=False))
        elif key in rows:
            out.append(GraphLaunch(key, call, rows[key].gpu, opaque=True))
        elif report.capture_begin(call.thread, call.start) is None:  # in a capture it adds a child graph
            gpu = _gpu_of_bare(report, call)
            bare = None if report.graph_rows else _may_run(report, call, gpu)
            out.append(GraphLaunch(key, call, gpu, opaque=True, interval=bare))
    out += [GraphLaunch(k, None, o.gpu, opaque=True) for k, o in rows.items() if k not in seen]
    return out


def _gpu_of_bare(report: _Report, call: Call) -> str | None:
    by_key: dict[tuple[int, int | None], str] = {}
    for o in sorted(report.operations, key=lambda o: o.start):
        by_key.setdefault((o.process, o.corr), o.gpu)
    near = [
        (c.start, by_key[c.process, c.corr])
        for c in report.calls
        if c.thread == call.thread and (c.process, c.corr) in by_key
    ]
    earlier = [x for x in near if x[0] <= call.start]
    later = [x for x in near if x[0] > call.start]
    if earlier:
        return max(earlier, key=lambda x: x[0])[1]
    if later:
        return min(later, key=lambda x: x[0])[1]
    own = sorted((o.ordinal, o.gpu) for o in [*report.operations, *report.replays] if o.process == call.process)
    return own[0][1] if own else None


def _may_run(report: _Report, call: Call, gpu: str | None) -> Interval | None:
    if gpu is None:
        return None
    ends = [o.start for o in report.operations if o.process == call.process and o.gpu == gpu and o.start >= call.end]
    ends += [
        c.end for c in report.calls if c.process == call.process and c.start >= call.end and SYNCHRONIZE.match(c.name)
    ]
    return (call.end, min(ends, default=FAR))


# ---------------------------------------------------------------- warnings


def _launches_without_kernels(report: _Report) -> int:
    last = [t for o in report.operations for t in (o.start, o.end)] + [c.end for c in report.calls]
    end = report.duration if report.duration is not None else max(last, default=0)
    found = set()
    for call in report.calls:
        if not LAUNCH.match(call.name) or call.failed or (call.process, call.corr) in report.kernel_keys:
            continue
        if call.start >= end - NEAR_THE_END_NS or report.capture_begin(call.thread, call.start) is not None:
            continue
        found.add((call.process, call.corr))
    return len(found)


def _incomplete(report: _Report) -> bool:
    for process in {o.process for o in report.operations if o.kind == "kernel"}:
        mine = [r for r in report.ranges if not r.startend and _process(r.thread) == process]
        innermost = [
            r
            for r in mine
            if not any(
                x is not r
                and x.thread == r.thread
                and r.start <= x.start
                and x.end <= r.end
                and r.sort_key < x.sort_key
                for x in mine
            )
        ]
        empty = sum(not any(c.thread == r.thread and r.open_at(c.start) for c in report.calls) for r in innermost)
        if len(innermost) >= 50 and 10 * empty >= 9 * len(innermost):
            return True
    return False


# ---------------------------------------------------------------- the whole answer


def domain_names(path: Path | str) -> set[str | None]:
    """Return the names of the NVTX domains that a report has ranges of."""
    return {r.domain_name for r in _Report(path, lambda _: ("other", "other")).ranges}


def attribution(
    path: Path | str,
    classify: Classify,
    window: Interval | None = None,
    range_glob: str | None = None,
    domains: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return what ``k25trace attribute --format json`` should say of one report.

    Parts are lists of dicts as in the JSON; ``warnings`` is {code: count}, where a code that only says yes
    counts 1. ``windows`` is None for ``range_glob``, whose windows differ between GPUs.
    """
    report = _Report(path, classify)
    if not any(o.kind == "kernel" for o in report.operations):
        raise NoAnswer("no kernels")
    device_warnings = _identify(report)
    ranges = _chosen(report.ranges, domains)
    capture_missing = _assign_paths(report, ranges)
    launches = _graph_launches(report)
    gpus = sorted({o.gpu for o in [*report.operations, *report.replays]})
    kernels = [o for o in report.operations if o.kind == "kernel"]

    opaque: dict[str, list[Interval]] = defaultdict(list)
    for o in report.replays:
        opaque[o.gpu].append((o.start, o.end))
    for launch in launches:
        if launch.interval and launch.gpu:
            opaque[launch.gpu].append(launch.interval)

    everything = list(kernels)
    starts = [o.start for o in everything] + [s for x in opaque.values() for s, e in x if e < FAR]
    ends = [o.end for o in everything] + [e for x in opaque.values() for s, e in x if e < FAR]
    default = (min(starts), max(ends))

    selected = set(map(id, kernels))
    windows: dict[str, list[Interval]]
    if range_glob is not None:
        selected, windows = _select(report, ranges, range_glob, gpus)
    else:
        windows = {gpu: [window or default] for gpu in gpus}

    def inside(o: Operation) -> bool:
        if range_glob is not None and id(o) in selected:
            return True
        for start, end in windows[o.gpu]:
            if o.start < end and (o.end > start or o.start >= start):
                return True
            if window is None and range_glob is None and o.start == o.end == end:
                return True
        return False

    def length(o: Operation) -> int:
        return sum(max(0, min(o.end, end) - max(o.start, start)) for start, end in windows[o.gpu])

    counted = [o for o in kernels if id(o) in selected and inside(o)]
    total = sum(map(length, counted))
    out: dict[str, Any] = {
        "windows": None
        if range_glob is not None
        else [{"report": 0, "start_ns": (window or default)[0], "end_ns": (window or default)[1]}],
        "gpus": [],
        "categories": [],
        "families": [],
        "wall": [],
        "ranges": [],
        "kernels": [],
    }

    for gpu in gpus:
        _one_gpu(out, report, gpu, windows[gpu], kernels, counted, selected, length, opaque[gpu], launches)
    _over_all(out, total)
    _range_rows(out, counted, ranges, length)

    names: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for o in counted:
        names[o.name, o.category, o.family][0] += 1
        names[o.name, o.category, o.family][1] += length(o)
    out["kernels"] = [
        {"gpu": "all", "name": n, "category": c, "family": f, "kernel_count": count, "kernel_ns": ns}
        for (n, c, f), (count, ns) in names.items()
    ]
    warnings = {
        "opaque-graphs": sum(x.opaque for x in launches),
        "kernels-without-launch": sum(o.call is None for o in kernels),
        "launches-without-kernels": _launches_without_kernels(report),
        "ranges-without-end": sum(not r.closed for r in report.ranges),
        "capture-ranges-missing": capture_missing,
        "unusable-times": report.unusable["kernel"],
        "incomplete-capture": int(_incomplete(report)),
        "assumed-device": int("assumed-device" in device_warnings),
        "ambiguous-device": int("ambiguous-device" in device_warnings),
    }
    out["warnings"] = {code: count for code, count in warnings.items() if count}
    return out


def _select(
    report: _Report, ranges: list[Range], glob: str, gpus: list[str]
) -> tuple[set[int], dict[str, list[Interval]]]:
    """Return the selected kernels and, per GPU, the union of the matching instances' projected spans.

    An instance is a range; seen through a graph it is a range and the launch that replayed it.
    """
    spans: dict[tuple[str, int, Any], list[int]] = {}
    selected = set()
    for o in report.operations:
        at_launch = set() if o.call is None else {id(r) for r in ranges if r.open_at(o.call.start)}
        for r in [*o.path, *_covering(ranges, o)]:
            if not fnmatchcase(r.name, glob):
                continue
            if o.kind == "kernel":
                selected.add(id(o))
            replay = None if id(r) in at_launch else (o.process, o.corr)  # the launch, recorded or not
            span = spans.setdefault((o.gpu, id(r), replay), [o.start, o.end])
            span[:] = min(span[0], o.start), max(span[1], o.end)
    return selected, {gpu: _merged((a, b) for (g, _, _), (a, b) in spans.items() if g == gpu) for gpu in gpus}


def _one_gpu(
    out: dict[str, Any],
    report: _Report,
    gpu: str,
    windows: list[Interval],
    kernels: list[Operation],
    counted: list[Operation],
    selected: set[int],
    length: Callable[[Operation], int],
    opaque: list[Interval],
    launches: list[GraphLaunch],
) -> None:
    here = [o for o in kernels if o.gpu == gpu]
    mine = [o for o in counted if o.gpu == gpu]
    window_ns = sum(b - a for a, b in _merged(windows))
    is_comm = {id(o): o.category.startswith("comm.") for o in here}
    is_nccl = {id(o): o.family.startswith("nccl_") for o in here}

    def measure(some: Iterable[Operation]) -> int:
        return covered([(o.start, o.end) for o in some], windows)

    def row_of(o: Operation) -> str:
        if id(o) not in selected:
            return OUTSIDE
        return f"exposed {o.category}" if is_comm[id(o)] else o.category

    wall_rows = wall(
        windows,
        [(o.start, o.end, row_of(o)) for o in here if not is_comm[id(o)]],
        opaque,
        [(o.start, o.end, row_of(o)) for o in here if is_comm[id(o)]],
        [(o.start, o.end, o.kind) for o in report.operations if o.gpu == gpu and o.kind != "kernel"],
    )
    busy = measure(here)

    def exposed_of(some: set[int], others: Iterable[Operation]) -> int:
        rest = list(others)
        return measure([*(o for o in here if id(o) in some), *rest]) - measure(rest)

    # Communication is that of the selection; whatever else runs, selected or not, may hide it.
    my_comm = {id(o) for o in here if is_comm[id(o)] and id(o) in selected}
    my_nccl = {i for i in my_comm if is_nccl[i]}
    comm = measure(o for o in here if id(o) in my_comm)
    exposed = exposed_of(my_comm, (o for o in here if not is_comm[id(o)]))
    nccl = measure(o for o in here if id(o) in my_nccl)
    users = {(o.process, o.ordinal) for o in [*report.operations, *report.replays] if o.gpu == gpu}
    ordinals = {ordinal for _, ordinal in users}
    kernel_ns = sum(map(length, mine))
    out["gpus"].append(
        {
            "gpu": gpu,
            "report": 0,
            "device": ordinals.pop() if len(ordinals) == 1 else None,
            "processes": sorted(
                ({"process": os_pid(p), "device": d} for p, d in users),
                key=lambda x: (x["process"], x["device"]),
            ),
            "kernel_count": len(mine),
            "kernel_ns": kernel_ns,
            "busy_ns": busy,
            "no_kernel_ns": window_ns - busy,
            "idle_ns": wall_rows[IDLE],
            "window_ns": window_ns,
            "communication_ns": comm,
            "exposed_communication_ns": exposed,
            "hidden_communication_ns": comm - exposed,
            "nccl_ns": nccl,
            "exposed_nccl_ns": exposed_of(my_nccl, (o for o in here if id(o) not in my_nccl)),
            "graph_launch_count": sum(x.gpu == gpu for x in launches),
            "opaque_graph_count": sum(x.gpu == gpu and x.opaque for x in launches),
        }
    )
    out["wall"] += [
        {"gpu": gpu, "row": row, "wall_ns": ns, "wall_share": ns / window_ns if window_ns else 0.0}
        for row, ns in wall_rows.items()
    ]
    for category in {o.category for o in mine}:
        some = [o for o in mine if o.category == category]
        ns = sum(map(length, some))
        wall_ns = wall_rows["exposed " * category.startswith("comm.") + category]
        out["categories"].append(
            {
                "gpu": gpu,
                "category": category,
                "kernel_count": len(some),
                "kernel_ns": ns,
                "kernel_share": ns / kernel_ns if kernel_ns else 0.0,
                "busy_ns": measure(some),
                "wall_ns": wall_ns,
                "wall_share": wall_ns / window_ns if window_ns else 0.0,
            }
        )
    for category, family in {(o.category, o.family) for o in mine}:
        some = [o for o in mine if (o.category, o.family) == (category, family)]
        ns = sum(map(length, some))
        out["families"].append(
            {
                "gpu": gpu,
                "category": category,
                "family": family,
                "kernel_count": len(some),
                "kernel_ns": ns,
                "kernel_share": ns / kernel_ns if kernel_ns else 0.0,
            }
        )


def _over_all(out: dict[str, Any], total: int) -> None:
    window_ns = sum(g["window_ns"] for g in out["gpus"])
    for category in {r["category"] for r in out["categories"]}:
        some = [r for r in out["categories"] if r["category"] == category and r["gpu"] != "all"]
        row = {k: sum(r[k] for r in some) for k in ("kernel_count", "kernel_ns", "busy_ns", "wall_ns")}
        out["categories"].append(
            {
                "gpu": "all",
                "category": category,
                **row,
                "kernel_share": row["kernel_ns"] / total if total else 0.0,
                "wall_share": row["wall_ns"] / window_ns if window_ns else 0.0,
            }
        )


def _range_rows(
    out: dict[str, Any], counted: list[Operation], ranges: list[Range], length: Callable[[Operation], int]
) -> None:
    rows: dict[Any, list[int]] = defaultdict(lambda: [0, 0])

    def add(o: Operation, kind: str, via: str, path: tuple[str, ...] | None, domain: str | None) -> None:
        cell = rows[o.gpu, os_pid(o.process), kind, via, path, domain, o.category]
        cell[0] += 1
        cell[1] += length(o)

    for o in counted:
        if o.path:
            add(o, "pushpop", o.via, tuple(r.name for r in o.path), o.path[-1].domain_name)
        else:
            add(o, "pushpop", "launch", None, None)
        for name in {r.name for r in _covering(ranges, o)}:
            add(o, "startend", "launch", (name,), None)
    out["ranges"] = [
        {
            "gpu": gpu,
            "report": 0,
            "process": pid,
            "kind": kind,
            "via": via,
            "path": None if path is None else list(path),
            "domain": domain,
            "category": category,
            "kernel_count": count,
            "kernel_ns": ns,
        }
        for (gpu, pid, kind, via, path, domain, category), (count, ns) in rows.items()
    ]
