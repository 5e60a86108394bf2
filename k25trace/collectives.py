"""Collectives across ranks: who waited, who was late and why, and what the transfer itself took."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from k25trace import waiting
from k25trace.classify import RuleSet
from k25trace.clocks import LARGEST_RESIDUAL_NS, Clock, align, session_shift
from k25trace.errors import CannotAnswer
from k25trace.examined import COMMUNICATION, Examined, Report, examine
from k25trace.kinds import step_kinds
from k25trace.pairing import COLLECTIVE, RANK, Pairing, numbered, pair, waits_for_all
from k25trace.paths import path_text
from k25trace.results import together
from k25trace.selection import Bounds
from k25trace.stepping import Stepping, find_stepping
from k25trace.taxonomy import ALL_CATEGORIES
from k25trace.templates import Template
from k25trace.trace.interning import integers
from k25trace.warnings import ReportWarning, in_order

PEER_TO_PEER = 10
"""CUPTI's kind of a copy between two GPUs."""

COPY_FAMILY = "p2p_copy"
"""The family of copies between GPUs, which are no kernels and are matched where they repeat like collectives."""

Part = tuple[Examined, Stepping]

_HARMLESS_THROTTLE = {"idle", "application clocks", "display clocks"}


@dataclass(frozen=True)
class Collectives:
    """The collectives of one job, as frames. Times Int64 nanoseconds, counts Int64, shares Float64.

    A collective is known by step, family, group and ordinal. Instants are in the clock of the first report.

    Attributes
    ----------
    reports
        report, file, nsys_version, said (what its steps are), shift_ns (added to its instants), residual_ns.
    collectives
        step (null: outside every step), family, group, ordinal, path (list of names, below the step's range), category,
        rank_count, first_ns, last_ns (first and last arrival), skew_ns, late_gpu, late_process (who arrives last; null
        without skew), late_cause (`LAUNCH`, `GPU`, null), late_ran (what the late rank ran when the others began to
        wait), launch_skew_ns (launch of the late rank - last launch of the others), end_spread_ns, compute_spread_ns
        (over ranks, of the time other kernels ran since the collective before), wait_ns, transfer_ns (sums over ranks),
        wait_share, ended_early_count (ranks that ended before the last arrival), verdict (null where any did),
        size_bytes, algbw_bytes_per_s, busbw_bytes_per_s (of the shortest transfer of a rank).
    ranks
        step, family, group, ordinal, gpu, process, start_ns, end_ns, wait_ns, transfer_ns, launch_ns, compute_ns:
        wait + transfer is the duration of the kernel.
    summary
        gpu, process, path, family, count, wait_ns, transfer_ns, p50_wait_ns, p50_transfer_ns, late_count,
        launch_late_count.
    sites
        path, family, count, p50_skew_ns, p95_skew_ns, max_skew_ns, p50_compute_spread_ns, wait_ns, transfer_ns,
        wait_share, p50_transfer_ns, verdict; and by family alone and over all (family `ALL_GPUS`), with path null.
    lateness
        gpu, process, family, cause, ran, late_count, skew_ns: when a rank was late, why, and what it ran meanwhile.
    gpus
        gpu, process, count, end_offset_ns (median of its end - the first end of the collective), throttle (list;
        from the manifest beside the report; null: there is none).
    unmatched
        step, family, reason, kernel_count: what does not pair up and is in no other figure.
    timestamp_error_ns
        Median spread of the ends of collectives that must end together: what skew cannot be told below. None: unknown.
    warnings
        Worst first.
    templates
        How graphs that were captured before the recording go with the template (see `k25trace.Analysis`).
    """

    reports: pl.DataFrame
    collectives: pl.DataFrame
    ranks: pl.DataFrame
    summary: pl.DataFrame
    sites: pl.DataFrame
    lateness: pl.DataFrame
    gpus: pl.DataFrame
    unmatched: pl.DataFrame
    timestamp_error_ns: int | None
    warnings: list[ReportWarning] = field(default_factory=list[ReportWarning])
    templates: pl.DataFrame | None = None


