"""Unions, exposed communication, the wall partition, windows and times that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from casekit import Case, Range, Refusal, Want, check_oracle, check_product, needs_product, params
from tracekit import (
    ALL_GATHER,
    ALL_REDUCE,
    ATTENTION,
    CAST,
    CUSTOM_ALL_REDUCE,
    GRAPH_TRACE,
    MARLIN,
    RMS_NORM,
    TraceBuilder,
)

GPU = "0:0"
MINUTE = 60 * 10**9


def two_streams(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 1000, stream=7)
    t.kernel(ALL_REDUCE, 500, 1000, stream=20)
    t.kernel(CAST, 2000, 500, stream=7)
    return t


def collective_under_two_computes(_: Path) -> TraceBuilder:
    """Overlaps added pair by pair would hide 20 of the collective's 10."""
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 0, 10, stream=20)
    t.kernel(MARLIN, 0, 10, stream=7)
    t.kernel(CAST, 0, 10, stream=8)
    return t


def copies_hide_nothing(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 0, 1000, stream=20)
    t.kernel(MARLIN, 2000, 1000)
    t.memcpy(0, 400)
    t.memset(300, 200)
    t.sync(400, 500)
    return t


def collectives_hide_no_collective(_: Path) -> TraceBuilder:
    """Two collectives at once are communication once, and neither hides the other."""
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 0, 100, stream=20)
    t.kernel(ALL_GATHER, 50, 100, stream=21)
    t.kernel(MARLIN, 200, 100)
    return t


def custom_beside_nccl(_: Path) -> TraceBuilder:
    """For exposed NCCL the custom all-reduce is another kernel; for exposed communication it is not."""
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 0, 100, stream=20)
    t.kernel(CUSTOM_ALL_REDUCE, 60, 100, stream=21)
    return t


def waiting_rank(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.process(1000)
    t.process(2000)
    t.kernel(MARLIN, 0, 200, device=0, pid=1000)
    t.kernel(ALL_REDUCE, 200, 800, device=0, pid=1000, stream=20)
    t.kernel(MARLIN, 0, 800, device=1, pid=2000)
    t.kernel(ALL_REDUCE, 800, 200, device=1, pid=2000, stream=20)
    return t


def compute_on_the_other_gpu(_: Path) -> TraceBuilder:
    """What runs on one GPU hides nothing on another."""
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 0, 100, device=0)
    t.kernel(MARLIN, 0, 100, device=1)
    return t


def exact_partition(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 300, stream=7)  # 0..100 alone, 100..300 with the cast: 100 + 100
    t.kernel(CAST, 100, 300, stream=8)  # 300..400 alone
    t.kernel(ALL_REDUCE, 199, 401, stream=20)  # hidden until 400: its start divides no interval; then exposed
    t.kernel(ALL_GATHER, 500, 51, stream=21)  # 500..551 with the all-reduce: 26 + 25
    t.memcpy(590, 110)  # 600..700
    t.kernel(ATTENTION, 800, 200)
    return t


def odd_nanoseconds(_: Path) -> TraceBuilder:
    """Three categories share 11 ns: 4 + 4 + 3 in taxonomy order, whatever the order of rows."""
    t = TraceBuilder()
    t.kernel(RMS_NORM, 0, 11, stream=9)
    t.kernel(ATTENTION, 0, 11, stream=8)
    t.kernel(CAST, 0, 11, stream=7)
    t.memset(11, 3)
    t.memcpy(11, 3, stream=8)
    t.kernel(CAST, 14, 1)
    return t


def neighbours_are_merged(_: Path) -> TraceBuilder:
    """Five kernels of one category end to end are one interval: 5 ns are 3 + 2, not five times 1 + 0."""
    t = TraceBuilder()
    t.kernel(CAST, 0, 5, stream=8)
    for i in range(5):
        t.kernel(MARLIN, i, 1, stream=7)
    return t


def three_kernels(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 100, 100)
    t.kernel(ALL_REDUCE, 250, 100, stream=20)
    t.kernel(CAST, 400, 0)
    t.kernel(CAST, 400, 100)
    return t


def window(start: int, end: int) -> tuple[str, str]:
    return ("--window", f"{start}:{end}")


