"""Kernel to launch: the key is (process, correlation id), and kernels are never lost or multiplied by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from casekit import Case, Range, Want, check_oracle, check_product, needs_product, params
from tracekit import ALL_REDUCE, ATTENTION, CAST, LAUNCH_CALL, MARLIN, RMS_NORM, RUNTIME, TraceBuilder


def colliding(high: tuple[int, int] = (0, 0), shuffle: int | None = None) -> Callable[[Path], TraceBuilder]:
    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder(shuffle=shuffle)
        t.process(1000, hw=high[0])
        t.process(2000, hw=high[1])
        t.push_pop("prefill", 0, 1000, pid=1000)
        t.push_pop("decode", 0, 1000, pid=2000)
        t.kernel(MARLIN, 2000, 100, device=0, pid=1000, corr=101, launch=100)
        t.kernel(CAST, 2000, 900, device=1, pid=2000, corr=101, launch=110)
        t.kernel(MARLIN, 4000, 50, device=0, pid=1000, corr=102, launch=1500)
        return t

    return build


COLLIDING = Want(
    ranges=[
        Range(("prefill",), 100, 1, process=1000, gpu="0:0"),
        Range(("decode",), 900, 1, process=2000, gpu="0:1"),
        Range(None, 50, 1, process=1000),
    ],
    gpus={"0:0": {"kernel_ns": 150, "device": 0}, "0:1": {"kernel_ns": 900, "device": 1}},
    silent=["kernels-without-launch"],
)


def wide_ids(_: Path) -> TraceBuilder:
    """Ids beyond CUPTI's 32 bits; that one kernel has the widest of all changes nothing for the others."""
    t = TraceBuilder()
    t.push_pop("step", 0, 100)
    for i, corr in enumerate((1 << 31, 1 << 32, (1 << 39) - 1, 1 << 39, (1 << 40) - 1)):
        t.kernel(MARLIN, 1000 + 100 * i, 10, corr=corr, launch=10 * i)
    t.kernel(CAST, 5000, 7, corr=(1 << 62) + 5)
    t.kernel(CAST, 6000, 7, corr=-1)
    return t


def same_pid_on_two_hosts(_: Path) -> TraceBuilder:
    """The serialised id has more than the pid: two virtual machines may each have a process 1000."""
    t = TraceBuilder()
    t.process(1000, hw=1)
    t.push_pop("first", 0, 100)
    t.kernel(MARLIN, 200, 10, device=0, corr=101, launch=50)
    t.process(1000, hw=2)
    t.push_pop("second", 0, 100)
    t.kernel(CAST, 200, 20, device=1, corr=101, launch=50)
    return t