def match_collectives(
    reports: Report | Sequence[Report],
    *,
    step: str | None = None,
    window: Bounds | str | None = None,
    domains: Sequence[str] | None = None,
    rules: RuleSet | None = None,
    template: Template | None = None,
) -> Collectives:
    """Match each collective across ranks and split every rank's kernel into wait and transfer.

    Parameters
    ----------
    reports
        Opened reports or paths: of one job, whose ranks they share.
    step
        Pattern of the names of the step ranges: only collectives launched inside them. None: steps are found (see
        `k25trace.stepping.find_stepping`), and collectives outside them are matched among themselves; without steps
        all are.
    window
        Only collectives all of whose kernels run wholly inside.
    domains, rules, template
        As for `k25trace.attribute`.

    Raises
    ------
    CannotAnswer
        No kernels, no collective, one rank alone, none that pair up, clocks that cannot be aligned, or a process that
        two reports hold.
    """
    parts = [
        (each, find_stepping(each, step)) for each in examine(reports, domains=domains, rules=rules, template=template)
    ]
    _check_ranks_come_once(parts)
    kernels = pl.concat([_communication(*part) for part in parts])
    path = parts[0][0].trace.path
    if kernels.filter(pl.col("is_kernel")).height == 0:
        raise CannotAnswer(f"{path}: no communication kernel in this report", "capture a run on several GPUs")
    if step is not None:
        kernels = kernels.filter(pl.col("step").is_not_null())
    if kernels.select(RANK).unique().height < 2:
        raise CannotAnswer(
            f"{path}: communication on one GPU alone, so that nothing can be compared", "give the reports of all ranks"
        )
    clocks = _clocks(parts, kernels)
    kernels = _shifted(kernels, clocks)
    paired = _paired(parts, kernels)
    bounds = Bounds.parse(window) if isinstance(window, str) else window
    inside = _within(paired.kernels, bounds)
    if inside.height == 0:
        raise CannotAnswer(
            f"{path}: no collective pairs up" + (" in that window" if paired.kernels.height else ""), _why_not(paired)
        )
    shown = [each for each, _ in parts]
    ranks = waiting.split(shown, inside, clocks)
    error = waiting.timestamp_error(ranks)
    collectives = waiting.by_collective(shown, ranks, error, clocks)
    warnings = [w for each, _ in parts for w in each.warnings]
    throttled = {gpu: reasons for each, _ in parts for gpu, reasons in _throttle(each).items()}
    return Collectives(
        reports=_report_rows(parts, clocks),
        collectives=collectives,
        ranks=ranks.select(
            *COLLECTIVE, *RANK, "start_ns", "end_ns", "wait_ns", "transfer_ns", "launch_ns", "compute_ns"
        ),
        summary=waiting.by_rank(ranks, collectives),
        sites=waiting.by_site(ranks, collectives, error),
        lateness=waiting.lateness(collectives),
        gpus=waiting.gpus(ranks, throttled),
        unmatched=paired.unmatched,
        timestamp_error_ns=error,
        warnings=in_order(warnings),
        templates=together([each.attribution.template_rows for each in shown]),
    )


# ---- kernels of one report


