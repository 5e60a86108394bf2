"""The check list of a report: whether what a capture should hold is there, line by line.

Every line looks at facts of the report; what nsys said is one of them and never the verdict.
"""

from dataclasses import replace
from pathlib import Path

import polars as pl

from k25trace import health
from k25trace.attribution import Attribution
from k25trace.checks import Check, judged, missing, passed, unknown
from k25trace.checkup.nvtx import nvtx_package, nvtx_per_rank
from k25trace.checkup.seen import Seen
from k25trace.classify import load_rules
from k25trace.losses import LOSSY_RANGES_COUNT, lost_launches
from k25trace.nsystables import DIAGNOSTICS_TABLE
from k25trace.taxonomy import is_communication
from k25trace.trace import Trace, open_trace
from k25trace.units import counted

UNEVEN_SHARE = 0.5
"""A GPU with fewer kernels than that share of another's, in one report, has lost some or does another job."""

UNPAIRED_SHARE = 0.02
"""Collectives that one GPU may have more of than another: the recording cuts the first and last ones."""

CUT_COLLECTIVES = 2

BEFORE_LAUNCH_SHARE = 0.01
"""Share of kernels that may start before their launch call: clocks are converted, and not exactly."""

_RANGE = "--capture-range cudaProfilerApi"
_LOST = (
    f"nsys lost events and exited 0: capture again with {_RANGE}, less at once, or a newer nsys; one older than the"
    " CUDA of the program stops at the first call that it does not know"
)
_REST_ON_WHAT_IS_LEFT = (
    "processes", "graph replays", "graph captures", "launches", "collectives", "balance",
)  # fmt: skip
"""Lines that are ``ok`` because nothing amiss is seen: where events were lost, nobody knows."""


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
    seen = Seen(trace)
    _ = trace.kernels, trace.launches  # loaded once, before a survey would stream them
    checks = [
        _gpus(seen),
        _processes(seen),
        nvtx_per_rank(seen),
        nvtx_package(seen),
        _graph_replays(seen),
        _graph_captures(seen),
        _launches(seen),
        _collectives(seen),
        _balance(seen),
        _api_calls(seen),
        _diagnostics(seen),
        _clock(seen),
    ]
    return [_in_doubt(check) for check in checks] if seen.lost_events else checks


def _in_doubt(check: Check) -> Check:
    if check.status != "ok" or check.name not in _REST_ON_WHAT_IS_LEFT:
        return check
    return replace(check, status="cannot say", seen=f"events were lost; of what is left: {check.seen}")


def _gpus(seen: Seen) -> Check:
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
    some = f"kernels on {counted(len(counts), 'GPU')} ({seen.gpu_counts(counts)})"
    if seen.silent or seen.silent_pids:
        return unknown(name, f"{some}; which ones {seen.silent_labels} used is not known", "see `processes`")
    if seen.lost_events:
        return unknown(name, f"{some}; events were lost, so there may be more")
    used_all = "the one GPU" if len(counts) == 1 else f"all {counted(len(counts), 'GPU')}"
    return passed(name, f"kernels on {used_all} that the program used ({seen.gpu_counts(counts)})")


