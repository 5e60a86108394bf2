"""One report, one answer: over runs, over the order of rows, and whether its ranges are asked for or not."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import traces
from tracekit import NVTX, TraceBuilder

from k25trace import attribute, open_trace
from k25trace.classify import RuleSet, load_rules
from k25trace.errors import CannotAnswer
from k25trace.report import json_

SAME_WITHOUT_RANGES = ("reports", "windows", "gpus", "categories", "families", "wall", "kernels")


@cache
def rules() -> RuleSet:
    return load_rules()


def document(path: Path, **question: Any) -> str:
    """Return the JSON, or why there is none."""
    try:
        analysis = attribute(open_trace(path), rules=rules(), **question)
    except CannotAnswer as error:
        return f"{error}"
    out = io.StringIO()
    json_.render(json_.build(analysis), out)
    return out.getvalue()


def rows_alone_order_ranges(trace: TraceBuilder) -> bool:
    """Whether two ranges of a thread have the same bounds, so that the one of the earlier row is the outer one."""
    keys = [(r["globalTid"], r["start"], r["end"]) for r in trace.rows.get(NVTX, [])]
    return len(set(keys)) < len(keys)


@given(trace=traces(), window=st.sampled_from([None, "10:60"]))
def test_one_report_gives_one_document(tmp_path: Path, trace: TraceBuilder, window: str | None) -> None:
    path = trace.write(tmp_path / "trace.sqlite")
    assert document(path, window=window) == document(path, window=window)


@given(trace=traces(), seed=st.integers(0, 99))
def test_the_order_of_rows_in_a_report_means_nothing(tmp_path: Path, trace: TraceBuilder, seed: int) -> None:
    assume(not rows_alone_order_ranges(trace))
    path = tmp_path / "trace.sqlite"
    trace.shuffle = None
    as_written = document(trace.write(path))
    trace.shuffle = seed
    assert document(trace.write(path)) == as_written


@given(trace=traces(), window=st.sampled_from([None, None, "10:60"]))
def test_figures_without_ranges_are_those_with_ranges(tmp_path: Path, trace: TraceBuilder, window: str | None) -> None:
    path = trace.write(tmp_path / "trace.sqlite")
    try:
        whole = attribute(open_trace(path), rules=rules(), window=window)
    except CannotAnswer:
        with pytest.raises(CannotAnswer):
            attribute(open_trace(path), rules=rules(), window=window, ranges=False)
        return
    plain = attribute(open_trace(path), rules=rules(), window=window, ranges=False)
    assert plain.ranges is None
    for part in SAME_WITHOUT_RANGES:
        assert getattr(plain, part).equals(getattr(whole, part)), part


@settings(max_examples=2)
@given(trace=traces())
def test_processes_of_any_hash_seed_and_thread_count_print_the_same(
    run_cli: Callable[..., Any], tmp_path: Path, trace: TraceBuilder
) -> None:
    path = trace.write(tmp_path / "trace.sqlite")
    printed = {
        run_cli("attribute", path, "--format", "json", env={"PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads})
        for seed, threads in (("0", "1"), ("12345", "4"))
    }
    assert len(printed) == 1
    assert printed.pop().code in (0, 3)
