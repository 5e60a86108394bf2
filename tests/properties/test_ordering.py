"""Rows in time order, whatever the order of the chunks they come in."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k25trace import ordering
from k25trace.ordering import Order, in_time_order

ORDERS = ["sorted", "nearly sorted", "process after process", "shuffled"]

Chunks = list[pl.DataFrame]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make slabs tiny and temporary files visible."""
    monkeypatch.setattr(ordering, "SLAB_ROWS", 5)
    monkeypatch.setattr(ordering, "_SAMPLED", 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def arranged(starts: list[int], order: str, size: int, seed: int) -> Chunks:
    """Return rows (start_ns, number) in chunks of a size, in one of the orders that files have."""
    chance = random.Random(seed)
    rows = sorted(starts)
    if order == "nearly sorted":
        rows = [
            t for i in range(0, len(rows), size) for t in chance.sample(rows[i : i + size], len(rows[i : i + size]))
        ]
    elif order == "process after process":
        owner = [chance.randrange(3) for _ in rows]
        rows = [t for process in range(3) for t, p in zip(rows, owner, strict=True) if p == process]
    elif order == "shuffled":
        chance.shuffle(rows)
    frame = pl.DataFrame(
        {"start_ns": rows, "number": range(len(rows))}, schema={"start_ns": pl.Int64, "number": pl.Int64}
    )
    chunks = list(frame.iter_slices(size)) if frame.height else []
    if chance.random() < 0.5:
        chunks.insert(chance.randint(0, len(chunks)), frame.clear())
    return chunks


def seen(chunks: Chunks) -> Order:
    order = Order()
    for chunk in chunks:
        order.see(chunk)
    return order


starts = st.lists(st.one_of(st.integers(-20, 60), st.just(7), st.sampled_from([-(1 << 62), 1 << 62])), max_size=40)
sizes = st.integers(1, 12)
seeds = st.integers(0, 999)


@pytest.mark.parametrize("order", ORDERS)
@given(starts=starts, size=sizes, seed=seeds)
def test_every_row_comes_once_and_none_after_its_time(
    place: Path, order: str, starts: list[int], size: int, seed: int
) -> None:
    chunks = arranged(starts, order, size, seed)
    slabs = list(in_time_order(lambda: chunks, seen(chunks)))
    rows = [row for slab, _ in slabs for row in slab.rows()]
    assert sorted(rows) == sorted(row for chunk in chunks for row in chunk.rows())
    for i, (slab, until) in enumerate(slabs):
        assert slab.columns == ["start_ns", "number"]
        later = [t for rest, _ in slabs[i + 1 :] for t in rest["start_ns"].to_list()]
        assert (until is None) == (i == len(slabs) - 1)
        assert until is None or all(t >= until for t in later)
    instants = [until for _, until in slabs if until is not None]
    assert instants == sorted(instants)
    assert list(place.iterdir()) == []


@given(starts=starts, size=sizes)
def test_sorted_rows_are_passed_on_without_a_file(starts: list[int], size: int) -> None:
    chunks = arranged(starts, "sorted", size, 0)
    assert seen(chunks).nearly_sorted


@settings(max_examples=10)
@given(starts=st.lists(st.integers(0, 200), min_size=30, max_size=60, unique=True), seed=seeds)
def test_slabs_of_distinct_instants_stay_small(starts: list[int], seed: int) -> None:
    chunks = arranged(starts, "shuffled", 7, seed)
    order = seen(chunks)
    if not order.nearly_sorted:
        assert max(slab.height for slab, _ in in_time_order(lambda: chunks, order)) <= 3 * ordering.SLAB_ROWS


def backwards() -> Chunks:
    return arranged(list(range(40)), "sorted", 4, 1)[::-1]


def test_temporary_files_are_gone_when_the_reader_stops_early(place: Path) -> None:
    chunks = backwards()
    slabs = in_time_order(lambda: chunks, seen(chunks))
    next(slabs)
    assert list(place.iterdir()), "this order takes files"
    slabs.close()  # type: ignore[attr-defined]
    assert list(place.iterdir()) == []


def test_temporary_files_are_gone_when_the_source_fails(place: Path) -> None:
    chunks = backwards()

    def failing() -> Iterator[pl.DataFrame]:
        yield from chunks[:3]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(in_time_order(failing, seen(chunks)))
    assert list(place.iterdir()) == []
