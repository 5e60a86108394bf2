"""What a report cannot say by itself must be said beside the figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from casekit import Case, Want, check_oracle, check_product, needs_product, params
from tracekit import CAST, LAUNCH_CALL, MARLIN, TraceBuilder

MS = 10**6
QUIET = ("opaque-graphs", "kernels-without-launch", "launches-without-kernels", "ranges-without-end",
         "incomplete-capture", "capture-ranges-missing", "unusable-times", "dropped-events", "diagnostics",
         "schema-newer", "stream-overlap", "nvtx-not-recorded")  # fmt: skip


def whole(_: Path) -> TraceBuilder:
    """A good report says nothing of the kind."""
    t = TraceBuilder()
    t.process(1000)
    t.duration(100 * MS)
    t.push_pop("step", 0, 100)
    t.kernel(MARLIN, 200, 100, launch=50)
    return t


def diagnostics(*texts: tuple[str, int]) -> Callable[[Path], TraceBuilder]:
    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder(schema="3.20.0")
        for text, severity in texts:
            t.diagnostic(text, severity)
        t.kernel(MARLIN, 0, 600)
        t.kernel(CAST, 700, 400)
        return t

    return build


def launches(schema: str = "3.7.2") -> Callable[[Path], TraceBuilder]:
    """Two launches are lost; the others are captured, failed, host functions, or too late."""

    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder(schema=schema)
        t.duration(100 * MS)
        t.kernel(MARLIN, 200, 100, launch=50)
        t.api(LAUNCH_CALL, 1000)
        t.api("cuLaunchKernelEx", 2000)
        t.api(LAUNCH_CALL, 3000, returned=700)
        t.api("cudaLaunchHostFunc_v10000", 4000)
        t.capture(5000, 6000)
        t.api(LAUNCH_CALL, 5500)
        t.api(LAUNCH_CALL, 100 * MS - MS // 2)
        t.api("cudaMemcpyAsync_v3020", 7000)
        return t

    return build


def capture_on_another_thread(_: Path) -> TraceBuilder:
    """A capture on one thread does not explain a lost launch on another."""
    t = TraceBuilder()
    t.duration(100 * MS)
    t.kernel(MARLIN, 200, 100, launch=50)
    t.capture(5000, 6000, tid=1001)
    t.api(LAUNCH_CALL, 5500)
    t.api(LAUNCH_CALL, 5500, tid=1001)
    return t


def leaves(count: int, with_calls: int) -> Callable[[Path], TraceBuilder]:
    """Innermost ranges, of which some hold the launch of a kernel; each pair has a range around it."""

    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder()
        t.process(1000)
        for i in range(count):
            at = 1000 * i
            if i % 2 == 0:
                t.push_pop("step", at, at + 1900)
            t.push_pop("layer", at + 10, at + 500)
            if i < with_calls:
                t.kernel(MARLIN, at + 100, 50, launch=at + 20)
        return t

    return build


def overlapping_stream(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 100, stream=7)
    t.kernel(CAST, 90, 100, stream=7)
    return t


def no_ranges(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 100, launch=0)
    return t


CASES = [
    Case("a_whole_report_is_quiet", whole, Want(silent=QUIET)),
    Case(
        "dropped_events_are_said_in_the_words_of_nsys",
        diagnostics(("Profiling has started.", 1), ("Example: 1234 CUDA kernel events were dropped.", 3)),
        Want(
            gpus={"0:0": {"kernel_ns": 1000}},
            warnings={"dropped-events": None},
            says=["1234 CUDA kernel events were dropped"],
            never=["Profiling has started."],
        ),
    ),
    Case(
        "information_is_no_warning",
        diagnostics(("Profiling has started.", 1), ("Number of CUDA events collected: 12.", 1)),
        Want(silent=["dropped-events", "diagnostics"], never=["Profiling has started."]),
    ),
    Case(
        "other_warnings_of_nsys_are_passed_on",
        diagnostics(("Some symbols could not be resolved.", 2)),
        Want(warnings={"diagnostics": None}, silent=["dropped-events"]),
    ),
    Case("lost_launches_are_counted", launches(), Want(warnings={"launches-without-kernels": 2})),
    Case("in_newer_reports_too", launches("3.28.1"), Want(warnings={"launches-without-kernels": 2})),
    Case(
        "a_capture_on_another_thread_explains_nothing",
        capture_on_another_thread,
        Want(warnings={"launches-without-kernels": 1}),
    ),
    Case("nine_in_ten_empty_of_fifty", leaves(50, 5), Want(warnings={"incomplete-capture": None})),
    Case("fewer_than_nine_in_ten", leaves(50, 6), Want(silent=["incomplete-capture"])),
    Case("fewer_than_fifty", leaves(48, 2), Want(silent=["incomplete-capture"])),
    Case("kernels_of_one_stream_overlap", overlapping_stream, Want(warnings={"stream-overlap": None})),
    Case("no_ranges_recorded", no_ranges, Want(warnings={"nvtx-not-recorded": None})),
]


@pytest.mark.parametrize("case", params(CASES))
def test_oracle_gives_the_right_answer(case: Case, tmp_path: Path) -> None:
    check_oracle(case, tmp_path)


@needs_product
@pytest.mark.parametrize("case", params(CASES))
def test_attribute_gives_the_right_answer(case: Case, tmp_path: Path, run_in_process, unchanged) -> None:
    check_product(case, tmp_path, run_in_process, unchanged)
