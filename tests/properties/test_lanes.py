"""What overlaps on a row of a timeline lies side by side, on as few lanes as it takes; waits and ranges have theirs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracekit import ALL_REDUCE, CAST, MARLIN, RMS_NORM, TraceBuilder, classify_known

from k25trace import open_trace
from k25trace.attribution import Attribution
from k25trace.classify import load_rules
from k25trace.figures.timeline import overview
from k25trace.pages.marks import marks
from k25trace.pages.why import why
from k25trace.palette import PARTS, STEP
from k25trace.scene import HOST, MARK_SCHEMA, START_END, STEPS, WAITS, Scene, scene
from k25trace.scene.lanes import MOST_AT_ONCE, sublanes
from k25trace.units import format_instant

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 12), st.booleans()), max_size=40)


def lies_over(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@given(ROWS, st.integers(1, 8))
def test_lanes_of_a_row_do_not_overlap_and_are_as_few_as_possible(rows, most):
    frame = pl.DataFrame(
        [(at, start, start + length) for at, start, length, _ in rows],
        schema={"at": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    spread = pl.Series([spread for *_, spread in rows], dtype=pl.Boolean)
    found, crowded = sublanes(frame, spread, most)
    asked = [(*row, lane) for row, lane, s in zip(frame.rows(), found.to_list(), spread.to_list(), strict=True) if s]
    assert all(lane == 0 for lane, s in zip(found.to_list(), spread.to_list(), strict=True) if not s)
    assert all(lane < most for *_, lane in asked)
    at_once = 0
    for row in {at for at, *_ in asked}:
        mine = [(start, end) for at, start, end, _ in asked if at == row]
        # Of intervals that run at an instant, none is empty.
        at_once = max([at_once, *(sum(a <= t < b for a, b in mine) for t, _ in mine)])
    if not crowded:
        for i, (at, start, end, lane) in enumerate(asked):
            others = [(s, e) for a, s, e, n in asked[i + 1 :] if (a, n) == (at, lane)]
            assert not any(lies_over((start, end), other) for other in others)
        if all(start < end for _, start, end, _ in asked):
            assert max([-1, *(lane for *_, lane in asked)]) + 1 == at_once or not asked
    assert not (crowded and at_once < most)


def shown(trace: TraceBuilder, folder: Path) -> Scene:
    return scene([open_trace(trace.write(folder / "t.sqlite"))], load_rules())


def lanes_of(found: Scene) -> list[tuple[str, bool, list[str]]]:
    texts = found.bars.with_columns(found.items["text"].gather(found.bars["item"]).alias("text"))
    names = {n: [found.texts[t] for t in texts.filter(pl.col("lane") == n)["text"]] for n in found.lanes["lane"]}
    columns = found.lanes.select("label", "further", "lane").iter_rows()
    return [(label, further, names[lane]) for label, further, lane in columns]


def test_kernels_of_a_stream_that_overlap_lie_side_by_side(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.kernel(MARLIN, 1_000, 1_000, launch=10)
    t.kernel(CAST, 1_900, 1_000, launch=20)  # begins before the one before it ends
    t.kernel(MARLIN, 2_900, 1_000, launch=30)
    t.kernel(ALL_REDUCE, 5_000, 1_000, launch=40)
    t.kernel(ALL_REDUCE, 5_500, 1_000, launch=50, stream=9)
    marlin, cast, reduce = (kernel.demangled for kernel in (MARLIN, CAST, ALL_REDUCE))
    assert lanes_of(shown(t, tmp_path)) == [
        ("communication", False, [reduce]),
        ("communication", True, [reduce]),
        ("stream 7", False, [marlin, marlin, reduce]),
        ("stream 7", True, [cast]),
        ("stream 9", False, [reduce]),
    ]


def test_more_at_once_than_there_are_lanes_is_said(tmp_path: Path) -> None:
    t = TraceBuilder()
    for i in range(MOST_AT_ONCE + 1):
        t.kernel(MARLIN, 1_000 + i, 5_000, launch=10 + i)
    found = shown(t, tmp_path)
    assert found.lanes["label"].to_list() == ["stream 7"] * MOST_AT_ONCE
    assert found.bars["count"].sum() == MOST_AT_ONCE + 1
    assert any(note.startswith(f"more than {MOST_AT_ONCE} ") for note in found.notes)


def test_start_end_ranges_are_drawn_with_what_was_launched_inside(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.start_end("request a", 0, 5_000)
    t.start_end("request b", 100, None)  # never ended: to the end of the window
    t.start_end("before the window", 0, 900)
    t.kernel(MARLIN, 1_000, 500, launch=50)
    t.kernel(CAST, 2_000, 300, launch=200)
    t.memcpy(2_500, 100, launch=300)
    t.kernel(CAST, 6_000, 1_000, launch=5_000)  # launched as a ends: outside
    found = shown(t, tmp_path)
    ranges = found.items.filter(pl.col("kind") == START_END).sort("text")
    told = [
        (found.texts[text], *rest)
        for text, *rest in ranges.select("text", "start_ns", "end_ns", "kernel_count", "kernel_ns").iter_rows()
    ]
    assert sorted(told) == [("request a", 1_000, 5_000, 3, 800), ("request b", 1_000, 7_000, 3, 1_300)]
    assert found.lanes.filter(pl.col("kind") == "start/end ranges")["further"].to_list() == [False, True]


def test_waits_of_several_reports_are_drawn_in_the_clock_of_each(tmp_path: Path) -> None:
    """Each rank in a report of its own, the second's clock 5,000 ns behind; the first waits 30 ns each time."""
    paths = []
    for rank, behind in enumerate((0, 5_000)):
        t = TraceBuilder()
        pid = t.process(1000 + rank)
        for i in range(5):
            at = 100_000 * (i + 1) - behind
            t.push_pop("step", at, at + 60, pid=pid)
            t.kernel(RMS_NORM, at + 40, 3, pid=pid, launch=at + 5)
            begins = at + 100 + (30 if rank == i % 2 else 0)  # in turn, one is late and the other waits
            t.kernel(ALL_REDUCE, begins, at + 200 - begins, pid=pid, launch=at + 20)
        paths.append(t.write(tmp_path / f"rank{rank}.sqlite"))
    opened = [open_trace(path, number) for number, path in enumerate(paths)]
    for trace in opened:
        trace.load()
    attributions = [Attribution(trace) for trace in opened]
    drawn, missing = marks(why(attributions, load_rules()))
    assert missing == []
    found = scene(attributions, load_rules(), marks=drawn)
    waits = found.items.filter(pl.col("kind") == WAITS).sort("report", "start_ns")
    # Each report's window begins at its first kernel, 40 ns after its first step does.
    assert waits.select("report", "start_ns", "end_ns").rows() == [
        *((0, 100_000 * i + 60, 100_000 * i + 90) for i in (1, 3)),
        *((1, 100_000 * i + 60, 100_000 * i + 90) for i in (0, 2, 4)),
    ]


