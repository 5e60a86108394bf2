"""What each step takes on each GPU, and what the steps take together."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from k25trace.classify import RuleSet
from k25trace.errors import CannotAnswer
from k25trace.examined import COMMUNICATION, KERNEL, REPLAY, Examined, Report, examine
from k25trace.intervals import covered, length, union
from k25trace.kinds import step_kinds
from k25trace.paths import path_text
from k25trace.percentiles import nearest_rank, summary
from k25trace.results import ALL_GPUS, gpu_order, together
from k25trace.selection import Bounds
from k25trace.stepping import Stepping, find_stepping
from k25trace.taxonomy import ALL_CATEGORIES
from k25trace.templates import Template
from k25trace.warnings import ReportWarning, in_order

WARM_UP_FACTOR = 1.5
"""The leading steps of a kind on a GPU are warm-up while their span is above so many times the median of that kind."""

OUTLIER_REACH = 1.5
"""A step is an outlier where its span is above p75 + so many times (p75 - p25) of its kind on its GPU, ..."""

OUTLIER_FACTOR = 1.1
"""... and above so many times p50."""

GREW_SHOWN = 3
FEWEST_FOR_OUTLIERS = 4

MEASURES = ("span", "period", "busy", "exposed_communication", "idle", "opaque", "kernel")
"""Times of a step that are no category: the columns ``MEASURE_ns`` of `Steps.steps`."""

_STEP = ["gpu", "process", "index"]
_STEP_ORDER = [gpu_order(), "process", "index"]
_LAYER = re.compile(r"(?:^|[^A-Za-z])layers?[._ ]?(\d{1,9})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Steps:
    """The steps of one or more reports, as frames. Times Int64 nanoseconds, counts Int64.

    Attributes
    ----------
    reports
        report, file, nsys_version, basis, said: what the steps of each rest on.
    steps
        One row a step and GPU: gpu, report, process, index (per process, from 0), name, kind, kind_basis, start_ns,
        end_ns (first start to last end of what it launched), span_ns (their difference), period_ns (to the start of
        the next step; null for the last), busy_ns (union of its kernels), exposed_communication_ns (its communication
        runs, no other kernel of any step does), idle_ns (nothing runs in its span), opaque_ns (opaque replays of
        it, as far as known), kernel_count, kernel_ns, is_warmup, is_outlier.
    categories
        gpu, process, index, category, kernel_count, kernel_ns: sums to ``kernel_ns`` of the step.
    summary
        gpu (and `ALL_GPUS`), kind, category, count, p50_ns, p95_ns, p99_ns, mean_ns, max_ns: kernel time of the
        category in a step, 0 where it has none, over the steps that are no warm-up.
    measures
        The same columns with measure (`MEASURES`) in place of the category.
    layers
        gpu (and `ALL_GPUS`), kind, layer, category, count, p50_ns, mean_ns, max_ns: kernel time of a layer in a
        step; None where it was not asked for. Kernels of no layer have layer null.
    outliers
        gpu, process, index, kind, span_ns, p50_ns, grew: list of {what, ns, p50_ns}, largest growth first.
    outside
        gpu, kernel_count, kernel_ns: kernels that belong to no step.
    warnings
        Worst first.
    templates
        How graphs that were captured before the recording go with the template (see `k25trace.Analysis`).
    """

    reports: pl.DataFrame
    steps: pl.DataFrame
    categories: pl.DataFrame
    summary: pl.DataFrame
    measures: pl.DataFrame
    layers: pl.DataFrame | None
    outliers: pl.DataFrame
    outside: pl.DataFrame
    warnings: list[ReportWarning] = field(default_factory=list[ReportWarning])
    templates: pl.DataFrame | None = None


def find_steps(
    reports: Report | Sequence[Report],
    *,
    step: str | None = None,
    window: Bounds | str | None = None,
    domains: Sequence[str] | None = None,
    rules: RuleSet | None = None,
    template: Template | None = None,
    per_layer: bool = False,
    warmup: int | None = None,
) -> Steps:
    """Find the steps of reports and account what each takes.

    Parameters
    ----------
    reports
        Opened reports or paths.
    step
        Pattern of the names of the step ranges; None: found (see `k25trace.stepping.find_stepping`).
    window
        Only steps that run wholly inside.
    domains, rules, template
        As for `k25trace.attribute`.
    per_layer
        Also medians by layer and category.
    warmup
        Steps at the beginning of each process that no summary counts; None: see `WARM_UP_FACTOR`.

    Returns
    -------
    Steps
        Frames; those of a report in which no steps are found are empty, and ``reports`` says why.

    Raises
    ------
    CannotAnswer
        A report holds no kernels, no range that matches ``step``, or nothing that repeats.
    """
    examined = examine(reports, window=window, domains=domains, rules=rules, template=template)
    parts = [(each, find_stepping(each, step)) for each in examined]
    if not any(stepping.found for _, stepping in parts):
        raise CannotAnswer(f"{examined[0].trace.path}: {parts[0][1].said}", "name the step ranges with --step GLOB")
    steps = _marked(pl.concat([_step_rows(*part) for part in parts]), warmup)
    categories = pl.concat([_category_rows(*part) for part in parts]).join(steps.select(_STEP), on=_STEP, how="semi")
    counted = steps.filter(~pl.col("is_warmup"))
    layers = pl.concat([_layer_rows(*part) for part in parts]) if per_layer else None
    warnings = [w for each in examined for w in each.warnings]
    return Steps(
        reports=pl.concat([_report_row(*part) for part in parts]),
        steps=steps,
        categories=categories,
        summary=_summarised(_filled(counted, categories, ["category"])),
        measures=_measured(counted),
        layers=None if layers is None else _by_layer(counted, layers),
        outliers=_outliers(counted, categories),
        outside=pl.concat([_outside(*part) for part in parts]),
        warnings=in_order(warnings),
        templates=together([each.attribution.template_rows for each in examined]),
    )


# ---- one report


def _report_row(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    trace = examined.trace
    version = trace.facts.get("EXPORT_PRODUCT_VERSION")
    return pl.DataFrame(
        [(trace.report, path_text(trace.path), version, stepping.basis, stepping.said)],
        schema={
            "report": pl.Int64,
            "file": pl.String,
            "nsys_version": pl.String,
            "basis": pl.String,
            "said": pl.String,
        },
        orient="row",
    )


def in_steps(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    """Return the operations that belong to a step: gpu, step, start_ns, end_ns, what, category, path."""
    operations = examined.operations.select("gpu", "start_ns", "end_ns", "what", "category", "path")
    return operations.hstack([stepping.of_operations.alias("step")]).filter(pl.col("step").is_not_null())


def _step_rows(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    mine = in_steps(examined, stepping)
    key = ["gpu", "step"]
    kernels = mine.filter(pl.col("what") == KERNEL)
    is_comm = pl.col("category").is_in(COMMUNICATION)
    duration = pl.col("end_ns") - pl.col("start_ns")
    rows = (
        mine.group_by(key)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            (pl.col("what") == KERNEL).sum().cast(pl.Int64).alias("kernel_count"),
            duration.filter(pl.col("what") == KERNEL).sum().alias("kernel_ns"),
        )
        .sort(key)
    )
    every = examined.kernels.select("gpu", "start_ns", "end_ns", "category")
    computing = union(every.filter(~is_comm), ["gpu"])
    communicating = union(kernels.filter(is_comm), key)
    exposed = (
        communicating.with_columns(
            (duration - covered(communicating, computing, ["gpu"])).alias("exposed_communication_ns")
        )
        .group_by(key)
        .agg(pl.col("exposed_communication_ns").sum())
    )
    busy = length(kernels, key).rename({"length_ns": "busy_ns"})
    opaque = length(mine.filter(pl.col("what") == REPLAY), key).rename({"length_ns": "opaque_ns"})
    for part in (busy, exposed, opaque):
        rows = rows.join(part, on=key, how="left", maintain_order="left")
    rows = rows.with_columns(
        pl.col("busy_ns", "exposed_communication_ns", "opaque_ns").fill_null(0),
        duration.alias("span_ns"),
        (duration - covered(rows, examined.occupied, ["gpu"])).alias("idle_ns"),
    )
    steps = (
        stepping.steps.select("process", "name", "index").hstack(step_kinds(examined, stepping)).with_row_index("step")
    )
    texts = pl.Series(examined.trace.names, dtype=pl.String)
    found = rows.join(steps, on="step", how="left", maintain_order="left").sort("gpu", "process", "index")
    found = examined.named(found).with_columns(
        texts.gather(found["name"]).alias("name"),
        pl.lit(examined.trace.report, pl.Int64).alias("report"),
        (pl.col("start_ns").shift(-1) - pl.col("start_ns")).over("gpu", "process").alias("period_ns"),
    )
    if examined.window.cuts:
        found = found.filter(_inside(examined))
    return found.select(
        "gpu", "report", "process", "index", "name", "kind", "kind_basis", "start_ns", "end_ns", "span_ns", "period_ns",
        "busy_ns", "exposed_communication_ns", "idle_ns", "opaque_ns", "kernel_count", "kernel_ns",
    )  # fmt: skip


def _inside(examined: Examined) -> pl.Expr:
    """Return the condition that something (start_ns, end_ns) runs wholly inside the window."""
    return (pl.col("start_ns") >= examined.window.start_ns) & (pl.col("end_ns") <= examined.window.end_ns)


def _kernel_rows(examined: Examined, stepping: Stepping, by: str) -> pl.DataFrame:
    """Return kernel counts and times of each step by category and another column of its operations."""
    key = list(dict.fromkeys(["gpu", "step", by, "category"]))
    kernels = in_steps(examined, stepping).filter(pl.col("what") == KERNEL)
    summed = kernels.group_by(key).agg(
        pl.len().cast(pl.Int64).alias("kernel_count"), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("kernel_ns")
    )
    steps = stepping.steps.select("process", "index").with_row_index("step")
    placed = examined.named(summed.join(steps, on="step", how="left")).drop("step")
    return placed.with_columns(pl.Series(ALL_CATEGORIES).gather(placed["category"]).alias("category"))


def _category_rows(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    found = _kernel_rows(examined, stepping, "category").select(*_STEP, "category", "kernel_count", "kernel_ns")
    return found.sort(*_STEP_ORDER, pl.col("kernel_ns"), "category", descending=[False, False, False, True, False])


def _layer_rows(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    """Return kernel time of each step by layer (null: no layer) and category."""
    by_path = _kernel_rows(examined, stepping, "path")
    layers = {path: _layer(names) for path, names in examined.path_names(by_path["path"]).items()}
    numbers = pl.Series([layers.get(path) for path in by_path["path"].to_list()], dtype=pl.Int64)
    placed = by_path.with_columns(numbers.alias("layer"))
    return placed.group_by(*_STEP, "layer", "category").agg(pl.col("kernel_ns").sum())


def _layer(names: Sequence[str]) -> int | None:
    """Return the number of the outermost range that is a layer's, such as ``layer3`` or ``model.layers.3.mlp``."""
    return next((int(found[1]) for name in names if (found := _LAYER.search(name))), None)


