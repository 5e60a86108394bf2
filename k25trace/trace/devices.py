"""Which device of the machine a process's device ordinal is, as far as an export tells."""

from collections.abc import Set as AbstractSet

from k25trace.nsystables import CONTEXT_TABLE, DEVICE_TABLE, GPU_TABLE
from k25trace.trace.gpus import Slot
from k25trace.trace.source import Col, Source, read
from k25trace.trace.tables import LOW_24_BITS, os_pid, process_of


def context_slots(source: Source, processes: AbstractSet[int]) -> list[Slot]:
    """Return the slots that the CUDA contexts of some processes (globalPids) tell of."""
    contexts = read(source, CONTEXT_TABLE, [Col("processId"), Col("deviceId")])
    devices: dict[int, int] = dict(contexts.drop_nulls().unique().sort("deviceId", descending=True).iter_rows())
    pids = {process: os_pid(process) for process in sorted(processes)}
    return [Slot(process, devices[pid]) for process, pid in pids.items() if pid in devices]


def device_map(source: Source, processes: AbstractSet[int | None]) -> dict[Slot, int]:
    """Return the physical index of the slots of some processes, by the export's tables of devices."""
    columns = [Col("pid"), Col("cudaId"), Col("gpuId"), Col("uuid", "text")]
    rows = read(source, DEVICE_TABLE, columns)
    gpus = read(source, GPU_TABLE, [Col("id"), Col("uuid", "text")])
    by_uuid = {uuid: id_ for id_, uuid in gpus.drop_nulls().iter_rows() if uuid}
    by_pid = {os_pid(p): p for p in processes if p is not None}
    found: dict[Slot, int] = {}
    for pid, ordinal, gpu, uuid in rows.iter_rows():
        process = process_of(pid) if pid is not None and pid > LOW_24_BITS else by_pid.get(int(pid or 0))
        index = by_uuid.get(uuid) if gpu is None else gpu
        if process is not None and ordinal is not None and index is not None:
            found[Slot(process, ordinal)] = index
    return found
