"""Pages and Perfetto traces of any trace: they are made, and what they hold is what the analysis says."""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import traces
from tracekit import MARLIN, TraceBuilder

from k25trace import attribute, open_trace
from k25trace.classify import RuleSet, load_rules
from k25trace.errors import CannotAnswer
from k25trace.pages.make import analyses, asked
from k25trace.pages.report import html, write_markdown
from k25trace.perfetto.events import BUSY, EXPOSED, Events
from k25trace.selection import Bounds


@cache
def rules() -> RuleSet:
    return load_rules()


def check_page(report: Path, window: str | None) -> None:
    try:
        found = analyses([report], window=window)
    except CannotAnswer:
        return
    for chapter in html(found, asked()).split("<h2>")[1:]:
        assert ("class=figure" in chapter) == ("the figures are in the table below" in chapter)
        assert "class=figure" not in chapter or "<table>" in chapter
    write_markdown(found, asked(), io.StringIO())


@given(traces(), st.tuples(st.integers(0, 60), st.integers(1, 80)) | st.none())
@settings(max_examples=25)
def test_a_report_of_any_trace_has_a_table_for_each_figure(builder: Any, cut: tuple[int, int] | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_page(builder.write(Path(folder) / "in.sqlite"), f"{cut[0]}:{sum(cut)}" if cut else None)


def test_a_report_of_kernels_that_last_no_time(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.kernel(MARLIN, 1_000, 0, launch=10)
    check_page(trace.write(tmp_path / "in.sqlite"), None)


@given(traces(), st.tuples(st.integers(0, 60), st.integers(1, 80)) | st.none())
@settings(max_examples=60)
def test_slices_never_end_before_they_begin_and_counters_are_those_of_attribute(
    builder: Any, cut: tuple[int, int] | None
) -> None:
    bounds = Bounds(cut[0], sum(cut)) if cut else None
    with tempfile.TemporaryDirectory() as folder:
        report = builder.write(Path(folder) / "in.sqlite")
        trace = open_trace(report)
        trace.load()
        if not trace.survey.height:
            return
        try:
            analysis = attribute(report, window=bounds, rules=rules())
        except CannotAnswer:
            return
        events = Events(trace, rules(), bounds)
        for _, steps in events.steps():
            instants = [at for at, _ in steps]
            assert instants == sorted(instants)
            assert sum(1 if what else -1 for _, what in steps) == 0
        tracks = {track.number: track for track in events.tracks}
        sums: Counter[tuple[str, str]] = Counter()
        for number, at, value in events.counters():
            track = tracks[number]
            gpu = tracks[track.parent or 0].name.split()[1]
            sums[gpu, track.name] += -at if value else at
        for gpu, *wanted in analysis.gpus.select("gpu", "busy_ns", "exposed_communication_ns").iter_rows():
            assert [sums[gpu, BUSY], sums[gpu, EXPOSED]] == wanted
