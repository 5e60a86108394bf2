"""The lines of the check list about NVTX."""

from dataclasses import dataclass

import polars as pl

from k25trace.checks import Check, missing, passed, unknown
from k25trace.checkup.seen import Seen
from k25trace.nsys import NVTX_FOR_OLD_NSYS, nvtx_is_too_new
from k25trace.nsystables import NVTX_TABLE
from k25trace.trace import Trace
from k25trace.trace.source import Col, decode
from k25trace.trace.tables import DOMAIN_CREATE, NCCL_DOMAIN, process_of
from k25trace.units import counted

_NEW_NVTX = (9, 9)
_MOST_DOMAINS = 1000
"""Numbers above it are no count of domains."""


def nvtx_per_rank(seen: Seen) -> Check:
    """Whether every process with kernels has ranges of the program."""
    name = "NVTX per rank"
    fix = "annotate the program (nvtx.annotate, torch.cuda.nvtx.range) and capture with --trace cuda,nvtx"
    with_ranges = set(seen.own_ranges["process"].drop_nulls().to_list())
    if not with_ranges:
        return unknown(name, "no NVTX range of the program in the report", fix)
    bare = seen.with_kernels - with_ranges
    if bare:
        some = counted(len(with_ranges), "process", "processes")
        return missing(
            name,
            f"no NVTX range of {seen.labels(bare)}; there are some of {some}",
            "annotate every rank alike; a process that was killed (SIGKILL) loses its ranges",
        )
    who = (seen.with_kernels or with_ranges) | (seen.silent & with_ranges)
    count = seen.own_ranges.filter(pl.col("process").is_in(list(who))).height
    return passed(name, f"{counted(count, 'range')} in {len(who)} of {counted(len(who), 'process', 'processes')}")


def nvtx_package(seen: Seen) -> Check:
    """Whether the ranges of the program were recorded, or its package emits what this nsys does not record."""
    name = "NVTX package"
    domains = _domains(seen.trace)
    own = sorted({text for text in domains.created.values() if text != NCCL_DOMAIN})
    too_new = nvtx_is_too_new(_NEW_NVTX, seen.nsys_version)
    fix = (
        f"pip install nvtx=={NVTX_FOR_OLD_NSYS} where the program runs: 0.2.12 and newer emit ranges that this nsys"
        " does not record; or take a newer nsys"
    )
    version = ".".join(map(str, seen.nsys_version[:3])) or "of unknown version"
    if domains.unrecorded and too_new:
        return missing(
            name,
            f"{domains.unrecorded} NVTX domains were created and are gone (their numbers are left out): the Python"
            f" package nvtx 0.2.12 and newer destroys a domain at once, and nsys {version} records none of its ranges",
            fix,
        )
    if seen.own_ranges.height:
        return passed(name, "its ranges are recorded")
    if not own:
        return unknown(
            name,
            "no NVTX range or domain of the program in the report",
            f"if it has some: {fix}" if too_new else "",
        )
    seen_text = f"only the creation of NVTX domains ({', '.join(own)}) is recorded, and no range"
    if too_new:
        return missing(name, f"{seen_text}: the Python package nvtx is too new for nsys {version}", fix)
    return unknown(name, f"{seen_text} (nsys {version})", "open ranges inside the recording")


@dataclass(frozen=True)
class _Domains:
    """NVTX domains: by process and number the names of those whose creation is recorded, and how many are not there.

    A process numbers its domains 1, 2, 3 ... as it creates them. A number below another one without any row is a
    domain that was destroyed before the recording began: nsys 2023.4 tells of the others that were created by then.
    """

    created: dict[tuple[int, int], str]
    unrecorded: int


def _domains(trace: Trace) -> _Domains:
    columns = [Col("eventType"), Col("globalTid"), Col("domainId"), Col("textId"), Col("text", "text")]
    created: dict[tuple[int, int], tuple[int | None, bytes | None]] = {}
    numbers: dict[int, set[int]] = {}
    for chunk in trace.source.scan(NVTX_TABLE, columns):
        known = chunk.drop_nulls(["globalTid", "domainId"])
        for thread, number in known.select("globalTid", "domainId").unique().iter_rows():
            numbers.setdefault(process_of(thread), set()).add(number)
        for _, thread, number, text_id, text in chunk.filter(pl.col("eventType") == DOMAIN_CREATE).iter_rows():
            created[process_of(thread or 0), number or 0] = (text_id, text)
    strings = trace.source.strings([text_id for text_id, _ in created.values() if text_id is not None])
    names = {
        key: decode(text if text is not None else strings.get(text_id or 0, b""))
        for key, (text_id, text) in created.items()
    }
    unrecorded = sum(
        max(found) - len(found - {0}) for found in numbers.values() if min(found) >= 0 and max(found) <= _MOST_DOMAINS
    )
    return _Domains(names, unrecorded)
