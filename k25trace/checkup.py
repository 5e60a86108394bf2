"""The check list of a report: whether what a capture should hold is there, line by line.

Every line looks at facts of the report; what nsys said is one of them and never the verdict.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from k25trace import health
from k25trace.attribution import Attribution
from k25trace.checks import Check, judged, missing, passed, unknown
from k25trace.classify import load_rules
from k25trace.nsys import NVTX_FOR_OLD_NSYS, nvtx_is_too_new
from k25trace.replays import replays
from k25trace.taxonomy import is_communication
from k25trace.trace import Trace, open_trace
from k25trace.trace.source import Col, decode, read
from k25trace.trace.tables import DOMAIN_CREATE, NCCL_DOMAIN, NVTX_TABLE
from k25trace.warnings import ReportWarning

UNEVEN_SHARE = 0.5
"""A GPU with fewer kernels than that share of another's, in one report, has lost some or does another job."""

UNPAIRED_SHARE = 0.02
"""Collectives that one GPU may have more of than another: the recording cuts the first and last ones."""

CUT_COLLECTIVES = 2

BEFORE_LAUNCH_SHARE = 0.01
"""Share of kernels that may start before their launch call: clocks are converted, and not exactly."""

_SAME_JOB_SHARE = 0.5
_SAME_JOB_NAMES = 2
_RANGE = "--capture-range cudaProfilerApi"
_NEW_NVTX = (9, 9)


def check_report(path: Path) -> list[Check]:
    """Return the check list of a report by its path (see `open_trace` for what can be opened)."""
    return check_trace(open_trace(path))


def check_trace(trace: Trace) -> list[Check]:
    """Return the check list of a report.

    Returns
    -------
    list of Check
        The same lines in the same order for every report: GPUs, processes, NVTX per rank, NVTX package,
        graph replays, graph captures, launches, collectives, balance, API calls, diagnostics, clock.
    """
    seen = _Seen(trace)
    _ = trace.kernels, trace.launches  # loaded once, before a survey would stream them
    return [
        _gpus(seen),
        _processes(seen),
        _nvtx_per_rank(seen),
        _nvtx_package(seen),
        _graph_replays(seen),
        _graph_captures(seen),
        _launches(seen),
        _collectives(seen),
        _balance(seen),
        _api_calls(seen),
        _diagnostics(trace.warnings),
        _clock(seen),
    ]


@dataclass
class _Seen:
    """What several lines look at."""

    trace: Trace

    @cached_property
    def kernels_by_gpu(self) -> dict[int, int]:
        counts = dict(self.trace.kernels.group_by("gpu").len().iter_rows())
        return {gpu: counts.get(gpu, 0) for gpu in range(len(self.trace.gpus))}

    @cached_property
    def with_kernels(self) -> set[int]:
        return set(self.trace.survey["process"].drop_nulls().to_list())

    @cached_property
    def opaque(self) -> int:
        return replays(self.trace).opaque.height

    @cached_property
    def own_ranges(self) -> pl.DataFrame:
        return self.trace.ranges.filter(~pl.col("is_nccl"))

    @cached_property
    def launching(self) -> set[int]:
        calls = self.trace.calls("kernel_launch", "graph_launch").filter(~pl.col("failed"))
        return set(calls["process"].drop_nulls().to_list())

    @cached_property
    def cuda_was_traced(self) -> bool | None:
        """Whether nsys was told to trace CUDA; None where the report does not say."""
        frame = read(self.trace.source, "META_DATA_CAPTURE", [Col("name", "text"), Col("value", "text")])
        told = {decode(value) for name, value in frame.drop_nulls().iter_rows() if decode(name) == "CAPTURE_EVENT_TYPE"}
        return any("cuda" in text.lower() for text in told) if told else None

    @cached_property
    def contexts(self) -> set[tuple[int, int]]:
        """(pid, device ordinal) of every CUDA context."""
        columns = [Col("processId"), Col("deviceId")]
        return set(read(self.trace.source, "TARGET_INFO_CUDA_CONTEXT_INFO", columns).drop_nulls().iter_rows())

    @cached_property
    def nsys_version(self) -> tuple[int, ...]:
        return tuple(int(n) for n in re.findall(r"\d+", self.trace.facts.get("EXPORT_PRODUCT_VERSION", "")))

    def label(self, process: int) -> str:
        found = self.trace.processes[process]
        return f"process {found.pid}" if found.rank is None else f"rank {found.rank} (process {found.pid})"

    def labels(self, processes: Iterable[int]) -> str:
        return ", ".join(sorted(self.label(process) for process in processes))

    def gpu_counts(self, counts: dict[int, int]) -> str:
        return ", ".join(f"{self.trace.gpus[gpu].key}: {count:,}" for gpu, count in sorted(counts.items()))


