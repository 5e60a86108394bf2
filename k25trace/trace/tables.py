"""Tables of an export → frames with one meaning each; every difference between schemas ends here.

Names, processes and threads become small integers (`Ids`); instants stay Int64 nanoseconds of the report's
clock. Rows keep the order they have in the file, which means nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from threading import RLock

import polars as pl

from k25trace.errors import UnreadableReport
from k25trace.nsystables import (
    API_TABLE,
    DETAILS_TABLE,
    EXPORT_TABLE,
    GRAPH_NODE_TABLES,
    GRAPH_TRACE_TABLE,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    MEMSET_TABLE,
    NVTX_TABLE,
    OVERHEAD_TABLE,
    START_TABLE,
)
from k25trace.trace.interning import ID, Codes, Interner
from k25trace.trace.source import FOREIGN_TABLE, Col, Only, Source, ahead, decode, read

PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
LOW_24_BITS = (1 << 24) - 1
DEFAULT_DOMAIN, NCCL_DOMAIN = "default", "NCCL"
FAR_FUTURE_NS = 1 << 62
"""Where a range ends that never was closed: after everything."""


def _kept(column: str) -> pl.Expr:
    """Return a column as a copy of its own, validity included.

    The columns of an imported batch share one owner: as long as one of them lives, so does the memory of those
    that nobody wants any more. Reversing twice is what copies the mask of nulls, too; arithmetic shares it.
    """
    return pl.col(column).reverse().reverse()


_CHUNK_TIME = [_kept("start").alias("start_ns"), _kept("end").alias("end_ns")]

API_KINDS: dict[str, re.Pattern[str]] = {
    "graph_launch": re.compile(r"(cuda|cu)GraphLaunch"),
    "host_function": re.compile(r"(cuda|cu)LaunchHostFunc"),
    "kernel_launch": re.compile(r"(cuda|cu)Launch"),
    "begin_capture": re.compile(r"(cuda|cu)StreamBeginCapture"),
    "end_capture": re.compile(r"(cuda|cu)StreamEndCapture"),
    "synchronize": re.compile(r"cuda(Device|Stream|Thread)Synchronize|cu(Ctx|Stream)Synchronize"),
    "synchronize_event": re.compile(r"(cuda|cu)EventSynchronize"),
    "blocking_copy": re.compile(r"(cuda|cu)Memcpy(?!\w*Async)"),
}
"""What an API call is, by the beginning of its name; the first that fits. Everything else is ``other``."""


def api_kind(name: str) -> str:
    """Return the kind of an API call: a key of `API_KINDS`, or ``other``."""
    return next((kind for kind, pattern in API_KINDS.items() if pattern.match(name)), "other")


def process_of(global_id: int) -> int:
    """Return the process (a globalPid) that a globalTid or globalPid belongs to."""
    return global_id & ~LOW_24_BITS


def os_pid(global_pid: int) -> int:
    """Return the operating system's process id inside a globalPid."""
    return (global_pid >> 24) & LOW_24_BITS


class Ids:
    """The interned columns of one report.

    Attributes
    ----------
    names
        Kernel, API and range names, decoded.
    processes
        globalPids.
    threads
        globalTids.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.names: Interner[str] = Interner()
        self.processes: Interner[int] = Interner()
        self.threads: Interner[int] = Interner()
        lock = RLock()
        self.string = Codes(pl.Int64(), self._strings, lock)
        self.text = Codes(pl.Binary(), lambda raw: [self.names.id(decode(value)) for value in raw], lock)
        self.process = Codes(pl.Int64(), lambda raw: [self.processes.id(process_of(v)) for v in raw], lock)
        self.thread = Codes(pl.Int64(), lambda raw: [self.threads.id(value) for value in raw], lock)
        self._process_of_thread = Codes(pl.Int64(), self._processes_of, lock)

    def thread_and_process(self, global_tid: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the integers of a column of globalTids, and those of the processes that the threads belong to."""
        thread = self.thread.of(global_tid)
        return thread.alias("thread"), self._process_of_thread.of(thread.cast(pl.Int64)).alias("process")

    def _processes_of(self, threads: list[int]) -> list[int]:
        return [self.processes.id(process_of(self.threads.values[thread])) for thread in threads]

    def _strings(self, raw: list[int]) -> list[int]:
        found = self._source.strings(raw)
        return [self.names.id(decode(found[id_]) if id_ in found else f"<string {id_}>") for id_ in raw]


