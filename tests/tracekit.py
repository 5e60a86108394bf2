"""Builds synthetic Nsight Systems exports (SQLite) with tiny numbers, for tests.

`TraceBuilder` collects rows and `TraceBuilder.write` puts them into a file, so that the order of rows, the set of
tables and the set of columns are choices of the test and not of the order in which it was written. Clocks are
nanoseconds since the start of the capture. Column lists follow exports of schema 3.7.2 (2023.4); what older
and newer releases lack or add is in `TABLES` below.
"""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

DEFAULT_PID = 1000
LOCAL_VM = 1  # what a capture on the same machine carries in bits 48 to 55
MARK, PUSH_POP, START_END, DOMAIN_CREATE, DOMAIN_DESTROY = 34, 59, 60, 75, 76

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"

LAUNCH_CALL = "cudaLaunchKernel_v7000"
GRAPH_LAUNCH_CALL = "cudaGraphLaunch_v10000"
BEGIN_CAPTURE_CALL = "cudaStreamBeginCapture_v10000"
END_CAPTURE_CALL = "cudaStreamEndCapture_v10000"


class KernelName(NamedTuple):
    """A kernel as real traces spell it, and the right answer for it."""

    short: str
    demangled: str
    category: str
    family: str


CAST = KernelName(
    "vectorized_elementwise_kernel",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::bfloat16_copy_kernel_cuda"
    "(at::TensorIteratorBase &)::[lambda(float) (instance 1)], at::detail::Array<char *, (int)2>>(int, T2, T3)",
    "cast",
    "cast_specialised",
)
CAST_DYNAMIC = KernelName(
    "unrolled_elementwise_kernel",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)"
    "::[lambda() (instance 3)]::operator ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(float) "
    "(instance 1)], at::detail::Array<char *, (int)2>, (int)4, TrivialOffsetCalculator<(int)1, unsigned int>, "
    "TrivialOffsetCalculator<(int)1, unsigned int>, at::native::memory::LoadWithCast<(int)1>, "
    "at::native::memory::StoreWithCast<(int)1>>(int, T1, T2, T4, T5, T6, T7)",
    "cast",
    "cast_dynamic",
)
ADD = KernelName(
    "vectorized_elementwise_kernel",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "at::detail::Array<char *, (int)3>>(int, T2, T3)",
    "elementwise",
    "arith",
)
PLAIN_COPY = KernelName(
    "elementwise_kernel",
    "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda() "
    "(instance 12)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)]>(at::TensorIteratorBase &, const "
    "T1 &)::[lambda(int) (instance 1)]>(int, T3)",
    "memory",
    "copy_strided",
)
MARLIN = KernelName(
    "Marlin",
    "void marlin::Marlin<__nv_bfloat16, (long)1125899906843648, (int)256, (int)1, (int)8, (int)8, (bool)1, (int)4, "
    "(int)8, (bool)0>(const int4 *, const int4 *, int4 *, int4 *, const int4 *, const int4 *, const int4 *, "
    "const int *, int, int, int, int, int *, bool, bool, int)",
    "gemm.marlin",
    "dense_w4a16_uint4zp",
)
MARLIN_MOE = KernelName(
    "Marlin",
    "void marlin_moe_wna16::Marlin<(long)1125899906909960, (long)1125899907892224, (long)1125899906909960, "
    "(long)1125899906909960, (int)256, (int)1, (int)8, (int)8, (bool)1, (int)4, (int)2, (bool)0>(const int4 *, "
    "const int4 *, int4 *, int4 *, const int4 *, const int *, int, int, int, int *, bool, int)",
    "gemm.marlin",
    "moe_w4a16_int4",
)
REPACK = KernelName(
    "gptq_marlin_repack_kernel",
    "void marlin::gptq_marlin_repack_kernel<(int)256, (int)4, (bool)0>(const unsigned int *, const unsigned int *, "
    "unsigned int *, int, int)",
    "other",
    "weight_repack",
)
REPACK_AWQ = KernelName(
    "awq_marlin_repack_kernel",
    "void marlin::awq_marlin_repack_kernel<(int)256, (int)4>(const unsigned int *, unsigned int *, int, int)",
    "other",
    "weight_repack",
)
ALL_REDUCE = KernelName(
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "comm.allreduce",
    "nccl_allreduce",
)
ALL_GATHER = KernelName(
    "ncclDevKernel_AllGather_RING_LL",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "comm.allgather",
    "nccl_allgather",
)
REDUCE_SCATTER = KernelName(
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "comm.other",
    "nccl_reduce_scatter",
)
CUSTOM_ALL_REDUCE = KernelName(
    "cross_device_reduce_1stage",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)8>(vllm::RankData *, vllm::RankSignals, "
    "vllm::Signal *, T1 *, int, int)",
    "comm.allreduce",
    "custom_allreduce",
)
ATTENTION = KernelName(
    "flash_fwd_splitkv_kernel",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128, (int)4>, (bool)0>"
    "(flash::Flash_fwd_params)",
    "attention.other",
    "fmha",
)
RMS_NORM = KernelName(
    "rms_norm_kernel",
    "void vllm::rms_norm_kernel<c10::BFloat16>(T1 *, const T1 *, const T1 *, float, int, int)",
    "norm",
    "norm",
)
KNOWN_KERNELS = (
    CAST,
    CAST_DYNAMIC,
    ADD,
    PLAIN_COPY,
    MARLIN,
    MARLIN_MOE,
    REPACK,
    REPACK_AWQ,
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    CUSTOM_ALL_REDUCE,
    ATTENTION,
    RMS_NORM,
)
_BY_NAME = {k.demangled: (k.category, k.family) for k in KNOWN_KERNELS}


