"""Which GPU: ordinals, maps of devices, processes that share one, several reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from casekit import Case, Want, check_oracle, check_product, needs_product, params
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder


def device_3_and_5(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 600, device=3)
    t.kernel(CAST, 700, 400, device=3)
    t.kernel(CAST, 900, 1000, device=5, pid=2000)
    return t


def one_process(*devices: int) -> TraceBuilder:
    t = TraceBuilder()
    for i, device in enumerate(devices):
        t.kernel(MARLIN, 100 * i, 10 * (i + 1), device=device)
    return t


def all_on_0(
    pids: tuple[int, ...] = (1000, 2000), *, mapped: tuple[int, ...] = (), empty_map: bool = False
) -> TraceBuilder:
    """Every rank sees its GPU as device 0, as CUDA_VISIBLE_DEVICES makes it."""
    t = TraceBuilder(schema="3.28.1" if mapped or empty_map else "3.7.2")
    for i, pid in enumerate(pids):
        t.process(pid)
        t.kernel(MARLIN, 0, 100 * (i + 1), pid=pid, device=0)
        t.kernel(ALL_REDUCE, 100 * (i + 1), 50, pid=pid, device=0, stream=20)
    for pid, gpu in zip(pids, mapped, strict=False):
        t.cuda_device(pid, 0, gpu)
        t.gpu(gpu)
    if empty_map:
        t.table("TARGET_INFO_CUDA_DEVICE")
    return t


def crossed_map(_: Path) -> TraceBuilder:
    """Two ordinals a process, in opposite orders."""
    t = TraceBuilder(schema="3.28.1")
    for pid, gpus in ((1000, (4, 6)), (2000, (6, 4))):
        t.process(pid)
        for ordinal, gpu in enumerate(gpus):
            t.cuda_device(pid, ordinal, gpu)
            t.kernel(MARLIN, 1000 * ordinal, pid // 100 + ordinal, pid=pid, device=ordinal)
    return t


def unused_devices_in_map(_: Path) -> TraceBuilder:
    """The map lists every device that a process sees, used or not."""
    t = TraceBuilder(schema="3.28.1")
    for gpu in range(8):
        t.cuda_device(1000, gpu, gpu)
        t.gpu(gpu)
    t.kernel(MARLIN, 0, 10, device=2)
    return t


def only_copies_on_1(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 100, device=0)
    t.memcpy(20, 30, device=1)
    return t


def parent_without_kernels(_: Path) -> TraceBuilder:
    """torchrun's own process is in the report and uses no GPU."""
    t = TraceBuilder()
    t.process(500, name="torchrun")
    t.process(1000)
    t.api("cudaGetDeviceCount_v3020", 5, pid=500)
    t.push_pop("launcher", 0, 1000, pid=500)
    t.kernel(MARLIN, 100, 10, launch=50)
    return t


def two_reports(_: Path) -> list[TraceBuilder]:
    out = []
    for shift, length in ((0, 100), (5_000_000, 300)):
        t = TraceBuilder()
        t.kernel(MARLIN, shift, length)
        t.kernel(CAST, shift + length, 100)
        out.append(t)
    return out


def two_reports_of_which_one_maps(_: Path) -> list[TraceBuilder]:
    """What one report says about its devices says nothing about another's."""
    return [all_on_0(mapped=(4, 5)), all_on_0()]


MAPPED = Want(
    gpus={"0:4": {"kernel_ns": 150, "device": 0}, "0:5": {"kernel_ns": 250, "device": 0}},
    silent=["assumed-device", "ambiguous-device"],
)
AMBIGUOUS = Want(
    gpus={"0:pid1000/0": {"kernel_ns": 150, "device": 0}, "0:pid2000/0": {"kernel_ns": 250, "device": 0}},
    wall={
        ("0:pid1000/0", "gemm.marlin"): 100,
        ("0:pid1000/0", "exposed comm.allreduce"): 50,
        ("0:pid1000/0", "idle"): 100,
        ("0:pid2000/0", "gemm.marlin"): 200,
        ("0:pid2000/0", "exposed comm.allreduce"): 50,
    },
    warnings={"ambiguous-device": None},
    silent=["assumed-device"],
)

