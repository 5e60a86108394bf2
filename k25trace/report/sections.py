"""What a person is shown: titled tables, built once for the terminal and for Markdown."""

import polars as pl

from k25trace.report.cells import cells, share_column, text_column, texts, time_column
from k25trace.report.choices import ROWS_SHOWN, By, Request
from k25trace.report.layout import Section
from k25trace.report.rows import rest_of_wall, top_kernels
from k25trace.results import ALL_GPUS, Analysis
from k25trace.units import counted

TOP_KERNELS = 3
_INCLUSIVE_NOTE = "A kernel counts once for each name in its path, so rows overlap."
_COMMUNICATION_NOTE = "Wall of comm.* is what is exposed: no other kernel runs then."

KEYS: dict[By, tuple[str, ...]] = {
    By.category: ("gpu", "category"),
    By.family: ("gpu", "category", "family"),
    By.kernel: ("name",),
    By.gpu: ("gpu",),
    By.range: ("gpu", "range", "kind"),
    By.path: ("gpu", "path", "kind", "via"),
}
"""The columns that say what a row is about."""


def sections(analysis: Analysis, request: Request, frame: pl.DataFrame) -> list[Section]:
    """Return the sections of an output.

    Parameters
    ----------
    analysis
        The results.
    request
        What is asked for.
    frame
        What `k25trace.report.rows.rows` gave for it.
    """
    by, per_gpu = request.by, request.per_gpu
    top = request.top if request.top is not None else 0 if by in {By.category, By.gpu} else ROWS_SHOWN
    shown = frame.head(top) if top else frame
    hidden = frame.height - shown.height
    notes = [f"{counted(hidden, 'more row')}; --top N shows more, --top 0 all."] if hidden else []
    if by is By.category and not per_gpu:
        shown = _down_to_the_window(analysis, shown)
        notes.append(_COMMUNICATION_NOTE)
    if request.inclusive:
        notes.append(_INCLUSIVE_NOTE)
    without = () if per_gpu or by is By.gpu else ("gpu",)
    found = [Section(_title(request), *cells(shown, KEYS[by], without), " ".join(notes))]
    if by is By.category and not per_gpu:
        found.append(Section("By GPU", *cells(analysis.gpus, KEYS[By.gpu]), whole="--by gpu --format csv"))
    if by is By.category and analysis.estimates is not None:
        found.append(_estimates(analysis.estimates))
    if request.verbose:
        found += [
            Section(
                f"Longest-running kernels of {category}, over all GPUs",
                *cells(top_kernels(analysis, category, TOP_KERNELS), KEYS[By.kernel], without=("category",)),
                whole="--by kernel --format csv",
            )
            for category in analysis.categories.filter(pl.col("gpu") == ALL_GPUS)["category"].to_list()
        ]
    return found


def _estimates(estimates: pl.DataFrame) -> Section:
    """Return what opaque replays may have spent their time on, over all GPUs."""
    rows = (
        estimates.group_by("category").agg(pl.col("estimate_ns").sum()).sort("estimate_ns", "category", descending=True)
    )
    total = max(1, int(rows["estimate_ns"].sum()))
    shown = rows.with_columns((pl.col("estimate_ns") / total).alias("share"))
    columns = {
        "category": text_column("Category"),
        "estimate_ns": time_column("Estimate"),
        "share": share_column("Share"),
    }
    note = "An estimate: `opaque graph` divided as the replays were from which the template was learned."
    return Section("Opaque graph time, estimated from the template", *texts(shown, columns), note, "--format json")


def _title(request: Request) -> str:
    """Return what rows are about, and over what."""
    if request.by is By.gpu:
        return "By GPU"
    kind = ""
    if request.by in {By.range, By.path}:
        kind = ", inclusive" if request.inclusive else ", exclusive"
    depth = f" to depth {request.depth}" if request.depth is not None else ""
    return f"By {request.by.value}{depth}{kind}, {'for each GPU' if request.per_gpu else 'over all GPUs'}"


def _down_to_the_window(analysis: Analysis, categories: pl.DataFrame) -> pl.DataFrame:
    """Append the wall rows that are no category, and the totals that all rows add up to."""
    gpus = analysis.gpus
    rest = rest_of_wall(analysis).rename({"row": "category"})
    totals = gpus.select(
        pl.lit("total").alias("category"),
        pl.col("kernel_count", "kernel_ns", "busy_ns").sum(),
        pl.lit(1.0 if gpus["kernel_ns"].sum() else 0.0).alias("kernel_share"),
        pl.col("window_ns").sum().alias("wall_ns"),
        pl.lit(1.0 if gpus["window_ns"].sum() else 0.0).alias("wall_share"),
    ).unique()
    return pl.concat([categories, rest, totals], how="diagonal")
