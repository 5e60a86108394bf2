"""The chapters of a report: each a title, a figure, a table, and where the data lack it, why."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import polars as pl

from k25trace.collectives import Collectives
from k25trace.figures.wall import by_gpu, heatmap, shares, waterfall
from k25trace.figures.why import MOST_STEPS, causes, waits
from k25trace.figures.why import steps as steps_figure
from k25trace.gaps import Gaps
from k25trace.pages.why import NOT_ASKED, Why
from k25trace.palette import LIGHT, Theme
from k25trace.report import collectives as collectives_report
from k25trace.report import gaps as gaps_report
from k25trace.report import steps as steps_report
from k25trace.report.cells import COLUMNS, NOTHING, Column
from k25trace.report.sections import Section
from k25trace.report.text import printable
from k25trace.results import ALL_GPUS, Analysis, share
from k25trace.steps import Steps
from k25trace.units import format_count, format_ns
from k25trace.verdict import verdict, wall_rows

TOP_KERNELS = 15
TOP_PATHS = 12
TOP_ROWS = 12

_GPU = "GPU"
_WAITS_INSIDE = (
    "Kernels of collectives run while they wait: where one GPU communicates much longer, it most likely waits."
)
_RULE = Column("Rule", lambda value: NOTHING if value is None else printable(str(value), 60), right=False)
_NAME = Column("Name", lambda value: printable(str(value), 160), right=False)
_BUSY_SHARE = Column("Busy share", COLUMNS["wall_share"].text)


class Draw(Protocol):
    """Makes a figure in the colours of a page."""

    def __call__(self, *, theme: Theme = LIGHT) -> go.Figure:
        """Return the figure."""
        ...


@dataclass(frozen=True)
class Chapter:
    """One chapter.

    Attributes
    ----------
    figure
        Draws it; None: nothing to draw.
    table
        The same in figures; None: nothing to tell.
    note
        What the figures are, and are not.
    more
        Further tables.
    drawn
        What the rows of the table stand for that holds the very numbers of the figure (see `k25trace.pages.drawn`);
        empty where ``table`` holds them.
    missing
        Why there is neither figure nor table; empty where there is.
    """

    title: str
    figure: Draw | None = None
    table: Section | None = None
    note: str = ""
    more: tuple[Section, ...] = ()
    missing: str = ""
    drawn: str = ""


def sentences(analysis: Analysis, answers: Why = NOT_ASKED) -> list[str]:
    """Return what one report says in words, the most important first."""
    found = answers.collectives
    return verdict(analysis, None if isinstance(found, str) else found)


def chapters(analysis: Analysis, answers: Why = NOT_ASKED) -> list[Chapter]:
    """Return the chapters of one report."""
    overall = analysis.categories.filter(pl.col("gpu") == ALL_GPUS)
    per_gpu = analysis.categories.filter(pl.col("gpu") != ALL_GPUS)
    window_ns = int(analysis.gpus["window_ns"].sum())
    return [
        Chapter(
            "Where the window goes",
            partial(waterfall, analysis.wall),
            _section(_with_share(wall_rows(analysis), window_ns), ("row", "wall_ns", "wall_share")),
            "The wall partition over all GPUs: every nanosecond of the window belongs to one row; they add up to it.",
        ),
        Chapter(
            "Categories, by three denominators",
            partial(shares, overall, window_ns),
            _section(
                _with_busy_share(overall, window_ns),
                (
                    *("category", "kernel_count", "kernel_ns", "kernel_share"),
                    *("busy_ns", "busy_share", "wall_ns", "wall_share"),
                ),
            ),
            "Plain bar: of the kernel time, which counts twice where kernels overlap. Striped: of the window, while any"
            " kernel of the category runs (busy). Crossed: of the window, by the wall partition; of comm.* that is what"
            " is exposed.",
        ),
        Chapter(
            "GPU beside GPU",
            partial(by_gpu, analysis.wall),
            _section(
                analysis.gpus,
                (
                    "gpu",
                    "kernel_count",
                    "kernel_ns",
                    "busy_ns",
                    "idle_ns",
                    "communication_ns",
                    "exposed_communication_ns",
                    "window_ns",
                ),
            ),
            _WAITS_INSIDE if int(analysis.gpus["communication_ns"].sum()) else "",
            drawn=_GPU,
        ),
        Chapter("Kernel time by category and GPU", partial(heatmap, per_gpu), drawn=_GPU),
        _steps(answers.steps),
        _collectives(answers.collectives),
        _gaps(answers.gaps),
        _paths(analysis),
        Chapter(
            "Longest-running kernels, and the rules that classified them",
            None,
            _section(
                _shared(analysis.kernels.head(TOP_KERNELS), analysis),
                ("name", "category", "rule", "kernel_count", "kernel_ns", "kernel_share", "mean_ns", "max_ns"),
            ),
            f"{analysis.kernels.height} names in all; `attribute --by kernel` lists them.",
        ),
    ]


def _steps(found: Steps | str) -> Chapter:
    title = "Steps and categories"
    if isinstance(found, str) or found.steps.height == 0:
        return Chapter(title, missing=found if isinstance(found, str) else _said(found.reports))
    first, *rest = steps_report.answer(found, top=TOP_ROWS).sections
    count = found.categories["index"].n_unique()
    note = f"Kernel time of each step over all GPUs. Steps: {_said(found.reports)}."
    if count > MOST_STEPS:
        note += f" The first {MOST_STEPS} of {count} are drawn."
    return Chapter(title, partial(steps_figure, found.categories), first, note, tuple(rest), drawn="Step")


def _collectives(found: Collectives | str) -> Chapter:
    title = "Collectives"
    if isinstance(found, str) or found.collectives.height == 0:
        return Chapter(title, missing=found if isinstance(found, str) else "no collective pairs up across GPUs")
    first, *rest = collectives_report.answer(found, top=TOP_ROWS).sections
    wait, transfer = int(found.ranks["wait_ns"].sum()), int(found.ranks["transfer_ns"].sum())
    note = (
        f"{format_count(found.collectives.height)} collectives, matched across GPUs: the kernels wait for"
        f" {format_ns(wait)} in all, and transfer for {format_ns(transfer)}. A kernel waits from its own start to the"
        " last one's."
    )
    return Chapter(title, partial(waits, found.ranks), first, note, tuple(rest), drawn=_GPU)


def _gaps(found: Gaps | str) -> Chapter:
    title = "Causes of gaps"
    if isinstance(found, str) or found.summary.height == 0:
        return Chapter(title, missing=found if isinstance(found, str) else "the GPUs are never idle")
    first, *rest = gaps_report.answer(found, top=TOP_ROWS).sections
    note = "Idle time of each GPU by the cause of its gaps; the causes sum to it."
    return Chapter(title, partial(causes, found.summary), first, note, tuple(rest), drawn=_GPU)


def _said(reports: pl.DataFrame) -> str:
    return "; ".join(printable(str(said), 200) for said in reports["said"].drop_nulls()) or "none found"


def _paths(analysis: Analysis) -> Chapter:
    title = "NVTX ranges"
    if analysis.inclusive is None or analysis.inclusive.height == 0:
        return Chapter(title, missing="no kernel was launched or captured inside a range")
    named = analysis.inclusive.group_by("range").agg(pl.col("kernel_count", "kernel_ns").sum())
    longest = named.sort("kernel_ns", "range", descending=[True, False]).head(TOP_PATHS)
    table = _section(_shared(longest, analysis), ("range", "kernel_count", "kernel_ns", "kernel_share"))
    return Chapter(title, None, table, "Kernel time inside ranges of a name, at any depth: nested ones count in each.")


def comparison(analyses: Sequence[tuple[str, Analysis]]) -> Chapter:
    """Return the reports side by side: kernel time, its share and wall share of each category."""
    every: dict[str, dict[int, tuple[int, float, float]]] = {}
    for number, (_, analysis) in enumerate(analyses):
        overall = analysis.categories.filter(pl.col("gpu") == ALL_GPUS)
        for category, *figures in overall.select("category", "kernel_ns", "kernel_share", "wall_share").iter_rows():
            ns, kernel, wall = figures
            every.setdefault(category, {})[number] = (ns, kernel, wall)
    order = sorted(every, key=lambda c: (-max(figures[0] for figures in every[c].values()), c))
    names = ("kernel_ns", "kernel_share", "wall_share")
    columns = [COLUMNS["category"]]
    columns += [
        Column(f"{n}: {COLUMNS[name].heading}", COLUMNS[name].text) for n in range(len(analyses)) for name in names
    ]
    rows = [
        [category]
        + [
            COLUMNS[name].text(every[category][n][i] if n in every[category] else None)
            for n in range(len(analyses))
            for i, name in enumerate(names)
        ]
        for category in order
    ]
    which = ", ".join(f"{n}: {printable(name, 60)}" for n, (name, _) in enumerate(analyses))
    return Chapter("Reports side by side", None, Section("", columns, rows), which)


def _section(frame: pl.DataFrame, names: Sequence[str]) -> Section:
    own = {"rule": _RULE, "name": _NAME, "busy_share": _BUSY_SHARE}
    columns = [own.get(name) or COLUMNS[name] for name in names]
    rows = [[c.text(v) for c, v in zip(columns, row, strict=True)] for row in frame.select(names).iter_rows()]
    return Section("", columns, rows)


def _with_share(rows: pl.DataFrame, window_ns: int) -> pl.DataFrame:
    whole = pl.lit(window_ns, pl.Int64).alias("whole")
    return rows.with_columns(whole).with_columns(share("wall_ns", "whole").alias("wall_share"))


def _with_busy_share(categories: pl.DataFrame, window_ns: int) -> pl.DataFrame:
    whole = pl.lit(window_ns, pl.Int64).alias("whole")
    return categories.with_columns(whole).with_columns(share("busy_ns", "whole").alias("busy_share"))


def _shared(frame: pl.DataFrame, analysis: Analysis) -> pl.DataFrame:
    whole = pl.lit(int(analysis.gpus["kernel_ns"].sum()), pl.Int64).alias("whole")
    return frame.with_columns(whole).with_columns(share("kernel_ns", "whole").alias("kernel_share"))