def _communication(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    """Return the communication kernels and peer-to-peer copies of a report with step and site."""
    operations = examined.operations.hstack([stepping.of_operations.alias("number")])
    kernels = operations.filter(pl.col("category").is_in(COMMUNICATION))
    distinct = set(integers(kernels["name"].unique()))
    families = [examined.classes.match(n).family if n in distinct else None for n in range(len(examined.trace.names))]
    named = kernels.with_columns(
        pl.Series(families, dtype=pl.String).gather(kernels["name"]).alias("family"),
        pl.Series(ALL_CATEGORIES).gather(kernels["category"]).alias("category"),
        pl.lit(value=True).alias("is_kernel"),
    )
    peer = (examined.trace.copies["kind"] == PEER_TO_PEER).fill_null(value=False)
    copies = operations.slice(examined.kernels.height, peer.len()).filter(peer)
    named = pl.concat(
        [
            named,
            copies.with_columns(
                pl.lit(COPY_FAMILY).alias("family"),
                pl.lit(COPY_FAMILY).alias("category"),
                pl.lit(value=False).alias("is_kernel"),
            ),
        ]
    )
    steps = stepping.steps.select("index", pl.col("name").alias("step_name")).with_row_index("number")
    placed = named.join(steps, on="number", how="left", maintain_order="left")
    sites = _site_paths(examined, placed)
    began = (
        operations.drop_nulls("number").group_by("gpu", "number").agg(pl.col("start_ns").min().alias("step_start_ns"))
    )
    placed = placed.join(sites, on=["path", "step_name"], how="left", nulls_equal=True).join(
        began, on=["gpu", "number"], how="left"
    )
    return examined.named(placed).select(
        pl.lit(examined.trace.report, pl.Int64).alias("report"), *RANK, pl.col("index").alias("step"), "family",
        "category", "is_kernel", "start_ns", "end_ns", "launch_ns", "step_start_ns", "site",
    )  # fmt: skip


def _site_paths(examined: Examined, placed: pl.DataFrame) -> pl.DataFrame:
    """Return the names of each path below the range of its step: path, step_name, site."""
    distinct = placed.select("path", "step_name").unique()
    names = examined.path_names(distinct["path"])
    sites: list[list[str]] = []
    steps = dict(enumerate(examined.trace.names))
    for path, step_name in distinct.iter_rows():
        found = list(names.get(path, ()))
        step = steps.get(step_name)
        below = found.index(step) + 1 if step in found else 0
        sites.append(found[below:])
    return distinct.with_columns(pl.Series("site", sites, dtype=pl.List(pl.String)))


def _kinds(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    """Return what names say of the kinds of each rank's steps."""
    kinds = stepping.steps.select("process", pl.col("index").alias("step")).hstack(step_kinds(examined, stepping))
    return examined.named(kinds.filter(pl.col("kind_basis").is_in(["name", "tokens"]))).select(
        "process", "step", "kind"
    )


# ---- clocks and pairs


def _check_ranks_come_once(parts: Sequence[Part]) -> None:
    """Refuse copies of a report, and two of one session: a process would be matched with itself."""
    seen: dict[tuple[int, int], int] = {}
    for examined, _ in parts:
        trace = examined.trace
        for index in integers(examined.kernels["process"].unique().sort()):
            start, pid = trace.session_start_ns, trace.processes[index].pid
            if start is None or pid is None:
                continue
            first = seen.setdefault((start, pid), trace.report)
            if first != trace.report:
                raise CannotAnswer(
                    f"reports {first} and {trace.report} are of one session and both hold process {pid}:"
                    " its kernels would be matched with themselves",
                    "give each rank once",
                )


def _clocks(parts: Sequence[Part], kernels: pl.DataFrame) -> list[Clock]:
    starts = {each.trace.report: each.trace.session_start_ns for each, _ in parts}
    first = parts[0][0].trace.report
    shifts = {report: session_shift(starts[first], start) for report, start in starts.items()}
    waiting = numbered(kernels.filter(waits_for_all(pl.col("family"))))
    clocks = align(waiting, shifts)
    bad = [clock for clock in clocks if not clock.aligned]
    if bad:
        seen = (
            "no collective of theirs pairs up"
            if bad[0].residual_ns is None
            else f"their collectives end {bad[0].residual_ns} ns apart in the median, more than {LARGEST_RESIDUAL_NS}"
        )
        raise CannotAnswer(
            f"the clocks of reports {first} and {bad[0].report} cannot be aligned: {seen}",
            "give reports of ranks of one job, of the same steps",
        )
    return clocks


def _shifted(kernels: pl.DataFrame, clocks: list[Clock]) -> pl.DataFrame:
    shift = pl.col("report").replace_strict({clock.report: clock.shift_ns for clock in clocks}, return_dtype=pl.Int64)
    return kernels.with_columns(pl.col("start_ns", "end_ns", "launch_ns", "step_start_ns") + shift)


def _paired(parts: Sequence[Part], kernels: pl.DataFrame) -> Pairing:
    """Pair kernels, and copies where they repeat like collectives: those that do not are no collectives."""
    kinds = pl.concat([_kinds(*part) for part in parts])
    found = pair(kernels.filter("is_kernel"), kinds)
    copies = pair(kernels.filter(~pl.col("is_kernel")), kinds)
    repeating = copies.kernels if copies.unmatched.height == 0 else copies.kernels.clear()
    return Pairing(pl.concat([found.kernels, repeating]), found.unmatched)


def _within(kernels: pl.DataFrame, bounds: Bounds | None) -> pl.DataFrame:
    if bounds is None:
        return kernels
    first = pl.col("start_ns") >= bounds.start_ns if bounds.start_ns is not None else pl.lit(value=True)
    last = pl.col("end_ns") <= bounds.end_ns if bounds.end_ns is not None else pl.lit(value=True)
    outside = kernels.filter(~(first & last))
    return kernels.join(outside, on=COLLECTIVE, how="anti", nulls_equal=True)


def _why_not(paired: Pairing) -> str | None:
    reasons = paired.unmatched["reason"].unique().sort().to_list()
    return "; ".join(reasons[:3]) or None


# ---- reports


def _report_rows(parts: Sequence[Part], clocks: list[Clock]) -> pl.DataFrame:
    rows = [
        (
            each.trace.report,
            path_text(each.trace.path),
            each.trace.facts.get("EXPORT_PRODUCT_VERSION"),
            stepping.said,
            clock.shift_ns,
            clock.residual_ns,
        )
        for (each, stepping), clock in zip(parts, clocks, strict=True)
    ]
    schema = {
        "report": pl.Int64,
        "file": pl.String,
        "nsys_version": pl.String,
        "said": pl.String,
        "shift_ns": pl.Int64,
        "residual_ns": pl.Int64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _throttle(examined: Examined) -> dict[str, list[str]]:
    """Return GPU key → reasons why its clocks were held down, from the manifest that `k25trace capture` left."""
    path = examined.trace.path
    manifest = path.parent / (path.name.removesuffix(".sqlite").removesuffix(".nsys-rep") + ".k25.json")
    try:
        content: Any = json.loads(manifest.read_text(encoding="utf-8"))
        states: list[Any] = [gpu for when in ("before", "after") for gpu in content["gpus"][when]["gpus"]]
        told = [(f"{examined.trace.report}:{gpu['index']}", str(r)) for gpu in states for r in gpu["throttle"] or ()]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    found: dict[str, set[str]] = {f"{examined.trace.report}:{gpu['index']}": set() for gpu in states}
    for gpu, reason in told:
        if reason not in _HARMLESS_THROTTLE:
            found[gpu].add(reason)
    return {gpu: sorted(reasons) for gpu, reasons in found.items()}