def _gpus(seen: _Seen) -> Check:
    name = "GPUs"
    counts = seen.kernels_by_gpu
    if not any(counts.values()):
        return _no_kernels(name, seen)
    used = {slot.device for gpu in seen.trace.gpus for slot in gpu.slots}
    idle = sorted({device for _, device in seen.contexts} - used)
    empty = [seen.trace.gpus[gpu].key for gpu, count in counts.items() if not count]
    silent = [*empty, *(f"device {device}" for device in idle)]
    if silent:
        return missing(
            name,
            f"no kernel on {', '.join(silent)}, which the program used (kernels: {seen.gpu_counts(counts)})",
            f"nsys lost them, or they ran outside the recording: capture again with {_RANGE},"
            " every rank synchronised and past a barrier before it starts and stops",
        )
    return passed(name, f"kernels on all {len(counts)} GPUs that the program used ({seen.gpu_counts(counts)})")


def _no_kernels(name: str, seen: _Seen) -> Check:
    if seen.cuda_was_traced is False:
        return unknown(name, "no CUDA kernel: CUDA was not traced", "capture with --trace cuda,nvtx")
    if seen.opaque:
        return missing(
            name,
            f"no CUDA kernel in the report: all ran inside {seen.opaque:,} CUDA graph launches recorded as wholes",
            "capture with --graphs node (nsys profile --cuda-graph-trace=node)",
        )
    if seen.launching:
        return missing(
            name,
            "no CUDA kernel in the report, though the program launched some",
            f"nsys lost them: capture again with {_RANGE}; a driver newer than this nsys knows does this too",
        )
    return missing(
        name,
        "no CUDA kernel in the report (no-kernels), and no launch either",
        "likely causes: CUDA not traced (--trace cuda,nvtx), workers that were forked"
        " (--nsys-arg=--trace-fork-before-exec=true), a range that opened around no GPU"
        " work, an nsys too old for the"
        " driver, or a program that uses no GPU",
    )


def _processes(seen: _Seen) -> Check:
    name = "processes"
    if not seen.with_kernels:
        return unknown(name, "no process has kernels")
    names = dict(seen.own_ranges.filter("push_pop").group_by("process").agg(pl.col("name").unique()).iter_rows())
    known = {text for process in seen.with_kernels for text in names.get(process, [])}
    pids = {seen.trace.processes[process].pid for process in seen.with_kernels}
    replaying = set(seen.trace.graph_calls["process"].drop_nulls().to_list())
    silent = seen.launching - seen.with_kernels - replaying
    for process, own in names.items():
        shared = len(known.intersection(own))
        if process not in seen.with_kernels and shared >= max(_SAME_JOB_NAMES, _SAME_JOB_SHARE * len(own)):
            silent.add(process)
    without = {pid for pid, _ in seen.contexts} - pids - {seen.trace.processes[p].pid for p in silent | replaying}
    if silent or without:
        told = [*([seen.labels(silent)] if silent else []), *(f"process {pid}" for pid in sorted(without))]
        return missing(
            name,
            f"no kernel of {', '.join(told)}: launches, a CUDA context, or the ranges of those that have kernels",
            f"a rank is missing: capture again with {_RANGE}, all ranks at a barrier before it starts and stops",
        )
    return passed(name, f"all {len(seen.with_kernels)} processes that used a GPU have kernels")


