"""NVTX ranges: which of them own a kernel, and by which name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from casekit import Case, Range, Want, check_oracle, check_product, needs_product, params
from tracekit import ALL_REDUCE, ATTENTION, CAST, MARLIN, RMS_NORM, TraceBuilder


def null_ends(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.duration(5000)
    t.domain("VLLM", 1)
    t.mark("request arrived", 90)
    t.push_pop("step", 100, 500)
    t.push_pop("open", 600, None)
    t.kernel(MARLIN, 1000, 400, launch=150)
    t.kernel(CAST, 1500, 100, launch=700)
    return t


def open_within_open(_: Path) -> TraceBuilder:
    """A killed program leaves its whole stack open; the innermost still owns."""
    t = TraceBuilder()
    t.push_pop("step", 10, None)
    t.push_pop("layer", 20, None)
    t.start_end("request", 5, None)
    t.kernel(MARLIN, 100, 1, launch=15)
    t.kernel(MARLIN, 200, 2, launch=25)
    t.kernel(MARLIN, 300, 4, launch=10**9)
    return t


def domain_destroyed(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.domain("engine", 1)
    t.push_pop("gone", 2, None, kind=76, domain=1)
    t.push_pop("step", 10, 50, domain=1)
    t.kernel(MARLIN, 100, 1, launch=20)
    return t


def texts_and_ids(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.domain("engine", 1, registered=True)
    t.push_pop("decode", 0, 100, registered=True, domain=1, int64Value=-7)
    t.push_pop("prefill", 200, 300)
    t.push_pop(None, 400, 500)
    t.push_pop("", 600, 700)
    t.push_pop(None, 800, 900, textId=4242)
    for i, launch in enumerate((10, 210, 410, 610, 810)):
        t.kernel(MARLIN, 1000 + 100 * i, 2**i, launch=launch)
    return t


def odd_names(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    names = (
        "a\x00b",
        "two\nlines",
        b"caf\xe9 \xff",
        "</script><b>x",
        "x" * 5000,
        "\U0001f600",
        "per cent % {braces}",
    )
    for i, name in enumerate(names):
        t.push_pop(name, 100 * i, 100 * i + 50, registered=i % 2 == 1)
        t.kernel(MARLIN, 5000 + 100 * i, 2**i, launch=100 * i + 10)
    return t


def bounds(_: Path) -> TraceBuilder:
    """Open is start ≤ t < end, at the start of the launch."""
    t = TraceBuilder()
    t.push_pop("a", 100, 200)
    t.push_pop("b", 200, 300)
    t.push_pop("never", 150, 150)
    for i, launch in enumerate((99, 100, 150, 199, 200, 299, 300)):
        t.kernel(MARLIN, 1000 + 200 * i, 2**i, launch=launch)
    return t


def by_launch_not_by_gpu_time(_: Path) -> TraceBuilder:
    """Kernels run while quite another range is open."""
    t = TraceBuilder()
    t.push_pop("launching", 0, 100)
    t.push_pop("waiting", 100, 10_000)
    t.kernel(MARLIN, 500, 300, launch=50)
    t.kernel(CAST, 900, 100, launch=60)
    return t


def same_name_nested(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("layer", 0, 1000)
    t.push_pop("layer", 100, 900)
    t.push_pop("attn", 200, 400)
    t.kernel(MARLIN, 2000, 100, launch=50)
    t.kernel(CAST, 3000, 200, launch=150)
    t.kernel(ATTENTION, 4000, 700, launch=300)
    return t


def same_start(reverse: bool) -> Callable[[Path], TraceBuilder]:
    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder()
        rows = [("outer", 100), ("middle", 80), ("inner", 60)]
        for name, end in reversed(rows) if reverse else rows:
            t.push_pop(name, 10, end)
        for i, launch in enumerate((20, 70, 90)):
            t.kernel(MARLIN, 1000 + 100 * i, 2**i, launch=launch)
        return t

    return build


def crossing_domains(_: Path) -> TraceBuilder:
    """Domains have stacks of their own, so ranges of two domains may cross."""
    t = TraceBuilder()
    t.domain("engine", 1)
    t.push_pop("a", 0, 100)
    t.push_pop("b", 50, 150, domain=1)
    for i, launch in enumerate((10, 60, 110, 160)):
        t.kernel(MARLIN, 1000 + 100 * i, 2**i, launch=launch)
    return t


def nccl_inside(_: Path) -> TraceBuilder:
    """Domain ids are per process: 1 is NCCL in the one and the user's in the other."""
    t = TraceBuilder()
    for pid, device, nccl in ((1000, 0, 1), (2000, 1, 2)):
        t.process(pid)
        t.domain("NCCL", nccl, pid=pid)
        t.domain("engine", 3 - nccl, pid=pid)
        t.push_pop("layer", 100, 900, pid=pid)
        t.push_pop("tp.reduce", 200, 500, pid=pid, domain=3 - nccl)
        t.push_pop("ncclAllReduce", 250, 400, pid=pid, domain=nccl)
        t.kernel(ALL_REDUCE, 1000, 300 + device, device=device, pid=pid, launch=300, stream=20)
        t.kernel(MARLIN, 2000, 100, device=device, pid=pid, launch=600)
    return t


