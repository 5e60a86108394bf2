"""What `nsys stats` says about the golden traces, and the same by hand from the rows, slowly.

The definitions of nsys 2023.4.4, as its reports behave (ours differ where it is said):

* Ranges: push/pop and start/end that begin and end on one thread (`endGlobalTid` is NULL; nsys writes NULL
  there for a start/end range of one thread too). Every domain takes part, NCCL's included; a name in a named
  domain is "domain:name".
* A launch call is inside a range when the whole call is, both ends included: range start <= call start and
  call end <= range end, on the same thread. Ours asks for the start of the call alone and leaves out the end
  of the range.
* `nvtx_kern_sum`: by process, thread, range name, style and kernel name, over all pairs (instance, kernel):
  inclusive at every level. A kernel inside two nested instances of one name counts twice in the total and
  once in `Kern Inst`; ours counts it once. A kernel under no range has an empty range name.
* `nvtx_gpu_proj_trace`: by range instance, over kernels, memcpys and memsets: first start, last end, and the
  number of *launch calls* (distinct correlation ids): a graph replay is one "GPU operation" there, whatever
  its number of kernels. All operations under no range are one row, whatever their processes. GPUs are not
  told apart.
* Graph replays are attributed by their cudaGraphLaunch alone: nsys knows no capture path.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import refresh

GOLDEN = Path(__file__).resolve().parent
WHOLE = ["h200x1_toy_graph", "h200x2_toy_eager", "h200x2_decode_graph", "h200x2_vllm_graph"]
LOSSY = "h200x2_vllm_lossy"
PROCESS = ~0xFFFFFF  # of a global thread id
STYLES = {59: "PushPop", 60: "StartEnd", 70: "PushPop", 71: "StartEnd"}
OPERATIONS = ["KERNEL", "MEMCPY", "MEMSET"]


def path(trace: str) -> Path:
    return GOLDEN / f"{trace}.sqlite"


def table(trace: str, report: str) -> list[dict[str, str]]:
    """Rows of a committed `nsys stats` table."""
    return list(csv.DictReader(io.StringIO(refresh.load(trace, report).decode())))


class Range(NamedTuple):
    row: int
    start: int
    end: int
    tid: int
    name: str
    style: str


class Operation(NamedTuple):
    row: tuple[str, int]
    start: int
    end: int
    gpu: int
    correlation: int
    name: str | None
    """Demangled, of a kernel; None for a copy or set."""
    graph_node: int | None
    call: tuple[int, int, int] | None
    """(global thread id, start, end) of the launch call."""


class Rows:
    """The rows of a trace that nsys' reports look at."""

    def __init__(self, trace: str):
        self.db = self.open(trace)
        self.tables = {name for (name,) in self.db.execute("SELECT name FROM sqlite_master")}
        self.strings = dict(self.db.execute("SELECT id, value FROM StringIds"))
        self.domains = {
            (tid & PROCESS, domain): text
            for tid, domain, text in self.db.execute(
                "SELECT globalTid, domainId, text FROM NVTX_EVENTS WHERE eventType = 75"
            )
        }
        last = max(
            max(start, start if end is None else end)
            for start, end in self.db.execute("SELECT start, end FROM NVTX_EVENTS WHERE eventType IN (59, 60)")
        )
        self.ranges = [
            Range(
                row,
                start,
                last if end is None else end,
                tid,
                self._name(tid, domain, text, text_id),
                STYLES[kind],
            )
            for row, start, end, kind, tid, domain, text, text_id in self.db.execute(
                "SELECT rowid, start, end, eventType, globalTid, domainId, text, textId FROM NVTX_EVENTS "
                "WHERE eventType IN (59, 60, 70, 71) AND endGlobalTid IS NULL"
            )
        ]
        calls = {
            (tid & PROCESS, correlation): (tid, start, end)
            for tid, correlation, start, end in self.db.execute(
                "SELECT globalTid, correlationId, start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            )
        }
        self.operations = []
        for kind in OPERATIONS:
            source = f"CUPTI_ACTIVITY_KIND_{kind}"
            if source not in self.tables:
                continue
            name = "demangledName" if kind == "KERNEL" else "NULL"
            found = self.db.execute(
                f"SELECT rowid, start, end, deviceId, correlationId, globalPid, {name}, graphNodeId FROM {source}"
            )
            for row, start, end, gpu, correlation, process, text, node in found:
                call = calls.get((process, correlation))
                kernel = self.strings[text] if kind == "KERNEL" else None
                self.operations.append(Operation((kind, row), start, end, gpu, correlation, kernel, node, call))

    @staticmethod
    def open(trace: str) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{path(trace).as_posix()}?mode=ro", uri=True)

    def _name(self, tid: int, domain: int, text: str | None, text_id: int | None) -> str:
        name = self.strings[text_id] if text_id is not None else text or ""
        named = self.domains.get((tid & PROCESS, domain))
        return f"{named}:{name}" if named else name

    def around(self, operation: Operation) -> list[Range]:
        """The ranges that nsys sees around the launch of an operation."""
        if operation.call is None:
            return []
        tid, start, end = operation.call
        return [r for r in self._of_thread()[tid] if r.start <= start and end <= r.end]

    def _of_thread(self) -> dict[int, list[Range]]:
        if not hasattr(self, "_threads"):
            self._threads = defaultdict(list)
            for r in self.ranges:
                self._threads[r.tid].append(r)
        return self._threads

    def capture_moment(self, kernel: Operation) -> tuple[int, int] | None:
        """(global thread id, time) at which the node of a replayed kernel was captured."""
        process, node = kernel.call[0] & PROCESS, kernel.graph_node
        if not hasattr(self, "_nodes"):
            self._nodes = {}
            for tid, start, key, original in self.db.execute(
                "SELECT globalTid, start, graphNodeId, originalGraphNodeId FROM CUDA_GRAPH_EVENTS"
            ):
                row = (original is None, start, tid, original)
                self._nodes[tid & PROCESS, key] = min(row, self._nodes.get((tid & PROCESS, key), row))
        found = None
        while node is not None and (process, node) in self._nodes:
            _, start, tid, node = self._nodes[process, node]
            found = tid, start
        return found

    def open_at(self, tid: int, moment: int) -> list[Range]:
        """Push/pop ranges open on a thread at a moment, from outermost to innermost, NCCL's own left out."""
        found = [r for r in self._of_thread()[tid] if r.start <= moment < r.end and r.style == "PushPop"]
        return sorted((r for r in found if not r.name.startswith("NCCL:")), key=lambda r: (r.start, -r.end, r.row))

    @property
    def kernels(self) -> list[Operation]:
        return [o for o in self.operations if o.name is not None]


def pid(tid: int) -> int:
    return tid >> 24 & 0xFFFFFF


def thread(tid: int) -> int:
    return tid & 0xFFFFFF
