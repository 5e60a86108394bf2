"""The captures of the workloads on GPUs, and what the workloads measured in the same runs, say what the docs say."""

import importlib.util
import json
import sqlite3
import statistics
from collections import defaultdict
from contextlib import closing
from functools import cache
from itertools import pairwise

import jsonschema
import polars as pl
import pytest
from nsys_says import GOLDEN, path

from k25trace import attribute
from k25trace.checkup import check_report

BENCH = GOLDEN / "bench"
FILES = sorted(BENCH.glob("*.json"))
SCHEMA = json.loads((GOLDEN.parents[1] / "docs" / "reference" / "bench.schema.json").read_text(encoding="utf-8"))
DECODES = ["h200x1_decode_marlin", *(f"h200x2_decode_{name}" for name in ("marlin", "late", "second", "skew", "cast"))]
BENCHMARKS = ["h200x1_gemm", "h200x1_mla_attention", "h200x1_moe_routing", "h200x2_allreduce"]
WHOLE = [name for name in DECODES if not name.endswith("late")]

_spec = importlib.util.spec_from_file_location("agree", GOLDEN.parent / "gpu" / "agree.py")
agree = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(agree)


@cache
def said(name: str) -> dict:
    return json.loads((BENCH / f"{name}.json").read_text(encoding="utf-8"))


def row(found: dict, **wanted: object) -> dict:
    (one,) = [r for r in found["results"] if all({**r, **r["shape"]}.get(k) == v for k, v in wanted.items())]
    return one


# ---- the files


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_what_the_workloads_wrote_fits_the_schema_and_names_no_place(file):
    found = said(file.stem)
    assert [f"{e.json_path}: {e.message}" for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(found)] == []
    assert found["dirty"] == []
    assert '"/' not in file.read_text(encoding="utf-8")
    assert all(r["error"] <= r["tolerance"] for r in found["results"] if r["tolerance"] is not None and r["error"])


def test_golden_traces_are_small():
    sizes = {file.name: file.stat().st_size for file in GOLDEN.glob("*.sqlite")}
    assert {name for name, size in sizes.items() if size > 3_000_000} == set()
    assert sum(f.stat().st_size for f in GOLDEN.rglob("*") if f.is_file() and "__pycache__" not in f.parts) < 25_000_000


@pytest.mark.parametrize("trace", [*DECODES, *BENCHMARKS])
def test_nothing_is_missing_from_the_captures(trace):
    missing = {check.name for check in check_report(path(trace)) if check.status == "missing"}
    assert missing == ({"graph captures"} if trace.endswith("late") else set())


# ---- events and kernels


@pytest.mark.parametrize(("trace", "rows"), list(zip(BENCHMARKS, (9, 4, 4, 11), strict=True)))
def test_times_by_events_agree_with_the_kernels_that_nsys_recorded(trace, rows):
    with closing(sqlite3.connect(path(trace))) as database:
        found = list(agree.compare(said(trace), database))
    assert [one.name for one in found if not one.agrees] == []
    assert len(found) == rows == sum(r["time_ns"] is not None for r in said(trace)["results"])


# ---- attribution


@cache
def owners(trace: str, step: str) -> pl.DataFrame:
    found = attribute(path(trace), range_glob=step).ranges
    return found.with_columns(tail=pl.col("path").list.slice(1))


@pytest.mark.parametrize("trace", WHOLE)
def test_every_replayed_kernel_has_the_path_of_its_capture(trace):
    every = attribute(path(trace)).ranges.filter(pl.col("via") == "capture")
    with closing(sqlite3.connect(path(trace))) as database:
        (replayed,) = database.execute(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL"
        ).fetchone()
    assert every["kernel_count"].sum() == replayed > 0
    graph = owners(trace, "graph_step")
    assert set(graph["via"]) == {"capture"}
    assert graph["tail"].list.len().min() >= 1


@pytest.mark.parametrize("trace", WHOLE)
def test_a_replayed_step_has_the_kernels_of_an_eager_one_in_the_same_ranges(trace):
    def of_a_step(step: str) -> dict:
        (found,) = [r for r in said(trace)["results"] if r["name"] == step and r["recorded"]]
        key = ["gpu", "tail", "category"]
        counts = owners(trace, step).group_by(key).agg(pl.col("kernel_count").sum())
        return {(g, tuple(t), c): n / found["time_ns"]["n"] for g, t, c, n in counts.rows()}

    assert of_a_step("graph_step") == of_a_step("eager_step")


def expert_shares(trace: str) -> dict[str, float]:
    found = attribute(path(trace), range_glob="graph_step").inclusive.filter(pl.col("range") == "gemm.experts")
    by = found.group_by("category").agg(pl.col("kernel_ns").sum())
    total = by["kernel_ns"].sum()
    return {category: ns / total for category, ns in by.rows()}


def test_the_cast_path_spends_the_experts_time_on_casts_and_the_marlin_path_none():
    cast, marlin = expert_shares("h200x2_decode_cast"), expert_shares("h200x2_decode_marlin")
    assert max(cast, key=cast.__getitem__) == "cast"
    assert 0.45 < cast["cast"] < 0.55
    assert cast["cast"] + cast["elementwise"] > 0.9
    assert cast["gemm.dense"] < 0.06
    assert "cast" not in marlin
    assert marlin["gemm.marlin"] > 0.85


# ---- collectives


