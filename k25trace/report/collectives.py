"""``k25trace collectives`` in every format; its JSON is ``k25trace.collectives/1``."""

import polars as pl

from k25trace.collectives import Collectives
from k25trace.pairing import COLLECTIVE
from k25trace.percentiles import nearest_rank
from k25trace.report.answer import Answer, reports, section
from k25trace.report.cells import count_column, path_column, share_column, text_column, time_column
from k25trace.report.header import of_templates
from k25trace.report.json_ import Document
from k25trace.report.sections import Section
from k25trace.report.text import printable
from k25trace.results import gpu_order
from k25trace.units import counted, format_count, format_ns, format_share

SCHEMA = "k25trace.collectives/1"

_TOTALS = ("wait_ns", "transfer_ns")


def answer(found: Collectives, *, top: int | None = 25) -> Answer:
    """Return what ``k25trace collectives`` says; ``top``: rows shown of long tables (None: all)."""
    rows = found.ranks.join(
        found.collectives.select(*COLLECTIVE, "path", "skew_ns", "late_gpu", "late_cause", "late_ran", "verdict"),
        on=COLLECTIVE, how="left", maintain_order="left", nulls_equal=True,
    ).sort("step", "family", "group", "ordinal", gpu_order(), nulls_last=True)  # fmt: skip
    return Answer(_facts(found), found.warnings, _sections(found, top), rows, document(found))


def document(found: Collectives) -> Document:
    """Return the JSON document without its warnings."""
    ranks: dict[tuple[object, ...], list[Document]] = {}
    for row in found.ranks.sort(gpu_order(), "process").to_dicts():
        ranks.setdefault(tuple(row.pop(key) for key in COLLECTIVE), []).append(row)
    collectives = [
        row | {"ranks": ranks[tuple(row[key] for key in COLLECTIVE)]} for row in found.collectives.to_dicts()
    ]
    made: Document = {
        "schema": SCHEMA,
        "reports": found.reports.to_dicts(),
        "timestamp_error_ns": found.timestamp_error_ns,
        "collectives": collectives,
        "summary": found.summary.to_dicts(),
        "sites": found.sites.to_dicts(),
        "lateness": found.lateness.to_dicts(),
        "gpus": found.gpus.to_dicts(),
        "unmatched": found.unmatched.to_dicts(),
    }
    return made if found.templates is None else made | {"templates": found.templates.to_dicts()}


def _facts(found: Collectives) -> list[tuple[str, str]]:
    several = found.reports.height > 1
    facts = [*reports(found.reports.iter_rows(named=True)), *of_templates(found.templates)]
    for row in found.reports.iter_rows(named=True):
        name = f" of report {row['report']}" if several else ""
        facts.append((f"steps{name}", printable(str(row["said"]))))
        if several and row["residual_ns"] is not None:
            facts.append(
                (
                    f"clock{name}",
                    f"shifted by {format_ns(row['shift_ns'])}; then {format_ns(row['residual_ns'])} between ends",
                )
            )
    ranks = found.gpus.height
    outside = found.collectives["step"].null_count()
    apart = f", {format_count(outside)} of them outside the steps" if 0 < outside < found.collectives.height else ""
    facts.append(("matched", f"{counted(found.collectives.height, 'collective')} of {ranks} ranks{apart}"))
    if found.unmatched.height:
        kernels = int(found.unmatched["kernel_count"].sum())
        reasons = ", ".join(found.unmatched["reason"].unique().sort().to_list()[:3])
        facts.append(("left out", f"{format_count(kernels)} communication kernels that do not pair up: {reasons}"))
    if found.timestamp_error_ns is not None:
        facts.append(
            (
                "timestamps",
                f"of the GPUs agree within {format_ns(found.timestamp_error_ns)} (median spread of ends)",
            )
        )
    waiting = (
        found.ranks.group_by("gpu").agg(pl.col("wait_ns").sum()).sort("wait_ns", gpu_order(), descending=[True, False])
    )
    total = int(waiting["wait_ns"].sum())
    if total:
        facts.append(
            (
                "waiting",
                ", ".join(f"GPU {gpu} {format_share(ns / total)}" for gpu, ns in waiting.head(4).iter_rows())
                + f" of {format_ns(total)}",
            )
        )
    throttled = found.gpus.filter(pl.col("throttle").list.len() > 0)
    facts += [
        ("throttled", f"GPU {gpu}: {printable(', '.join(reasons), 80)}")
        for gpu, reasons in throttled.select("gpu", "throttle").iter_rows()
    ]
    return facts


def _short_verdict() -> pl.Expr:
    return pl.col("verdict").str.strip_suffix("-dominated")


def _sections(found: Collectives, top: int | None) -> list[Section]:
    families = found.sites.filter(pl.col("path").is_null()).with_columns(_short_verdict())
    by_gpu = (
        found.summary.join(
            found.ranks.group_by("gpu", "process", "family").agg(nearest_rank("transfer_ns", 50).alias("p50")),
            on=["gpu", "process", "family"],
        )
        .group_by("gpu", "family", "p50")
        .agg(pl.col("count", *_TOTALS, "late_count", "launch_late_count").sum())
        .sort("family", gpu_order())
    )
    sites = found.sites.filter(pl.col("path").is_not_null()).with_columns(_short_verdict())
    ended = (
        found.collectives.group_by("family")
        .agg((pl.col("ended_early_count") > 0).sum().alias("n"))
        .filter(pl.col("n") > 0)
    )
    early = ", ".join(f"{format_count(n)} of {family}" for family, n in ended.sort("family").iter_rows())
    return [
        section(
            "By family",
            families,
            {
                "family": text_column("Family"),
                "count": count_column("Count"),
                "p50_skew_ns": time_column("Skew p50"),
                "p95_skew_ns": time_column("p95"),
                "max_skew_ns": time_column("Max"),
                "wait_share": share_column("Wait"),
                "p50_transfer_ns": time_column("Transfer"),
                "verdict": text_column("Verdict"),
            },
            note=f"No verdict, because a rank ended before the last arrived: {early}" if early else "",
        ),
        section(
            "Who waits and who is late",
            by_gpu,
            {
                "gpu": text_column("GPU"),
                "family": text_column("Family"),
                "count": count_column("Count"),
                "wait_ns": time_column("Wait"),
                "transfer_ns": time_column("Transfer"),
                "p50": time_column("p50"),
                "late_count": count_column("Late"),
                "launch_late_count": count_column("by launch"),
            },
            note="Late: it arrives last. By launch: its launch call began when others waited already.",
        ),
        section(
            "Why ranks are late",
            found.lateness,
            {
                "gpu": text_column("Late GPU"),
                "family": text_column("Family"),
                "cause": text_column("Cause"),
                "ran": text_column("It ran"),
                "late_count": count_column("Times"),
                "skew_ns": time_column("Skew"),
            },
            top=None if top is None else min(top, 10),
            note="It ran: what the late rank executed when the others began to wait.",
        ),
        section(
            "By site",
            sites,
            {
                "path": path_column("Path", empty="(no range of its own)"),
                "family": text_column("Family", goes=3),
                "count": count_column("Count", goes=1),
                "p50_skew_ns": time_column("Skew p50", goes=4),
                "p50_compute_spread_ns": time_column("Spread", goes=2),
                "wait_share": share_column("Wait"),
                "p50_transfer_ns": time_column("Transfer"),
                "verdict": text_column("Verdict", goes=0),
            },
            top=top,
            note="Spread: over ranks, of the time other kernels ran since the collective before; p50.",
        ),
    ]