@pytest.mark.parametrize("origin", [0, 1 << 53, 1 << 60])
def test_a_scene_from_zero_is_the_same_at_any_clock(tmp_path: Path, origin: int) -> None:
    t = TraceBuilder()
    for i in range(20):
        t.kernel(MARLIN if i % 3 else ALL_REDUCE, origin + 1_000 + i * 1_000, 701, launch=origin + 10 + i)
    found = shown(t, tmp_path)
    moved = found.from_zero()
    assert (moved.start_ns, moved.end_ns) == (0, 19_701)
    assert moved.shifts == {0: origin + 1_000}
    for before, after in ((found.items, moved.items), (found.bars, moved.bars)):
        assert after["start_ns"].to_list() == [at - origin - 1_000 for at in before["start_ns"]]
        assert after.drop("start_ns", "end_ns").equals(before.drop("start_ns", "end_ns"))


@given(st.integers(-(1 << 62), 1 << 62), st.integers(1, 10**10))
def test_instants_have_the_digits_that_their_resolution_calls_for(ns: int, resolution: int) -> None:
    from decimal import Decimal

    number, unit = format_instant(ns, resolution).split(" ")
    scale = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}[unit]
    said = Decimal(number.replace(",", "")) * scale
    assert abs(said - ns) <= min(resolution, scale) / Decimal(2)
    digits = len(number.partition(".")[2])
    assert digits == 0 or scale > resolution * 10 ** (digits - 1)  # and no more


def test_steps_that_overlap_lie_side_by_side(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.kernel(MARLIN, 1_000, 9_000, launch=10)
    rows = [
        ("0:0", STEPS, start, end, PARTS.index(STEP), "step", "") for start, end in ((1_000, 5_000), (4_000, 9_000))
    ]
    steps = pl.DataFrame(rows, schema=MARK_SCHEMA, orient="row")
    found = scene([open_trace(t.write(tmp_path / "t.sqlite"))], load_rules(), marks=steps)
    assert lanes_of(found)[:2] == [("steps", False, ["step"]), ("steps", True, ["step"])]


def test_host_ranges_that_launched_nothing_are_drawn(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.push_pop("outer", 0, 9_000)
    t.push_pop("idle", 2_000, 8_000)
    t.push_pop("deeper", 3_000, 4_000)
    t.kernel(MARLIN, 1_000, 8_500, launch=10)
    t.kernel(CAST, 1_000, 8_500, launch=20, device=1)
    t.push_pop("elsewhere", 0, 9_000, tid=77)  # on a thread that launched nothing
    found = shown(t, tmp_path)
    host = found.items.filter(pl.col("kind") == HOST)
    told = [
        (gpu, row, found.texts[text], count, ns)
        for gpu, row, text, count, ns in host.select("gpu", "row", "text", "kernel_count", "kernel_ns").iter_rows()
    ]
    assert sorted(told) == [
        (gpu, row, name, launched, launched * 8_500)
        for gpu in (0, 1)
        for row, name, launched in ((1, "outer", 1), (2, "idle", 0), (3, "deeper", 0))
    ]


def test_the_overview_is_never_higher_than_a_busy_gpu(tmp_path: Path) -> None:
    t = TraceBuilder()
    for stream in (7, 8, 9):
        t.kernel(MARLIN, 1_000, 10_000, launch=stream, stream=stream)
    t.kernel(CAST, 1_000, 10_000, launch=20, stream=10)
    t.kernel(CAST, 11_000, 10_000, launch=30, stream=10)
    t.kernel(CAST, 1_000, 20_000, launch=40, device=1)
    t.kernel(MARLIN, 21_000, 10_000, launch=50, device=1)
    traces = overview(shown(t, tmp_path)).to_dict()["data"]
    parts = {trace["name"]: list(trace["y"]) for trace in traces}
    marlin, cast = parts["gemm.marlin"], parts[classify_known(CAST.demangled)[0]]
    slots = len(cast)
    # Of GPU 0 three quarters and a quarter, then all and none; GPU 1 all of one.
    for at, expected in ((slots // 6, (0.375, 0.625)), (slots // 2, (0, 1)), (5 * slots // 6, (0.5, 0))):
        assert (marlin[at], cast[at]) == pytest.approx(expected, abs=0.001)
    assert all(a + b <= 1.001 for a, b in zip(marlin, cast, strict=True))