@dataclass(frozen=True)
class Usable:
    """Which times can be true, given the duration of the capture (None: unknown)."""

    duration_ns: int | None
    slack_ns: int = 60_000_000_000

    def expr(self) -> pl.Expr:
        """Return the condition on ``start_ns`` and ``end_ns`` that keeps an operation."""
        start, end = pl.col("start_ns"), pl.col("end_ns")
        if self.duration_ns is None:
            inside = (start > -FAR_FUTURE_NS) & (end < FAR_FUTURE_NS)
        else:
            inside = (start >= -self.slack_ns) & (end <= self.duration_ns + self.slack_ns)
        return (inside & (end >= start) & ~((start == 0) & (end == 0))).fill_null(value=False)


def kernel_chunks(source: Source, ids: Ids) -> Iterator[pl.DataFrame]:
    """Stream the kernels, with ``device`` in place of the GPU and unusable times still in.

    Yields
    ------
    pl.DataFrame
        process, device, start_ns, end_ns, stream, correlation, name, graph_node.
    """
    present = source.tables.get(KERNEL_TABLE, frozenset())
    name = next((c for c in ("demangledName", "shortName", "mangledName") if c in present), "demangledName")
    wanted = ("start", "end", "deviceId", "globalPid", "streamId", "correlationId", name, "graphNodeId")
    missing = [column for column in ("start", "end") if present and column not in present]
    if missing:
        raise UnreadableReport(f"{source.path}: {KERNEL_TABLE} has no column {missing[0]}", FOREIGN_TABLE)
    no_name = ids.names.id("<kernel without a name>")
    for chunk in ahead(source.scan(KERNEL_TABLE, [Col(c) for c in wanted])):
        yield chunk.select(
            ids.process.of(chunk["globalPid"]).alias("process"),
            _kept("deviceId").alias("device"),
            *_CHUNK_TIME,
            pl.col("streamId").cast(pl.Int32, wrap_numerical=True).alias("stream"),
            _kept("correlationId").alias("correlation"),
            ids.string.of(chunk[name]).alias("name").fill_null(no_name),
            _kept("graphNodeId").alias("graph_node"),
        )


def kernel_shapes(source: Source) -> pl.DataFrame:
    """Return how kernels were launched, in the order of `kernel_chunks`: start_ns, end_ns, grid, block (texts)."""
    sides = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
    frame = read(source, KERNEL_TABLE, [Col(c) for c in ("start", "end", *sides)])
    return frame.select(
        pl.col("start").alias("start_ns"),
        pl.col("end").alias("end_ns"),
        *(
            pl.concat_str([f"{what}{axis}" for axis in "XYZ"], separator="\N{MULTIPLICATION SIGN}").alias(what)
            for what in ("grid", "block")
        ),
    )


def copies(source: Source, ids: Ids) -> pl.DataFrame:
    """Return memory copies and sets.

    Columns: process, device, start_ns, end_ns, stream, correlation, graph_node, bytes, kind, is_set.
    """
    wanted = ("start", "end", "deviceId", "globalPid", "streamId", "correlationId", "graphNodeId", "bytes", "copyKind")
    schema = {"process": ID, "device": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "stream": pl.Int64}
    schema |= {"correlation": pl.Int64, "graph_node": pl.Int64, "bytes": pl.Int64, "kind": pl.Int64}
    frames = [pl.DataFrame(schema={**schema, "is_set": pl.Boolean})]
    for table, is_set in ((MEMCPY_TABLE, False), (MEMSET_TABLE, True)):
        frames.extend(
            chunk.select(
                ids.process.of(chunk["globalPid"]).alias("process"),
                _kept("deviceId").alias("device"),
                *_CHUNK_TIME,
                _kept("streamId").alias("stream"),
                _kept("correlationId").alias("correlation"),
                _kept("graphNodeId").alias("graph_node"),
                _kept("bytes"),
                _kept("copyKind").alias("kind"),
                pl.lit(is_set).alias("is_set"),
            )
            for chunk in source.scan(table, [Col(c) for c in wanted])
        )
    return pl.concat(frames)


def graph_traces(source: Source, ids: Ids) -> pl.DataFrame:
    """Return graph-level rows: process, device, start_ns, end_ns, stream, correlation (empty before nsys 2024)."""
    wanted = ("start", "end", "deviceId", "globalPid", "streamId", "correlationId")
    frame = read(source, GRAPH_TRACE_TABLE, [Col(c) for c in wanted])
    return frame.select(
        ids.process.of(frame["globalPid"]).alias("process"),
        pl.col("deviceId").alias("device"),
        *_CHUNK_TIME,
        pl.col("streamId").alias("stream"),
        _kept("correlationId").alias("correlation"),
    )


