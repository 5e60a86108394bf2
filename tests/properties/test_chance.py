"""Nothing that is shown depends on an order that the frames leave to chance."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.dataframe.group_by import GroupBy
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder, unknown

from k25trace.pages.make import analyses, asked, make_timeline
from k25trace.pages.report import html, write_markdown

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@contextmanager
def disorder(seed: int) -> Iterator[None]:
    """Groups, distinct rows and ties of a sort come in any order, as polars allows itself."""
    group, distinct, sort = GroupBy.agg, pl.DataFrame.unique, pl.DataFrame.sort

    def mixed(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sample(fraction=1, shuffle=True, seed=seed) if frame.width else frame

    def agg(self: Any, *args: Any, **named: Any) -> pl.DataFrame:
        found = group(self, *args, **named)
        return found if self.maintain_order else mixed(found)

    def unique(self: pl.DataFrame, *args: Any, maintain_order: bool = False, **named: Any) -> pl.DataFrame:
        found = distinct(self, *args, maintain_order=maintain_order, **named)
        return found if maintain_order else mixed(found)

    def sorted_(self: pl.DataFrame, *args: Any, maintain_order: bool = False, **named: Any) -> pl.DataFrame:
        return sort(self if maintain_order else mixed(self), *args, maintain_order=maintain_order, **named)

    GroupBy.agg, pl.DataFrame.unique, pl.DataFrame.sort = agg, unique, sorted_
    try:
        yield
    finally:
        GroupBy.agg, pl.DataFrame.unique, pl.DataFrame.sort = group, distinct, sort


def even() -> TraceBuilder:
    """Streams that are equally busy, kernels that begin and end together, threads with the same work."""
    trace = TraceBuilder()
    for stream in range(1, 12):
        trace.kernel(MARLIN, 1_000, 2_000, launch=100 + stream, stream=stream)
        trace.kernel(CAST, 1_000, 2_000, launch=200 + stream, stream=stream)
        trace.kernel(ALL_REDUCE, 4_000, 500, launch=300 + stream, stream=stream)
        trace.kernel(unknown(f"k{stream}"), 5_000, 300, launch=400 + stream, stream=stream)
    for _ in range(3):
        trace.memcpy(5_500, 300, launch=500)
    return trace


@cache
def small(folder: Path) -> Path:
    return even().write(folder / "even.sqlite")


def timeline(paths: list[Path]) -> str:
    return make_timeline(paths)


def report(paths: list[Path]) -> str:
    found = analyses(paths)
    text = io.StringIO()
    write_markdown(found, asked(), text)
    return html(found, asked()) + text.getvalue()


@pytest.mark.parametrize("make", [timeline, report])
@pytest.mark.parametrize("names", [("even",), ("h200x2_decode_graph",), ("h200x2_vllm_graph", "h200x1_toy_graph")])
def test_pages_are_the_same_whatever_the_order_of_groups_and_ties(
    tmp_path: Path, make: Callable[[list[Path]], str], names: tuple[str, ...]
) -> None:
    paths = [small(tmp_path) if name == "even" else GOLDEN / f"{name}.sqlite" for name in names]
    wanted = make(paths)
    for seed in range(3):
        with disorder(seed):
            assert make(paths) == wanted
