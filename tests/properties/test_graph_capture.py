"""When graph nodes were captured and stream captures were in progress, against plain walks over the rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import traces
from tracekit import BEGIN_CAPTURE_CALL, END_CAPTURE_CALL, MARLIN, TraceBuilder

from k25trace import Attribution, open_trace
from k25trace.graphcaptures import capture_moments
from k25trace.replays import capture_in_progress

SCHEMA = {
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "at_ns": pl.Int64,
    "node": pl.Int64,
    "original": pl.Int64,
}

Row = tuple[int | None, int, int, int | None, int | None]
Moment = tuple[int | None, int | None]

node_ids = st.integers(1, 6)


@st.composite
def creations(draw: st.DrawFn, *, cycles: bool = False) -> list[Row]:
    """Draw rows of node creations, no two at one instant; without ``cycles`` an original has a lower id."""
    one = st.tuples(
        st.integers(0, 1), st.integers(0, 2), node_ids, st.one_of(st.none(), st.integers(0, 6)), st.booleans()
    )
    rows: list[Row] = []
    for at, (process, thread, node, drawn, itself) in enumerate(draw(st.lists(one, max_size=14))):
        original = drawn if drawn is not None and (cycles or drawn < node) else None
        rows.append((process, thread, at, node, node if itself and original is None else original))
    return draw(st.permutations(rows))


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def moments(rows: list[Row]) -> dict[tuple[int, int], Moment]:
    """Return (thread, at_ns) by (process, node); fails where a node has two."""
    found = [((process, node), moment) for process, node, *moment in capture_moments(frame(rows)).rows()]
    assert len(dict(found)) == len(found)
    return {key: (moment[0], moment[1]) for key, moment in found}


def by_hand(rows: list[Row], process: int, node: int) -> Moment:
    """Follow the originals of a node to the last one; its first row is the moment, none if it has no row."""
    while True:
        mine = sorted((row for row in rows if row[0] == process and row[3] == node), key=lambda row: row[2])
        if not mine:
            return None, None
        originals = [row[4] for row in mine if row[4] is not None and row[4] != node]
        if not originals:
            return mine[0][1], mine[0][2]
        node = originals[0]


@given(rows=creations())
def test_a_node_was_captured_when_the_end_of_its_chain_of_originals_was_first_made(rows: list[Row]) -> None:
    keys = {(process, node) for process, _, _, node, _ in rows}
    assert moments(rows) == {key: by_hand(rows, *key) for key in keys}


@given(rows=creations(cycles=True))
def test_cycles_end_and_every_node_has_one_moment_of_its_process(rows: list[Row]) -> None:
    found = moments(rows)
    assert found.keys() == {(process, node) for process, _, _, node, _ in rows}
    made = {(process, (thread, at)) for process, thread, at, _, _ in rows}
    assert all(moment == (None, None) or (process, moment) in made for (process, _), moment in found.items())


@pytest.mark.parametrize("generations", [1, 2, 20])
def test_a_clone_of_clones_was_captured_when_the_first_was(generations: int) -> None:
    rows: list[Row] = [(0, 5, 3, 100, None)]
    rows += [(0, 6, 10 + i, 101 + i, 100 + i) for i in range(generations)]
    assert set(moments(rows).values()) == {(5, 3)}


def test_nodes_of_one_id_in_two_processes_are_two() -> None:
    rows: list[Row] = [(0, 0, 1, 7, None), (1, 1, 2, 7, None), (0, 0, 3, 8, 7), (1, 1, 4, 8, 7)]
    assert moments(rows) == {(0, 7): (0, 1), (1, 7): (1, 2), (0, 8): (0, 1), (1, 8): (1, 2)}


def test_rows_without_process_or_node_are_no_nodes() -> None:
    assert moments([(None, 0, 1, 7, None), (0, 0, 2, None, 7)]) == {}


# ---- stream captures

calls = st.lists(st.tuples(st.sampled_from(["begin", "end"]), st.integers(0, 1), st.booleans()), max_size=10)


@given(calls=calls, shuffle=st.integers(0, 3))
def test_the_capture_in_progress_is_the_last_one_begun_and_not_ended(
    tmp_path: Path, calls: list[tuple[str, int, bool]], shuffle: int
) -> None:
    t = TraceBuilder(shuffle=shuffle)
    t.kernel(MARLIN, 5, 5, launch=0)
    for i, (what, thread, failed) in enumerate(calls):
        name = BEGIN_CAPTURE_CALL if what == "begin" else END_CAPTURE_CALL
        t.api(name, 2 * i, 1, tid=1000 + thread, returned=int(failed))
    trace = open_trace(t.write(tmp_path / "trace.sqlite"))
    known = {trace.threads[n] & 0xFFFFFF: n for n in trace.launches["thread"].unique().to_list()}
    asked, expected = [], []
    for tid, number in known.items():
        for at in range(-1, 2 * len(calls) + 1):
            begun: list[int] = []
            for i, (what, thread, failed) in enumerate(calls):
                if 1000 + thread == tid and not failed and 2 * i <= at:
                    if what == "begin":
                        begun.append(2 * i)
                    elif begun:
                        begun.pop()
            asked.append((number, at))
            expected.append(begun[-1] if begun else None)
    instants = pl.DataFrame(asked, schema={"thread": pl.UInt32, "at_ns": pl.Int64}, orient="row")
    assert capture_in_progress(trace, instants).to_list() == expected
    assert capture_in_progress(trace, instants[::-1]).to_list() == expected[::-1]


# ---- kernels


@given(trace=traces())
def test_attribution_keeps_every_operation_once_and_in_its_place(tmp_path: Path, trace: TraceBuilder) -> None:
    report = open_trace(trace.write(tmp_path / "trace.sqlite"))
    attribution = Attribution(report)
    for attributed, read in ((attribution.kernels, report.kernels), (attribution.copies, report.copies)):
        assert attributed.select(read.columns).equals(read)


@given(rows=creations(cycles=True), replayed=st.lists(st.tuples(st.integers(0, 1), node_ids), min_size=1, max_size=8))
def test_no_kernel_is_multiplied_by_the_rows_of_its_node(
    tmp_path: Path, rows: list[Row], replayed: list[tuple[int, int]]
) -> None:
    t = TraceBuilder()
    pids = [1000, 2000]
    for pid in pids:
        t.process(pid)
        t.push_pop("capture", 0, 20, pid=pid)
    for process, _, at, node, original in rows:
        t.node(at, node or 0, original, pid=pids[process or 0])
    for i, (process, node) in enumerate(replayed):
        corr = t.graph_launch(30 + 10 * i, 4, pid=pids[process])
        for k in range(2):
            t.kernel(MARLIN, 35 + 10 * i + k, 1, pid=pids[process], corr=corr, node=node)
    report = open_trace(t.write(tmp_path / "trace.sqlite"))
    kernels = Attribution(report).kernels
    assert kernels.select(report.kernels.columns).equals(report.kernels)
    assert kernels.height == 2 * len(replayed)
