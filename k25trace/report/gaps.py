"""``k25trace gaps`` in every format; its JSON is ``k25trace.gaps/1``."""

import polars as pl

from k25trace.gaps import CAUSES, HOST_BOUND, Gaps
from k25trace.report.answer import Answer, reports, section
from k25trace.report.cells import count_column, path_column, share_column, text_column, time_column
from k25trace.report.header import of_templates
from k25trace.report.json_ import Document
from k25trace.report.sections import Section
from k25trace.report.text import printable
from k25trace.results import gpu_order
from k25trace.units import counted, format_ns

SCHEMA = "k25trace.gaps/1"

_NAME_CHARACTERS = 28


def answer(found: Gaps, *, top: int | None = 25) -> Answer:
    """Return what ``k25trace gaps`` says; ``top``: rows shown of long tables (None: all)."""
    return Answer(_facts(found), found.warnings, _sections(found, top), found.gaps, tables(found))


def document(found: Gaps) -> Document:
    """Return the JSON document without its warnings."""
    return {key: rows.to_dicts() if isinstance(rows, pl.DataFrame) else rows for key, rows in tables(found).items()}


def tables(found: Gaps) -> Document:
    """Return `document` with its rows as frames, which are written many times faster than dicts."""
    made: Document = {
        "schema": SCHEMA,
        "reports": found.reports,
        "min_ns": found.min_ns,
        "gpus": found.gpus,
        "gaps": found.gaps,
        "summary": found.summary,
        "steps": found.steps,
        "histogram": found.histogram,
    }
    return made if found.templates is None else made | {"templates": found.templates}


def _facts(found: Gaps) -> list[tuple[str, str]]:
    several = found.reports.height > 1
    facts = [*reports(found.reports.iter_rows(named=True)), *of_templates(found.templates)]
    for report, said in found.reports.select("report", "said").iter_rows():
        facts.append((f"steps of report {report}" if several else "steps", printable(said)))
    idle, window = int(found.gpus["idle_ns"].sum()), int(found.gpus["window_ns"].sum())
    facts.append(
        (
            "idle",
            f"{format_ns(idle)} of {format_ns(window)} over {counted(found.gpus.height, 'GPU')}; the causes sum to it",
        )
    )
    return facts


def _sections(found: Gaps, top: int | None) -> list[Section]:
    in_steps = found.steps.group_by("gpu", "cause").agg(pl.col("gap_ns").sum().alias("in_steps_ns"))
    steps = found.summary.join(
        found.gpus.select("gpu", "step_count"), on="gpu", how="left", maintain_order="left"
    ).join(in_steps, on=["gpu", "cause"], how="left", maintain_order="left")
    per_step = pl.col("in_steps_ns").fill_null(0) // pl.col("step_count")
    summary = steps.with_columns(pl.when(pl.col("step_count") > 0).then(per_step).alias("per_step_ns"))
    causes = found.summary["cause"].unique().to_list()
    histogram = (
        found.histogram.group_by("from_ns", "to_ns").agg(pl.col("gap_count", "gap_ns").sum()).sort("from_ns")
        .with_columns((pl.col("gap_ns") / max(1, int(found.gpus["idle_ns"].sum()))).alias("share"))
    )  # fmt: skip
    host = found.gaps.filter(pl.col("cause") == HOST_BOUND)
    where = host.group_by("gpu", "host_path").agg(pl.len().alias("gap_count"), pl.col("gap_ns").sum())
    neighbours = {"before": text_column("Before", goes=0), "after": text_column("After", goes=2)}
    shown = found.gaps.head(found.gaps.height if top is None else top)
    longest = shown.with_columns(
        pl.Series(
            c, [None if n is None else printable(n, _NAME_CHARACTERS) for n in shown[c].to_list()], dtype=pl.String
        )
        for c in neighbours
    )
    hidden = found.gaps.height - shown.height
    sections = [
        section(
            "Idle time by cause",
            summary,
            {
                "gpu": text_column("GPU"),
                "cause": text_column("Cause"),
                "gap_count": count_column("Gaps"),
                "gap_ns": time_column("Time"),
                "gap_share": share_column("Share"),
                "per_step_ns": time_column("A step"),
                "blocked_ns": time_column("In sync"),
                "host_ns": time_column("On host"),
                "latency_ns": time_column("Latency"),
            },
            note="; ".join(f"{cause}: {said}" for cause, said in CAUSES.items() if cause in causes)
            + "." * bool(causes),
        ),
        section(
            "Lengths, over all GPUs",
            histogram,
            {
                "from_ns": time_column("From"),
                "to_ns": time_column("to"),
                "gap_count": count_column("Gaps"),
                "gap_ns": time_column("Time"),
                "share": share_column("Share"),
            },
        ),
        section(
            "Longest gaps",
            longest,
            {
                "gpu": text_column("GPU"),
                "start_ns": time_column("At", goes=1),
                "gap_ns": time_column("Gap"),
                "cause": text_column("Cause"),
                **neighbours,
                "path": path_column("Launched in"),
            },
            note=f"{counted(hidden, 'more row')}; --top N shows more, --top 0 all." if hidden else "",
        ),
    ]
    if where.height:
        columns = {
            "gpu": text_column("GPU"),
            "host_path": path_column("Range"),
            "gap_count": count_column("Gaps"),
            "gap_ns": time_column("Time"),
        }
        by = ["gap_ns", gpu_order(), pl.col("host_path").list.join("\x1f")]
        ordered = where.sort(by, descending=[True, False, False])
        sections.append(section("Where the host was when host-bound gaps began", ordered, columns, top=top))
    return sections
