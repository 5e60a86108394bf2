"""CUDA graphs: replayed kernels and their capture, and replays whose kernels the report does not contain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from casekit import Case, Range, Refusal, Want, check_oracle, check_product, needs_product, params
from tracekit import ATTENTION, CAST, KERNEL, MARLIN, RMS_NORM, TraceBuilder

GPU = "0:0"
FIRST, COPY = 1 << 32, 2 << 32


def captured(
    schema: str = "3.7.2",
    *,
    shuffle: int | None = None,
    begin: bool = True,
    shift: int = 0,
    clones: int = 1,
    tid: int | None = None,
    inside: bool = False,
    without: tuple[str, ...] = (),
) -> Callable[[Path], TraceBuilder]:
    """Return a graph of three nodes, captured under ranges and replayed twice.

    ``clones`` instances are made, each from the one before; ``inside`` replays while `layer0` is still open.
    """

    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder(schema=schema, shuffle=shuffle, without=without)
        t.push_pop("warm-up", 10 + shift, 950 + shift, tid=tid)
        if begin:
            t.capture(50 + shift, 910 + shift, tid=tid)
        t.push_pop("layer0", 100 + shift, 30_000 if inside else 900 + shift, tid=tid)
        t.push_pop("attention", 200 + shift, 400 + shift, tid=tid)
        t.push_pop("experts", 500 + shift, 800 + shift, tid=tid)
        for i, at in enumerate((300, 600, 850)):
            t.node(at + shift, FIRST + i, tid=tid)
        last = FIRST
        for n in range(clones):
            base = COPY + 100 * n
            for i in range(3):
                t.node(2000 + 100 * n + 10 * i, base + i, tid=tid)
                t.node(2005 + 100 * n + 10 * i, base + i, last + i, tid=tid)
            last = base
        for step, at in enumerate((10_000, 20_000)):
            t.push_pop("decode", at, at + 100)
            t.graph_launch(at + 10, 20, corr=500 + step)
            for i, (name, start, length) in enumerate(((ATTENTION, 200, 100), (MARLIN, 400, 300), (CAST, 800, 50))):
                t.kernel(name, at + start, length, corr=500 + step, node=last + i)
        return t

    return build


def replayed(*front: str, via: str = "capture") -> list[Range]:
    """Return the rows of `captured` whose capture path begins with some names."""
    head = ("decode", *front)
    return [
        Range((*head, "attention"), 200, 2, via=via),
        Range((*head, "experts"), 600, 2, via=via),
        Range(head, 100, 2, via=via if front else "launch"),
    ]


def captured_elsewhere(_: Path) -> TraceBuilder:
    """A thread of its own captures; the ranges open on the launching thread at that time are not about it."""
    t = captured(tid=1001)(_)
    t.push_pop("serving", 0, 1500)
    return t


def second_capture(_: Path) -> TraceBuilder:
    """Of several captures on a thread the one that was in progress counts, not an earlier one."""
    t = TraceBuilder()
    t.push_pop("step", 0, 1000)
    t.capture(10, 50)
    t.push_pop("prepare", 100, 900)
    t.capture(200, 800)
    t.push_pop("layer", 300, 700)
    t.node(20, FIRST)
    t.node(400, FIRST + 1)
    t.graph_launch(5000, corr=500)
    t.kernel(MARLIN, 5100, 10, corr=500, node=FIRST)
    t.kernel(MARLIN, 5200, 20, corr=500, node=FIRST + 1)
    return t


def node_without_row(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.node(5, FIRST)
    t.push_pop("decode", 10, 100)
    t.graph_launch(20, corr=500)
    t.kernel(MARLIN, 200, 10, corr=500, node=FIRST + 7)
    return t


def captured_without_ranges(_: Path) -> TraceBuilder:
    """Captured inside the recording, under no range: nothing is missing, there was none."""
    t = TraceBuilder()
    t.capture(5, 50)
    t.node(20, FIRST)
    t.push_pop("decode", 60, 100)
    t.graph_launch(70, corr=500)
    t.kernel(MARLIN, 200, 10, corr=500, node=FIRST)
    return t


def before_the_recording(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    for i in range(3):
        t.node(-5000 + i, FIRST + i)
        t.node(-4000 + i, COPY + i)
        t.node(-3900 + i, COPY + i, FIRST + i)
    t.push_pop("decode", 60, 100)
    t.graph_launch(70, corr=500)
    for i in range(3):
        t.kernel(MARLIN, 200 + 20 * i, 10, corr=500, node=COPY + i)
    t.kernel(CAST, 400, 5, launch=80)
    return t


def graph_level_rows(schema: str) -> Callable[[Path], TraceBuilder]:
    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder(schema=schema)
        for i, start in enumerate((1000, 6000)):
            t.graph_trace(start, 4000, corr=900 + i)
            t.graph_launch(start - 100, 10, corr=900 + i)
        t.kernel(MARLIN, 100, 600, launch=20)
        t.kernel(CAST, 11000, 400, launch=10900)
        return t

    return build


def replay_beside_kernels(_: Path) -> TraceBuilder:
    """Kernels on another stream take their own time; the rest of the replay is opaque, also under copies."""
    t = TraceBuilder(schema="3.16.1")
    t.graph_launch(0, corr=900)
    t.graph_trace(100, 400, corr=900)
    t.kernel(MARLIN, 50, 100, launch=10, stream=20)
    t.memcpy(300, 300, stream=21)
    t.kernel(RMS_NORM, 700, 100, launch=20, stream=20)
    return t


def replay_at_the_edges(_: Path) -> TraceBuilder:
    """The default window includes opaque replays."""
    t = TraceBuilder(schema="3.16.1")
    t.graph_launch(0, corr=900)
    t.graph_trace(100, 50, corr=900)
    t.kernel(MARLIN, 200, 100, launch=10)
    t.graph_launch(20, corr=901)
    t.graph_trace(300, 60, corr=901)
    return t


def bare_launches(_: Path) -> TraceBuilder:
    """2023.4 has no row for a replay: it may run until the next operation or synchronisation."""
    t = TraceBuilder()
    t.kernel(MARLIN, 100, 600, launch=20)
    t.graph_launch(900, 100)
    t.api("cudaDeviceSynchronize_v3020", 1100, 3900)
    t.graph_launch(5900, 100)
    t.kernel(CAST, 11000, 400, launch=10900)
    return t


def bare_launch_beside_another_gpu(_: Path) -> TraceBuilder:
    """An operation of another GPU does not end a replay on this one."""
    t = TraceBuilder()
    t.kernel(MARLIN, 100, 100, launch=20, device=0, tid=1000)
    t.kernel(MARLIN, 100, 100, launch=20, device=1, tid=1001)
    t.graph_launch(190, 10, tid=1001)
    t.kernel(CAST, 300, 100, launch=250, device=0, tid=1000)
    t.kernel(CAST, 500, 100, launch=450, device=1, tid=1001)
    return t


def failed_graph_launch(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 100, launch=0)
    t.graph_launch(100, 10, returned=900)
    t.kernel(MARLIN, 200, 100, launch=150)
    return t


def only_replays(rows: bool) -> Callable[[Path], TraceBuilder]:
    def build(_: Path) -> TraceBuilder:
        t = TraceBuilder(schema="3.16.1" if rows else "3.7.2")
        t.process(1000)
        if rows:
            t.graph_trace(100, 500, corr=900)
        t.graph_launch(50, corr=900)
        t.memcpy(0, 40, launch=0)
        return t

    return build


NOT_MISSING = ["capture-ranges-missing", "opaque-graphs", "kernels-without-launch"]
GRAPH_LEVEL = Want(
    categories={(GPU, "gemm.marlin"): (600, 1), (GPU, "cast"): (400, 1)},
    gpus={
        GPU: {
            "graph_launch_count": 2,
            "opaque_graph_count": 2,
            "busy_ns": 1000,
            "idle_ns": 2300,
            "window_ns": 11300,
        }
    },
    wall={(GPU, "gemm.marlin"): 600, (GPU, "cast"): 400, (GPU, "opaque graph"): 8000, (GPU, "idle"): 2300},
    warnings={"opaque-graphs": 2},
    says=["cuda-graph-trace=node"],
)

CASES = [
    Case(
        "a_replayed_kernel_has_its_capture_path",
        captured(),
        Want(
            ranges=replayed("layer0"),
            inclusive={"decode": 900, "layer0": 900, "warm-up": 0},
            gpus={GPU: {"kernel_count": 6, "kernel_ns": 900, "graph_launch_count": 2, "opaque_graph_count": 0}},
            silent=NOT_MISSING,
        ),
    ),
    *[
        Case(f"and_with_rows_shuffled_{seed}", captured(shuffle=seed), Want(ranges=replayed("layer0")))
        for seed in range(3)
    ],
    Case("and_in_the_table_of_2024", captured("3.16.1"), Want(ranges=replayed("layer0"), silent=NOT_MISSING)),
    Case("and_in_the_table_of_2026", captured("3.28.1"), Want(ranges=replayed("layer0"), silent=NOT_MISSING)),
    Case("clones_of_clones_lead_to_the_first_node", captured(clones=3), Want(ranges=replayed("layer0"))),
    Case("a_node_launched_without_instance", captured(clones=0), Want(ranges=replayed("layer0"))),
    Case(
        "without_a_begin_call_nothing_is_dropped",
        captured(begin=False),
        Want(ranges=replayed("warm-up", "layer0")),
    ),
    Case(
        "capture_ranges_at_negative_times_count",
        captured(shift=-5000),
        Want(ranges=replayed("layer0"), silent=["capture-ranges-missing"]),
    ),
    Case(
        "an_instance_in_the_launch_path_is_not_repeated",
        captured(inside=True),
        Want(
            ranges=[
                Range(("layer0", "decode", "attention"), 200, 2, via="capture"),
                Range(("layer0", "decode", "experts"), 600, 2, via="capture"),
                Range(("layer0", "decode"), 100, 2, via="launch"),
            ],
            inclusive={"layer0": 900},
        ),
    ),
    Case("the_capturing_threads_ranges_count", captured_elsewhere, Want(ranges=replayed("layer0"))),
    Case(
        "of_several_captures_the_one_in_progress_counts",
        second_capture,
        Want(
            ranges=[
                Range(None, 10, 1, via="launch"),
                Range(("layer",), 20, 1, via="capture"),
            ]
        ),
    ),
    Case(
        "a_node_without_row_has_its_launch_path",
        node_without_row,
        Want(ranges=[Range(("decode",), 10, 1, via="launch")], warnings={"capture-ranges-missing": 1}),
    ),
    Case(
        "no_table_of_nodes",
        captured(without=("CUDA_GRAPH_EVENTS",)),
        Want(ranges=[Range(("decode",), 900, 6, via="launch")], warnings={"capture-ranges-missing": 6}),
    ),
    Case(
        "no_column_of_nodes",
        captured(without=(f"{KERNEL}.graphNodeId",)),
        Want(ranges=[Range(("decode",), 900, 6, via="launch")]),
    ),
    Case(
        "captured_under_no_range_is_not_missing",
        captured_without_ranges,
        Want(ranges=[Range(("decode",), 10, 1, via="launch")], silent=["capture-ranges-missing"]),
    ),
    Case(
        "captured_before_the_recording",
        before_the_recording,
        Want(ranges=[Range(("decode",), 35, 4, via="launch")], warnings={"capture-ranges-missing": 3}),
    ),
    Case("graph_level_rows_are_opaque", graph_level_rows("3.16.1"), GRAPH_LEVEL),
    Case("and_in_2026", graph_level_rows("3.28.1"), GRAPH_LEVEL),
    Case(
        "kernels_beside_a_replay_take_their_time_from_it",
        replay_beside_kernels,
        Want(
            wall={
                (GPU, "gemm.marlin"): 100,
                (GPU, "opaque graph"): 350,
                (GPU, "memcpy"): 100,
                (GPU, "norm"): 100,
                (GPU, "idle"): 100,
            },
            gpus={GPU: {"busy_ns": 200, "window_ns": 750, "opaque_graph_count": 1}},
        ),
    ),
    Case(
        "the_window_includes_opaque_replays",
        replay_at_the_edges,
        Want(
            windows=[(100, 360)],
            wall={(GPU, "opaque graph"): 110, (GPU, "gemm.marlin"): 100, (GPU, "idle"): 50},
        ),
    ),
    Case(
        "a_launch_without_row_may_run_until_the_next_operation_or_synchronisation",
        bare_launches,
        Want(
            gpus={GPU: {"graph_launch_count": 2, "opaque_graph_count": 2, "window_ns": 11300}},
            wall={
                (GPU, "gemm.marlin"): 600,
                (GPU, "opaque graph"): 4000 + 5000,
                (GPU, "cast"): 400,
                (GPU, "idle"): 1300,
            },
            warnings={"opaque-graphs": 2},
            says=["cuda-graph-trace=node"],
        ),
    ),
    Case(
        "it_belongs_to_the_gpu_of_its_threads_launches",
        bare_launch_beside_another_gpu,
        Want(
            gpus={
                "0:0": {"opaque_graph_count": 0, "idle_ns": 300},
                "0:1": {"opaque_graph_count": 1, "idle_ns": 0},
            },
            wall={
                ("0:0", "gemm.marlin"): 100,
                ("0:0", "cast"): 100,
                ("0:0", "idle"): 300,
                ("0:1", "gemm.marlin"): 100,
                ("0:1", "opaque graph"): 300,
                ("0:1", "cast"): 100,
            },
        ),
    ),
    Case(
        "a_launch_that_failed_launched_nothing",
        failed_graph_launch,
        Want(wall={(GPU, "gemm.marlin"): 200, (GPU, "idle"): 100}, silent=["opaque-graphs"]),
    ),
]

REFUSALS = [
    Case(
        f"every_kernel_inside_opaque_replays_{'with' if rows else 'without'}_rows",
        only_replays(rows),
        Refusal(3, says=[["cuda-graph-trace=node"]]),
        oracle=False,
    )
    for rows in (True, False)
]


@pytest.mark.parametrize("case", params(CASES))
def test_oracle_gives_the_right_answer(case: Case, tmp_path: Path) -> None:
    check_oracle(case, tmp_path)


@needs_product
@pytest.mark.parametrize("case", params(CASES + REFUSALS))
def test_attribute_gives_the_right_answer(case: Case, tmp_path: Path, run_in_process, unchanged) -> None:
    check_product(case, tmp_path, run_in_process, unchanged)