def nccl_of_unknown_domain(name: str) -> Callable[[Path], TraceBuilder]:
    """The creation of the domain was before the recording."""

    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder()
        t.push_pop("layer", 0, 100)
        t.push_pop("ncclGroupEnd", 10, 90, domain=3)
        t.push_pop(name, 20, 80, domain=3)
        t.kernel(ALL_REDUCE, 1000, 30, launch=50)
        return t

    return build


def start_end_across_threads(_: Path) -> TraceBuilder:
    """A request begins on one thread and ends on another; a third one launches."""
    t = TraceBuilder()
    t.start_end("request", 0, 100, tid=1001, end_tid=1002)
    t.push_pop("step", 40, 200, tid=1003)
    t.kernel(MARLIN, 1000, 10, launch=50, tid=1003)
    t.kernel(CAST, 1100, 20, launch=150, tid=1003)
    t.kernel(RMS_NORM, 1200, 40, launch=10, tid=1003)
    return t


def start_end_and_calls_far_apart(_: Path) -> TraceBuilder:
    """Times of calls are not checked: garbage in one must not move the others, nor stop the program."""
    t = TraceBuilder()
    t.start_end("request", 0, 100)
    t.start_end("again", 15, 30)
    for i, (kernel, launch) in enumerate(
        [(MARLIN, 10), (CAST, 20), (MARLIN, (1 << 63) - 10), (CAST, 1 - (1 << 63)), (RMS_NORM, 1 << 62), (RMS_NORM, 30)]
    ):
        t.kernel(kernel, 1000 + 100 * i, 10 + i, launch=launch)
    return t


def start_end_of_one_name(_: Path) -> TraceBuilder:
    """Several requests of one name at once: a kernel counts once per name; another process's not at all."""
    t = TraceBuilder()
    t.process(1000)
    t.process(2000)
    for start in (0, 10, 20):
        t.start_end("request", start, 100)
    t.start_end("batch", 0, 60)
    t.start_end("request", 0, 1000, pid=2000)
    t.kernel(MARLIN, 1000, 10, launch=50, device=0)
    t.kernel(MARLIN, 1100, 20, launch=70, device=0)
    t.kernel(CAST, 1200, 40, launch=150, device=0)
    t.kernel(CAST, 1200, 80, launch=150, device=1, pid=2000)
    return t


NCCL_NEVER_OWNS = [
    Range(("layer", "tp.reduce"), 300, 1, process=1000, domain="engine"),
    Range(("layer", "tp.reduce"), 301, 1, process=2000, domain="engine"),
    Range(("layer",), 200, 2, domain="default"),
]
SAME_START = [
    Range(("outer", "middle", "inner"), 1, 1),
    Range(("outer", "middle"), 2, 1),
    Range(("outer",), 4, 1),
]

