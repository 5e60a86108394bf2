"""What one report adds up to: categories of its kernels, and counts, sums, medians and unions of their time."""

from dataclasses import dataclass

import polars as pl

from k25trace import accounting
from k25trace.accounting import Account, Sweep, kernel_part, outside_part, row_part
from k25trace.classify import Match, RuleSet
from k25trace.medians import Medians
from k25trace.replays import Replays
from k25trace.selection import Window
from k25trace.taxonomy import ALL_CATEGORIES, is_nccl
from k25trace.trace import Trace
from k25trace.trace.interning import ID, integers

LANE_BITS = 21
"""Bits of each column that `lane` packs: three fit an Int64, and no report has two million processes or GPUs."""


class Classes:
    """Categories of a report's kernel names, decided once a name."""

    def __init__(self, rules: RuleSet, trace: Trace) -> None:
        self._rules = rules
        self._trace = trace
        self._match: dict[int, Match] = {}

    def match(self, name: int) -> Match:
        """Return the category, family and rule of a name."""
        found = self._match.get(name)
        if found is None:
            found = self._match[name] = self._rules.classify(self._trace.names[name])
        return found

    def of(self, names: pl.Series) -> pl.DataFrame:
        """Return, aligned with a column of names: category (index), part and outside (`accounting.PARTS`), UInt8."""
        distinct = names.unique()
        matches = [self.match(name) for name in distinct.to_list()]
        columns = {
            "category": [ALL_CATEGORIES.index(m.category) for m in matches],
            "part": [kernel_part(m.category, nccl=is_nccl(m.family)) for m in matches],
            "outside": [outside_part(m.category, nccl=is_nccl(m.family)) for m in matches],
        }
        table = pl.repeat(None, max([0, *integers(distinct)]) + 1, dtype=pl.UInt8, eager=True)
        found = {c: table.clone().scatter(distinct, pl.Series(v, dtype=pl.UInt8)) for c, v in columns.items()}
        return pl.DataFrame([of_name.gather(names).alias(column) for column, of_name in found.items()])


def other_intervals(trace: Trace, found: Replays) -> pl.DataFrame:
    """Return what owns wall time without being a kernel: gpu, start_ns, end_ns, part."""
    copies = trace.copies.select(
        "gpu",
        "start_ns",
        "end_ns",
        pl.when("is_set")
        .then(row_part(accounting.MEMSET))
        .otherwise(row_part(accounting.MEMCPY))
        .cast(pl.UInt8)
        .alias("part"),
    )
    opaque = found.opaque.select(
        "gpu", "start_ns", "end_ns", pl.lit(row_part(accounting.OPAQUE), pl.UInt8).alias("part")
    )
    return pl.concat([copies, opaque.filter(pl.col("gpu").is_not_null())])


@dataclass(frozen=True)
class Sums:
    """What kernels add up to.

    Attributes
    ----------
    accounts
        GPU (index) → its account.
    names
        gpu, name, kernel_count, kernel_ns, max_ns.
    medians
        Durations by `lane` of gpu and category.
    at_most_ns
        What the durations of all kernels do not exceed, even where their sum is more than an Int64 holds.
    """

    accounts: dict[int, Account]
    names: pl.DataFrame
    medians: Medians
    at_most_ns: float


class Tally:
    """Feeds kernels to a sweep, and adds up what needs no sweep: counts, sums, maxima, durations by value."""

    def __init__(self, window: Window, classes: Classes) -> None:
        self._window = window
        self._classes = classes
        self._names: list[pl.DataFrame] = []
        self._medians = Medians()
        self._sweep = Sweep(window.pieces)

    def add(self, others: pl.DataFrame) -> None:
        """Add intervals that are no kernels; all at once, before any kernel."""
        first, last = self._window.start_ns, self._window.end_ns
        self._sweep.add(others.with_columns(pl.col("start_ns", "end_ns").clip(first, last)))

    def take(self, kernels: pl.DataFrame, until: int | None) -> None:
        """Account kernels (gpu, name, start_ns, end_ns[, selected]); all that start before ``until`` are in."""
        classed = pl.concat([kernels, self._classes.of(kernels["name"])], how="horizontal")
        part = (
            pl.when("selected").then("part").otherwise("outside") if "selected" in kernels.columns else pl.col("part")
        )
        self._sweep.add(classed.with_columns(part.alias("part")))
        if until is not None:
            self._sweep.advance(until)
        span = pl.col("end_ns") - pl.col("start_ns")
        mine = self._window.chosen(classed).select("gpu", "name", "category", span.alias("duration_ns"))
        self._names.append(
            mine.group_by("gpu", "name").agg(
                pl.len().cast(pl.Int64).alias("kernel_count"),
                pl.col("duration_ns").sum().alias("kernel_ns"),
                pl.col("duration_ns").max().alias("max_ns"),
            )
        )
        self._medians.add(mine.select(lane("gpu", "category").alias("group"), pl.col("duration_ns").alias("value")))

    def finish(self) -> Sums:
        """Return what all kernels taken add up to."""
        totals = [pl.col("kernel_count").sum(), pl.col("kernel_ns").sum(), pl.col("max_ns").max()]
        each = pl.concat(self._names)
        at_most = each.select((pl.col("kernel_count").cast(pl.Float64) * pl.col("max_ns")).sum()).item()
        names = each.group_by("gpu", "name").agg(totals)
        return Sums(self._sweep.finish(), names, self._medians, at_most)


def lane(*columns: str) -> pl.Expr:
    """Return up to three unsigned columns as one Int64 (`LANE_BITS` each, the last lowest): one key groups faster."""
    packed = pl.lit(0, pl.Int64)
    for column in columns:
        packed = packed * (1 << LANE_BITS) + pl.col(column).cast(pl.Int64)
    return packed.alias("lane")


def unpacked(lane: str, *columns: str) -> list[pl.Expr]:
    """Return the columns that `lane` packed."""
    shifts = range(LANE_BITS * (len(columns) - 1), -1, -LANE_BITS)
    return [
        (pl.col(lane) // (1 << shift) % (1 << LANE_BITS)).cast(ID).alias(column)
        for column, shift in zip(columns, shifts, strict=True)
    ]
