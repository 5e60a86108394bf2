"""What a person is shown: titled tables, built once for the terminal and for Markdown."""

from dataclasses import dataclass

import polars as pl

from k25trace.report.cells import Column, cells
from k25trace.report.choices import By
from k25trace.report.rows import rest_of_wall, top_kernels
from k25trace.results import ALL_GPUS, Analysis
from k25trace.units import format_count

TOP_KERNELS = 3
_COMMUNICATION_NOTE = "Wall of comm.* is what is exposed: no other kernel runs then."


@dataclass(frozen=True)
class Section:
    """A titled table; ``note`` is a sentence below it."""

    title: str
    columns: list[Column]
    rows: list[list[str]]
    note: str = ""


def sections(analysis: Analysis, by: By, frame: pl.DataFrame, *, top: int | None, verbose: bool) -> list[Section]:
    """Return the sections of an output.

    Parameters
    ----------
    frame
        What `k25trace.report.rows.rows` gave for ``by``.
    top
        Rows shown of long tables (None: all).
    verbose
        Add the longest-running kernels of each category.
    """
    per_gpu = "gpu" in frame.columns and by is not By.gpu and frame["gpu"].to_list() != [ALL_GPUS] * frame.height
    limited = frame if top is None or by in {By.category, By.gpu} else frame.head(top)
    hidden = frame.height - limited.height
    note = f"{format_count(hidden)} more rows; --top N shows more, --format csv all" if hidden else ""
    if by is By.category and not per_gpu:
        limited, note = _down_to_the_window(analysis, limited), _COMMUNICATION_NOTE
    columns, texts = cells(limited, without=() if per_gpu or by is By.gpu else ("gpu",))
    found = [
        Section(
            f"By {by.value}" + (", over all GPUs" if by is By.category and not per_gpu else ""),
            columns,
            texts,
            note,
        )
    ]
    if by is By.category and not per_gpu:
        found.append(Section("By GPU", *cells(analysis.gpus)))
    if verbose:
        found += [
            Section(
                f"Longest-running kernels of {category}",
                *cells(top_kernels(analysis, category, TOP_KERNELS), ("category",)),
            )
            for category in analysis.categories.filter(pl.col("gpu") == ALL_GPUS)["category"].to_list()
        ]
    return found


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
