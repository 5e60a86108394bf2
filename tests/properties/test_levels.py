"""Laws of the levels of detail: nothing gets lost, nothing moves further than a slot, fewer bars at every level."""

from __future__ import annotations

import itertools
from collections import Counter

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from k25trace.levels import NO_ITEM, Pyramid, levels, merged, single_bars, within

INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-50, 3_000), st.integers(0, 400), st.integers(0, 3)), max_size=60
)
WIDTHS = st.sampled_from([1, 4, 16, 64, 256, 1024])


def bars(rows: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    frame = pl.DataFrame(
        [(lane, start, start + length, part, i) for i, (lane, start, length, part) in enumerate(rows)],
        schema={"lane": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64, "part": pl.UInt8, "item": pl.Int32},
        orient="row",
    )
    return single_bars(frame)


def visible(level: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    return level.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns))


def totals(frame: pl.DataFrame) -> dict[tuple[int, int], tuple[int, int]]:
    found: Counter[tuple[int, int, str]] = Counter()
    for row in frame.iter_rows(named=True):
        found[row["lane"], row["part"], "ns"] += row["ns"]
        found[row["lane"], row["part"], "count"] += row["count"]
    keys = {(lane, part) for lane, part, _ in found}
    return {(lane, part): (found[lane, part, "ns"], found[lane, part, "count"]) for lane, part in keys}


@given(INTERVALS, WIDTHS)
def test_sums_and_counts_are_exact_by_lane_and_part(rows, width):
    fine = bars(rows)
    assert totals(merged(fine, width)) == totals(fine)


@given(INTERVALS, WIDTHS)
def test_long_bars_stay_and_short_ones_stand_in_for_their_slot(rows, width):
    fine = bars(rows)
    coarse = merged(fine, width)
    long = fine.filter(pl.col("end_ns") - pl.col("start_ns") >= width)
    assert set(long.rows()) <= set(coarse.rows())
    # Brute force: which (lane, slot, stretch, part) are there, and where do they reach?
    groups: dict[tuple[int, int, int, int], list[tuple[int, int, int]]] = {}
    stretch = 0
    for lane, start, end, part, _, _, item in fine.rows():
        if end - start >= width:
            stretch += 1
        else:
            groups.setdefault((lane, start // width, stretch, part), []).append((start, end, item))
    assert coarse.height == long.height + len(groups)
    short = Counter(
        (lane, part, sum(e - s for s, e, _ in members), len(members), members[0][2] if len(members) == 1 else NO_ITEM)
        for (lane, _, _, part), members in groups.items()
    )
    drawn = Counter(
        (r["lane"], r["part"], r["ns"], r["count"], r["item"])
        for r in coarse.iter_rows(named=True)
        if (r["lane"], r["start_ns"], r["end_ns"], r["part"], r["ns"], r["count"], r["item"]) not in set(long.rows())
    )
    assert drawn == short


@given(INTERVALS, WIDTHS)
def test_merged_bars_of_a_slot_stand_side_by_side_inside_it(rows, width):
    fine = bars(rows)
    coarse = merged(fine, width)
    for lane in range(3):
        mine = fine.filter(pl.col("lane") == lane)
        if not mine.height:
            continue
        there = coarse.filter(pl.col("lane") == lane)
        assert there["start_ns"].min() == mine["start_ns"].min()
        assert there["end_ns"].max() <= mine["end_ns"].max()
        short = there.filter(pl.col("end_ns") - pl.col("start_ns") < width)
        assert ((short["end_ns"] - short["start_ns"]) <= short["ns"]).all()


@given(INTERVALS)
def test_levels_made_from_one_another_are_those_made_from_the_bars(rows):
    fine = bars(rows)
    chained = merged(merged(fine, 16), 64)
    assert totals(chained) == totals(fine)
    assert chained["count"].sum() == fine.height


@given(INTERVALS, st.integers(1, 20))
def test_levels_get_coarser_and_single_bars_stay_single(rows, coarsest):
    found = levels(bars(rows), coarsest)
    heights = [level.height for level in found]
    assert heights == sorted(heights, reverse=True)
    for finer, coarser in itertools.pairwise(found):
        assert set(coarser["item"].to_list()) - {NO_ITEM} <= set(finer["item"].to_list())
        assert totals(coarser) == totals(finer)


def test_within_keeps_the_coarsest_levels_that_fit_and_always_one():
    found = levels(bars([(0, 10 * i, 5, i % 2) for i in range(400)]), 4)
    heights = [level.height for level in found]
    assert len(heights) > 3
    assert within(found, 0) == [found[-1]]
    assert len(within(found, sum(heights))) == len(found)
    assert len(within(found, sum(heights[1:]))) == len(found) - 1


def test_a_slot_shows_how_busy_it_was():
    # Four kernels of 10 ns in a slot of 64: two of one part, two of another, 24 ns of nothing.
    fine = bars([(0, 0, 10, 1), (0, 16, 10, 0), (0, 32, 10, 1), (0, 48, 10, 0)])
    assert merged(fine, 64).rows() == [(0, 0, 20, 0, 20, 2, NO_ITEM), (0, 20, 40, 1, 20, 2, NO_ITEM)]


@pytest.mark.parametrize("width", [4, 1 << 40])
def test_no_bars_make_no_bars(width):
    assert merged(bars([]), width).rows() == []


@given(INTERVALS, st.integers(-100, 3_500), st.integers(1, 2_000), st.integers(0, 30))
@example([(0, 1, 0, 0)], 0, 2, 0)  # a bar without length, alone, in a view that begins before it
@example([(0, 1, 0, 0)], -1, 2, 0)
@example([(0, 1, 0, 0), (1, 3, 2, 0)], 3, 9, 0)
def test_a_pyramid_shows_all_that_is_in_view_and_hardly_more(rows, start, length, most):
    found = levels(bars(rows), 4)
    number, shown = Pyramid(found, 3).view(start, start + length, most)
    wanted = visible(found[number], start, start + length)
    assert set(wanted.rows()) <= set(shown.rows())
    for lane in range(3):
        mine, needed = shown.filter(pl.col("lane") == lane), wanted.filter(pl.col("lane") == lane)
        assert (mine["start_ns"] < start + length).all()
        if mine.height:  # it begins with a bar that is in view
            assert needed["start_ns"].min() == mine["start_ns"].min()
    assert shown.height <= most or number == len(found) - 1