def _outside(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    operations = examined.operations.select("gpu", "start_ns", "end_ns", "what").hstack(
        [stepping.of_operations.alias("step")]
    )
    alone = operations.filter((pl.col("what") == KERNEL) & pl.col("step").is_null())
    summed = alone.group_by("gpu").agg(
        pl.len().cast(pl.Int64).alias("kernel_count"), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("kernel_ns")
    )
    every = pl.DataFrame({"gpu": range(len(examined.trace.gpus))}, schema={"gpu": operations.schema["gpu"]})
    return examined.named(every.join(summed, on="gpu", how="left").fill_null(0).sort("gpu"))


# ---- over steps


def _marked(steps: pl.DataFrame, warmup: int | None) -> pl.DataFrame:
    """Add is_warmup and is_outlier."""
    of_kind = ["gpu", "process", "kind"]
    if warmup is None:
        usual = steps.group_by(of_kind).agg(nearest_rank("span_ns", 50).alias("p50"))
        slow = steps.join(usual, on=of_kind, how="left", maintain_order="left").with_columns(
            (pl.col("span_ns") > WARM_UP_FACTOR * pl.col("p50")).cast(pl.Int8).alias("slow")
        )
        is_warmup = slow.select((pl.col("slow").cum_min().over(of_kind, order_by="index") == 1).alias("is_warmup"))
    else:
        is_warmup = steps.select((pl.col("index") < warmup).alias("is_warmup"))
    marked = steps.hstack(is_warmup)
    quartiles = (
        marked.filter(~pl.col("is_warmup"))
        .group_by(of_kind)
        .agg(*(nearest_rank("span_ns", q).alias(f"p{q}") for q in (25, 50, 75)), pl.len().alias("steps"))
    )
    reach = pl.col("p75") + OUTLIER_REACH * (pl.col("p75") - pl.col("p25"))
    is_outlier = (
        ~pl.col("is_warmup")
        & (pl.col("steps") >= FEWEST_FOR_OUTLIERS)
        & (pl.col("span_ns") > reach)
        & (pl.col("span_ns") > OUTLIER_FACTOR * pl.col("p50"))
    )
    judged = marked.join(quartiles, on=of_kind, how="left", maintain_order="left")
    return judged.with_columns(is_outlier.fill_null(value=False).alias("is_outlier")).drop("p25", "p50", "p75", "steps")


def _filled(steps: pl.DataFrame, rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return kernel time by step and ``by``, 0 where a step has none of what its kind has on its GPU or any other.

    Columns: gpu, kind, ``by``, kernel_ns, and of the step process and index.
    """
    kinds = steps.select(*_STEP, "kind")
    present = rows.join(kinds, on=_STEP).select("kind", *by).unique()
    every = kinds.join(present, on="kind")
    found = every.join(rows.select(*_STEP, *by, "kernel_ns"), on=[*_STEP, *by], how="left", nulls_equal=True)
    return found.with_columns(pl.col("kernel_ns").fill_null(0))


def _over_gpus(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows once for their GPU and once for all GPUs."""
    return pl.concat([frame, frame.with_columns(pl.lit(ALL_GPUS).alias("gpu"))])


def _summarised(filled: pl.DataFrame) -> pl.DataFrame:
    found = _over_gpus(filled).group_by("gpu", "kind", "category").agg(summary("kernel_ns"))
    return found.sort(gpu_order(), "kind", "mean_ns", "category", descending=[False, False, True, False])


def _measured(steps: pl.DataFrame) -> pl.DataFrame:
    long = steps.select("gpu", "kind", *(pl.col(f"{m}_ns").alias(m) for m in MEASURES)).unpivot(
        MEASURES, index=["gpu", "kind"], variable_name="measure", value_name="ns"
    )
    order = pl.col("measure").replace_strict({m: i for i, m in enumerate(MEASURES)}, return_dtype=pl.Int64)
    found = _over_gpus(long.drop_nulls("ns")).group_by("gpu", "kind", "measure").agg(summary("ns"))
    return found.sort(gpu_order(), "kind", order)


def _by_layer(steps: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    filled = _filled(steps, layers, ["layer", "category"])
    found = _over_gpus(filled).group_by("gpu", "kind", "layer", "category").agg(summary("kernel_ns", (50,)))
    return found.sort(gpu_order(), "kind", "layer", "category", nulls_last=True)


def _outliers(steps: pl.DataFrame, categories: pl.DataFrame) -> pl.DataFrame:
    """Return the outlier steps with what grew most in them: categories, idle and what their medians were."""
    of_kind = ["gpu", "process", "kind"]
    kernels = _filled(steps, categories, ["category"]).select(
        *_STEP, "kind", pl.col("category").alias("what"), pl.col("kernel_ns").alias("ns")
    )
    idle = steps.select(*_STEP, "kind", pl.lit("idle").alias("what"), pl.col("idle_ns").alias("ns"))
    parts = pl.concat([kernels, idle])
    usual = parts.group_by(*of_kind, "what").agg(nearest_rank("ns", 50).alias("p50_ns"))
    out = steps.filter("is_outlier").select(*_STEP, "kind", "span_ns")
    grown = (
        parts.join(out.select(_STEP), on=_STEP, how="semi")
        .join(usual, on=[*of_kind, "what"])
        .with_columns((pl.col("ns") - pl.col("p50_ns")).alias("growth"))
        .filter(pl.col("growth") > 0)
        .sort("growth", "what", descending=[True, False])
        .group_by(_STEP, maintain_order=True)
        .agg(pl.struct("what", "ns", "p50_ns").head(GREW_SHOWN).alias("grew"))
    )
    spans = steps.group_by(of_kind).agg(nearest_rank("span_ns", 50).alias("p50_ns"))
    found = out.join(spans, on=of_kind, how="left").join(grown, on=_STEP, how="left")
    return found.select(*_STEP, "kind", "span_ns", "p50_ns", "grew").sort(
        "span_ns", *_STEP_ORDER, descending=[True, *[False] * 3]
    )
