"""Open ranges at an instant against looking at every range, whether they nest or cross."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from k25trace import nesting
from k25trace.nesting import NO_STACK, last_at, nest

FAR = 1 << 62
SCHEMA = {"thread": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
LEVELS = [1, 2, 64]

Range = tuple[int, int, int]
Instant = tuple[int | None, int | None]

threads = st.integers(0, 2)
lengths = st.one_of(st.integers(0, 6), st.sampled_from([0, 20, FAR]))
crossing = st.lists(
    st.tuples(threads, st.integers(-3, 12), lengths).map(lambda r: (r[0], r[1], r[1] + r[2])), max_size=10
)


@st.composite
def nested(draw: st.DrawFn) -> list[Range]:
    """Draw ranges of which two of one thread are disjoint, or one holds the other; bounds may be shared."""
    ranges: list[Range] = []
    for thread in range(draw(st.integers(1, 3))):
        boxes = [(0, 20)]
        for _ in range(draw(st.integers(0, 6))):
            place = draw(st.integers(0, len(boxes) - 1))
            low, high = boxes.pop(place)
            start = draw(st.integers(low, high))
            end = draw(st.integers(start, high))
            ranges.append((thread, start, end))
            boxes += [(low, start), (start, end), (end, high)]
    return draw(st.permutations(ranges))


any_ranges = st.one_of(crossing, nested())
instants = st.lists(
    st.tuples(st.one_of(st.integers(0, 3), st.none()), st.one_of(st.integers(-4, 24), st.none())), max_size=12
)


def frame(ranges: list[Range]) -> pl.DataFrame:
    return pl.DataFrame(ranges, schema=SCHEMA, orient="row")


def asked(at: list[Instant]) -> pl.DataFrame:
    return pl.DataFrame(at, schema={"thread": pl.UInt32, "at_ns": pl.Int64}, orient="row")


def open_at(ranges: list[Range], instant: Instant) -> list[int]:
    """Return the ranges open at an instant of a thread: by start, longer first, then row."""
    thread, t = instant
    if thread is None or t is None:
        return []
    here = [(start, -end, i) for i, (on, start, end) in enumerate(ranges) if on == thread and start <= t < end]
    return [i for _, _, i in sorted(here)]


def found(ranges: list[Range], at: list[Instant]) -> list[list[int]]:
    stacks = nest(frame(ranges))
    return [stacks.ancestors(node) for node in stacks.at(asked(at)).to_list()]


def every_instant(ranges: list[Range]) -> list[Instant]:
    """Return each bound of a range and its neighbours, on each thread."""
    bounds = {t + d for _, start, end in ranges for t in (start, end) for d in (-1, 0, 1)}
    return [(thread, t) for thread in range(4) for t in sorted(bounds)]


@pytest.mark.parametrize("levels", LEVELS)
@given(ranges=any_ranges, at=instants)
def test_open_ranges_are_those_that_began_and_have_not_ended(
    monkeypatch: pytest.MonkeyPatch, levels: int, ranges: list[Range], at: list[Instant]
) -> None:
    monkeypatch.setattr(nesting, "DEEPEST_SCAN", levels)
    at = [*at, *every_instant(ranges)]
    assert found(ranges, at) == [open_at(ranges, instant) for instant in at]


@given(ranges=nested())
def test_scanning_levels_and_sweeping_events_agree(monkeypatch: pytest.MonkeyPatch, ranges: list[Range]) -> None:
    at = every_instant(ranges)
    scanned = found(ranges, at)
    for levels in (1, 2):
        monkeypatch.setattr(nesting, "DEEPEST_SCAN", levels)
        assert found(ranges, at) == scanned
    monkeypatch.undo()


@given(ranges=nested())
def test_a_range_that_nests_has_one_node_its_own(ranges: list[Range]) -> None:
    nodes = nest(frame(ranges)).nodes.filter(pl.col("depth") > 0)
    assert nodes["range"].to_list() == [i for i, (_, start, end) in enumerate(ranges) if start < end]


@pytest.mark.parametrize("levels", LEVELS)
@given(ranges=any_ranges)
def test_a_parent_is_one_level_above_its_child(
    monkeypatch: pytest.MonkeyPatch, levels: int, ranges: list[Range]
) -> None:
    monkeypatch.setattr(nesting, "DEEPEST_SCAN", levels)
    nodes = nest(frame(ranges)).nodes.rows()
    for parent, _, depth in nodes:
        assert (nodes[parent][2] if parent != NO_STACK else 0) == depth - 1 or depth == 0


@pytest.mark.parametrize("levels", LEVELS)
@given(ranges=any_ranges)
def test_segments_are_ordered_and_end_with_no_range_open(
    monkeypatch: pytest.MonkeyPatch, levels: int, ranges: list[Range]
) -> None:
    monkeypatch.setattr(nesting, "DEEPEST_SCAN", levels)
    segments = nest(frame(ranges)).segments.rows()
    moments = [(thread, t) for thread, t, _ in segments]
    assert moments == sorted(set(moments))
    last = {thread: node for thread, _, node in segments}
    assert set(last.values()) <= {NO_STACK}


@given(
    changes=st.lists(st.tuples(threads, st.integers(-3, 12), st.integers(0, 9)), max_size=10),
    at=instants,
    in_order=st.booleans(),
)
def test_last_at_is_the_last_change_at_or_before(
    changes: list[tuple[int, int, int]], at: list[Instant], in_order: bool
) -> None:
    if in_order:
        at = sorted((i for i in at if i[1] is not None), key=lambda i: i[1] or 0)
    schema = {"thread": pl.UInt32, "at_ns": pl.Int64, "said": pl.Int64}
    answer = last_at(asked(at), pl.DataFrame(changes, schema=schema, orient="row"))
    assert answer.columns == ["said"]
    expected = []
    for thread, t in at:
        before = (
            [] if t is None else [(when, i) for i, (on, when, _) in enumerate(changes) if on == thread and when <= t]
        )
        expected.append(changes[max(before)[1]][2] if before else None)
    assert answer["said"].to_list() == expected


def test_a_thousand_levels_are_found_without_recursion() -> None:
    deep = [(0, i, 5000 - i) for i in range(1000)]
    stacks = nest(frame(deep))
    assert stacks.ancestors(stacks.at(asked([(0, 2500)]))[0]) == list(range(1000))
