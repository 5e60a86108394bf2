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
    is_long = (pl.col("end_ns") - pl.col("start_ns")) >= width_ns
    # How many long bars are ahead tells which stretch between two of them a short bar is in.
    placed = bars.with_columns((pl.col("start_ns") // width_ns).alias("slot"), is_long.cum_sum().alias("stretch"))
    group = ["lane", "slot", "stretch"]
    parts = (
        placed.filter(~is_long)
        .group_by(*group, "part")
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("ns").sum(),
            pl.col("count").sum().cast(pl.UInt32),
            pl.when(pl.len() == 1).then(pl.col("item").first()).otherwise(pl.lit(NO_ITEM, pl.Int32)).alias("item"),
        )
        .sort(*group, "part")
    )
    origin, reach = pl.col("start_ns").min().over(group), pl.col("end_ns").max().over(group)
    whole, before = pl.col("ns").sum().over(group), pl.col("ns").cum_sum().over(group) - pl.col("ns")
    span = reach - origin
    crowded = whole > span  # parts that ran side by side do not fit one behind the other
    parts = parts.with_columns(
        (origin + pl.when(crowded).then(before * span // whole).otherwise(before)).alias("from"),
        pl.when(crowded).then(pl.col("ns") * span // whole).otherwise("ns").alias("length"),
        (pl.len().over(group) == 1).alias("alone"),
    )
    alone_and_single = pl.col("alone") & (pl.col("count") == 1)
    drawn = parts.with_columns(
        pl.when(alone_and_single).then("start_ns").otherwise("from").alias("start_ns"),
        pl.when(alone_and_single).then("end_ns").otherwise(pl.col("from") + pl.col("length")).alias("end_ns"),
    )
    together = pl.concat([placed.filter(is_long).select(*BAR_SCHEMA), drawn.select(*BAR_SCHEMA)])
    return together.sort("lane", "start_ns", "part")


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


def visible(level: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Return the bars of a level that show in a view."""
    return level.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns))


def finest(found: Sequence[pl.DataFrame], start_ns: int, end_ns: int, most: int) -> tuple[int, pl.DataFrame]:
    """Return the finest level (its number, and its visible bars) that has no more than ``most`` bars in a view.

    Where every level has more, the coarsest.
    """
    bars = found[-1].clear()
    for number, level in enumerate(found):
        bars = visible(level, start_ns, end_ns)
        if bars.height <= most or number == len(found) - 1:
            return number, bars
    return 0, bars


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
        edges = pl.Series(range(lanes + 1), dtype=pl.UInt32)
        self._first: list[list[int]] = [level["lane"].search_sorted(edges, side="left").to_list() for level in found]
        # No bar of a lane before this one reaches further than this.
        self._reach = [level.select(pl.col("end_ns").cum_max().over("lane"))["end_ns"] for level in found]

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
        first, starts, reach = self._first[number], self.levels[number]["start_ns"], self._reach[number]
        found: list[tuple[int, int]] = []
        for lane in range(len(first) - 1):
            since, count = first[lane], first[lane + 1] - first[lane]
            if count:
                begin = reach.slice(since, count).search_sorted(start_ns, side="right")
                end = starts.slice(since, count).search_sorted(end_ns, side="left")
                found.append((since + begin, since + max(begin, end)))
        return found

    def _bars(self, number: int, spans: list[tuple[int, int]]) -> pl.DataFrame:
        level = self.levels[number]
        return pl.concat(
            [level.clear(), *(level.slice(since, until - since) for since, until in spans if until > since)]
        )