NVTX = """
    SELECT e.start, e.end, e.globalTid FROM NVTX_EVENTS e LEFT JOIN StringIds s ON e.textId = s.id
    WHERE e.eventType = 59 AND coalesce(e.text, s.value) = ? ORDER BY e.start
"""
LAUNCHED = """
    SELECT k.end - k.start, n.value, k.deviceId FROM CUPTI_ACTIVITY_KIND_RUNTIME r
    JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId
        AND k.globalPid & -16777216 = r.globalTid & -16777216
    JOIN StringIds n ON n.id = k.shortName
    WHERE r.globalTid = ? AND r.start >= ? AND r.start < ? ORDER BY k.start
"""
ALLREDUCE = "ncclDevKernel_AllReduce"


@cache
def instances(trace: str, name: str) -> dict[int, list[list[tuple[int, str]]]]:
    """Durations and names of the kernels of each instance of a range, by GPU, in order."""
    found = defaultdict(list)
    with closing(sqlite3.connect(path(trace))) as database:
        for start, end, thread in database.execute(NVTX, (name,)).fetchall():
            kernels = database.execute(LAUNCHED, (thread, start, end)).fetchall()
            found[kernels[0][2]].append([(ns, kernel) for ns, kernel, _ in kernels])
    return dict(found)


def reduces(trace: str, name: str) -> list[tuple[int, int]]:
    """Durations of each all-reduce on the two GPUs."""
    of = instances(trace, name)
    durations = [[ns for one in of[gpu] for ns, kernel in one if kernel.startswith(ALLREDUCE)] for gpu in (0, 1)]
    return list(zip(*durations, strict=True))


def test_an_eager_step_waits_in_its_all_reduces_and_a_replayed_one_does_not():
    shares = {}
    for step in ("eager_step", "graph_step"):
        of = attribute(path("h200x2_decode_marlin"), range_glob=step).categories.filter(pl.col("gpu") == "all")
        shares[step] = of.filter(pl.col("category") == "comm.allreduce")["kernel_share"].item()
    assert shares["eager_step"] > 0.6
    assert shares["graph_step"] < 0.05
    # The rank that comes last does not wait: what it takes is the transfer, and that is alike.
    last = {s: statistics.median(map(min, reduces("h200x2_decode_marlin", s))) for s in shares}
    assert last["eager_step"] == pytest.approx(last["graph_step"], abs=1_000)


def test_an_isolated_burst_is_as_fast_as_the_step_s_own_and_far_from_the_link():
    burst = statistics.median(map(min, reduces("h200x2_allreduce", "bench.burst_graph_m4")))
    in_situ = statistics.median(map(min, reduces("h200x2_decode_marlin", "graph_step")))
    assert burst == pytest.approx(5_600, abs=300)
    assert in_situ == pytest.approx(6_400, abs=500)
    assert row(said("h200x2_allreduce"), name="allreduce.burst", variant="graph")["link_share"] < 0.03


def test_nccl_s_support_for_graph_mixing_costs_a_burst_most_of_its_time():
    found = said("h200x2_allreduce_mixing")
    on, off = (
        row(found, name="allreduce.burst", variant=f"graph, NCCL_GRAPH_MIXING_SUPPORT={value}", M=4)["time_ns"]["p50"]
        for value in ("(unset)", "0")
    )
    assert on > 3 * off


def test_graph_mixing_shows_as_idle_before_the_step_s_all_reduces():
    query = """
        SELECT k.deviceId, k.correlationId, k.start, k.end, n.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds n ON n.id = k.shortName WHERE k.graphNodeId IS NOT NULL ORDER BY k.deviceId, k.start
    """
    with closing(sqlite3.connect(path("h200x2_decode_marlin"))) as database:
        kernels = database.execute(query).fetchall()
    gaps = defaultdict(list)
    for (*replay, _, end, _), (*following, start, _, name) in pairwise(kernels):
        if replay == following:
            gaps[name.startswith(ALLREDUCE)].append(start - end)
    assert statistics.median(gaps[True]) == pytest.approx(2_100, abs=100)
    assert statistics.median(gaps[False]) < 200


def test_the_late_rank_makes_the_other_wait_as_long_as_it_is_late():
    of = instances("h200x2_decode_skew", "graph_step")
    late = [one[0] for one in of[1]]
    assert {kernel for _, kernel in late} == {"spin_kernel"}
    assert all(abs(ns - 300_000) < 6_000 for ns, _ in late)
    waits = [next(ns for ns, kernel in one if kernel.startswith(ALLREDUCE)) for one in of[0]]
    # The first replay after the eager steps finds the ranks apart.
    assert all(290_000 < ns < 330_000 for ns in waits[1:])


# ---- runs that are compared with each other


def test_a_graph_captured_before_the_recording_runs_the_same_kernels_in_the_same_time():
    full, late, second = (instances(f"h200x2_decode_{name}", "graph_step") for name in ("marlin", "late", "second"))
    for gpu in (0, 1):
        runs = [full[gpu], late[gpu], second[gpu]]
        sequences = {tuple(kernel for _, kernel in one) for run in runs for one in run}
        assert len(sequences) == 1
        (sequence,) = sequences
        sums = [defaultdict(float), defaultdict(float)]
        for total, run in zip(sums, runs, strict=False):
            for place, kernel in enumerate(sequence):
                total[kernel] += statistics.median(one[place][0] for one in run)
        # What an all-reduce takes on one GPU depends on which of them waits.
        assert all(
            abs(ns / sums[0][kernel] - 1) < 0.05 for kernel, ns in sums[1].items() if not kernel.startswith(ALLREDUCE)
        )


def test_steps_of_one_rank_do_not_overlap():
    with closing(sqlite3.connect(path("h200x2_decode_marlin"))) as database:
        by_thread = defaultdict(list)
        for start, end, thread in database.execute(NVTX, ("graph_step",)):
            by_thread[thread].append((start, end))
    assert {len(spans) for spans in by_thread.values()} == {20}
    assert all(a[1] <= b[0] for spans in by_thread.values() for a, b in pairwise(spans))
