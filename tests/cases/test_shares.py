"""Shares of kernel time: what is in the denominator, and what a kernel is."""

from __future__ import annotations

from pathlib import Path

import pytest
from casekit import Case, Want, check_oracle, check_product, names, needs_product, params
from tracekit import (
    ADD,
    ALL_GATHER,
    ALL_REDUCE,
    ATTENTION,
    CAST,
    CAST_DYNAMIC,
    CUSTOM_ALL_REDUCE,
    KERNEL,
    MARLIN,
    MARLIN_MOE,
    PLAIN_COPY,
    REPACK,
    REPACK_AWQ,
    RMS_NORM,
    TABLES,
    KernelName,
    TraceBuilder,
    unknown,
)

GPU = "0:0"


def copies_beside_kernels(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(CAST, 0, 200)
    t.kernel(CAST_DYNAMIC, 300, 100)
    t.kernel(MARLIN, 500, 500)
    t.kernel(ALL_REDUCE, 1100, 100, stream=20)
    t.kernel(ATTENTION, 1300, 100)
    t.memcpy(2000, 9000)
    t.memset(12000, 500)
    t.sync(0, 20000)
    return t


def copies_between_gpus(_: Path) -> TraceBuilder:
    """A peer-to-peer copy moves data between GPUs and is no communication kernel."""
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 100)
    t.memcpy(100, 300, kind=10)
    t.kernel(MARLIN, 400, 100)
    return t


def nccl_of_all_versions(_: Path) -> TraceBuilder:
    spellings = (
        "ncclAllReduceRingLLKernel_sum_f16(ncclColl)",
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm *, unsigned long, ncclWork *)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)",
        "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)",
        "ncclDevKernel_AllReduce_bf16_RING(ncclDevKernelArgsStorage<4096ul>)",
    )
    t = TraceBuilder()
    for i, name in enumerate(spellings):
        t.kernel(KernelName(name.partition("(")[0], name, "", ""), 200 * i, 100, stream=20)
    t.kernel(MARLIN, 5000, 300)
    return t