def classify_known(name: str) -> tuple[str, str]:
    """Classify the kernels of this module by looking their whole names up; anything else is unclassified."""
    return _BY_NAME.get(name, ("unclassified", "unclassified"))


def unknown(name: str | bytes) -> KernelName:
    """Return a kernel name that no rule should know."""
    return KernelName(name, name, "unclassified", "unclassified")  # type: ignore[arg-type]


def global_id(pid: int, tid: int = 0, hw: int = 0, vm: int = LOCAL_VM) -> int:
    """Return nsys's serialised id as the signed 64-bit integer that SQLite stores."""
    value = (hw << 56) | (vm << 48) | (pid << 24) | tid
    return value - (1 << 64) if value >= (1 << 63) else value


def _columns(text: str) -> dict[str, str]:
    return {c.split()[0]: " ".join(c.split()[1:]) for c in text.split(",")}


_ACTIVITY = "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
_ON_STREAM = _ACTIVITY + " greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
_NODE = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,"
    " nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER"
)

TABLES: dict[str, dict[str, str]] = {
    KERNEL: _columns(
        _ON_STREAM + " demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,"
        " launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,"
        " gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,"
        " blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,"
        " localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,"
        " sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER"
    ),
    MEMCPY: _columns(
        _ON_STREAM + " bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER,"
        " dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER,"
        " migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER"
    ),
    MEMSET: _columns(
        _ON_STREAM + " value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER"
    ),
    SYNC: _columns(_ON_STREAM + " syncType INTEGER NOT NULL, eventId INTEGER NOT NULL"),
    GRAPH_TRACE: _columns(_ON_STREAM + " graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL"),
    RUNTIME: _columns(
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,"
        " correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    NVTX: _columns(
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,"
        " color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER,"
        " uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER,"
        " floatValue REAL, jsonTextId INTEGER, jsonText TEXT"
    ),
    "PROFILER_OVERHEAD": _columns(
        "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,"
        " nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL"
    ),
    "CUDA_GRAPH_EVENTS": _columns(_NODE),
    "CUDA_GRAPH_NODE_EVENTS": _columns(_NODE),
    "DIAGNOSTIC_EVENT": _columns(
        "timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source INTEGER NOT NULL,"
        " severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER"
    ),
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": _columns("id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT"),
    "TARGET_INFO_GPU": _columns(
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER,"
        " totalMemory INTEGER, smCount INTEGER, uuid TEXT, chipName TEXT, cuDevice INTEGER, computeMajor INTEGER,"
        " computeMinor INTEGER"
    ),
    "TARGET_INFO_CUDA_DEVICE": _columns(
        "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT, numMultiprocessors INTEGER"
    ),
    "StringIds": _columns("id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL"),
    "PROCESSES": _columns("globalPid INTEGER, pid INTEGER, name TEXT"),
    "ThreadNames": _columns("nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER"),
    "ANALYSIS_DETAILS": _columns(
        "globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL"
    ),
    "TARGET_INFO_SESSION_START_TIME": _columns("utcEpochNs INTEGER, utcTime TEXT, localTime TEXT"),
    "TARGET_INFO_SYSTEM_ENV": _columns(
        "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL,"
        " value TEXT NOT NULL"
    ),
    "META_DATA_CAPTURE": _columns("name TEXT NOT NULL, value TEXT"),
    "META_DATA_EXPORT": _columns("name TEXT NOT NULL, value TEXT"),
    "ProcessStreams": _columns("globalPid INTEGER NOT NULL, filenameId INTEGER NOT NULL, contentId INTEGER NOT NULL"),
    "ENUM_NSYS_EVENT_TYPE": _columns("id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT"),
}

