"""The oracle's own laws: what must hold of an answer for any trace, before it judges the product."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import faults
from oracles import attribution, covered, intersect, ns_of, subtract, union, wall
from strategies import intervals, questions, traces
from tracekit import TraceBuilder, classify_known


def document(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the oracle's answer in the form of the JSON, for the laws of that."""
    said = [
        {"code": c, "level": "warning", "message": c, "count": n, "unit": ""} for c, n in answer["warnings"].items()
    ]
    return {"schema": "k25trace.attribution/1", "reports": [], **answer, "warnings": said}


def answer(trace: TraceBuilder, folder: Path, **question: Any) -> dict[str, Any]:
    """Return the oracle's answer to a question about a trace."""
    return attribution(trace.write(folder / "trace.sqlite"), classify_known, **question)


@given(intervals(), intervals())
def test_union_and_intersection_add_up_to_both(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    measure = lambda x: sum(end - start for start, end in x)  # noqa: E731
    assert measure(union(a + b)) + measure(intersect(a, b)) == measure(union(a)) + measure(union(b))
    assert measure(subtract(a, b)) == measure(union(a)) - measure(intersect(a, b))


@given(intervals(), intervals(max_size=3))
def test_covered_counts_the_nanoseconds_inside_the_windows(
    a: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    assert covered(a, windows) == len(ns_of(a) & ns_of(windows))


@given(intervals(max_size=4), intervals(max_size=4), intervals(max_size=3), intervals(max_size=3))
def test_wall_gives_each_nanosecond_to_the_highest_level(
    compute: list[tuple[int, int]],
    comm: list[tuple[int, int]],
    opaque: list[tuple[int, int]],
    copies: list[tuple[int, int]],
) -> None:
    window = (0, 20)
    rows = wall(
        [window],
        [(a, b, ("cast", "norm")[i % 2]) for i, (a, b) in enumerate(compute)],
        opaque,
        [(a, b, ("exposed comm.allreduce", "exposed comm.other")[i % 2]) for i, (a, b) in enumerate(comm)],
        [(a, b, ("memcpy", "memset")[i % 2]) for i, (a, b) in enumerate(copies)],
    )
    levels = Counter()
    for t in range(*window):
        at = [(t, t + 1)]
        groups = {"compute": compute, "opaque": opaque, "comm": comm, "copies": copies}
        levels[next((n for n, g in groups.items() if intersect(g, at)), "idle")] += 1
    assert rows["cast"] + rows["norm"] == levels["compute"]
    assert rows["opaque graph"] == levels["opaque"]
    assert rows["exposed comm.allreduce"] + rows["exposed comm.other"] == levels["comm"]
    assert rows["memcpy"] + rows["memset"] == levels["copies"]
    assert rows["idle"] == levels["idle"]


@given(trace=traces(), question=questions())
def test_every_answer_obeys_the_laws_of_the_document(
    tmp_path: Path, trace: TraceBuilder, question: dict[str, Any]
) -> None:
    got = answer(trace, tmp_path, **question)
    assert faults(document(got)) == []


@given(trace=traces())
def test_the_default_window_counts_every_usable_kernel_whole(tmp_path: Path, trace: TraceBuilder) -> None:
    got = answer(trace, tmp_path)
    rows = trace.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    left_out = got["warnings"].get("unusable-times", 0)
    assert sum(g["kernel_count"] for g in got["gpus"]) == len(rows) - left_out
    usable = sorted((r["end"] - r["start"] for r in rows if r["end"] >= r["start"]), reverse=True)
    longest = usable[:0] if left_out else usable
    assert left_out or sum(g["kernel_ns"] for g in got["gpus"]) == sum(longest)


@given(trace=traces(unusable=False), seeds=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_answers_do_not_depend_on_the_order_of_rows(
    tmp_path: Path, trace: TraceBuilder, seeds: tuple[int, int]
) -> None:
    """Only ranges that are equal in all but their name are told apart by their row."""
    nvtx = trace.rows.get("NVTX_EVENTS", [])
    keys = [(r["globalTid"], r["start"], r["end"]) for r in nvtx]
    if len(set(keys)) != len(keys):
        return
    answers = []
    for seed in seeds:
        trace.shuffle = seed
        got = answer(trace, tmp_path)
        answers.append({part: canonical(got[part]) for part in ("gpus", "categories", "wall", "ranges", "kernels")})
    assert answers[0] == answers[1]


@given(trace=traces(), width=st.integers(1, 30))
def test_windows_side_by_side_share_out_the_kernel_time(tmp_path: Path, trace: TraceBuilder, width: int) -> None:
    path = trace.write(tmp_path / "trace.sqlite")
    whole = attribution(path, classify_known)
    start, end = whole["windows"][0]["start_ns"], whole["windows"][0]["end_ns"]
    if not 0 < end - start < 500:
        return
    cuts = [*range(start, end, width), end]
    parts = [attribution(path, classify_known, window=w) for w in oracles.pairwise(cuts)]
    for key in (
        "kernel_ns",
        "busy_ns",
        "communication_ns",
        "exposed_communication_ns",
        "nccl_ns",
        "window_ns",
    ):
        assert sum(g[key] for p in parts for g in p["gpus"]) == sum(g[key] for g in whole["gpus"]), key


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows in an order of their own."""
    return sorted(repr(sorted(r.items())) for r in rows)


def test_a_trace_without_kernels_is_an_abstention(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.memcpy(0, 10)
    with pytest.raises(oracles.NoAnswer):
        answer(trace, tmp_path)
