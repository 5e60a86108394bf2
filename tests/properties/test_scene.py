"""What a timeline shows adds up to what `attribute` says, for any trace and window."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import traces

from k25trace import attribute, open_trace
from k25trace.attribution import Attribution
from k25trace.classify import RuleSet, load_rules
from k25trace.collectives import match_collectives
from k25trace.errors import CannotAnswer, UsageError
from k25trace.examined import examine
from k25trace.gaps import find_gaps
from k25trace.levels import levels
from k25trace.pages.marks import marks
from k25trace.pages.why import why
from k25trace.palette import PARTS
from k25trace.results import ALL_GPUS, Analysis
from k25trace.scene import GAPS, HOST, ON_GPU, STEPS, STREAM, WAITS, Scene, scene
from k25trace.selection import Bounds
from k25trace.steps import find_steps

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@cache
def rules() -> RuleSet:
    return load_rules()


def both(paths: list[Path], bounds: Bounds | None = None) -> tuple[Scene, Analysis] | None:
    opened = [open_trace(path, number) for number, path in enumerate(paths)]
    try:
        analysis = attribute(opened, rules=rules(), window=bounds)
    except CannotAnswer:
        return None
    return scene([t for t in opened if t.survey.height], rules(), bounds=bounds), analysis


def check(shown: Scene, analysis: Analysis) -> None:
    """Assert the laws of a scene."""
    streams = shown.lanes.filter(pl.col("kind") == "stream").select("lane", "gpu")
    wanted = {
        (gpu, category): (ns, count)
        for gpu, category, ns, count in analysis.categories.filter(pl.col("gpu") != ALL_GPUS)
        .select("gpu", "category", "kernel_ns", "kernel_count")
        .iter_rows()
    }
    for level in levels(shown.bars, 3):
        summed = level.join(streams, on="lane").group_by("gpu", "part").agg(pl.col("ns").sum(), pl.col("count").sum())
        assert {(gpu, PARTS[part]): (ns, count) for gpu, part, ns, count in summed.iter_rows()} == wanted
    assert shown.bars["lane"].null_count() == 0
    # The outermost ranges on the GPU hold the kernels that have a path, each once.
    outermost = shown.items.filter((pl.col("kind") == ON_GPU) & (pl.col("row") == 1))
    assert analysis.ranges is not None
    owned = analysis.ranges.filter((pl.col("kind") == "pushpop") & pl.col("path").is_not_null())
    assert outermost["kernel_ns"].sum() == owned["kernel_ns"].sum()
    assert outermost["kernel_count"].sum() == owned["kernel_count"].sum()
    inside = (shown.items["start_ns"] >= shown.start_ns) & (shown.items["end_ns"] <= shown.end_ns)
    assert inside.all()


@given(st.lists(traces(), min_size=1, max_size=2), st.tuples(st.integers(0, 60), st.integers(1, 80)) | st.none())
@settings(max_examples=40)
def test_bars_of_the_streams_add_up_to_the_kernel_time(builders: list[Any], cut: tuple[int, int] | None):
    with tempfile.TemporaryDirectory() as folder:
        paths = [b.write(Path(folder) / f"{i}.sqlite") for i, b in enumerate(builders)]
        found = both(paths, None if cut is None else Bounds(cut[0], cut[0] + cut[1]))
    if found:
        check(*found)


def test_bars_of_real_traces_add_up():
    for name in ("h200x2_vllm_graph", "h200x2_decode_graph", "h200x1_toy_graph", "h200x2_vllm_lossy"):
        found = both([GOLDEN / f"{name}.sqlite"])
        assert found is not None
        check(*found)


def test_windows_and_several_reports_of_real_traces_add_up():
    decode, vllm = GOLDEN / "h200x2_decode_graph.sqlite", GOLDEN / "h200x2_vllm_graph.sqlite"
    for found in (both([decode], Bounds(60_000_000, 90_000_123)), both([vllm, decode])):
        assert found is not None
        check(*found)


def test_ranges_captured_in_a_graph_are_projected_for_every_replay():
    found = both([GOLDEN / "h200x2_decode_graph.sqlite"])
    assert found is not None
    shown, analysis = found
    projected = shown.items.filter(pl.col("kind") == ON_GPU)
    names = pl.Series(shown.texts).gather(projected["text"])
    replayed = projected.filter((names == "graph_step") & (projected["gpu"] == 0))
    assert replayed.height == 10
    layers = projected.filter((names == "layer0") & (projected["gpu"] == 0))
    inside = layers.filter(pl.col("start_ns") >= replayed["start_ns"].min())
    assert inside.height == 10  # one a replay
    host = shown.items.filter((pl.col("kind") == HOST) & (pl.col("gpu") == 0))
    assert "graph_step" in set(pl.Series(shown.texts).gather(host["text"]))
    assert shown.items.filter(pl.col("kind") == STREAM).height == analysis.gpus["kernel_count"].sum()


@pytest.mark.parametrize("bounds", [None, Bounds(60_000_000, 190_000_000)])
def test_answers_that_share_an_attribution_are_those_asked_for_one_by_one(bounds):
    report = GOLDEN / "h200x2_vllm_graph.sqlite"
    attribution = Attribution(open_trace(report))
    answers = why([attribution], rules(), bounds=bounds)
    steps = find_steps(report, window=bounds, rules=rules())
    collectives = match_collectives(report, window=bounds, rules=rules())
    gaps = find_gaps(report, window=bounds, rules=rules())
    for found, alone, frames in (
        (answers.steps, steps, ("steps", "categories", "summary", "outside")),
        (answers.collectives, collectives, ("collectives", "ranks", "sites", "unmatched")),
        (answers.gaps, gaps, ("gaps", "summary", "gpus")),
    ):
        for name in frames:
            assert getattr(found, name).equals(getattr(alone, name)), name
        assert found.warnings == alone.warnings
    shared, own = scene([attribution], rules(), bounds=bounds), scene([open_trace(report)], rules(), bounds=bounds)
    numbered = ("who", "process")  # processes count from 0 in the order in which the tables were read
    assert shared.items.drop(numbered).equals(own.items.drop(numbered))
    assert shared.bars.equals(own.bars)


def test_a_report_examined_before_is_still_refused_twice():
    [examined] = examine(GOLDEN / "h200x2_decode_graph.sqlite")
    with pytest.raises(UsageError, match="given twice"):
        find_gaps([examined, examined])


def test_steps_waits_and_gaps_are_those_of_their_verbs():
    report = GOLDEN / "h200x2_decode_graph.sqlite"
    trace = open_trace(report)
    answers = why([Attribution(trace)], rules())
    drawn, missing = marks(answers)
    assert missing == []
    shown = scene([trace], rules(), marks=drawn)
    steps, collectives, gaps = answers.steps, answers.collectives, answers.gaps
    assert not isinstance(steps, str)
    assert not isinstance(collectives, str)
    assert not isinstance(gaps, str)
    time = (pl.col("end_ns") - pl.col("start_ns")).sum()
    sums = dict(shown.items.group_by("kind").agg(time).iter_rows())
    assert sums[STEPS] == steps.steps["span_ns"].sum()
    assert sums[WAITS] == collectives.ranks["wait_ns"].sum()
    assert sums[GAPS] == gaps.gaps["gap_ns"].sum()
    causes = pl.Series(shown.texts).gather(shown.items.filter(pl.col("kind") == GAPS)["text"])
    assert set(causes) == {f"gap: {cause}" for cause in gaps.gaps["cause"]}