def api_calls(source: Source, ids: Ids, kinds: frozenset[str] | None = None) -> pl.DataFrame:
    """Return the CUDA API calls: process, thread, start_ns, end_ns, correlation, name, failed.

    Parameters
    ----------
    kinds
        Keys of `API_KINDS`: only calls of these kinds; None: every call.
    """
    schema = {"process": ID, "thread": ID, "start_ns": pl.Int64, "end_ns": pl.Int64}
    empty = pl.DataFrame(schema={**schema, "correlation": pl.Int64, "name": ID, "failed": pl.Boolean})
    return pl.concat([empty, *api_call_chunks(source, ids, kinds)])


def api_call_chunks(source: Source, ids: Ids, kinds: frozenset[str] | None = None) -> Iterator[pl.DataFrame]:
    """Stream `api_calls` in frames of bounded size."""
    only = None
    if kinds is not None:
        texts = source.strings_like("cu")
        only = Only("nameId", frozenset(i for i, text in texts.items() if api_kind(decode(text)) in kinds))
    wanted = ("start", "end", "globalTid", "correlationId", "nameId", "returnValue")
    for chunk in source.scan(API_TABLE, [Col(c) for c in wanted], only):
        thread, process = ids.thread_and_process(chunk["globalTid"])
        yield chunk.select(
            process,
            thread,
            *_CHUNK_TIME,
            _kept("correlationId").alias("correlation"),
            ids.string.of(chunk["nameId"]).alias("name"),
            (pl.col("returnValue") != 0).fill_null(value=False).alias("failed"),
        )


def nvtx_events(source: Source, ids: Ids) -> pl.DataFrame:
    """Return every NVTX event: row, event_type, process, thread, start_ns, end_ns, name, domain_id.

    The name is ``text``, else the registered string, else empty.
    """
    schema = {"event_type": pl.Int64, "process": ID, "thread": ID, "start_ns": pl.Int64, "end_ns": pl.Int64}
    empty = pl.DataFrame(schema={**schema, "name": ID, "domain_id": pl.Int64})
    return pl.concat([empty, *nvtx_chunks(source, ids)]).with_row_index("row")


def nvtx_chunks(source: Source, ids: Ids) -> Iterator[pl.DataFrame]:
    """Stream `nvtx_events`, without ``row``, in frames of bounded size."""
    columns = [Col(c) for c in ("start", "end", "eventType", "globalTid", "textId", "domainId")]
    unnamed = ids.names.id("")
    for chunk in source.scan(NVTX_TABLE, [*columns, Col("text", "text")]):
        texts = [ids.text.of(chunk["text"]), ids.string.of(chunk["textId"])]
        thread, process = ids.thread_and_process(chunk["globalTid"])
        yield chunk.select(
            pl.col("eventType").alias("event_type"),
            process,
            thread,
            *_CHUNK_TIME,
            pl.coalesce(*texts, pl.lit(unnamed, ID)).alias("name"),
            pl.col("domainId").fill_null(0).alias("domain_id"),
        )


def graph_nodes(source: Source, ids: Ids) -> pl.DataFrame:
    """Return the creations of graph nodes: process, thread, at_ns, node, original (null: made by capture)."""
    table = next((t for t in GRAPH_NODE_TABLES if "graphNodeId" in source.tables.get(t, frozenset())), "")
    frame = read(source, table, [Col(c) for c in ("start", "globalTid", "graphNodeId", "originalGraphNodeId")])
    thread, process = ids.thread_and_process(frame["globalTid"])
    return frame.select(
        process,
        thread,
        pl.col("start").alias("at_ns"),
        pl.col("graphNodeId").alias("node"),
        pl.col("originalGraphNodeId").alias("original"),
    )


def duration_ns(source: Source) -> int | None:
    """Return the length of the capture, or None if the export does not say."""
    longest = read(source, DETAILS_TABLE, [Col("duration")])["duration"].max()
    return longest if isinstance(longest, int) and longest > 0 else None


def profiler_overhead(source: Source, ids: Ids) -> pl.DataFrame:
    """Return when the profiler itself held threads up, as it recorded it: process, start_ns, end_ns."""
    frame = read(source, OVERHEAD_TABLE, [Col("start"), Col("end"), Col("globalTid")])
    return frame.select(ids.process.of(frame["globalTid"]).alias("process"), *_CHUNK_TIME).drop_nulls()


def session_start_ns(source: Source) -> int | None:
    """Return when the session started (UTC), or None if the export does not say."""
    start = read(source, START_TABLE, [Col("utcEpochNs")])["utcEpochNs"].min()
    return start if isinstance(start, int) else None


def export_facts(source: Source) -> dict[str, str]:
    """Return what the export says of itself (``META_DATA_EXPORT``: name → value)."""
    frame = read(source, EXPORT_TABLE, [Col("name", "text"), Col("value", "text")])
    return {decode(name): decode(value) for name, value in frame.drop_nulls().iter_rows()}