def _nvtx_per_rank(seen: _Seen) -> Check:
    name = "NVTX per rank"
    fix = "annotate the program (nvtx.annotate, torch.cuda.nvtx.range) and capture with --trace cuda,nvtx"
    with_ranges = set(seen.own_ranges["process"].drop_nulls().to_list())
    if not with_ranges:
        return unknown(name, "no NVTX range of the program in the report", fix)
    bare = seen.with_kernels - with_ranges
    if bare:
        return missing(
            name,
            f"no NVTX range of {seen.labels(bare)}; {len(with_ranges)} processes have some",
            "annotate every rank alike; a process that was killed (SIGKILL) loses its ranges",
        )
    who = seen.with_kernels or with_ranges
    count = seen.own_ranges.filter(pl.col("process").is_in(list(who))).height
    return passed(name, f"{count:,} ranges in {len(who)} of {len(who)} processes")


def _nvtx_package(seen: _Seen) -> Check:
    name = "NVTX package"
    if seen.own_ranges.height:
        return passed(name, "its ranges are recorded")
    too_new = nvtx_is_too_new(_NEW_NVTX, seen.nsys_version)
    fix = (
        f"pip install nvtx=={NVTX_FOR_OLD_NSYS} where the program runs: 0.2.12 and newer"
        " emit ranges that this nsys does"
        " not record; or take a newer nsys"
    )
    domains = _created_domains(seen.trace)
    version = ".".join(map(str, seen.nsys_version[:3])) or "of unknown version"
    if not domains:
        return unknown(
            name,
            "no NVTX range or domain of the program in the report",
            f"if it has some: {fix}" if too_new else "",
        )
    seen_text = f"only the creation of NVTX domains ({', '.join(sorted(domains))}) is recorded, and no range"
    if too_new:
        return missing(name, f"{seen_text}: the Python package nvtx is too new for nsys {version}", fix)
    return unknown(name, f"{seen_text} (nsys {version})", "open ranges inside the recording")


def _created_domains(trace: Trace) -> set[str]:
    """Return the names of the NVTX domains that the program created, NCCL's aside."""
    columns = [Col("eventType"), Col("textId"), Col("text", "text")]
    rows = [
        row[1:]
        for chunk in trace.source.scan(NVTX_TABLE, columns)
        for row in chunk.filter(pl.col("eventType") == DOMAIN_CREATE).iter_rows()
    ]
    strings = trace.source.strings([text_id for text_id, _ in rows if text_id is not None])
    names = {decode(text if text is not None else strings.get(text_id, b"")) for text_id, text in rows}
    return names - {NCCL_DOMAIN}


def _graph_replays(seen: _Seen) -> Check:
    name = "graph replays"
    calls = seen.trace.graph_calls.height
    if not calls and not seen.opaque:
        return passed(name, "no CUDA graph was launched")
    return judged(
        name,
        good=not seen.opaque,
        seen=f"{calls:,} CUDA graph launches, all with their kernels"
        if not seen.opaque
        else f"{seen.opaque:,} of {calls:,} CUDA graph launches have no kernels in the report (opaque-graphs)",
        fix="capture with --graphs node (nsys profile --cuda-graph-trace=node)",
    )


def _graph_captures(seen: _Seen) -> Check:
    name = "graph captures"
    replayed = seen.trace.kernels["graph_node"].drop_nulls().len()
    if not replayed:
        return passed(name, "no replayed kernel")
    without = Attribution(seen.trace).uncaptured
    return judged(
        name,
        good=not without,
        seen=f"the captures of all {replayed:,} replayed kernels were recorded"
        if not without
        else f"{without:,} of {replayed:,} replayed kernels come from a graph that was"
        " captured before the recording"
        " began (capture-ranges-missing)",
        fix="open the range before the program captures its CUDA graphs: cudaProfilerStart first, then the capture",
    )


def _launches(seen: _Seen) -> Check:
    name = "launches"
    calls = seen.trace.calls("kernel_launch").height
    if not calls:
        return unknown(name, "no launch call in the report")
    found = health.launches_without_kernels(seen.trace)
    without = found[0].count if found else 0
    return judged(
        name,
        good=not without,
        seen=f"the kernels of all {calls:,} launch calls are there (stream captures aside)"
        if not without
        else f"{without:,} of {calls:,} launch calls have no kernel (launches-without-kernels)",
        fix=f"nsys lost events: capture less at once, with {_RANGE} or --duration, or take a newer nsys",
    )