_ALWAYS = (
    "StringIds",
    "PROCESSES",
    "ThreadNames",
    "ANALYSIS_DETAILS",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_SYSTEM_ENV",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "ProcessStreams",
    "ENUM_NSYS_EVENT_TYPE",
)

PRODUCTS = {
    "2.9.1": "2020.4.1.117",
    "3.7.2": "2023.4.4.54",
    "3.16.1": "2024.6.2.225",
    "3.20.0": "2025.3.1.90",
    "3.28.1": "2026.4.1.100",
    "9.0.0": "2031.1.1.1",
}

_NEW_KERNEL_COLUMNS = _columns(
    "qmdBulkReleaseDone INTEGER, qmdPreexitDone INTEGER, qmdLastCtaDone INTEGER, graphId INTEGER, clusterX INTEGER,"
    " clusterY INTEGER, clusterZ INTEGER, clusterSchedulingPolicy INTEGER, maxPotentialClusterSize INTEGER,"
    " maxActiveClusters INTEGER, sharedMemoryRequestedPercentage INTEGER, tensorSizeMinusOneElements TEXT NOT NULL"
)
_GRAPHS = _columns(
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,"
    " nameId INTEGER NOT NULL, graphId INTEGER, originalGraphId INTEGER, graphExecId INTEGER"
)


def _tables(schema: str) -> dict[str, dict[str, str]]:
    """Return the columns of every table as that export schema has them."""
    version = tuple(int(x) for x in schema.split("."))
    tables = {name: dict(columns) for name, columns in TABLES.items()}
    if version < (3, 0):
        for table in (KERNEL, MEMCPY, MEMSET, SYNC):
            tables[table].pop("greenContextId")
        for column in ("mangledName", "sharedMemoryLimitConfig"):
            tables[KERNEL].pop(column)
        for column in ("jsonTextId", "jsonText"):
            tables[NVTX].pop(column)
    if version >= (3, 16):
        tables[NVTX] |= _columns("binaryData TEXT, eventId INTEGER")
    if version >= (3, 28):
        middle: dict[str, str] = {}
        for column, kind in tables[KERNEL].items():
            if column == "streamId":
                middle["addedInTheMiddle"] = "INTEGER"
            middle[column] = kind
        tables[KERNEL] = middle | _NEW_KERNEL_COLUMNS
        tables["CUDA_GRAPH_EVENTS"] = dict(_GRAPHS)
    return tables