CASES = [
    Case(
        "no_default_looks_at_device_0_alone",
        device_3_and_5,
        Want(
            gpus={
                "0:3": {"kernel_ns": 1000, "device": 3, "window_ns": 1900},
                "0:5": {"kernel_ns": 1000, "device": 5, "window_ns": 1900},
            },
            warnings={"assumed-device": None},
        ),
    ),
    Case(
        "a_lone_process_keeps_its_ordinal",
        lambda _: one_process(3, 3),
        Want(gpus={"0:3": {"device": 3, "kernel_count": 2}}, silent=["assumed-device", "ambiguous-device"]),
    ),
    Case(
        "two_ordinals_of_one_process_are_two_gpus",
        lambda _: one_process(0, 1),
        Want(gpus={"0:0": {"kernel_ns": 10}, "0:1": {"kernel_ns": 20}}, warnings={"assumed-device": None}),
    ),
    Case("several_processes_on_device_0_are_gpus_of_their_own", lambda _: all_on_0(), AMBIGUOUS),
    Case("and_an_empty_map_changes_nothing", lambda _: all_on_0(empty_map=True), AMBIGUOUS),
    Case("a_map_settles_it", lambda _: all_on_0(mapped=(4, 5)), MAPPED),
    Case(
        "a_map_says_nothing_of_processes_that_it_lacks",
        lambda _: all_on_0((1000, 2000, 3000), mapped=(4, 0)),
        Want(
            gpus={
                "0:4": {"kernel_ns": 150, "device": 0},
                "0:0": {"kernel_ns": 250, "device": 0},
                "0:pid3000/0": {"kernel_ns": 350, "device": 0},
            },
            warnings={"ambiguous-device": None},
            silent=["assumed-device"],
        ),
    ),
    Case(
        "a_map_may_say_that_they_share_one",
        lambda _: all_on_0(mapped=(4, 4)),
        Want(
            gpus={"0:4": {"kernel_ns": 400, "busy_ns": 250, "device": 0, "kernel_count": 4}},
            silent=["assumed-device", "ambiguous-device"],
        ),
    ),
    Case(
        "a_map_is_by_process_and_ordinal",
        crossed_map,
        Want(
            gpus={
                "0:4": {"kernel_ns": 10 + 21, "device": None},
                "0:6": {"kernel_ns": 11 + 20, "device": None},
            }
        ),
    ),
    Case(
        "devices_that_are_only_listed_are_no_gpus_of_the_answer",
        unused_devices_in_map,
        Want(gpus={"0:2": {"kernel_ns": 10, "device": 2}}, silent=["assumed-device"]),
    ),
    Case(
        "a_gpu_with_copies_alone_has_no_kernels",
        only_copies_on_1,
        Want(
            gpus={
                "0:0": {"kernel_count": 1, "idle_ns": 0},
                "0:1": {"kernel_count": 0, "kernel_ns": 0, "window_ns": 100, "idle_ns": 70},
            },
            categories={("0:0", "gemm.marlin"): (100, 1)},
            wall={("0:0", "gemm.marlin"): 100, ("0:1", "memcpy"): 30, ("0:1", "idle"): 70},
        ),
    ),
    Case(
        "a_process_without_gpu_changes_nothing",
        parent_without_kernels,
        Want(gpus={"0:0": {"device": 0, "kernel_ns": 10}}, silent=["assumed-device", "ambiguous-device"]),
    ),
    Case(
        "several_reports_have_windows_and_gpus_of_their_own",
        two_reports,
        Want(
            gpus={
                "0:0": {"kernel_ns": 200, "window_ns": 200, "report": 0},
                "1:0": {"kernel_ns": 400, "window_ns": 400, "report": 1},
            },
            categories={
                ("0:0", "gemm.marlin"): (100, 1),
                ("0:0", "cast"): (100, 1),
                ("1:0", "gemm.marlin"): (300, 1),
                ("1:0", "cast"): (100, 1),
            },
            windows=[(0, 200), (5_000_000, 5_000_400)],
        ),
        oracle=False,
    ),
    Case(
        "each_report_settles_its_own_devices",
        two_reports_of_which_one_maps,
        Want(
            gpus={
                "0:4": {"kernel_ns": 150},
                "0:5": {"kernel_ns": 250},
                "1:pid1000/0": {"kernel_ns": 150},
                "1:pid2000/0": {"kernel_ns": 250},
            },
            warnings={"ambiguous-device": None},
        ),
        oracle=False,
    ),
]


@pytest.mark.parametrize("case", params([c for c in CASES if c.oracle]))
def test_oracle_gives_the_right_answer(case: Case, tmp_path: Path) -> None:
    check_oracle(case, tmp_path)


@needs_product
@pytest.mark.parametrize("case", params(CASES))
def test_attribute_gives_the_right_answer(case: Case, tmp_path: Path, run_in_process, unchanged) -> None:
    check_product(case, tmp_path, run_in_process, unchanged)
