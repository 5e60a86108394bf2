"""``k25trace steps`` in every format; its JSON has the schema ``k25trace.steps/1`` (docs/reference/json-steps.md)."""

import polars as pl

from k25trace.report.answer import Answer, reports, section
from k25trace.report.cells import count_column, text_column, time_column
from k25trace.report.header import of_templates
from k25trace.report.json_ import Document
from k25trace.report.sections import Section
from k25trace.report.text import printable
from k25trace.results import ALL_GPUS
from k25trace.steps import MEASURES, Steps
from k25trace.units import format_count, format_ns

SCHEMA = "k25trace.steps/1"

_KEY = ["gpu", "process", "index"]
_HEADINGS = {
    "span": "Span",
    "period": "Period",
    "busy": "Busy",
    "exposed_communication": "Exposed",
    "idle": "Idle",
    "opaque": "Opaque",
}
_PERCENTILES = {
    "p50_ns": time_column("p50"),
    "p95_ns": time_column("p95"),
    "p99_ns": time_column("p99"),
    "max_ns": time_column("Max"),
}


def answer(found: Steps, *, top: int | None = 25, per_gpu: bool = False) -> Answer:
    """Return what ``k25trace steps`` says.

    Parameters
    ----------
    top
        Rows shown of long tables; None: all.
    per_gpu
        Tables of categories and layers for each GPU instead of over all.
    """
    rows = found.layers if found.layers is not None else _wide(found)
    return Answer(_facts(found), found.warnings, _sections(found, top, per_gpu=per_gpu), rows, document(found))


def document(found: Steps) -> Document:
    """Return the JSON document without its warnings."""
    categories: dict[tuple[str, int, int], dict[str, int]] = {}
    for gpu, process, index, category, _, ns in found.categories.iter_rows():
        categories.setdefault((gpu, process, index), {})[category] = ns
    steps = [
        row | {"categories": categories.get((row["gpu"], row["process"], row["index"]), {})}
        for row in found.steps.to_dicts()
    ]
    made: Document = {
        "schema": SCHEMA,
        "reports": found.reports.to_dicts(),
        "steps": steps,
        "summary": found.summary.to_dicts(),
        "measures": found.measures.to_dicts(),
        "outliers": found.outliers.to_dicts(),
        "outside": found.outside.to_dicts(),
    }
    more = {"layers": found.layers, "templates": found.templates}
    return made | {key: frame.to_dicts() for key, frame in more.items() if frame is not None}


def _facts(found: Steps) -> list[tuple[str, str]]:
    facts = [*reports(found.reports.iter_rows(named=True)), *of_templates(found.templates)]
    facts += [
        ("steps" if found.reports.height == 1 else f"steps of report {report}", printable(said))
        for report, said in found.reports.select("report", "said").iter_rows()
    ]
    warm, counted = int(found.steps["is_warmup"].sum()), found.steps.height
    facts.append(
        (
            "counted",
            f"{format_count(counted - warm)} of {format_count(counted)} steps (one a GPU); warm-up: {warm}",
        )
    )
    kernels, ns = int(found.outside["kernel_count"].sum()), int(found.outside["kernel_ns"].sum())
    facts.append(("outside", f"{format_count(kernels)} kernels of {format_ns(ns)} belong to no step"))
    return facts


def _wide(found: Steps) -> pl.DataFrame:
    """Return the steps with a column a category."""
    if found.categories.height == 0:
        return found.steps
    order = found.summary.filter(pl.col("gpu") == ALL_GPUS)["category"].unique(maintain_order=True).to_list()
    wide = found.categories.pivot("category", index=_KEY, values="kernel_ns", aggregate_function="sum")
    columns = [c for c in order if c in wide.columns] + [c for c in wide.columns if c not in {*_KEY, *order}]
    renamed = wide.select(*_KEY, *(pl.col(c).fill_null(0).alias(f"{c}_ns") for c in columns))
    return found.steps.join(renamed, on=_KEY, how="left", maintain_order="left")


def _sections(found: Steps, top: int | None, *, per_gpu: bool) -> list[Section]:
    gpu_and_kind = {"gpu": text_column("GPU"), "kind": text_column("Kind")}
    per_each = found.measures.filter(pl.col("gpu") != ALL_GPUS)
    medians = per_each.pivot("measure", index=["gpu", "kind"], values="p50_ns", aggregate_function="first")
    shown = [m for m in MEASURES if m in _HEADINGS and (m != "opaque" or found.steps["opaque_ns"].sum())]
    medians = medians.with_columns(pl.lit(None, pl.Int64).alias(m) for m in shown if m not in medians.columns)
    wanted = (pl.col("gpu") == ALL_GPUS) != per_gpu
    of_gpu = {"gpu": text_column("GPU")} if per_gpu else {}
    over = "" if per_gpu else ", over all GPUs"
    sections = [
        section(
            "Span of the steps",
            per_each.filter(pl.col("measure") == "span"),
            {**gpu_and_kind, "count": count_column("Steps"), **_PERCENTILES},
        ),
        section(
            "Medians (p50) of what a step takes",
            medians,
            {**gpu_and_kind, **{m: time_column(_HEADINGS[m]) for m in shown}},
        ),
        section(
            f"Kernel time of a step by category{over}",
            found.summary.filter(wanted),
            {**of_gpu, "kind": text_column("Kind"), "category": text_column("Category"), **_PERCENTILES},
            top=None if top is None else max(top, 25),
        ),
    ]
    if found.layers is not None:
        layers = found.layers.filter(wanted).with_columns(pl.col("layer").cast(pl.String))
        columns = {
            **of_gpu,
            "kind": text_column("Kind"),
            "layer": text_column("Layer"),
            "category": text_column("Category"),
            "p50_ns": time_column("p50"),
            "max_ns": time_column("Max"),
        }
        sections.append(section(f"Kernel time of a layer in a step{over}", layers, columns, top=top))
    if found.outliers.height:
        grown = found.outliers.with_columns(
            pl.Series("grew", [_grew(row) for row in found.outliers["grew"].to_list()], dtype=pl.String)
        )
        columns = {
            "gpu": text_column("GPU"),
            "index": count_column("Step"),
            "kind": text_column("Kind"),
            "span_ns": time_column("Span"),
            "p50_ns": time_column("p50"),
            "grew": text_column("What grew"),
        }
        sections.append(section("Outliers", grown, columns, top=top))
    return sections


def _grew(parts: list[dict[str, object]] | None) -> str:
    said: list[str] = []
    for part in parts or []:
        ns, usual = part["ns"], part["p50_ns"]
        if isinstance(ns, int) and isinstance(usual, int):
            said.append(f"{part['what']} +{format_ns(ns - usual)}")
    return ", ".join(said)
