"""Figures about some of the GPUs are those of their kernels alone."""

from __future__ import annotations

import statistics
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import traces

from k25trace.analysis import analysed
from k25trace.attribution import Attribution
from k25trace.classify import RuleSet, load_rules
from k25trace.errors import CannotAnswer
from k25trace.results import ALL_GPUS, Analysis
from k25trace.tally import Classes
from k25trace.trace import Trace, open_traces


@cache
def rules() -> RuleSet:
    return load_rules()


def both(paths: list[Path], pick: int) -> tuple[list[Trace], Analysis, Analysis, list[str]] | None:
    """Return the analysis of all GPUs, and that of every second one."""

    def analysis(gpus: list[str] | None) -> tuple[list[Trace], Analysis]:
        opened = open_traces(paths)
        for trace in opened:
            trace.load()
        return opened, analysed([Attribution(trace) for trace in opened], None, rules(), gpus=gpus)

    try:
        opened, every = analysis(None)
    except CannotAnswer:
        return None
    chosen = every.gpus["gpu"].to_list()[pick::2]
    return (opened, every, analysis(chosen)[1], chosen) if chosen else None


def durations(opened: list[Trace], chosen: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for trace in opened:
        classes = Classes(rules(), trace)
        for chunk in trace.kernel_chunks():
            for gpu, name, start, end in chunk.select("gpu", "name", "start_ns", "end_ns").iter_rows():
                if trace.gpus[gpu].key in chosen:
                    category = classes.match(name).category
                    found.setdefault(category, []).append(end - start)
    return found


@given(st.lists(traces(), min_size=1, max_size=2), st.integers(0, 1))
@settings(max_examples=25)
def test_figures_of_some_gpus(builders: list[Any], pick: int):
    with tempfile.TemporaryDirectory() as folder:
        found = both([b.write(Path(folder) / f"{i}.sqlite") for i, b in enumerate(builders)], pick)
        if found is None:
            return
        opened, every, some, chosen = found
        truth = durations(opened, chosen)
    assert some.gpus["gpu"].to_list() == chosen
    overall = some.categories.filter(pl.col("gpu") == ALL_GPUS)
    told = {
        category: figures
        for category, *figures in overall.select(
            "category", "kernel_count", "kernel_ns", "median_ns", "max_ns"
        ).iter_rows()
    }
    assert told == {
        category: [len(ns), sum(ns), int(statistics.median(ns) // 1), max(ns)] for category, ns in truth.items()
    }
    assert set(some.windows["report"]) == {int(gpu.partition(":")[0]) for gpu in chosen}
    per_gpu = pl.col("gpu").is_in(chosen)
    for name in ("gpus", "processes", "families", "wall", "ranges", "inclusive"):
        mine, theirs = getattr(some, name), getattr(every, name).filter(per_gpu)
        whole = [c for c in mine.columns if not c.endswith("_share")]
        assert mine.select(whole).rows() == theirs.select(whole).rows(), name