def three_processes(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    for i, pid in enumerate((1000, 2000, 3000)):
        t.process(pid)
        t.push_pop(f"rank{i}", 0, 100, pid=pid)
        for n in range(2):
            t.kernel(MARLIN, 200 + 100 * n, 10 * (i + 1), device=i, pid=pid, corr=101 + n, launch=10 + n)
    return t


def two_threads(_: Path) -> TraceBuilder:
    """The stack of ranges is the launching thread's; the other thread's are open at the same time."""
    t = TraceBuilder()
    t.push_pop("forward", 0, 100, tid=1000)
    t.push_pop("load", 0, 100, tid=1001)
    t.kernel(MARLIN, 200, 10, launch=50, tid=1000)
    t.kernel(CAST, 300, 20, launch=50, tid=1001)
    t.kernel(RMS_NORM, 400, 40, launch=50, tid=1002)
    return t


def graph_replays_of_two_ranks(_: Path) -> TraceBuilder:
    """Kernels of a replay share the launch's id, and node ids start at one number in each process."""
    t = TraceBuilder()
    for i, pid in enumerate((1000, 2000)):
        t.process(pid)
        t.push_pop(("attention", "experts")[i], 10, 30, pid=pid)
        t.node(20, 1 << 32, pid=pid)
        t.push_pop("step", 90, 200, pid=pid)
        t.graph_launch(100, pid=pid, corr=500)
        for n in range(3):
            t.kernel((ATTENTION, MARLIN)[i], 110 + 10 * n, 5 + i, device=i, pid=pid, corr=500, node=1 << 32)
    return t


def launch_recorded_twice(_: Path) -> TraceBuilder:
    """The runtime call and the driver call inside it carry one correlation id: still one kernel."""
    t = TraceBuilder()
    t.push_pop("step", 0, 100)
    corr = t.kernel(MARLIN, 200, 10, launch=50)
    t.api("cuLaunchKernel", 51, 2, corr=corr)
    return t


def without_launches(without: tuple[str, ...]) -> Callable[[Path], TraceBuilder]:
    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder(without=without)
        t.push_pop("step", 0, 1000)
        t.kernel(MARLIN, 200, 10, launch=50 if without else None)
        t.kernel(ALL_REDUCE, 300, 30, launch=60 if without else None)
        return t

    return build


def launch_of_another_process(_: Path) -> TraceBuilder:
    """The only call of that id is another process's."""
    t = TraceBuilder()
    t.process(1000)
    t.process(2000)
    t.push_pop("step", 0, 100, pid=2000)
    t.kernel(MARLIN, 200, 10, pid=1000, device=0, corr=101)
    t.api(LAUNCH_CALL, 50, pid=2000, corr=101)
    t.kernel(CAST, 200, 10, pid=2000, device=1, corr=102, launch=60)
    return t


CASES = [
    Case("correlation_ids_repeat_across_processes", colliding(), COLLIDING),
    Case("and_in_any_order_of_rows", colliding(shuffle=1), COLLIDING),
    Case("and_with_negative_ids", colliding((128, 255)), COLLIDING),
    Case("and_with_ids_above_2_53", colliding((33, 34)), COLLIDING),
    Case(
        "one_pid_on_two_hosts_is_two_processes",
        same_pid_on_two_hosts,
        Want(ranges=[Range(("first",), 10, 1, gpu="0:0"), Range(("second",), 20, 1, gpu="0:1")]),
    ),
    Case(
        "three_processes",
        three_processes,
        Want(
            ranges=[
                Range(("rank0",), 20, 2, process=1000),
                Range(("rank1",), 40, 2, process=2000),
                Range(("rank2",), 60, 2, process=3000),
            ]
        ),
    ),
    Case(
        "the_launching_threads_ranges_own",
        two_threads,
        Want(ranges=[Range(("forward",), 10, 1), Range(("load",), 20, 1), Range(None, 40, 1)]),
    ),
    Case(
        "graph_replays_of_two_ranks_do_not_mix",
        graph_replays_of_two_ranks,
        Want(
            ranges=[
                Range(("step", "attention"), 15, 3, process=1000, via="capture"),
                Range(("step", "experts"), 18, 3, process=2000, via="capture"),
            ],
            silent=["opaque-graphs", "capture-ranges-missing"],
        ),
    ),
    Case(
        "a_launch_recorded_twice_is_one_kernel",
        launch_recorded_twice,
        Want(ranges=[Range(("step",), 10, 1, via="launch")], gpus={"0:0": {"kernel_count": 1, "kernel_ns": 10}}),
    ),
    Case(
        "kernels_without_launch_are_kept_and_counted",
        without_launches(()),
        Want(ranges=[Range(None, 40, 2, via="launch")], warnings={"kernels-without-launch": 2}),
    ),
    Case(
        "no_table_of_calls",
        without_launches((RUNTIME,)),
        Want(ranges=[Range(None, 40, 2)], warnings={"kernels-without-launch": 2}),
    ),
    Case(
        "no_table_of_ranges",
        without_launches(("NVTX_EVENTS",)),
        Want(
            ranges=[Range(None, 40, 2)],
            warnings={"nvtx-not-recorded": None},
            silent=["kernels-without-launch"],
        ),
    ),
    Case(
        "ids_of_any_width_find_their_launch",
        wide_ids,
        Want(ranges=[Range(("step",), 50, 5), Range(None, 14, 2)], warnings={"kernels-without-launch": 2}),
    ),
    Case(
        "another_processs_launch_is_not_taken",
        launch_of_another_process,
        Want(
            ranges=[Range(None, 10, 1, process=1000), Range(("step",), 10, 1, process=2000)],
            warnings={"kernels-without-launch": 1},
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
