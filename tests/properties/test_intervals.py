"""Interval algebra on frames against sets of nanoseconds, within each combination of two keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import oracles
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import intervals

from k25trace import intervals as algebra

FAR = 1 << 62
KEYS = ["gpu", "name"]
SCHEMA = {"gpu": pl.UInt32, "name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "bit": pl.UInt8}

Key = tuple[int | None, str]
Row = tuple[int | None, str, int, int, int]

keys = st.tuples(st.sampled_from([None, 0, 7]), st.sampled_from(["", "b"]))
parts = st.sampled_from([0, 1, 5, 62])


@st.composite
def keyed(draw: st.DrawFn, max_keys: int = 3) -> list[Row]:
    """Draw rows of a few keys in any order."""
    rows: list[Row] = []
    for key in draw(st.lists(keys, max_size=max_keys)):
        rows += [(*key, start, end, draw(parts)) for start, end in draw(intervals(max_size=6))]
    return draw(st.permutations(rows))


def frame(rows: Iterable[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def by_key(rows: Iterable[Row]) -> dict[Key, list[tuple[int, int]]]:
    """Return the intervals of each key that covers anything."""
    out: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for gpu, name, start, end, _ in rows:
        if start < end:
            out[gpu, name].append((start, end))
    return out


def in_order(expected: dict[Key, list[tuple[int, int]]]) -> list[tuple[int | None, str, int, int]]:
    """Return the rows of a result: ordered by key, null first, then by start."""
    ordered = sorted(expected.items(), key=lambda item: (item[0][0] is not None, item[0][0] or 0, item[0][1]))
    return [(*key, start, end) for key, spans in ordered for start, end in spans]


@given(keyed())
def test_union_is_the_maximal_intervals_that_cover_the_same_instants(rows: list[Row]) -> None:
    expected = {key: oracles.union(spans) for key, spans in by_key(rows).items()}
    assert algebra.union(frame(rows), KEYS).rows() == in_order(expected)


@given(keyed())
def test_union_without_keys_merges_across_keys(rows: list[Row]) -> None:
    spans = [(start, end) for _, _, start, end, _ in rows]
    assert algebra.union(frame(rows)).rows() == oracles.union(spans)


@given(keyed())
def test_union_of_a_union_is_that_union(rows: list[Row]) -> None:
    once = algebra.union(frame(rows), KEYS)
    assert algebra.union(once, KEYS).equals(once)


@given(keyed())
def test_length_counts_the_instants_of_each_key(rows: list[Row]) -> None:
    lengths = algebra.length(frame(rows), KEYS)
    assert {row[:2]: row[2] for row in lengths.rows()} == {
        key: len(oracles.ns_of(spans)) for key, spans in by_key(rows).items()
    }
    everything = {t for spans in by_key(rows).values() for t in oracles.ns_of(spans)}
    assert algebra.length(frame(rows)).rows() == [(len(everything),)]


@given(keyed(), st.integers(-8, 28), st.integers(-8, 28))
def test_clip_keeps_what_lies_inside_and_every_other_column(rows: list[Row], start: int, end: int) -> None:
    clipped = algebra.clip(frame(rows), start, end)
    expected = [
        (gpu, name, max(s, start), min(e, end), bit) for gpu, name, s, e, bit in rows if max(s, start) < min(e, end)
    ]
    assert clipped.rows() == expected


@given(keyed(), keyed())
def test_intersection_and_difference_are_those_of_sets(left: list[Row], right: list[Row]) -> None:
    a, b = by_key(left), by_key(right)
    both = {key: oracles.intersect(a[key], b[key]) for key in a.keys() & b.keys()}
    only = {key: oracles.subtract(spans, b.get(key, [])) for key, spans in a.items()}
    assert algebra.intersect(frame(left), frame(right), KEYS).rows() == in_order(both)
    assert algebra.subtract(frame(left), frame(right), KEYS).rows() == in_order(only)


@given(keyed(), keyed())
def test_lengths_of_union_and_intersection_add_up_to_both(left: list[Row], right: list[Row]) -> None:
    a, b = frame(left), frame(right)

    def size(of: pl.DataFrame) -> Counter[Key]:
        return Counter({row[:2]: row[2] for row in algebra.length(of, KEYS).rows()})

    assert size(pl.concat([a, b])) + size(algebra.intersect(a, b, KEYS)) == size(a) + size(b)
    assert size(algebra.subtract(a, b, KEYS)) + size(algebra.intersect(a, b, KEYS)) == size(a)


@given(keyed())
def test_nothing_is_left_of_a_set_without_itself(rows: list[Row]) -> None:
    a = frame(rows)
    assert algebra.subtract(a, a, KEYS).height == 0
    assert algebra.intersect(a, a, KEYS).equals(algebra.union(a, KEYS))


@given(keyed())
def test_occupancy_says_at_each_instant_which_parts_cover_it(rows: list[Row]) -> None:
    expected: dict[tuple[Key, int], int] = {}
    for gpu, name, start, end, bit in rows:
        for t in range(start, end):
            expected[(gpu, name), t] = expected.get(((gpu, name), t), 0) | 1 << bit
    found: dict[tuple[Key, int], int] = {}
    before = None
    for gpu, name, start, end, mask in algebra.occupancy(frame(rows), KEYS).rows():
        assert start < end
        assert before != (gpu, name, start, mask), "neighbours with one mask are one interval"
        before = (gpu, name, end, mask)
        for t in range(start, end):
            assert ((gpu, name), t) not in found
            found[(gpu, name), t] = mask
    assert found == expected


@given(keyed(), st.sets(st.integers(-5, 25)))
def test_runs_undo_any_cut(rows: list[Row], cuts: set[int]) -> None:
    whole = algebra.occupancy(frame(rows), KEYS)
    pieces = [
        (gpu, name, a, b, mask)
        for gpu, name, start, end, mask in whole.rows()
        for a, b in oracles.pairwise([start, *sorted(t for t in cuts if start < t < end), end])
    ]
    cut = pl.DataFrame(pieces, schema=whole.schema, orient="row")
    assert algebra.runs(cut, KEYS, "mask").equals(whole)


@given(keyed(), keyed(), st.integers(-6, 26), st.sampled_from([1, FAR // 2, FAR - 40, FAR]))
def test_only_the_order_of_instants_matters(left: list[Row], right: list[Row], at: int, by: int) -> None:
    """Instants moved apart, to about ±2^62 at most, change every result in the same way."""

    def moved(rows: Iterable[tuple]) -> list[tuple]:
        far = lambda t: t + by if t >= at else t - by  # noqa: E731
        return [(gpu, name, far(start), far(end), *rest) for gpu, name, start, end, *rest in rows]

    a, b, far_a, far_b = frame(left), frame(right), frame(moved(left)), frame(moved(right))
    assert algebra.union(far_a, KEYS).rows() == moved(algebra.union(a, KEYS).rows())
    assert algebra.occupancy(far_a, KEYS).rows() == moved(algebra.occupancy(a, KEYS).rows())
    for operation in (algebra.intersect, algebra.subtract):
        assert operation(far_a, far_b, KEYS).rows() == moved(operation(a, b, KEYS).rows())


@given(keyed(), st.sampled_from([-FAR, -FAR // 3, FAR // 3, FAR - 40]))
def test_lengths_do_not_change_when_all_moves(rows: list[Row], by: int) -> None:
    moved = [(gpu, name, start + by, end + by, bit) for gpu, name, start, end, bit in rows]
    assert algebra.length(frame(moved), KEYS).equals(algebra.length(frame(rows), KEYS))


@pytest.mark.parametrize("by", [[], ["gpu"], KEYS])
def test_of_nothing_comes_nothing_with_the_same_columns(by: list[str]) -> None:
    nothing = frame([])
    for result in (
        algebra.union(nothing, by),
        algebra.intersect(nothing, nothing, by),
        algebra.subtract(nothing, nothing, by),
    ):
        assert result.height == 0
        assert result.schema == {c: SCHEMA[c] for c in [*by, "start_ns", "end_ns"]}
    assert algebra.occupancy(nothing, by).columns == [*by, "start_ns", "end_ns", "mask"]
