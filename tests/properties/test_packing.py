"""`k25trace.packing`: numbers stand for rows, one to one and in their order, whether or not they fit 63 bits."""

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from k25trace.packing import Packing
from k25trace.tally import LANE_BITS, lane, unpacked

WIDE = st.integers(-(1 << 63), (1 << 63) - 1)
NARROW = st.integers(-3, 3)
VALUES = st.one_of(NARROW, WIDE, st.none())
ROWS = st.lists(st.tuples(VALUES, st.one_of(NARROW, st.none()), st.integers(0, 255)), max_size=30)
SCHEMA = {"a": pl.Int64, "b": pl.Int32, "c": pl.UInt8}
COLUMNS = list(SCHEMA)


def frame(rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def order(row):
    return [(value is not None, value or 0) for value in row]


@given(ROWS, ROWS)
@example([(-(1 << 63), 0, 0)], [((1 << 63) - 1, 0, 0)])
@example([(None, None, 0)], [])
def test_rows_of_several_frames_have_one_number_each_in_the_order_of_the_rows(first, second):
    packing = Packing.of([frame(first), frame(second)], COLUMNS)
    numbers = [*packing.pack(frame(first)), *packing.pack(frame(second))]
    rows = [*first, *second]
    assert all(0 <= number < packing.size for number in numbers)
    ranked = {row: rank for rank, row in enumerate(sorted(set(rows), key=order))}
    among = {number: rank for rank, number in enumerate(sorted(set(numbers)))}
    assert [among[number] for number in numbers] == [ranked[row] for row in rows]


@given(ROWS)
def test_numbers_give_their_rows_back(rows):
    packing = Packing.of([frame(rows)], COLUMNS)
    assert packing.unpack(packing.pack(frame(rows))).rows() == rows
    assert packing.unpack(packing.pack(frame(rows))).schema == pl.Schema(SCHEMA)


@given(ROWS)
def test_a_short_table_has_each_row_where_its_index_says(rows):
    index, table = Packing.of([frame(rows)], COLUMNS).numbered(frame(rows))
    assert table[index].rows() == rows
    assert table.rows() == sorted(table.rows(), key=order)


@pytest.mark.parametrize("values", [["b", None, "a", "b"], [0.5, 1.5, None, 0.5]])
def test_columns_of_other_types_are_packed_too(values):
    packing = Packing.of([pl.DataFrame({"a": values})], ["a"])
    numbers = packing.pack(pl.DataFrame({"a": values}))
    assert packing.unpack(numbers)["a"].to_list() == values
    assert numbers[0] == numbers[3]
    assert numbers.n_unique() == 3


LANE_VALUES = st.integers(0, (1 << LANE_BITS) - 1)


@given(st.lists(st.tuples(LANE_VALUES, LANE_VALUES, LANE_VALUES), min_size=1, max_size=20))
@example([((1 << LANE_BITS) - 1,) * 3, (70_000, 65_536, 20)])
def test_lanes_give_their_columns_back(rows):
    columns = ["gpu", "process", "category"]
    given = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.UInt32), orient="row")
    lanes = given.select(lane(*columns))
    assert lanes["lane"].dtype == pl.Int64
    assert lanes["lane"].min() >= 0
    assert lanes.select(unpacked("lane", *columns)).equals(given)