def _collectives(seen: _Seen) -> Check:
    name = "collectives"
    rules = load_rules()
    kernels = seen.trace.kernels
    distinct: list[int] = kernels["name"].unique().to_list()
    names = [index for index in distinct if is_communication(rules.classify(seen.trace.names[index]).category)]
    found = dict(kernels.filter(pl.col("name").is_in(names)).group_by("gpu").len().iter_rows())
    if not kernels.height:
        return unknown(name, "no kernels")
    if not found:
        return passed(name, "no communication kernel")
    counts = {gpu: found.get(gpu, 0) for gpu, all_ in seen.kernels_by_gpu.items() if all_}
    if len(counts) < 2:
        return unknown(name, f"communication kernels on one GPU alone ({seen.gpu_counts(counts)})")
    least, most = min(counts.values()), max(counts.values())
    if most - least <= max(CUT_COLLECTIVES, UNPAIRED_SHARE * most):
        return passed(name, f"as many on every GPU ({seen.gpu_counts(counts)})")
    seen_text = f"communication kernels do not pair up ({seen.gpu_counts(counts)})"
    if least < UNEVEN_SHARE * most:
        return missing(
            name,
            seen_text,
            f"nsys lost kernels of a rank, or the recording began or ended in the midst of a step: {_RANGE},"
            " with synchronize() and a barrier before start and stop",
        )
    return unknown(
        name,
        seen_text,
        "right if ranks belong to groups of different sizes; else see `processes` and `balance`",
    )


def _balance(seen: _Seen) -> Check:
    name = "balance"
    counts = {gpu: count for gpu, count in seen.kernels_by_gpu.items() if count}
    if len(counts) < 2:
        return passed(name, "one GPU") if counts else unknown(name, "no kernels")
    least, most = min(counts.values()), max(counts.values())
    return judged(
        name,
        good=least >= UNEVEN_SHARE * most,
        seen=f"kernels by GPU: {seen.gpu_counts(counts)}",
        fix="a GPU with much fewer kernels than another has lost some, unless the program"
        " gives it other work:"
        f" capture again with {_RANGE}",
    )


def _api_calls(seen: _Seen) -> Check:
    name = "API calls"
    found = health.incomplete_capture(seen.trace)
    if found:
        return missing(
            name,
            f"{found[0].message.partition(': ')[0]} (incomplete-capture)",
            f"nsys lost events and exited 0: capture again with {_RANGE}, less at once, or a newer nsys",
        )
    inner = seen.own_ranges.filter("push_pop").group_by("process").len()
    most = inner.filter(pl.col("process").is_in(list(seen.launching | seen.with_kernels)))["len"].max()
    if not isinstance(most, int) or most < health.LOSSY_RANGES_COUNT:
        return unknown(
            name, f"fewer than {health.LOSSY_RANGES_COUNT} NVTX ranges in every process that launches kernels"
        )
    return passed(name, "calls go on as long as ranges do")


def _diagnostics(warnings: Iterable[ReportWarning]) -> Check:
    name = "diagnostics"
    by_code = {warning.code: warning for warning in warnings}
    if "dropped-events" in by_code:
        return missing(
            name,
            by_code["dropped-events"].message,
            f"capture less at once: {_RANGE}, --duration, fewer traced APIs",
        )
    if "diagnostics" in by_code:
        return unknown(name, by_code["diagnostics"].message)
    return passed(name, "nsys reports no trouble")


def _clock(seen: _Seen) -> Check:
    name = "clock"
    kernels = seen.trace.kernels
    unusable = seen.trace.unusable_kernels
    fix = "export the report again; if that changes nothing, capture again"
    if unusable:
        return missing(name, f"{unusable:,} kernels with impossible times (unusable-times)", fix)
    if not kernels.height:
        return unknown(name, "no kernels")
    keys = ["process", "correlation"]
    launches = seen.trace.launches.drop_nulls(keys).group_by(keys).agg(pl.col("start_ns").min().alias("launch_ns"))
    joined = kernels.join(launches, on=keys)
    if not joined.height:
        return unknown(name, "no kernel has its launch call")
    early = joined.filter(pl.col("start_ns") < pl.col("launch_ns")).height
    return judged(
        name,
        good=early <= BEFORE_LAUNCH_SHARE * joined.height,
        seen=f"{early:,} of {joined.height:,} kernels start before their launch call",
        fix=f"clocks of CPU and GPU were not converted well: {fix}",
    )
