"""Level of detail: bars too narrow for the screen merged into fewer, without losing a nanosecond or a kernel.

A *bar* stands for one or more intervals of one lane and one part (a colour). At a level of width ``w``, bars of at
least ``w`` stay as they are; the shorter ones that begin in one slot of ``w`` on one lane, with no long bar between
them, become one bar a part. These stand side by side, each as wide as the time it sums: what is left of the slot is
time in which nothing ran. Sums and counts are exact at every level, so that any level adds up to the same figures.
Knows nothing of kernels.
"""

from collections.abc import Sequence

import polars as pl

NO_ITEM = -1
"""``item`` of a bar that stands for several intervals."""

_STEP = 4
"""Each level's slots are four of the level before: nested, so that levels can be made from one another."""

_WORTH = 0.75
"""A level that has more than that part of the bars of the one before is not worth keeping."""

BAR_SCHEMA: dict[str, pl.DataType] = {
    "lane": pl.UInt32(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "part": pl.UInt8(),
    "ns": pl.Int64(),
    "count": pl.UInt32(),
    "item": pl.Int32(),
}


def single_bars(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return one bar an interval (lane, start_ns, end_ns, part, item), ordered by lane and start.

    Returns
    -------
    pl.DataFrame
        lane UInt32 · start_ns, end_ns Int64 (where it is drawn) · part UInt8 · ns Int64 (sum of the durations) ·
        count UInt32 (of intervals) · item Int32 (the interval, or `NO_ITEM` where there are several).
    """
    bars = intervals.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("ns"), pl.lit(1).alias("count"))
    return bars.select(pl.col(name).cast(dtype) for name, dtype in BAR_SCHEMA.items()).sort("lane", "start_ns", "item")


def merged(bars: pl.DataFrame, width_ns: int) -> pl.DataFrame:
    """Return the bars of a level, from those of a finer one (see `single_bars`), ordered by lane and start.

    Parameters
    ----------
    bars
        Ordered by lane and start.
    width_ns
        Width of a slot; a multiple of the finer level's.
    """
    is_long = bars["end_ns"] - bars["start_ns"] >= width_ns
    short = bars.filter(~is_long)
    # A group: one lane, one slot, one stretch between long bars. In the order of the bars, its members are neighbours.
    place = short.select(
        "lane",
        (pl.col("start_ns") // width_ns).alias("slot"),
        is_long.cast(pl.UInt32).cum_sum().filter(~is_long).alias("stretch"),
    )
    begins = place.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1))).alias("b"))["b"]
    group = begins.cast(pl.Int64).cum_sum().alias("group")
    # Most of a fine level's groups are one bar, which stays what it is.
    alone = begins & begins.shift(-1, fill_value=True)
    stays = alone & ((short["count"] == 1) | (short["ns"] == short["end_ns"] - short["start_ns"]))
    parts = (
        short.with_columns((group * _PARTS + short["part"].cast(pl.Int64)).alias("key"))
        .filter(~stays)
        .group_by("key")
        .agg(
            pl.col("lane").first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("part").first(),
            pl.col("ns").sum(),
            pl.col("count").sum().cast(pl.UInt32),
            pl.when(pl.len() == 1).then(pl.col("item").first()).otherwise(pl.lit(NO_ITEM, pl.Int32)).alias("item"),
        )
        .sort("key")
    )
    drawn = _side_by_side(parts.with_columns(pl.col("key") // _PARTS))
    return pl.concat([bars.filter(is_long), short.filter(stays), drawn]).sort(
        "lane", "start_ns", "part", "end_ns", "item"
    )


_PARTS = 1 << 8


def _side_by_side(parts: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of each group (``key``, neighbours) one behind the other, as wide as the time they sum."""
    begins = (parts["key"] != parts["key"].shift(1)).fill_null(value=True)
    number = begins.cast(pl.Int64).cum_sum() - 1
    whole = parts.group_by(number.alias("number"), maintain_order=True).agg(
        pl.col("start_ns").min().alias("origin"),
        pl.col("end_ns").max().alias("reach"),
        pl.col("ns").sum().alias("whole"),
        (pl.len() == 1).alias("alone"),
    )
    sums = parts["ns"].cum_sum() - parts["ns"]
    before = (sums - sums.filter(begins).gather(number)).alias("before")
    origin, reach, all_ns, alone = (whole[c].gather(number) for c in ("origin", "reach", "whole", "alone"))
    span = (reach - origin).alias("span")
    crowded = pl.col("whole") > pl.col("span")  # parts that ran side by side do not fit one behind the other
    # A share of the span by way of Float64: it is a place on the screen, and whole nanoseconds might overflow.
    scale = pl.when(crowded).then(pl.col("span") / pl.col("whole")).otherwise(1.0)
    start = pl.col("origin") + (pl.col("before") * scale).floor().cast(pl.Int64)
    length = (pl.col("ns") * scale).floor().cast(pl.Int64)
    itself = pl.col("alone") & (pl.col("count") == 1)
    return (
        parts.with_columns(before, origin.alias("origin"), span, all_ns.alias("whole"), alone.alias("alone"))
        .with_columns(
            pl.when(itself).then("start_ns").otherwise(start).alias("start_ns"),
            pl.when(itself).then("end_ns").otherwise(start + length).alias("end_ns"),
        )
        .select(*BAR_SCHEMA)
    )


def levels(bars: pl.DataFrame, coarsest: int) -> list[pl.DataFrame]:
    """Return the levels of detail of bars, finest first, until one has no more than ``coarsest`` of them.

    Levels that would save little are left out. The first is ``bars`` itself.
    """
    found = [bars]
    at, width = bars, _STEP
    short = (bars["end_ns"] - bars["start_ns"]).quantile(0.25, "lower") or 0.0
    while width < short:  # less than that merges next to nothing
        width *= _STEP
    while at.height > coarsest and width < 1 << 62:
        at = merged(at, width)
        if at.height <= _WORTH * found[-1].height:
            found.append(at)
        width *= _STEP
    return found


def within(found: Sequence[pl.DataFrame], most: int) -> list[pl.DataFrame]:
    """Return the coarsest levels that together hold no more than ``most`` bars; always one."""
    kept: list[pl.DataFrame] = []
    for level in reversed(found):
        most -= level.height
        if kept and most < 0:
            break
        kept.insert(0, level)
    return kept


class Pyramid:
    """Levels of detail that answer views by halving, however many bars they have.

    Parameters
    ----------
    found
        Levels, finest first (`levels`).
    lanes
        How many lanes there are.
    """

    def __init__(self, found: Sequence[pl.DataFrame], lanes: int) -> None:
        self.levels = list(found)
        self._lanes = lanes
        starts = [level["start_ns"].min() for level in found if level.height]
        ends = [level["end_ns"].max() for level in found if level.height]
        self._origin = min((t for t in starts if isinstance(t, int)), default=0)
        self._span = max((t for t in ends if isinstance(t, int)), default=0) - self._origin + 4
        # Lane and instant as one number, so that one search answers for all lanes. No bar of a lane before another
        # reaches further than its `reach`.
        self._starts = [self._place(level["lane"], level["start_ns"]) for level in found]
        self._reach = [
            self._place(level["lane"], level.select(pl.col("end_ns").cum_max().over("lane"))["end_ns"])
            for level in found
        ]

    def _place(self, lane: pl.Series, instant: pl.Series) -> pl.Series:
        # All that is before the first bar is one place, and all that is after the last one another.
        return lane.cast(pl.Int64) * self._span + (instant - self._origin + 1).clip(0, self._span - 1)

    def view(self, start_ns: int, end_ns: int, most: int) -> tuple[int, pl.DataFrame]:
        """Return the finest level (its number, its bars in view) with no more than ``most`` bars; else the coarsest.

        Of a lane with overlapping bars, some that end before the view may be among them.
        """
        last = len(self.levels) - 1
        for number in range(last):
            spans = self._spans(number, start_ns, end_ns)
            if sum(until - since for since, until in spans) <= most:
                return number, self._bars(number, spans)
        return last, self._bars(last, self._spans(last, start_ns, end_ns))

    def _spans(self, number: int, start_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """Return, by lane, from and up to which bar of a level there is something to see."""
        lanes = pl.Series(range(self._lanes), dtype=pl.Int64)
        first, last = (self._place(lanes, pl.Series([at] * self._lanes, dtype=pl.Int64)) for at in (start_ns, end_ns))
        since = self._reach[number].search_sorted(first, side="right").to_list()
        until = self._starts[number].search_sorted(last, side="left").to_list()
        return [(a, max(a, b)) for a, b in zip(since, until, strict=True)]

    def _bars(self, number: int, spans: list[tuple[int, int]]) -> pl.DataFrame:
        level = self.levels[number]
        return pl.concat(
            [level.clear(), *(level.slice(since, until - since) for since, until in spans if until > since)]
        )
