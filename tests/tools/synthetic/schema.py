"""Tables and columns as nsys exports them, and a writer of rows."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict

import numpy as np

CHUNK = 200_000


def _columns(text):
    """ "name" INTEGER, "name:t" TEXT, "name:r" REAL; a final ! is NOT NULL."""
    out = []
    for word in text.split():
        name, _, kind = word.rstrip("!").partition(":")
        out.append(
            (
                name,
                {"": "INTEGER", "t": "TEXT", "r": "REAL"}[kind] + (" NOT NULL" if word.endswith("!") else ""),
            )
        )
    return out


_DEV = "start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid "
SCHEMA = {
    "StringIds": "id! value:t!",
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:t localTime:t",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName:t! name:t! nameEnum! value:t!",
    "TARGET_INFO_GPU": (
        "vmId! id! name:t busLocation:t isDiscrete l2CacheSize totalMemory memoryBandwidth "
        "clockRate smCount pwGpuId uuid:t luid chipName:t cuDevice ctxswDevPath:t ctrlDevPath:t "
        "revision nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock "
        "maxShmemPerBlockOptin maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines "
        "maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ "
        "maxGridDimX maxGridDimY maxGridDimZ computeMajor computeMinor smMajor smMinor"
    ),
    "TARGET_INFO_CUDA_CONTEXT_INFO": (
        "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId isGreenContext"
    ),
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
    "PROCESSES": "globalPid pid name:t",
    "ThreadNames": "nameId! priority globalTid",
    "ProcessStreams": "globalPid! filenameId! contentId!",
    "PROFILER_OVERHEAD": "start! end! globalTid nameId! returnValue!",
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:t globalTid endGlobalTid textId "
        "domainId uint64Value int64Value doubleValue:r uint32Value int32Value floatValue:r "
        "jsonTextId jsonText:t"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _DEV
    + (
        "bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause graphNodeId virtualAddress"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": _DEV + "value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_KERNEL": _DEV
    + (
        "demangledName! shortName! mangledName launchType cacheConfig registersPerThread! gridX! "
        "gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory! "
        "localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId "
        "sharedMemoryLimitConfig"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _DEV + "syncType! eventId!",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "deviceId! contextId! greenContextId streamId! correlationId globalPid eventId!"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId"),
    "CUDA_GRAPH_EVENTS": "start! end! eventClass! globalTid nameId! graphNodeId! originalGraphNodeId",
    "META_DATA_CAPTURE": "name:t! value:t",
    "META_DATA_EXPORT": "name:t! value:t",
}
SCHEMA_2025 = {  # what is added to, or stands in for, the table of 2023
    "TARGET_INFO_CUDA_DEVICE": "gpuId! cudaId! pid! uuid:t! numMultiprocessors!",
    "NVTX_EVENTS": SCHEMA["NVTX_EVENTS"] + " binaryData:t",
    "CUPTI_ACTIVITY_KIND_MEMCPY": SCHEMA["CUPTI_ACTIVITY_KIND_MEMCPY"] + " copyCount",
    "CUPTI_ACTIVITY_KIND_KERNEL": SCHEMA["CUPTI_ACTIVITY_KIND_KERNEL"]
    + " qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX "
    "clusterY clusterZ clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _DEV + "deprecatedSyncType syncType! eventId! eventSyncId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _DEV + "graphId! graphExecId!",
    "CUDA_GRAPH_NODE_EVENTS": SCHEMA["CUDA_GRAPH_EVENTS"],
}
# The exporter is lazy: an event table without rows does not exist.
LAZY = [t for t in {**SCHEMA, **SCHEMA_2025} if t.startswith(("CUPTI_", "CUDA_", "NVTX_")) or t == "PROFILER_OVERHEAD"]
OLD_ONLY, NEW_ONLY = (
    {"CUDA_GRAPH_EVENTS"},
    {"TARGET_INFO_CUDA_DEVICE", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUDA_GRAPH_NODE_EVENTS"},
)


def _enum(prefix, *items):
    return [(i, prefix + name, label) for i, name, label in items]


ENUMS = {
    "ENUM_NSYS_EVENT_TYPE": _enum(
        "",
        *[
            (i, n, n)
            for i, n in (
                (33, "NvtxCategory"),
                (34, "NvtxMark"),
                (39, "NvtxThread"),
                (45, "Cuda"),
                (46, "CudaDevice"),
                (47, "TraceProcess"),
                (59, "NvtxPushPopRange"),
                (60, "NvtxStartEndRange"),
                (75, "NvtxDomainCreate"),
                (76, "NvtxDomainDestroy"),
                (79, "CudaDeviceKernel"),
                (80, "CudaDeviceMemory"),
            )
        ],
    ),
    "ENUM_NSYS_EVENT_CLASS": _enum(
        "TRACE_PROCESS_EVENT_",
        (0, "CUDA_RUNTIME", "CUDA runtime"),
        (1, "CUDA_DRIVER", "CUDA driver"),
        (27, "OS_RUNTIME", "OSRT runtime"),
        (77, "CUDA_GRAPH_NODE_CREATION", "CUDA graph node creation"),
    ),
    "ENUM_CUDA_MEMCPY_OPER": _enum(
        "CUDA_MEMCPY_KIND_",
        (0, "UNKNOWN", "Unknown"),
        (1, "HTOD", "Host-to-Device"),
        (2, "DTOH", "Device-to-Host"),
        (3, "HTOA", "Host-to-Array"),
        (4, "ATOH", "Array-to-Host"),
        (5, "ATOA", "Array-to-Array"),
        (6, "ATOD", "Array-to-Device"),
        (7, "DTOA", "Device-to-Array"),
        (8, "DTOD", "Device-to-Device"),
        (9, "HTOH", "Host-to-Host"),
        (10, "PTOP", "Peer-to-Peer"),
        (11, "UVM_HTOD", "Unified Host-to-Device"),
        (12, "UVM_DTOH", "Unified Device-to-Host"),
        (13, "UVM_DTOD", "Unified Device-to-Device"),
    ),
    "ENUM_CUDA_MEM_KIND": _enum(
        "CUDA_MEMOPR_MEMORY_KIND_",
        (0, "PAGEABLE", "Pageable"),
        (1, "PINNED", "Pinned"),
        (2, "DEVICE", "Device"),
        (3, "ARRAY", "Array"),
        (4, "MANAGED", "Managed"),
        (5, "DEVICE_STATIC", "Device Static"),
        (6, "MANAGED_STATIC", "Managed Static"),
        (7, "UNKNOWN", "Unknown"),
    ),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": _enum(
        "CUDA_KERNEL_LAUNCH_TYPE_",
        (0, "UNKNOWN", "Unknown"),
        (1, "REGULAR", "Regular"),
        (2, "COOPERATIVE_SINGLE_DEVICE", "Coop Single Device"),
        (3, "COOPERATIVE_MULTI_DEVICE", "Coop Multi Device"),
    ),
    "ENUM_CUDA_FUNC_CACHE_CONFIG": _enum(
        "CU_FUNC_CACHE_PREFER_",
        (0, "NONE", "None"),
        (1, "SHARED", "Shared"),
        (2, "L1", "L1"),
        (3, "EQUAL", "Equal"),
    ),
    "ENUM_CUDA_SHARED_MEM_LIMIT_CONFIG": _enum(
        "CUDA_SHARED_MEM_LIMIT_", (0, "DEFAULT", "Default"), (1, "OPTIN", "Opt in")
    ),
    "ENUM_CUPTI_STREAM_TYPE": _enum(
        "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_",
        (0, "UNKNOWN", "Unknown stream type"),
        (1, "DEFAULT", "Default stream"),
        (2, "NON_BLOCKING", "Non-blocking stream"),
        (3, "NULL", "Null stream"),
    ),
    "ENUM_CUPTI_SYNC_TYPE": _enum(
        "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        (0, "UNKNOWN", "Unknown"),
        (1, "EVENT_SYNCHRONIZE", "Event sync"),
        (2, "STREAM_WAIT_EVENT", "Stream wait sync"),
        (3, "STREAM_SYNCHRONIZE", "Stream sync"),
        (4, "CONTEXT_SYNCHRONIZE", "Context sync"),
    ),
}


class Strings:
    def __init__(self):
        self.ids: dict[str, int] = {}

    def __call__(self, s):
        return self.ids.setdefault(s, len(self.ids))


class Writer:
    """Every table is appended in chunks of column arrays; scalars become SQL literals."""

    def __init__(self, path, version):
        if os.path.exists(path):
            os.unlink(path)
        self.db = sqlite3.connect(path, isolation_level=None)
        for p in (
            "page_size=4096",
            "journal_mode=OFF",
            "synchronous=OFF",
            "locking_mode=EXCLUSIVE",
            "cache_size=-65536",
        ):
            self.db.execute(f"pragma {p}")
        tables = {t: c for t, c in SCHEMA.items() if version == "2023" or t not in OLD_ONLY}
        if version == "2025":
            tables.update(SCHEMA_2025)
        self.schema = {t: _columns(c) for t, c in tables.items()}
        self.schema.update({e: _columns("id! name:t label:t") for e in ENUMS})
        for t, cols in self.schema.items():
            body = ",\n".join(
                f"    {c:<28}{d}" + (" PRIMARY KEY" if c == "id" and (t == "StringIds" or t in ENUMS) else "")
                for c, d in cols
            )
            self.db.execute(f"CREATE TABLE {t} (\n{body}\n)")
        self.rows = defaultdict(int)
        self.db.execute("begin")

    def put(self, table, **cols):
        """column = array, list, scalar or None; a column that this schema lacks is left out."""
        names = [c for c, _ in self.schema[table]]
        vals, arrays = [], []
        for c in names:
            v = cols.get(c)
            if isinstance(v, (np.ndarray, list)):
                vals.append("?")
                arrays.append(v)
            else:
                vals.append(
                    "NULL"
                    if v is None
                    else str(int(v))
                    if isinstance(v, (int, np.integer))
                    else "'" + str(v).replace("'", "''") + "'"
                )
        n = len(arrays[0])
        assert all(len(a) == n for a in arrays), table
        sql = f"INSERT INTO {table} VALUES ({','.join(vals)})"
        for i in range(0, n, CHUNK):
            self.db.executemany(
                sql,
                zip(
                    *[a[i : i + CHUNK].tolist() if isinstance(a, np.ndarray) else a[i : i + CHUNK] for a in arrays],
                    strict=True,
                ),
            )
        self.rows[table] += n

    def close(self, strings: Strings):
        self.put("StringIds", id=list(strings.ids.values()), value=list(strings.ids))
        for t in LAZY:
            if t in self.schema and not self.rows[t]:
                self.db.execute(f"DROP TABLE {t}")
        self.db.execute("commit")
        self.db.close()


def obj(mask, values):
    """int64 array -> objects with None where mask is false."""
    out = np.asarray(values).astype(object)
    out[~mask] = None
    return out


def signed(x):
    return x - (1 << 64) if x >= 1 << 63 else x