@dataclass
class TraceBuilder:
    """Collects the rows of one export and writes them.

    Parameters
    ----------
    schema
        Export schema version; decides columns and the table that graph nodes are in.
    shuffle
        Seed for the order of rows; None keeps the order in which they were added.
    without
        ``"TABLE"`` or ``"TABLE.column"`` that the file shall lack.
    """

    schema: str = "3.7.2"
    product: str | None = None
    shuffle: int | None = None
    without: tuple[str, ...] = ()
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    first_correlation: int = 100
    _strings: dict[str | bytes, int] = field(default_factory=dict)
    _high: dict[int, tuple[int, int]] = field(default_factory=dict)

    # ---------------------------------------------------------------- rows

    def table(self, name: str) -> TraceBuilder:
        """Make sure a table is there even if it stays empty."""
        self.rows.setdefault(name, [])
        return self

    def add(self, table_: str, **values: Any) -> None:
        """Add one row as it is."""
        self.rows.setdefault(table_, []).append(values)

    def string(self, text: str | bytes) -> int:
        """Return the id of a string, entering it at its first use."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def correlation(self) -> int:
        """Return a correlation id that this builder has not given out."""
        self.first_correlation += 1
        return self.first_correlation

    def process(self, pid: int = DEFAULT_PID, *, hw: int = 0, vm: int = LOCAL_VM, name: str = "python3") -> int:
        """Add a process; with ``hw`` ≥ 128 its ids come out negative."""
        self._high[pid] = (hw, vm)
        self.add("PROCESSES", globalPid=self.gpid(pid), pid=pid, name=name)
        return pid

    def gpid(self, pid: int) -> int:
        """Return the globalPid of a process."""
        hw, vm = self._high.get(pid, (0, LOCAL_VM))
        return global_id(pid, 0, hw, vm)

    def gtid(self, pid: int, tid: int | None) -> int:
        """Return the globalTid of a thread; the main thread by default."""
        hw, vm = self._high.get(pid, (0, LOCAL_VM))
        return global_id(pid, pid if tid is None else tid, hw, vm)

    # ---------------------------------------------------------------- CUDA

    def api(
        self,
        name: str,
        start: int,
        duration: int = 5,
        *,
        pid: int = DEFAULT_PID,
        tid: int | None = None,
        corr: int | None = None,
        returned: int = 0,
    ) -> int:
        """Add an API call and return its correlation id."""
        corr = self.correlation() if corr is None else corr
        self.add(
            RUNTIME,
            start=start,
            end=start + duration,
            eventClass=1,
            globalTid=self.gtid(pid, tid),
            correlationId=corr,
            nameId=self.string(name),
            returnValue=returned,
        )
        return corr

    def kernel(
        self,
        name: KernelName,
        start: int,
        duration: int,
        *,
        device: int = 0,
        stream: int = 7,
        pid: int = DEFAULT_PID,
        corr: int | None = None,
        launch: int | None = None,
        tid: int | None = None,
        node: int | None = None,
        call: str = LAUNCH_CALL,
        **columns: Any,
    ) -> int:
        """Add a kernel and, with ``launch``, the call that started it at that time on that thread."""
        corr = self.correlation() if corr is None else corr
        row = {
            "start": start,
            "end": start + duration,
            "deviceId": device,
            "contextId": 1,
            "streamId": stream,
            "correlationId": corr,
            "globalPid": self.gpid(pid),
            "demangledName": self.string(name.demangled),
            "shortName": self.string(name.short),
            "gridX": 1,
            "gridY": 1,
            "gridZ": 1,
            "blockX": 128,
            "blockY": 1,
            "blockZ": 1,
            "gridId": corr,
            "graphNodeId": node,
        }
        self.add(KERNEL, **(row | columns))
        if launch is not None:
            self.api(call, launch, pid=pid, tid=tid, corr=corr)
        return corr

    def memcpy(
        self,
        start: int,
        duration: int,
        *,
        device: int = 0,
        stream: int = 7,
        pid: int = DEFAULT_PID,
        corr: int | None = None,
        launch: int | None = None,
        tid: int | None = None,
        node: int | None = None,
        kind: int = 1,
        size: int = 4096,
    ) -> int:
        """Add a copy and, with ``launch``, its call."""
        corr = self.correlation() if corr is None else corr
        self.add(
            MEMCPY,
            **self._on_stream(start, duration, device, stream, pid, corr),
            bytes=size,
            copyKind=kind,
            graphNodeId=node,
        )
        if launch is not None:
            self.api("cudaMemcpyAsync_v3020", launch, pid=pid, tid=tid, corr=corr)
        return corr

    def memset(
        self,
        start: int,
        duration: int,
        *,
        device: int = 0,
        stream: int = 7,
        pid: int = DEFAULT_PID,
        corr: int | None = None,
        launch: int | None = None,
        tid: int | None = None,
        node: int | None = None,
    ) -> int:
        """Add a memset and, with ``launch``, its call."""
        corr = self.correlation() if corr is None else corr
        self.add(
            MEMSET,
            **self._on_stream(start, duration, device, stream, pid, corr),
            value=0,
            bytes=64,
            graphNodeId=node,
        )
        if launch is not None:
            self.api("cudaMemsetAsync_v3020", launch, pid=pid, tid=tid, corr=corr)
        return corr

    def sync(
        self,
        start: int,
        duration: int,
        *,
        device: int = 0,
        stream: int = 7,
        pid: int = DEFAULT_PID,
        corr: int = 3,
    ) -> None:
        """Add a synchronisation record, which is no GPU operation."""
        self.add(SYNC, **self._on_stream(start, duration, device, stream, pid, corr), syncType=3, eventId=0)

    def graph_launch(
        self,
        start: int,
        duration: int = 5,
        *,
        pid: int = DEFAULT_PID,
        tid: int | None = None,
        corr: int | None = None,
        returned: int = 0,
    ) -> int:
        """Add a call that launches a graph and return its correlation id, which all its kernels share."""
        return self.api(GRAPH_LAUNCH_CALL, start, duration, pid=pid, tid=tid, corr=corr, returned=returned)

    def graph_trace(
        self,
        start: int,
        duration: int,
        *,
        corr: int,
        device: int = 0,
        stream: int = 7,
        pid: int = DEFAULT_PID,
    ) -> None:
        """Add the graph-level row of a replay whose kernels were not traced (2024 and later)."""
        self.add(
            GRAPH_TRACE,
            **self._on_stream(start, duration, device, stream, pid, corr),
            graphId=1,
            graphExecId=2,
        )

    def capture(self, begin: int, end: int | None, *, pid: int = DEFAULT_PID, tid: int | None = None) -> None:
        """Add the calls that begin and end a stream capture."""
        self.api(BEGIN_CAPTURE_CALL, begin, 1, pid=pid, tid=tid)
        if end is not None:
            self.api(END_CAPTURE_CALL, end, 1, pid=pid, tid=tid)

    @property
    def node_table(self) -> str:
        """The table that graph nodes are in under this schema."""
        return "CUDA_GRAPH_NODE_EVENTS" if tuple(map(int, self.schema.split("."))) >= (3, 16) else "CUDA_GRAPH_EVENTS"

    def node(
        self,
        at: int,
        node: int,
        original: int | None = None,
        *,
        pid: int = DEFAULT_PID,
        tid: int | None = None,
    ) -> None:
        """Add the creation of a graph node; ``original`` for one made by instantiation."""
        self.add(
            self.node_table,
            start=at,
            end=at + 1,
            eventClass=77,
            globalTid=self.gtid(pid, tid),
            nameId=self.string("Graph Node Creation"),
            graphNodeId=node,
            originalGraphNodeId=original,
        )

    def _on_stream(self, start: int, duration: int, device: int, stream: int, pid: int, corr: int) -> dict[str, Any]:
        return {
            "start": start,
            "end": start + duration,
            "deviceId": device,
            "contextId": 1,
            "streamId": stream,
            "correlationId": corr,
            "globalPid": self.gpid(pid),
        }

    # ---------------------------------------------------------------- NVTX

    def push_pop(
        self,
        name: str | bytes | None,
        start: int,
        end: int | None,
        *,
        pid: int = DEFAULT_PID,
        tid: int | None = None,
        domain: int | None = 0,
        registered: bool = False,
        kind: int = PUSH_POP,
        **columns: Any,
    ) -> None:
        """Add a push/pop range; ``end`` None was never popped, ``name`` None has neither text nor textId."""
        row: dict[str, Any] = {
            "start": start,
            "end": end,
            "eventType": kind,
            "globalTid": self.gtid(pid, tid),
            "domainId": domain,
        }
        if name is not None:
            row |= {"textId": self.string(name)} if registered else {"text": name}
        self.add(NVTX, **(row | columns))

    def start_end(
        self,
        name: str | bytes | None,
        start: int,
        end: int | None,
        *,
        end_tid: int | None = None,
        **options: Any,
    ) -> None:
        """Add a start/end range, which another thread may have ended."""
        pid = options.get("pid", DEFAULT_PID)
        self.push_pop(
            name,
            start,
            end,
            kind=START_END,
            endGlobalTid=None if end is None else self.gtid(pid, end_tid),
            rangeId=len(self.rows.get(NVTX, ())),
            **options,
        )

    def overhead(self, start: int, end: int, *, pid: int = DEFAULT_PID, name: str = "CUPTI: Buffer flush") -> None:
        """Add overhead that the profiler recorded of its own, on a thread of its own."""
        self.add(
            "PROFILER_OVERHEAD",
            start=start,
            end=end,
            globalTid=self.gtid(pid, pid + 9),
            nameId=self.string(name),
            returnValue=0,
        )

    def mark(self, name: str, at: int, **options: Any) -> None:
        """Add an instantaneous mark."""
        self.push_pop(name, at, None, kind=MARK, **options)

    def domain(
        self, name: str | bytes, domain: int, *, pid: int = DEFAULT_PID, at: int = 1, registered: bool = False
    ) -> None:
        """Add the creation of a domain in one process."""
        self.push_pop(name, at, None, pid=pid, domain=domain, kind=DOMAIN_CREATE, registered=registered)

    # ---------------------------------------------------------------- about the capture

    def duration(self, ns: int) -> None:
        """Say how long the capture took."""
        self.add("ANALYSIS_DETAILS", globalVid=LOCAL_VM << 48, duration=ns, startTime=0, stopTime=ns)

    def gpu(self, index: int, name: str = "NVIDIA H200") -> None:
        """Add a physical GPU."""
        self.add(
            "TARGET_INFO_GPU",
            vmId=LOCAL_VM << 48,
            id=index,
            name=name,
            uuid=f"00000000-{index:04x}",
            cuDevice=index,
        )

    def cuda_device(self, pid: int, ordinal: int, gpu: int | None) -> None:
        """Say which physical GPU a process sees under an ordinal (newer schemas)."""
        self.add(
            "TARGET_INFO_CUDA_DEVICE",
            gpuId=gpu,
            cudaId=ordinal,
            pid=pid,
            uuid=f"00000000-{gpu or 0:04x}",
            numMultiprocessors=132,
        )

    def diagnostic(self, text: str, severity: int = 3, *, pid: int = 0) -> None:
        """Add a message of nsys about the capture: 1 info, 2 warning, 3 error."""
        self.add(
            "DIAGNOSTIC_EVENT",
            timestamp=10,
            timestampType=1,
            source=1,
            severity=severity,
            text=text,
            globalPid=global_id(pid),
        )

    def environment(self, name: str, value: str) -> None:
        """Put a variable of the traced program where nsys puts it: in three places."""
        line = f"{name}={value}"
        self.add(
            "TARGET_INFO_SYSTEM_ENV",
            globalVid=LOCAL_VM << 48,
            devStateName="SystemEnv",
            name=name,
            nameEnum=0,
            value=value,
        )
        self.add("META_DATA_CAPTURE", name=f"ENVIRONMENT_VARIABLES:{name}", value=value)
        self.add(
            "ProcessStreams",
            globalPid=self.gpid(DEFAULT_PID),
            filenameId=self.string("environ"),
            contentId=self.string(line),
        )

    # ---------------------------------------------------------------- writing

    def write(self, path: Path | str, *, journal_mode: str = "DELETE") -> Path:
        """Write the export and return its path."""
        path = Path(path)
        path.unlink(missing_ok=True)
        tables = _tables(self.schema)
        rows = {name: list(self.rows.get(name, ())) for name in (*_ALWAYS, *self.rows)}
        rows["META_DATA_EXPORT"] = [
            {"name": "EXPORT_PRODUCT_NAME", "value": "NVIDIA Nsight Systems"},
            {
                "name": "EXPORT_PRODUCT_VERSION",
                "value": self.product or PRODUCTS.get(self.schema, "2023.4.4.54"),
            },
            {"name": "EXPORT_SCHEMA_VERSION", "value": self.schema},
            *rows["META_DATA_EXPORT"],
        ]
        rows["ENUM_NSYS_EVENT_TYPE"] = [
            {"id": i, "name": n, "label": n}
            for i, n in (
                (MARK, "NvtxMark"),
                (PUSH_POP, "NvtxPushPopRange"),
                (START_END, "NvtxStartEndRange"),
                (DOMAIN_CREATE, "NvtxDomainCreate"),
                (DOMAIN_DESTROY, "NvtxDomainDestroy"),
            )
        ]
        if "DIAGNOSTIC_EVENT" in rows:
            rows["ENUM_DIAGNOSTIC_SEVERITY_LEVEL"] = [
                {"id": i, "name": n, "label": n} for i, n in ((1, "Info"), (2, "Warning"), (3, "Error"))
            ]
        rows["TARGET_INFO_SESSION_START_TIME"] = [
            {
                "utcEpochNs": 1_750_000_000_000_000_000,
                "utcTime": "2025-06-15T15:06:40",
                "localTime": "2025-06-15T15:06:40",
            }
        ]
        # The test's own choice, made reproducible: no security rests on it.
        order = random.Random(self.shuffle) if self.shuffle is not None else None
        db = sqlite3.connect(path, isolation_level=None)
        try:
            db.execute(f"PRAGMA journal_mode={journal_mode}")
            db.execute("PRAGMA synchronous=OFF")
            db.execute("BEGIN")
            for table, content in rows.items():
                if table in self.without:
                    continue
                columns = {c: k for c, k in tables[table].items() if f"{table}.{c}" not in self.without}
                db.execute(f"CREATE TABLE {table} ({', '.join(f'{c} {k}' for c, k in columns.items())})")
                if order:
                    order.shuffle(content)
                for row in content:
                    _insert(db, table, columns, row)
            db.execute("COMMIT")
        finally:
            db.close()
        return path


def _insert(db: sqlite3.Connection, table: str, columns: dict[str, str], row: dict[str, Any]) -> None:
    values = {c: v for c, v in row.items() if c in columns}
    for column, kind in columns.items():
        if "NOT NULL" in kind and values.get(column) is None:
            values[column] = "" if kind.startswith("TEXT") else 0
    # Bytes that are not UTF-8 reach a TEXT column only through a cast; bound as bytes they would be a BLOB.
    marks = ["CAST(? AS TEXT)" if isinstance(v, bytes) else "?" for v in values.values()]
    db.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(marks)})", list(values.values()))