def two_layers(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("step", 0, 1000)
    t.push_pop("layer0", 10, 100)
    t.push_pop("layer1", 110, 200)
    t.kernel(MARLIN, 1000, 100, launch=20)  # layer0: 1000..1300
    t.kernel(CAST, 1200, 100, launch=30)
    t.kernel(RMS_NORM, 1050, 200, launch=105, stream=8)  # neither: 1050..1250
    t.kernel(ALL_REDUCE, 1280, 100, launch=106, stream=20)  # neither
    t.kernel(MARLIN, 1400, 50, launch=120)  # layer1: 1400..1450
    return t


def unusable(duration: int | None) -> Callable[[Path], TraceBuilder]:
    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder()
        if duration is not None:
            t.duration(duration)
        t.kernel(MARLIN, 100, 100)
        t.kernel(CAST, 300, 50)
        t.kernel(CAST, 0, 0)
        t.kernel(CAST, 400, -100)
        t.memcpy(0, 0)
        return t

    return build


def far_outside(by: int) -> Callable[[Path], TraceBuilder]:
    """A kernel that begins before, and one that ends after, what the capture can hold."""

    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder()
        t.duration(1000)
        t.kernel(MARLIN, 100, 100)
        t.kernel(CAST, -MINUTE - by, 10)
        t.kernel(CAST, 1000 + MINUTE + by - 20, 20)
        return t

    return build


def duration_unknown(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 10**15, 100)
    t.kernel(CAST, 1 << 62, 100)
    t.kernel(CAST, -(1 << 62), 100)
    return t


def kernels_of_a_range(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("step", 0, 50)
    t.kernel(MARLIN, 1000, 100, launch=10)
    t.kernel(CAST, 100, 100, launch=60)
    return t


def centuries(*, kernels: int, gpus: int) -> Callable[[Path], TraceBuilder]:
    """Times that each can be true where the duration is unknown, and whose sums fit no 64 bits."""

    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder()
        for i in range(kernels):
            t.kernel(MARLIN, 1, (1 << 62) - 2, stream=i, launch=0)
        for gpu in range(gpus):
            t.kernel(CAST, 1, 10, device=gpu, stream=90)
            t.kernel(CAST, (1 << 62) - 20, 10, device=gpu, stream=90)
        return t

    return build


def unusable_replay(_: Path) -> TraceBuilder:
    t = TraceBuilder(schema="3.16.1")
    t.kernel(MARLIN, 100, 100)
    t.kernel(MARLIN, 300, 100)
    t.graph_launch(150, corr=900)
    t.add(GRAPH_TRACE, start=0, end=0, deviceId=0, streamId=7, correlationId=900, globalPid=t.gpid(1000))
    return t


LEFT_OUT = Want(
    categories={(GPU, "gemm.marlin"): (100, 1), (GPU, "cast"): (50, 1)},
    windows=[(100, 350)],
    warnings={"unusable-times": 2},
)

CASES = [
    Case(
        "kernel_times_that_add_up_to_centuries",
        centuries(kernels=3, gpus=1),
        Refusal(1, [["centuries"], ["trace.sqlite"]]),
        oracle=False,
    ),
    Case(
        "windows_that_add_up_to_centuries",
        centuries(kernels=0, gpus=3),
        Refusal(1, [["centuries"], ["trace.sqlite"]]),
        oracle=False,
    ),
    Case(
        "a_window_within_them_is_answered",
        centuries(kernels=3, gpus=1),
        Want(
            categories={(GPU, "gemm.marlin"): (300, 3), (GPU, "cast"): (10, 1)},
            wall={(GPU, "gemm.marlin"): 95, (GPU, "cast"): 5},
            ranges=[Range(None, 310, 4)],
        ),
        ("--window", "1:101"),
    ),
    Case(
        "shares_are_of_kernel_time_and_busy_is_a_union",
        two_streams,
        Want(
            categories={
                (GPU, "gemm.marlin"): (1000, 1),
                (GPU, "comm.allreduce"): (1000, 1),
                (GPU, "cast"): (500, 1),
            },
            gpus={
                GPU: {
                    "kernel_ns": 2500,
                    "busy_ns": 2000,
                    "window_ns": 2500,
                    "no_kernel_ns": 500,
                    "nccl_ns": 1000,
                    "exposed_nccl_ns": 500,
                    "exposed_communication_ns": 500,
                    "hidden_communication_ns": 500,
                }
            },
        ),
    ),
    Case(
        "a_collective_is_hidden_once",
        collective_under_two_computes,
        Want(gpus={GPU: {"hidden_communication_ns": 10, "exposed_communication_ns": 0, "communication_ns": 10}}),
    ),
    Case(
        "copies_and_synchronisations_hide_no_communication",
        copies_hide_nothing,
        Want(
            gpus={
                GPU: {
                    "kernel_ns": 2000,
                    "busy_ns": 2000,
                    "exposed_nccl_ns": 1000,
                    "hidden_communication_ns": 0,
                }
            },
            wall={(GPU, "exposed comm.allreduce"): 1000, (GPU, "gemm.marlin"): 1000, (GPU, "idle"): 1000},
        ),
    ),
    Case(
        "collectives_hide_no_collective",
        collectives_hide_no_collective,
        Want(
            gpus={GPU: {"communication_ns": 150, "exposed_communication_ns": 150, "exposed_nccl_ns": 150}},
            wall={
                (GPU, "exposed comm.allreduce"): 75,
                (GPU, "exposed comm.allgather"): 75,
                (GPU, "idle"): 50,
                (GPU, "gemm.marlin"): 100,
            },
        ),
    ),
    Case(
        "custom_all_reduce_hides_nccl_and_no_communication",
        custom_beside_nccl,
        Want(
            gpus={
                GPU: {
                    "communication_ns": 160,
                    "exposed_communication_ns": 160,
                    "nccl_ns": 100,
                    "exposed_nccl_ns": 60,
                }
            }
        ),
    ),
    Case(
        "a_waiting_rank_is_shown_apart",
        waiting_rank,
        Want(
            categories={
                ("0:0", "gemm.marlin"): (200, 1),
                ("0:0", "comm.allreduce"): (800, 1),
                ("0:1", "gemm.marlin"): (800, 1),
                ("0:1", "comm.allreduce"): (200, 1),
            },
        ),
    ),
    Case(
        "another_gpus_compute_hides_nothing",
        compute_on_the_other_gpu,
        Want(gpus={"0:0": {"exposed_communication_ns": 100}, "0:1": {"exposed_communication_ns": 0}}),
    ),
    Case(
        "every_nanosecond_has_one_row",
        exact_partition,
        Want(
            gpus={
                GPU: {
                    "kernel_ns": 1252,
                    "busy_ns": 800,
                    "nccl_ns": 401,
                    "exposed_nccl_ns": 200,
                    "window_ns": 1000,
                }
            },
            wall={
                (GPU, "gemm.marlin"): 200,
                (GPU, "cast"): 200,
                (GPU, "exposed comm.allreduce"): 175,
                (GPU, "exposed comm.allgather"): 25,
                (GPU, "memcpy"): 100,
                (GPU, "idle"): 100,
                (GPU, "attention.other"): 200,
            },
        ),
    ),
    Case(
        "odd_nanoseconds_go_round_in_taxonomy_order",
        odd_nanoseconds,
        Want(
            wall={
                (GPU, "cast"): 4 + 1,
                (GPU, "attention.other"): 4,
                (GPU, "norm"): 3,
                (GPU, "memcpy"): 2,
                (GPU, "memset"): 1,
            }
        ),
    ),
    Case(
        "neighbours_of_one_set_of_owners_are_one_interval",
        neighbours_are_merged,
        Want(wall={(GPU, "gemm.marlin"): 3, (GPU, "cast"): 2}, gpus={GPU: {"busy_ns": 5, "kernel_ns": 10}}),
    ),
    Case(
        "a_window_clips_kernels_at_both_edges",
        three_kernels,
        Want(
            windows=[(150, 300)],
            categories={(GPU, "gemm.marlin"): (50, 1), (GPU, "comm.allreduce"): (50, 1)},
            wall={(GPU, "gemm.marlin"): 50, (GPU, "idle"): 50, (GPU, "exposed comm.allreduce"): 50},
        ),
        args=window(150, 300),
    ),
    Case(
        "a_kernel_that_ends_where_the_window_starts_is_outside",
        three_kernels,
        Want(categories={(GPU, "comm.allreduce"): (100, 1)}, gpus={GPU: {"kernel_count": 1, "window_ns": 200}}),
        args=window(200, 400),
    ),
    Case(
        "one_of_no_length_at_the_start_of_the_window_is_inside",
        three_kernels,
        Want(categories={(GPU, "cast"): (50, 2)}),
        args=window(400, 450),
    ),
    Case(
        "a_window_wider_than_the_kernels_has_idle_time",
        three_kernels,
        Want(gpus={GPU: {"window_ns": 1000, "idle_ns": 700, "busy_ns": 300, "kernel_count": 4}}),
        args=window(0, 1000),
    ),
    Case(
        "a_window_without_kernels_of_the_range_says_where_they_are",
        kernels_of_a_range,
        Refusal(3, [["'step'"], ["1000:1100"]]),
        args=("--range", "step", *window(0, 500)),
        oracle=False,
    ),
    Case(
        "a_window_without_kernels_is_an_abstention",
        three_kernels,
        Refusal(3, [["no kernel"], ["100:500", "100"]]),
        args=window(5000, 5100),
        oracle=False,
    ),
    Case(
        "a_range_selects_its_kernels_in_its_projected_span",
        two_layers,
        Want(
            categories={(GPU, "gemm.marlin"): (100, 1), (GPU, "cast"): (100, 1)},
            ranges=[Range(("step", "layer0"), 200, 2)],
            gpus={GPU: {"window_ns": 300, "busy_ns": 300, "kernel_count": 2, "kernel_ns": 200}},
            wall={
                # 1000..1050 GEMM, 1050..1100 GEMM and other, 1100..1200 other, 1200..1250 cast and other,
                # 1250..1300 cast; the all-reduce from 1280 on is hidden.
                (GPU, "gemm.marlin"): 50 + 25,
                (GPU, "outside selection"): 25 + 100 + 25,
                (GPU, "cast"): 25 + 50,
            },
        ),
        args=("--range", "layer0"),
    ),
    Case(
        "a_pattern_selects_several_and_the_window_is_the_union_of_their_spans",
        two_layers,
        Want(
            categories={(GPU, "gemm.marlin"): (150, 2), (GPU, "cast"): (100, 1)},
            gpus={GPU: {"window_ns": 350, "kernel_count": 3, "kernel_ns": 250}},
        ),
        args=("--range", "layer[01]"),
    ),
    Case(
        "an_outer_range_selects_what_it_encloses",
        two_layers,
        Want(gpus={GPU: {"window_ns": 450, "kernel_count": 5, "kernel_ns": 550}}),
        args=("--range", "step"),
    ),
    Case("times_that_cannot_be_are_left_out", unusable(1000), LEFT_OUT),
    Case("and_with_no_known_duration", unusable(None), LEFT_OUT),
    Case(
        "more_than_a_minute_outside_the_capture",
        far_outside(1),
        Want(categories={(GPU, "gemm.marlin"): (100, 1)}, windows=[(100, 200)], warnings={"unusable-times": 2}),
    ),
    Case(
        "a_minute_outside_the_capture_is_still_inside",
        far_outside(0),
        Want(
            categories={(GPU, "gemm.marlin"): (100, 1), (GPU, "cast"): (30, 2)},
            windows=[(-MINUTE, 1000 + MINUTE)],
            silent=["unusable-times"],
        ),
    ),
    Case(
        "without_duration_only_the_impossible_is_left_out",
        duration_unknown,
        Want(
            categories={(GPU, "gemm.marlin"): (100, 1)},
            windows=[(10**15, 10**15 + 100)],
            warnings={"unusable-times": 2},
        ),
    ),
    Case(
        "a_replay_of_unusable_times_is_no_interval",
        unusable_replay,
        Want(windows=[(100, 400)], wall={(GPU, "gemm.marlin"): 200, (GPU, "idle"): 100}),
    ),
]


@pytest.mark.parametrize("case", params([c for c in CASES if c.oracle]))
def test_oracle_gives_the_right_answer(case: Case, tmp_path: Path) -> None:
    check_oracle(case, tmp_path)


@needs_product
@pytest.mark.parametrize("case", params(CASES))
def test_attribute_gives_the_right_answer(case: Case, tmp_path: Path, run_in_process, unchanged) -> None:
    check_product(case, tmp_path, run_in_process, unchanged)
