"""One opened report: frames that load when first asked for, GPUs, processes, and what the file admits.

Everything above this module sees reports through `Trace` alone and never asks which nsys wrote them.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from k25trace.nsystables import (
    GPU_TABLE,
    GRAPH_TRACE_TABLE,
    KERNEL_TABLE,
)
from k25trace.ordering import Order
from k25trace.trace import nvtx, tables
from k25trace.trace.devices import context_slots, device_map
from k25trace.trace.diagnostics import diagnostics
from k25trace.trace.gpus import Basis, Gpu, Slot, identify
from k25trace.trace.interning import ID, integers
from k25trace.trace.source import CHUNK_ROWS, Col, Source, decode, read
from k25trace.trace.survey import KERNEL_SCHEMA, LAUNCH, Survey, launches_found, survey, together
from k25trace.trace.tables import FAR_FUTURE_NS, PUSH_POP
from k25trace.units import counted
from k25trace.warnings import ReportWarning, warn

NEWEST_SCHEMA = (3, 28)
"""The newest export schema (major, minor) whose tables this package was checked against."""

_NOTHING_LEFT_OUT = pl.DataFrame(schema={"process": ID, "correlation": pl.Int64})


@dataclass(frozen=True)
class Process:
    """A process of the report. ``rank`` is known where one of its NVTX events says ``rank=N``."""

    pid: int | None
    rank: int | None


class Trace:
    """One report, opened for reading.

    Frames are loaded on first use and kept. Columns ``process``, ``thread`` and ``name`` are integers: indices
    into `processes`, `threads` and `names`; ``gpu`` is an index into `gpus`. Instants are Int64 nanoseconds of
    the report's clock, ``[start_ns, end_ns)``. Row order means nothing.

    Parameters
    ----------
    source
        The export.
    report
        Index of this report in a run over several; the first part of every GPU key.
    """

    def __init__(self, source: Source, report: int = 0) -> None:
        self.source = source
        self.report = report
        self._ids = tables.Ids(source)
        self._left_out: dict[str, pl.DataFrame] = {}

    @property
    def path(self) -> Path:
        """What the user named."""
        return self.source.path

    @property
    def names(self) -> list[str]:
        """Texts of the ``name`` columns, decoded with replacement."""
        return self._ids.names.values

    def name_id(self, text: str) -> int:
        """Return the index of a text in `names`, where it is put if it is not there."""
        return self._ids.names.id(text)

    @property
    def threads(self) -> list[int]:
        """GlobalTids of the ``thread`` columns."""
        return self._ids.threads.values

    # ---- what the report says of itself

    @cached_property
    def facts(self) -> dict[str, str]:
        """``META_DATA_EXPORT``: name → value."""
        return tables.export_facts(self.source)

    @cached_property
    def duration_ns(self) -> int | None:
        """Length of the capture, or None where the report does not say."""
        return tables.duration_ns(self.source)

    @cached_property
    def session_start_ns(self) -> int | None:
        """When the report's clock was 0, in UTC since 1970, or None where the report does not say."""
        return tables.session_start_ns(self.source)

    def load(self) -> None:
        """Read kernels, API calls and ranges, the large tables side by side; frames load one by one without it."""
        _ = self._usable, self.source.tables
        with ThreadPoolExecutor(1, thread_name_prefix="k25trace-load") as pool:
            others = pool.submit(lambda: (self.launches, self.ranges, self._raw_copies))
            _ = self._raw_kernels
            others.result()
        _ = self.kernels

    # ---- frames

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Kernels with usable times: process, gpu, start_ns, end_ns, stream, correlation, name, graph_node."""
        kernels = self._with_gpu(self._raw_kernels)
        del self._raw_kernels  # the survey of it is kept
        return kernels

    def kernel_shapes(self) -> pl.DataFrame:
        """Read how kernels were launched, aligned with `kernels`: grid, block.

        Texts of three sizes, null where the report does not say.
        """
        return tables.kernel_shapes(self.source).filter(self._usable).select("grid", "block")

    def kernel_chunks(self) -> Iterator[pl.DataFrame]:
        """Stream `kernels` in frames of bounded size, in the order of the file, keeping none."""
        if "kernels" in self.__dict__:
            yield from self.kernels.iter_slices(CHUNK_ROWS)
            return
        for chunk in self._usable_chunks():
            yield self._with_gpu(chunk)

    @cached_property
    def copies(self) -> pl.DataFrame:
        """Copies and sets: process, gpu, start_ns, end_ns, stream, correlation, graph_node, bytes, kind, is_set."""
        return self._with_gpu(self._raw_copies)

    @cached_property
    def graph_traces(self) -> pl.DataFrame:
        """Graph-level rows of opaque replays: process, gpu, start_ns, end_ns, stream, correlation."""
        return self._with_gpu(self._raw_graph_traces)

    @cached_property
    def has_graph_traces(self) -> bool:
        """Whether the report has graph-level rows at all, usable or not: newer nsys writes them, 2023.4 does not."""
        return next(self.source.scan(GRAPH_TRACE_TABLE, [Col("start")], chunk_rows=1), None) is not None

    @cached_property
    def launches(self) -> pl.DataFrame:
        """CUDA API calls: process, thread, start_ns, end_ns, correlation, name, failed."""
        return tables.api_calls(self.source, self._ids)

    def call_chunks(self) -> Iterator[pl.DataFrame]:
        """Stream `launches` in frames of bounded size, keeping none that are not loaded."""
        if "launches" in self.__dict__:
            yield from self.launches.iter_slices(CHUNK_ROWS)
        else:
            yield from tables.api_call_chunks(self.source, self._ids)

    def release(self, *frames: str) -> None:
        """Forget loaded frames, by name; they load again when they are asked for again."""
        for frame in frames:
            for stored in {"ranges": ("_nvtx",), "copies": ("copies", "_raw_copies")}.get(frame, (frame,)):
                self.__dict__.pop(stored, None)

    def calls(self, *kinds: str) -> pl.DataFrame:
        """Return the `launches` of some kinds (`tables.API_KINDS`) without loading the others."""
        if "launches" not in self.__dict__:
            return tables.api_calls(self.source, self._ids, frozenset(kinds))
        distinct = integers(self.launches["name"].unique().drop_nulls())
        wanted = [name for name in distinct if tables.api_kind(self.names[name]) in kinds]
        return self.launches.filter(pl.col("name").is_in(wanted))

    @cached_property
    def profiler_overhead(self) -> pl.DataFrame:
        """When the profiler itself held threads up: process, start_ns, end_ns."""
        return tables.profiler_overhead(self.source, self._ids)

    @cached_property
    def graph_nodes(self) -> pl.DataFrame:
        """Creations of graph nodes: process, thread, at_ns, node, original."""
        return tables.graph_nodes(self.source, self._ids)

    @property
    def ranges(self) -> pl.DataFrame:
        """NVTX ranges: row, push_pop, process, thread, start_ns, end_ns, closed, name, domain, is_nccl.

        ``domain`` is an index into `names`. A range that was never closed ends in the far future
        (``closed`` is false).
        """
        return self._nvtx[0]

    @cached_property
    def range_spans(self) -> pl.DataFrame:
        """When push/pop ranges were open: process, thread, name, start_ns, end_ns, in row order."""
        columns = ("process", "thread", "name", "start_ns", "end_ns")
        if "_nvtx" in self.__dict__:
            return self.ranges.filter("push_pop").sort("row").select(columns)
        return self._nvtx_in_passing[0]

    # ---- processes and GPUs

    @property
    def processes(self) -> list[Process]:
        """What the ``process`` columns are indices into."""
        ranks = (self._nvtx if "_nvtx" in self.__dict__ else self._nvtx_in_passing)[1]
        return [Process(tables.os_pid(p), ranks.get(i)) for i, p in enumerate(self._ids.processes.values)]

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs that did anything, ordered by physical index (see `k25trace.trace.gpus.identify`)."""
        return self._identity[0]

    @cached_property
    def slots(self) -> pl.DataFrame:
        """Which ordinal of which process is which GPU: process, device, gpu."""
        gpus = self.gpus  # reads what numbers the processes
        index = {value: i for i, value in enumerate(self._ids.processes.values)}
        rows = [
            (None if slot.process is None else index[slot.process], slot.device, number)
            for number, gpu in enumerate(gpus)
            for slot in gpu.slots
        ]
        return pl.DataFrame(rows, schema={"process": ID, "device": pl.Int64, "gpu": ID}, orient="row")

    @cached_property
    def gpu_names(self) -> list[str | None]:
        """Product name of each of `gpus`, where the report tells."""
        frame = read(self.source, GPU_TABLE, [Col("id"), Col("name", "text")])
        known = {id_: decode(name) for id_, name in frame.drop_nulls().iter_rows()}
        only = next(iter(known.values())) if len(set(known.values())) == 1 else None
        return [known.get(gpu.physical, only) if gpu.physical is not None else only for gpu in self.gpus]

    @property
    def survey(self) -> pl.DataFrame:
        """Who ran kernels where: process, device, kernel_count, first_ns, last_ns (one row a slot)."""
        return self._survey.slots

    @property
    def kernel_order(self) -> Order:
        """In what order the chunks of `kernel_chunks` come."""
        return self._survey.order

    @cached_property
    def graph_calls(self) -> pl.DataFrame:
        """Graph launch calls that did not fail: process, thread, start_ns, end_ns, correlation."""
        calls = self.calls("graph_launch").filter(~pl.col("failed"))
        return calls.select("process", "thread", "start_ns", "end_ns", "correlation")

    @cached_property
    def stream_captures(self) -> pl.DataFrame:
        """Begin and end calls of stream captures that did not fail: thread, at_ns, begins.

        Ordered by thread and time; at one instant begins come first.
        """
        calls = self.calls("begin_capture", "end_capture").filter(~pl.col("failed"))
        begins = [tables.api_kind(self.names[name]) == "begin_capture" for name in integers(calls["name"])]
        marked = calls.select(
            "thread", pl.col("start_ns").alias("at_ns"), pl.Series("begins", begins, dtype=pl.Boolean)
        )
        return marked.sort("thread", "at_ns", "begins", descending=[False, False, True], maintain_order=True)

    @cached_property
    def replays(self) -> pl.DataFrame:
        """Graph launches whose operations were recorded: process, correlation, gpu, first_ns, last_ns.

        One row for each GPU that a launch ran on.
        """
        parts = [self._survey.replays, launches_found(self._raw_copies, self.graph_calls)]
        return self._with_gpu(together(parts, LAUNCH))

    @cached_property
    def _survey(self) -> Survey:
        return survey(self._usable_chunks(), self.graph_calls)

    def _usable_chunks(self) -> Iterator[pl.DataFrame]:
        if "_raw_kernels" in self.__dict__:
            yield from self._raw_kernels.iter_slices(CHUNK_ROWS)
            return
        left_out = [_NOTHING_LEFT_OUT]
        for chunk in self._read_kernels():
            left_out.append(chunk.filter(~self._usable).select(_NOTHING_LEFT_OUT.columns))
            yield chunk.filter(self._usable) if left_out[-1].height else chunk
        self._left_out["kernels"] = pl.concat(left_out)

    @property
    def unusable_kernels(self) -> int:
        """Kernels left out because their times cannot be true."""
        return self._unusable("kernels").height

    @property
    def unusable(self) -> pl.DataFrame:
        """The calls (process, correlation) of operations that were left out."""
        return pl.concat([self._unusable("kernels"), self._unusable("copies")])

    def _unusable(self, what: str) -> pl.DataFrame:
        if "kernels" not in self._left_out:
            _ = self.survey
        if "copies" not in self._left_out:
            _ = self._raw_copies
        return self._left_out.get(what, _NOTHING_LEFT_OUT)

    # ---- warnings about the report itself

    @cached_property
    def warnings(self) -> list[ReportWarning]:
        """What is known of the report before any analysis."""
        found: list[ReportWarning] = []
        _, basis = self._identity
        if basis is Basis.ASSUMED:
            found.append(warn("assumed-device", len(self.gpus), counted(len(self.gpus), "device ordinal")))
        if basis is Basis.PER_PROCESS:
            found.append(
                warn(
                    "ambiguous-device",
                    len(self.gpus),
                    f"{counted(len(self.gpus), 'process', 'processes')} on one device ordinal",
                )
            )
        kernels, copies = self._unusable("kernels").height, self._unusable("copies").height
        if kernels or copies:
            seen = " and ".join(
                counted(n, *what)
                for n, what in ((kernels, ("kernel", "kernels")), (copies, ("copy or set", "copies and sets")))
                if n
            )
            found.append(warn("unusable-times", kernels, f"{seen} with impossible times"))
        schema = tuple(int(x) for x in re.findall(r"\d+", self.facts.get("EXPORT_SCHEMA_VERSION", ""))[:2])
        if schema > NEWEST_SCHEMA:
            found.append(warn("schema-newer", 1, f"export schema {'.'.join(map(str, schema))}"))
        return found + diagnostics(self.source)

    # ---- loading

    @cached_property
    def _usable(self) -> pl.Expr:
        return tables.Usable(self.duration_ns).expr()

    def _read_kernels(self) -> Iterator[pl.DataFrame]:
        """Stream the kernels; where rows name no process and the report knows only one, it is that one."""
        if "globalPid" in self.source.tables.get(KERNEL_TABLE, frozenset()):
            yield from tables.kernel_chunks(self.source, self._ids)
            return
        callers = self.launches["process"].unique().drop_nulls()
        sole = pl.lit(callers[0] if callers.len() == 1 else None, ID)
        for chunk in tables.kernel_chunks(self.source, self._ids):
            yield chunk.with_columns(sole.alias("process"))

    @cached_property
    def _raw_kernels(self) -> pl.DataFrame:
        chunks = list(self._read_kernels())
        if not chunks:
            return pl.DataFrame(schema=KERNEL_SCHEMA)
        kernels = pl.concat(chunks)
        del chunks
        return self._kept("kernels", kernels)

    @cached_property
    def _raw_copies(self) -> pl.DataFrame:
        return self._kept("copies", tables.copies(self.source, self._ids))

    def _kept(self, what: str, operations: pl.DataFrame) -> pl.DataFrame:
        """Return the operations with usable times, and remember the others."""
        usable = operations.select(self._usable.alias("usable"))["usable"]
        self._left_out[what] = operations.filter(~usable).select(_NOTHING_LEFT_OUT.columns)
        return operations.filter(usable) if self._left_out[what].height else operations

    @cached_property
    def _raw_graph_traces(self) -> pl.DataFrame:
        return tables.graph_traces(self.source, self._ids).filter(self._usable)

    @cached_property
    def _nvtx(self) -> tuple[pl.DataFrame, dict[int, int]]:
        """The ranges, and the ranks that events tell; the events themselves are not kept."""
        events = tables.nvtx_events(self.source, self._ids)
        return nvtx.ranges(events, self._ids), nvtx.ranks(events, self.names)

    @cached_property
    def _nvtx_in_passing(self) -> tuple[pl.DataFrame, dict[int, int]]:
        """What a pass over the events leaves where ranges are not asked for: their spans, and the ranks."""
        spans, labels = (
            [pl.DataFrame(schema={"process": ID, "thread": ID, "name": ID, "start_ns": pl.Int64, "end_ns": pl.Int64})],
            list[pl.DataFrame](),
        )
        for chunk in tables.nvtx_chunks(self.source, self._ids):
            labels.append(chunk.select("process", "name").unique())
            open_ends = chunk.filter((pl.col("event_type") == PUSH_POP) & pl.col("process").is_not_null())
            spans.append(
                open_ends.select("process", "thread", "name", "start_ns", pl.col("end_ns").fill_null(FAR_FUTURE_NS))
            )
        return pl.concat(spans), nvtx.ranks(pl.concat(labels), self.names) if labels else {}

    @cached_property
    def _identity(self) -> tuple[list[Gpu], Basis]:
        frames = (self.survey, self._raw_copies, self._raw_graph_traces)
        pairs = pl.concat([f.select("process", "device") for f in frames]).unique().rows()
        processes = self._ids.processes.values
        slots = [Slot(None if p is None else processes[int(p)], 0 if d is None else int(d)) for p, d in pairs]
        # Processes that launched graphs and left no operation: their contexts alone tell the device.
        launching = (processes[p] for p in integers(self.graph_calls["process"].drop_nulls().unique()))
        slots += context_slots(self.source, set(launching) - {slot.process for slot in slots})
        pids = {s.process: "?" if s.process is None else str(tables.os_pid(s.process)) for s in slots}
        return identify(slots, device_map(self.source, {s.process for s in slots}), pids, self.report)

    def _with_gpu(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace ``device`` by ``gpu``."""
        rest = [c for c in frame.columns if c not in {"process", "device"}]
        slots = self.slots
        if slots["process"].null_count() == 0 and slots["process"].is_unique().all() and slots.height:
            # One GPU a process, nearly always: a look-up instead of a join.
            count = len(self._ids.processes)
            by_process = pl.repeat(None, count, dtype=ID, eager=True).scatter(slots["process"], slots["gpu"])
            return frame.select("process", by_process.gather(frame["process"]).alias("gpu"), *rest)
        joined = frame.with_columns(pl.col("device").fill_null(0)).join(
            slots, on=["process", "device"], how="left", nulls_equal=True, maintain_order="left"
        )
        return joined.select("process", "gpu", *rest)