def _no_kernels(name: str, seen: Seen) -> Check:
    if seen.cuda_was_traced is False:
        return unknown(name, "no CUDA kernel: CUDA was not traced", "capture with --trace cuda,nvtx")
    if seen.opaque:
        return missing(
            name,
            f"no CUDA kernel in the report: all ran inside {_graph_launches(seen.opaque)} recorded as wholes",
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


def _processes(seen: Seen) -> Check:
    name = "processes"
    if not seen.with_kernels:
        return unknown(name, "no process has kernels")
    if seen.silent or seen.silent_pids:
        return missing(
            name,
            f"no kernel of {seen.silent_labels}: launches, a CUDA context, or the ranges of those that have kernels",
            f"a rank is missing: capture again with {_RANGE}, all ranks at a barrier before it starts and stops",
        )
    count = len(seen.with_kernels)
    those = "the one process that used a GPU has" if count == 1 else f"all {count} processes that used a GPU have"
    return passed(name, f"{those} kernels")


def _graph_replays(seen: Seen) -> Check:
    name = "graph replays"
    calls = seen.trace.graph_calls.height
    if seen.opaque:
        return missing(
            name,
            f"{seen.opaque:,} of {_graph_launches(calls)} have no kernels in the report (opaque-graphs)",
            "capture with --graphs node (nsys profile --cuda-graph-trace=node)",
        )
    if seen.partial_replays:
        return missing(
            name,
            f"{seen.partial_replays:,} of {_graph_launches(calls)} have a part of their kernels only: fewer than"
            " other launches of the same graph",
            _LOST,
        )
    if not calls:
        return passed(name, "no CUDA graph was launched")
    return passed(name, f"{_graph_launches(calls)}, all with their kernels")


def _graph_launches(count: int) -> str:
    return counted(count, "CUDA graph launch", "CUDA graph launches")


def _graph_captures(seen: Seen) -> Check:
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


def _launches(seen: Seen) -> Check:
    name = "launches"
    calls = seen.trace.calls("kernel_launch").height
    if not calls:
        return unknown(name, "no launch call in the report")
    found = health.launches_without_kernels(seen.trace)
    without = found[0].count if found else 0
    fix = f"nsys lost events: capture less at once, with {_RANGE} or --duration, or take a newer nsys"
    if without:
        return missing(
            name, f"no kernel of {without:,} of {counted(calls, 'launch call')} (launches-without-kernels)", fix
        )
    unlaunched = lost_launches(seen.trace)
    if unlaunched:
        return missing(
            name,
            f"no launch call of {counted(unlaunched, 'kernel')}, though it was made during the recording"
            " (kernels-without-launch)",
            fix,
        )
    return passed(name, f"the kernels of all {calls:,} launch calls are there (stream captures aside)")


def _collectives(seen: Seen) -> Check:
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
        return unknown(
            name,
            f"communication kernels on one GPU alone ({seen.gpu_counts(counts)}): none to compare it with",
            "a report of one rank is like that: compare the counts of all ranks' reports, or record all ranks in one",
        )
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


def _balance(seen: Seen) -> Check:
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


def _api_calls(seen: Seen) -> Check:
    name = "API calls"
    if seen.incomplete:
        told = seen.incomplete[0].message.partition(": ")[0]
        return missing(name, f"{told} (incomplete-capture)", _LOST)
    if seen.tails:
        each = ", ".join(f"{t.count:,} of {seen.label(t.process)}" for t in seen.tails)
        names = ", ".join(seen.tails[0].names[:3])
        return missing(
            name, f"innermost ranges go on after the last API call of their process: {each} ({names})", _LOST
        )
    inner = seen.own_ranges.filter("push_pop").group_by("process").len()
    most = inner.filter(pl.col("process").is_in(list(seen.launching | seen.with_kernels)))["len"].max()
    if not isinstance(most, int) or most < LOSSY_RANGES_COUNT:
        return unknown(name, f"fewer than {LOSSY_RANGES_COUNT} NVTX ranges in every process that launches kernels")
    return passed(name, "calls go on as long as ranges do")


def _diagnostics(seen: Seen) -> Check:
    name = "diagnostics"
    by_code = {warning.code: warning for warning in seen.trace.warnings}
    if "dropped-events" in by_code:
        return missing(
            name,
            by_code["dropped-events"].message,
            f"capture less at once: {_RANGE}, --duration, fewer traced APIs",
        )
    if "diagnostics" in by_code:
        return unknown(name, by_code["diagnostics"].message)
    if DIAGNOSTICS_TABLE not in seen.trace.source.tables:
        return unknown(name, "this export has no table of what nsys itself says; its words were on the terminal alone")
    return passed(name, "nsys reports no trouble")


def _clock(seen: Seen) -> Check:
    name = "clock"
    kernels = seen.trace.kernels
    unusable = seen.trace.unusable_kernels
    fix = "export the report again; if that changes nothing, capture again"
    if unusable:
        return missing(name, f"{counted(unusable, 'kernel')} with impossible times (unusable-times)", fix)
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
