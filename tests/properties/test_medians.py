"""Medians by group against sorting plain lists, with values held, put aside in files, and both."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from k25trace import medians
from k25trace.medians import Medians

BIGGEST = (1 << 62) - 1  # the longest time between two usable instants of one sign

Values = list[tuple[int, int]]

near_powers = st.builds(
    lambda power, off: min(max(0, (1 << power) + off), BIGGEST), st.integers(0, 62), st.integers(-2, 2)
)
durations = st.one_of(st.just(0), st.integers(0, 5), st.integers(60, 70), st.integers(0, BIGGEST), near_powers)
batches = st.lists(st.lists(st.tuples(st.integers(0, 5), durations), max_size=12), max_size=4)
held = pytest.mark.parametrize("rows", [0, 10, 1 << 19])


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make temporary files visible."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def frame(values: Values) -> pl.DataFrame:
    return pl.DataFrame(values, schema={"group": pl.Int64, "value": pl.Int64}, orient="row")


def filled(several: list[Values]) -> Medians:
    out = Medians()
    for values in several:
        out.add(frame(values))
    return out


def by_hand(values: Values, together: int) -> dict[int, int]:
    """Return the middle value of each group, or the floor of the average of the middle two."""
    groups: dict[int, list[int]] = defaultdict(list)
    for group, value in values:
        groups[group // together].append(value)
    return {g: (sorted(v)[(len(v) - 1) // 2] + sorted(v)[len(v) // 2]) // 2 for g, v in groups.items()}


def found(of: Medians, together: int = 1) -> dict[int, int]:
    answer = of.by(pl.col("group") // together)
    assert answer.schema == {"group": pl.Int64, "median": pl.Int64}
    rows = answer.rows()
    assert len(dict(rows)) == len(rows)
    return dict(rows)


@held
@given(several=batches, together=st.sampled_from([1, 2, 10]))
def test_medians_are_the_middle_of_the_sorted_values(
    monkeypatch: pytest.MonkeyPatch, place: Path, rows: int, several: list[Values], together: int
) -> None:
    monkeypatch.setattr(medians, "_HELD_ROWS", rows)
    of = filled(several)
    everything = [pair for values in several for pair in values]
    assert found(of, together) == by_hand(everything, together)
    assert found(of, together) == by_hand(everything, together), "asking changes nothing"
    of.close()
    assert list(place.iterdir()) == []


@held
@given(several=batches, other=batches, together=st.sampled_from([1, 2, 10]))
def test_medians_of_several_are_those_of_all_their_values(
    monkeypatch: pytest.MonkeyPatch, place: Path, rows: int, several: list[Values], other: list[Values], together: int
) -> None:
    monkeypatch.setattr(medians, "_HELD_ROWS", rows)
    parts = [filled(several), filled(other)]
    everything = [pair for batch in (several, other) for values in batch for pair in values]
    assert found(Medians.merged(parts), together) == by_hand(everything, together)
    assert found(parts[0]) == by_hand([pair for values in several for pair in values], 1), "they stay theirs"
    for part in parts:
        part.close()
    assert list(place.iterdir()) == []


@given(value=durations, count=st.integers(1, 9))
def test_the_median_of_one_value_many_times_is_that_value(value: int, count: int) -> None:
    assert found(filled([[(3, value)] * count])) == {3: value}


def test_buckets_never_fall_as_values_rise() -> None:
    """A larger value in a lower bucket would put the median elsewhere."""
    values = sorted({(1 << p) + d for p in range(63) for d in range(-70, 71) if 0 <= (1 << p) + d <= BIGGEST})
    buckets = pl.DataFrame({"value": values}).select(medians._bucket())["bucket"]
    assert buckets.is_sorted()


def test_values_beyond_what_is_held_go_to_files(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr(medians, "_HELD_ROWS", 2)
    of = filled([[(0, 1), (0, 2)], [(0, 3)]])
    assert [p for p in place.rglob("*") if p.is_file()]
    of.close()
    assert list(place.iterdir()) == []