def nccl_and_custom(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(ALL_REDUCE, 0, 100)
    t.kernel(ALL_GATHER, 200, 50)
    t.kernel(CUSTOM_ALL_REDUCE, 300, 25)
    t.kernel(RMS_NORM, 400, 25)
    return t


def repacking(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(REPACK, 0, 4000)
    t.kernel(REPACK_AWQ, 5000, 1000)
    t.kernel(MARLIN, 7000, 3000)
    t.kernel(MARLIN_MOE, 11000, 2000)
    return t


def one_short_name(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(CAST, 0, 300)
    t.kernel(CAST_DYNAMIC, 400, 100)
    t.kernel(ADD, 600, 500)
    t.kernel(PLAIN_COPY, 1200, 100)
    return t


def nothing_known(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(unknown("zzz_frobnicate_v9(int)"), 0, 300)
    t.kernel(MARLIN, 300, 100)
    return t


def name_without_string(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 100)
    t.kernel(CAST, 100, 50, demangledName=98765, shortName=98766)
    return t


def hostile_names(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    for i, name in enumerate(("</script><b>x", "two\nlines", "nul\x00inside", "", "=1+1", "x" * 20000)):
        t.kernel(unknown(name), 100 * i, 10 + i)
    t.kernel(unknown(b"broken \xff\xfe bytes"), 1000, 20)
    t.kernel(MARLIN, 2000, 100)
    return t


def zero_lengths_only(_: Path) -> TraceBuilder:
    """Every kernel lasts no time: shares are 0, never NaN."""
    t = TraceBuilder()
    t.kernel(MARLIN, 5, 0)
    t.kernel(CAST, 5, 0)
    return t


def one_zero_length_in_front(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 5, 0)
    t.kernel(CAST, 10, 10)
    t.kernel(CAST, 20, 0)
    return t


def shuffled(seed: int, schema: str) -> TraceBuilder:
    t = TraceBuilder(schema=schema, shuffle=seed)
    t.push_pop("decode", 0, 3000)
    t.kernel(CAST, 3000, 1000, launch=30)
    t.kernel(MARLIN, 0, 2000, launch=10)
    t.kernel(ALL_REDUCE, 1000, 500, stream=20, launch=20)
    for i in range(20):
        t.kernel(RMS_NORM, 5000 + 10 * i, 5, launch=100 + i)
    return t


def schema_of_2026(_: Path) -> TraceBuilder:
    """Columns in mid-table, an old table name with another meaning, and tables that are unknown here."""
    t = TraceBuilder(schema="3.28.1")
    t.add("CUDA_GRAPH_EVENTS", graphId=5, originalGraphId=None, graphExecId=6, nameId=t.string("Graph Creation"))
    t.table("CUDA_GRAPH_NODE_EVENTS")
    t.push_pop("decode", 0, 100)
    t.kernel(MARLIN, 1000, 600, launch=10, addedInTheMiddle=99, graphId=5)
    t.kernel(CAST, 2000, 400, launch=20, addedInTheMiddle=98)
    return t


def schema_of_2020(_: Path) -> TraceBuilder:
    t = TraceBuilder(schema="2.9.1", without=(f"{KERNEL}.graphNodeId", f"{KERNEL}.launchType"))
    t.push_pop("decode", 0, 100)
    t.kernel(MARLIN, 1000, 600, launch=10)
    t.kernel(CAST, 2000, 400, launch=20)
    return t


def bare_tables(_: Path) -> TraceBuilder:
    """Kernels and strings and nothing else: no export metadata, no runtime, no NVTX."""
    t = TraceBuilder(without=tuple(table for table in TABLES if table not in (KERNEL, "StringIds")))
    t.kernel(MARLIN, 1000, 600)
    t.kernel(CAST, 2000, 400)
    return t


DECODE = {(GPU, "gemm.marlin"): (600, 1), (GPU, "cast"): (400, 1)}
SHUFFLED = Want(
    categories={
        (GPU, "cast"): (1000, 1),
        (GPU, "gemm.marlin"): (2000, 1),
        (GPU, "comm.allreduce"): (500, 1),
        (GPU, "norm"): (100, 20),
    },
    gpus={GPU: {"busy_ns": 3100, "window_ns": 5195, "nccl_ns": 500, "exposed_nccl_ns": 0}},
    inclusive={"decode": 3600},
    windows=[(0, 5195)],
)

CASES = [
    Case(
        "copies_are_not_in_the_denominator",
        copies_beside_kernels,
        Want(
            gpus={GPU: {"kernel_ns": 1000, "kernel_count": 5, "window_ns": 1400, "busy_ns": 1000}},
            categories={
                (GPU, "cast"): (300, 2),
                (GPU, "gemm.marlin"): (500, 1),
                (GPU, "comm.allreduce"): (100, 1),
                (GPU, "attention.other"): (100, 1),
            },
            windows=[(0, 1400)],
        ),
    ),
    Case(
        "a_copy_between_gpus_is_no_communication",
        copies_between_gpus,
        Want(
            gpus={GPU: {"communication_ns": 0, "idle_ns": 0, "no_kernel_ns": 300}},
            wall={(GPU, "gemm.marlin"): 200, (GPU, "memcpy"): 300},
        ),
    ),
    Case(
        "every_generation_of_nccl_is_nccl",
        nccl_of_all_versions,
        Want(gpus={GPU: {"nccl_ns": 700, "communication_ns": 700, "kernel_ns": 1000, "kernel_count": 8}}),
        oracle=False,
    ),
    Case(
        "custom_all_reduce_is_communication_and_not_nccl",
        nccl_and_custom,
        Want(
            gpus={
                GPU: {
                    "communication_ns": 175,
                    "nccl_ns": 150,
                    "exposed_communication_ns": 175,
                    "exposed_nccl_ns": 150,
                }
            },
            categories={
                (GPU, "comm.allreduce"): (125, 2),
                (GPU, "comm.allgather"): (50, 1),
                (GPU, "norm"): (25, 1),
            },
            families={
                (GPU, "nccl_allreduce"): (100, 1),
                (GPU, "nccl_allgather"): (50, 1),
                (GPU, "custom_allreduce"): (25, 1),
                (GPU, "norm"): (25, 1),
            },
        ),
    ),
    Case(
        "repacking_weights_is_no_gemm",
        repacking,
        Want(categories={(GPU, "gemm.marlin"): (5000, 2), (GPU, "other"): (5000, 2)}),
    ),
    Case(
        "the_short_name_does_not_decide",
        one_short_name,
        Want(categories={(GPU, "cast"): (400, 2), (GPU, "elementwise"): (500, 1), (GPU, "memory"): (100, 1)}),
    ),
    Case(
        "what_no_rule_knows_stays_visible",
        nothing_known,
        Want(
            categories={(GPU, "unclassified"): (300, 1), (GPU, "gemm.marlin"): (100, 1)},
            warnings={"unclassified": None},
            says=["zzz_frobnicate_v9"],
        ),
    ),
    Case(
        "a_name_id_without_string_keeps_its_time",
        name_without_string,
        Want(
            kernels={MARLIN.demangled: (100, 1), "<string 98765>": (50, 1)},
            categories={(GPU, "gemm.marlin"): (100, 1), (GPU, "unclassified"): (50, 1)},
        ),
    ),
    Case(
        "hostile_names_are_names",
        hostile_names,
        Want(
            kernels={
                "</script><b>x": (10, 1),
                "two\nlines": (11, 1),
                "nul\x00inside": (12, 1),
                "": (13, 1),
                "=1+1": (14, 1),
                "x" * 20000: (15, 1),
                "broken \ufffd\ufffd bytes": (20, 1),
                MARLIN.demangled: (100, 1),
            },
        ),
    ),
    Case(
        "kernels_that_last_no_time_give_no_nan",
        zero_lengths_only,
        Want(
            gpus={GPU: {"kernel_ns": 0, "kernel_count": 2, "window_ns": 0, "busy_ns": 0, "idle_ns": 0}},
            kernels=names((MARLIN, (0, 1)), (CAST, (0, 1))),
            windows=[(5, 5)],
        ),
    ),
    Case(
        "a_kernel_of_no_length_at_either_edge_counts",
        one_zero_length_in_front,
        Want(
            categories={(GPU, "gemm.marlin"): (0, 1), (GPU, "cast"): (10, 2)},
            gpus={GPU: {"kernel_count": 3, "window_ns": 15, "idle_ns": 5}},
        ),
    ),
    *[
        Case(f"rows_in_any_order_{seed}_{schema}", lambda _, s=seed, v=schema: shuffled(s, v), SHUFFLED)
        for seed, schema in ((1, "3.7.2"), (2, "3.16.1"), (3, "3.28.1"), (4, "2.9.1"))
    ],
    Case("schema_of_2026", schema_of_2026, Want(categories=DECODE, inclusive={"decode": 1000})),
    Case("schema_of_2020", schema_of_2020, Want(categories=DECODE, inclusive={"decode": 1000})),
    Case(
        "kernels_and_strings_alone",
        bare_tables,
        Want(categories=DECODE, warnings={"kernels-without-launch": 2}),
    ),
    Case(
        "a_schema_newer_than_all_known_is_read_and_said",
        lambda _: shuffled(5, "9.0.0"),
        Want(categories=SHUFFLED.categories, warnings={"schema-newer": None}),
    ),
]


@pytest.mark.parametrize("case", params([c for c in CASES if c.oracle]))
def test_oracle_gives_the_right_answer(case: Case, tmp_path: Path) -> None:
    check_oracle(case, tmp_path)


@needs_product
@pytest.mark.parametrize("case", params(CASES))
def test_attribute_gives_the_right_answer(case: Case, tmp_path: Path, run_in_process, unchanged) -> None:
    check_product(case, tmp_path, run_in_process, unchanged)