CASES = [
    Case(
        "rows_without_end_are_marks_domains_and_open_ranges",
        null_ends,
        Want(ranges=[Range(("step",), 400, 1), Range(("open",), 100, 1)], warnings={"ranges-without-end": 1}),
    ),
    Case(
        "a_whole_stack_left_open",
        open_within_open,
        Want(
            ranges=[
                Range(("step",), 1, 1),
                Range(("step", "layer"), 6, 2),
                Range(("request",), 7, 3, kind="startend"),
            ],
            inclusive={"step": 7, "layer": 6},
            warnings={"ranges-without-end": 3},
        ),
    ),
    Case(
        "the_end_of_a_domain_is_no_range",
        domain_destroyed,
        Want(ranges=[Range(("step",), 1, 1, domain="engine")], silent=["ranges-without-end"]),
    ),
    Case(
        "names_in_text_or_textid_or_neither",
        texts_and_ids,
        Want(
            ranges=[
                Range(("decode",), 1, 1, domain="engine"),
                Range(("prefill",), 2, 1, domain="default"),
                Range(("",), 4 + 8, 2, domain="default"),
                Range(("<string 4242>",), 16, 1),
            ]
        ),
    ),
    Case(
        "odd_names_are_kept",
        odd_names,
        Want(
            ranges=[
                Range(("a\x00b",), 1, 1),
                Range(("two\nlines",), 2, 1),
                Range(("caf\ufffd \ufffd",), 4, 1),
                Range(("</script><b>x",), 8, 1),
                Range(("x" * 5000,), 16, 1),
                Range(("\U0001f600",), 32, 1),
                Range(("per cent % {braces}",), 64, 1),
            ]
        ),
    ),
    Case(
        "a_range_is_open_from_its_start_to_before_its_end",
        bounds,
        Want(ranges=[Range(("a",), 2 + 4 + 8, 3), Range(("b",), 16 + 32, 2), Range(None, 1 + 64, 2)]),
    ),
    Case("gpu_time_does_not_decide", by_launch_not_by_gpu_time, Want(ranges=[Range(("launching",), 400, 2)])),
    Case(
        "inclusive_time_counts_a_kernel_once_per_name",
        same_name_nested,
        Want(
            ranges=[
                Range(("layer",), 100, 1),
                Range(("layer", "layer"), 200, 1),
                Range(("layer", "layer", "attn"), 700, 1),
            ],
            inclusive={"layer": 1000, "attn": 700},
        ),
    ),
    Case("of_one_start_the_longer_is_outside", same_start(reverse=False), Want(ranges=SAME_START)),
    Case("whatever_the_order_of_rows", same_start(reverse=True), Want(ranges=SAME_START)),
    Case(
        "ranges_of_two_domains_may_cross",
        crossing_domains,
        Want(
            ranges=[
                Range(("a",), 1, 1, domain="default"),
                Range(("a", "b"), 2, 1, domain="engine"),
                Range(("b",), 4, 1, domain="engine"),
                Range(None, 8, 1),
            ]
        ),
    ),
    Case("nccls_ranges_never_own", nccl_inside, Want(ranges=NCCL_NEVER_OWNS)),
    Case(
        "unless_asked_for",
        nccl_inside,
        Want(ranges=[Range(("ncclAllReduce",), 601, 2, domain="NCCL"), Range(None, 200, 2)]),
        args=("--domain", "NCCL"),
    ),
    Case(
        "domains_can_be_chosen_by_name",
        nccl_inside,
        Want(ranges=[Range(("tp.reduce",), 601, 2, domain="engine"), Range(None, 200, 2)]),
        args=("--domain", "engine"),
    ),
    Case(
        "several_domains_can_be_chosen",
        nccl_inside,
        Want(
            ranges=[
                Range(("layer", "tp.reduce", "ncclAllReduce"), 601, 2, domain="NCCL"),
                Range(("layer",), 200, 2, domain="default"),
            ]
        ),
        args=("--domain", "engine", "--domain", "NCCL", "--domain", "default"),
    ),
    Case(
        "a_domain_without_creation_whose_names_are_nccls_is_nccls",
        nccl_of_unknown_domain("ncclAllReduce"),
        Want(ranges=[Range(("layer",), 30, 1, domain="default")]),
    ),
    Case(
        "and_one_with_another_name_is_not",
        nccl_of_unknown_domain("my range"),
        Want(ranges=[Range(("layer", "ncclGroupEnd", "my range"), 30, 1)]),
    ),
    Case(
        "start_end_ranges_span_threads_and_take_nothing",
        start_end_across_threads,
        Want(
            ranges=[
                Range(("step",), 30, 2),
                Range(None, 40, 1),
                Range(("request",), 50, 2, kind="startend"),
            ]
        ),
    ),
    Case(
        "start_end_ranges_hold_whatever_the_times_of_calls_are",
        start_end_and_calls_far_apart,
        Want(
            ranges=[
                Range(None, 10 + 11 + 12 + 13 + 14 + 15, 6),
                Range(("request",), 10 + 11 + 15, 3, kind="startend"),
                Range(("again",), 11, 1, kind="startend"),
            ]
        ),
    ),
    Case(
        "start_end_ranges_of_one_name_count_a_kernel_once",
        start_end_of_one_name,
        Want(
            ranges=[
                Range(None, 70, 3, process=1000),
                Range(None, 80, 1, process=2000),
                Range(("request",), 30, 2, kind="startend", process=1000),
                Range(("request",), 80, 1, kind="startend", process=2000),
                Range(("batch",), 10, 1, kind="startend"),
            ]
        ),
    ),
]


@pytest.mark.parametrize("case", params(CASES))
def test_oracle_gives_the_right_answer(case: Case, tmp_path: Path) -> None:
    check_oracle(case, tmp_path)


@needs_product
@pytest.mark.parametrize("case", params(CASES))
def test_attribute_gives_the_right_answer(case: Case, tmp_path: Path, run_in_process, unchanged) -> None:
    check_product(case, tmp_path, run_in_process, unchanged)
