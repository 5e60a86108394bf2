"""Collectives against the brute force, against what a generator knows, on real traces, and by eye."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles_why import collectives, percentile, see
from strategies import traces
from tracekit import ALL_GATHER, ALL_REDUCE, CUSTOM_ALL_REDUCE, MARLIN, RMS_NORM, KernelName, TraceBuilder

from k25trace.classify import load_rules
from k25trace.collectives import Collectives, match_collectives
from k25trace.errors import CannotAnswer
from k25trace.report.collectives import answer, document

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
SCHEMA = json.loads((ROOT / "docs" / "reference" / "collectives.schema.json").read_text(encoding="utf-8"))
RANK_FIGURES = ("start_ns", "end_ns", "wait_ns", "transfer_ns", "compute_ns")


@cache
def rules() -> Any:
    return load_rules()


def classify(name: str) -> tuple[str, str]:
    match = rules().classify(name)
    return match.category, match.family


@cache
def golden(name: str, step: str | None = None) -> Collectives:
    return match_collectives(GOLDEN / f"{name}.sqlite", step=step)


def told(found: Collectives) -> dict[Any, dict[str, Any]]:
    """Return the product's collectives in the form of the oracle."""
    out = {}
    for c in document(found)["collectives"]:
        out[c["step"], c["family"], c["ordinal"]] = {
            "ranks": {(r["gpu"], r["process"]): {f: r[f] for f in RANK_FIGURES} for r in c["ranks"]},
            "skew_ns": c["skew_ns"],
            "late": None if c["late_gpu"] is None else (c["late_gpu"], c["late_process"]),
            "late_cause": c["late_cause"],
            "late_ran": c["late_ran"],
            "ended_early_count": c["ended_early_count"],
        }
    return out


def expected(path: Path, glob: str | None) -> tuple[dict[Any, dict[str, Any]], dict[Any, int]]:
    found, unmatched = collectives(see(path, classify), glob)
    return {k: {f: v for f, v in one.items() if f != "operations"} for k, one in found.items()}, unmatched


def check_laws(found: Collectives) -> None:
    """Assert what holds of every answer."""
    duration = pl.col("end_ns") - pl.col("start_ns")
    assert found.ranks.select((pl.col("wait_ns") + pl.col("transfer_ns") == duration).all()).item()
    assert found.ranks.select((pl.min_horizontal("wait_ns", "transfer_ns") >= 0).all()).item()
    for total in ("wait_ns", "transfer_ns"):
        of_ranks = int(found.ranks[total].sum())
        assert of_ranks == int(found.summary[total].sum()) == int(found.collectives[total].sum())
        assert of_ranks == int(found.sites.filter(pl.col("family") == "all")[total].sum())
    assert found.summary["count"].sum() == found.ranks.height
    judged = found.collectives["verdict"].is_null() == (found.collectives["ended_early_count"] > 0)
    assert judged.all()


@given(trace=traces(max_processes=3), glob=st.sampled_from(["step", "layer", "*", "s*"]))
def test_collectives_agree_with_the_brute_force(tmp_path: Path, trace: TraceBuilder, glob: str) -> None:
    path = trace.write(tmp_path / "trace.sqlite")
    want, unmatched = expected(path, glob)
    try:
        found = match_collectives(path, step=glob, rules=rules())
    except CannotAnswer:
        assert not want
        return
    assert told(found) == want
    left_out = {(s, f): n for s, f, n in found.unmatched.select("step", "family", "kernel_count").iter_rows()}
    assert left_out == unmatched
    check_laws(found)


ranks_of_kernels = st.lists(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=2, max_size=2), min_size=2, max_size=4
)


@given(
    ranks=ranks_of_kernels, families=st.lists(st.sampled_from([ALL_REDUCE, CUSTOM_ALL_REDUCE]), min_size=2, max_size=2)
)
def test_pairs_of_any_shape_agree_with_the_brute_force(
    tmp_path: Path, ranks: list[list[tuple[int, int]]], families: list[KernelName]
) -> None:
    """Two collectives of a step on two to four ranks, at any time and of any length, beside a GEMM."""
    t = TraceBuilder()
    for rank, kernels in enumerate(ranks):
        pid = t.process(1000 + rank)
        t.push_pop("step", 0, 30, pid=pid)
        t.kernel(MARLIN, 5 + rank, 12, pid=pid, device=rank, launch=1)
        for number, (start, length) in enumerate(kernels):
            t.kernel(families[number], start, length, pid=pid, device=rank, launch=3 + 2 * number, stream=20 + number)
    path = t.write(tmp_path / "trace.sqlite")
    want, unmatched = expected(path, "step")
    assert want
    assert not unmatched
    found = match_collectives(path, step="step", rules=rules())
    assert told(found) == want
    check_laws(found)


# ---- what a generator knows


@pytest.mark.parametrize("options", [(), ("--graph-mode", "node", "--custom-allreduce"), ("--skew", "3:200000")])
def test_eight_synthetic_ranks_are_exact(tmp_path: Path, options: tuple[str, ...]) -> None:
    made, truth_file = tmp_path / "t.sqlite", tmp_path / "t.json"
    maker = [
        sys.executable,
        ROOT / "tests" / "tools" / "make_trace.py",
        "--kernels",
        "30000",
        "--gpus",
        "8",
        "--layers",
        "6",
    ]
    subprocess.run([*maker, "--quiet", "--out", made, "--truth", truth_file, *options], check=True, timeout=120)
    truth = json.loads(truth_file.read_text(encoding="utf-8"))["collectives"]
    found = match_collectives(made)
    check_laws(found)
    assert found.unmatched.height == 0
    assert found.collectives.height == truth["count"]
    assert found.collectives["skew_ns"].sum() == truth["skew_ns"]
    assert found.collectives["skew_ns"].max() == truth["max_skew_ns"]
    by_rank = (
        found.summary.group_by("gpu").agg(pl.col("count", "wait_ns", "transfer_ns", "late_count").sum()).sort("gpu")
    )
    assert by_rank.rows() == [
        (f"0:{r['rank']}", r["count"], r["wait_ns"], r["transfer_ns"], r["late_count"]) for r in truth["ranks"]
    ]
    rows = truth["rows"]
    want = {}
    for i, step in enumerate(rows["step"]):
        for rank in range(8):
            key = (step, f"0:{rank}", rows["start_ns"][i][rank])
            want[key] = (rows["end_ns"][i][rank], rows["wait_ns"][i][rank], rows["transfer_ns"][i][rank])
    got = found.ranks.select("step", "gpu", "start_ns", "end_ns", "wait_ns", "transfer_ns").rows()
    assert {tuple(r[:3]): tuple(r[3:]) for r in got if tuple(r[:3]) in want} == want
    if options[:1] == ("--skew",):
        late = found.summary.group_by("gpu").agg(pl.col("late_count").sum()).sort("late_count")
        assert late["gpu"][-1] == "0:3"


# ---- real traces


def test_vllm_pairs_408_collectives_and_gpu_1_does_the_waiting() -> None:
    found = golden("h200x2_vllm_graph")
    check_laws(found)
    assert found.collectives.height == 408
    assert found.unmatched.height == 0
    assert found.collectives["step"].null_count() == 0
    families = dict(found.collectives.group_by("family").len().iter_rows())
    assert families == {"custom_allreduce": 352, "nccl_allreduce": 22, "nccl_allgather": 34}
    waits = dict(found.ranks.group_by("gpu").agg(pl.col("wait_ns").sum()).iter_rows())
    assert waits["0:1"] > 50 * waits["0:0"]
    # In every decode step but few it is GPU 1 that waits longer.
    by_step = (
        found.ranks.group_by("step", "gpu").agg(pl.col("wait_ns").sum()).pivot("gpu", index="step", values="wait_ns")
    )
    assert by_step.filter(pl.col("0:1") > pl.col("0:0")).height >= 0.9 * by_step.height
    for family in ("custom_allreduce", "nccl_allgather", "nccl_allreduce"):
        mine = found.ranks.filter(pl.col("family") == family)
        medians = [percentile(mine.filter(pl.col("gpu") == gpu)["transfer_ns"].to_list(), 50) for gpu in ("0:0", "0:1")]
        assert abs(medians[0] - medians[1]) <= 0.05 * max(medians)
    late = found.lateness.row(0, named=True)
    assert (late["gpu"], late["cause"], late["ran"]) == ("0:0", "launch", "idle")


@pytest.mark.parametrize(("name", "step"), [("h200x2_decode_graph", "graph_step"), ("h200x2_toy_eager", "step1")])
def test_real_traces_agree_with_the_brute_force(name: str, step: str) -> None:
    want, unmatched = expected(GOLDEN / f"{name}.sqlite", step)
    found = golden(name, step)
    # Looking at every pair of kernels would take minutes: what others ran is compared on random traces.
    for each in (want, got := told(found)):
        for one in each.values():
            for row in one["ranks"].values():
                row.pop("compute_ns")
    assert got == want
    assert unmatched == {}
    check_laws(found)


def test_the_transfer_of_eager_and_replayed_collectives_is_alike_and_the_wait_is_not() -> None:
    eager, replayed = (golden("h200x2_decode_graph", step) for step in ("eager_step", "graph_step"))
    medians = [percentile(each.ranks["transfer_ns"].to_list(), 50) for each in (eager, replayed)]
    assert abs(medians[0] - medians[1]) <= max(0.15 * max(medians), 2000)
    waits = [each.ranks["wait_ns"].sum() for each in (eager, replayed)]
    assert waits[0] > 20 * waits[1]


@pytest.mark.parametrize("name", ["h200x2_decode_graph", "h200x2_vllm_graph", "h200x2_toy_eager"])
def test_the_document_fits_its_schema(name: str) -> None:
    made = document(golden(name)) | {"warnings": []}
    assert [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(made)] == []


def test_one_gpu_cannot_be_compared(run_in_process: Any) -> None:
    done = run_in_process("collectives", GOLDEN / "h200x1_toy_graph.sqlite")
    assert (done.code, done.stdout) == (3, "")
    assert "no communication kernel" in done.stderr


# ---- by eye


def two_ranks(starts: tuple[int, int] = (100, 130), ends: tuple[int, int] = (150, 151), **more: Any) -> TraceBuilder:
    """One all-reduce of two ranks in a step."""
    t = TraceBuilder()
    for rank in range(2):
        pid = t.process(1000 + rank)
        t.push_pop("step", 10, 60, pid=pid)
        t.push_pop("layer0", 12, 58, pid=pid)
        launch = more.get("launches", (20, 20))[rank]
        t.kernel(
            more.get("kernel", ALL_REDUCE), starts[rank], ends[rank] - starts[rank], pid=pid, device=rank, launch=launch
        )
    return t


def test_the_early_rank_waits_and_the_late_one_only_transfers(tmp_path: Path) -> None:
    found = match_collectives(two_ranks().write(tmp_path / "t.sqlite"), step="step")
    assert found.ranks.select("gpu", "wait_ns", "transfer_ns").rows() == [("0:0", 30, 20), ("0:1", 0, 21)]
    one = found.collectives.row(0, named=True)
    assert (one["skew_ns"], one["late_gpu"], one["late_cause"], one["late_ran"]) == (30, "0:1", "gpu", "idle")
    assert one["path"] == ["layer0"]
    assert one["wait_share"] == pytest.approx(30 / 71)


def test_a_late_launch_is_told_from_a_late_gpu(tmp_path: Path) -> None:
    t = two_ranks(launches=(20, 110))
    t.rows["NVTX_EVENTS"][2]["end"] = 140  # the launch of rank 1 is inside its step
    found = match_collectives(t.write(tmp_path / "t.sqlite"))
    one = found.collectives.row(0, named=True)
    assert (one["late_cause"], one["launch_skew_ns"]) == ("launch", 90)


def test_what_the_late_rank_ran_when_the_others_began_to_wait_is_named(tmp_path: Path) -> None:
    t = two_ranks()
    t.kernel(MARLIN, 70, 55, pid=1001, device=1, launch=14)
    found = match_collectives(t.write(tmp_path / "t.sqlite"), step="step")
    one = found.collectives.row(0, named=True)
    assert (one["late_ran"], one["compute_spread_ns"]) == ("gemm.marlin", 55)


def test_a_rank_that_ends_before_the_last_arrives_leaves_no_verdict(tmp_path: Path) -> None:
    found = match_collectives(two_ranks(ends=(120, 151)).write(tmp_path / "t.sqlite"), step="step")
    one = found.collectives.row(0, named=True)
    assert (one["ended_early_count"], one["verdict"]) == (1, None)
    assert found.ranks.select("wait_ns", "transfer_ns").rows() == [(20, 0), (0, 21)]


@pytest.mark.parametrize(
    ("starts", "verdict"), [((100, 102), "transfer-dominated"), ((100, 196), "skew-dominated"), ((100, 170), "mixed")]
)
def test_verdicts_follow_the_share_of_wait(tmp_path: Path, starts: tuple[int, int], verdict: str) -> None:
    found = match_collectives(two_ranks(starts=starts, ends=(200, 200)).write(tmp_path / "t.sqlite"), step="step")
    assert found.collectives["verdict"].to_list() == [verdict]
    assert found.sites["verdict"].to_list() == [verdict] * 3


def test_ends_that_spread_as_far_as_the_kernels_last_are_inconclusive(tmp_path: Path) -> None:
    found = match_collectives(two_ranks(starts=(100, 105), ends=(110, 150)).write(tmp_path / "t.sqlite"), step="step")
    assert found.timestamp_error_ns == 40
    assert found.collectives["verdict"].to_list() == ["inconclusive"]


def test_counts_that_differ_are_left_out_with_a_reason(tmp_path: Path) -> None:
    t = two_ranks()
    t.kernel(ALL_GATHER, 160, 5, pid=1000, device=0, launch=30)
    t.kernel(ALL_GATHER, 170, 5, pid=1000, device=0, launch=32)
    t.kernel(ALL_GATHER, 165, 5, pid=1001, device=1, launch=30)
    found = match_collectives(t.write(tmp_path / "t.sqlite"), step="step")
    assert found.collectives["family"].to_list() == ["nccl_allreduce"]
    assert found.unmatched.rows() == [(0, "nccl_allgather", "ranks have 1 to 2 of them", 3)]


def test_ranks_that_call_a_step_by_different_kinds_are_not_compared(tmp_path: Path) -> None:
    t = TraceBuilder()
    for rank, name in enumerate(("prefill", "decode")):
        pid = t.process(1000 + rank)
        t.push_pop(name, 10, 60, pid=pid)
        t.kernel(ALL_REDUCE, 100, 10, pid=pid, device=rank, launch=20)
    with pytest.raises(CannotAnswer, match="pairs up") as refused:
        match_collectives(t.write(tmp_path / "t.sqlite"), step="*")
    assert refused.value.hint == "ranks call the step by different kinds"


def test_two_groups_of_ranks_that_do_not_end_together_are_kept_apart(tmp_path: Path) -> None:
    """Two tensor-parallel groups of two ranks; the second a millisecond behind the first."""
    t = TraceBuilder()
    for rank in range(4):
        pid = t.process(1000 + rank)
        t.push_pop("step", 10, 60, pid=pid)
        start = 100 + 7 * (rank % 2) + 1_000_000 * (rank // 2)
        t.kernel(ALL_REDUCE, start, 50 - 7 * (rank % 2), pid=pid, device=rank, launch=20)
    found = match_collectives(t.write(tmp_path / "t.sqlite"), step="step")
    assert found.collectives.select("group", "rank_count", "skew_ns").rows() == [(0, 2, 7), (2, 2, 7)]


def test_sizes_in_range_names_give_bandwidths(tmp_path: Path) -> None:
    t = two_ranks()
    for rank in range(2):
        t.push_pop("allreduce bytes=4000", 14, 50, pid=1000 + rank)
    found = match_collectives(t.write(tmp_path / "t.sqlite"), step="step")
    one = found.collectives.row(0, named=True)
    assert one["size_bytes"] == 4000
    assert one["algbw_bytes_per_s"] == pytest.approx(4000 / 20e-9)
    assert one["busbw_bytes_per_s"] == pytest.approx(4000 / 20e-9)


def test_copies_between_gpus_are_matched_where_they_repeat(tmp_path: Path) -> None:
    t = two_ranks()
    for rank in range(2):
        t.memcpy(200 + 10 * rank, 30 - 10 * rank, pid=1000 + rank, device=rank, launch=40)
        t.rows["CUPTI_ACTIVITY_KIND_MEMCPY"][-1]["copyKind"] = 10
    found = match_collectives(t.write(tmp_path / "t.sqlite"), step="step")
    assert found.collectives["family"].to_list() == ["nccl_allreduce", "p2p_copy"]


def test_reports_of_two_ranks_are_brought_to_one_clock(tmp_path: Path) -> None:
    """Each rank in a report of its own, the second's clock 5,000 ns behind."""
    paths = []
    for rank, behind in enumerate((0, 5000)):
        t = TraceBuilder()
        pid = t.process(1000 + rank)
        for i in range(5):
            at = 100_000 * (i + 1) - behind
            t.push_pop("step", at, at + 60, pid=pid)
            t.kernel(RMS_NORM, at + 40, 3, pid=pid, launch=at + 5)
            start = at + 100 + 30 * rank
            t.kernel(ALL_REDUCE, start, at + 200 - start, pid=pid, launch=at + 20)
        paths.append(t.write(tmp_path / f"rank{rank}.sqlite"))
    found = match_collectives(paths)
    assert found.reports.select("shift_ns", "residual_ns").rows() == [(0, 0), (5000, 0)]
    assert found.collectives.height == 5
    assert found.ranks.group_by("gpu").agg(pl.col("wait_ns").sum()).sort("gpu").rows() == [("0:0", 150), ("1:0", 0)]


def test_clocks_that_cannot_be_aligned_are_refused(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        t = TraceBuilder()
        pid = t.process(1000 + rank)
        for i in range(5):
            at = 1_000_000 * (i + 1) + (rank * 300_000 * i)
            t.push_pop("step", at, at + 60, pid=pid)
            t.kernel(ALL_REDUCE, at + 100, 100, pid=pid, launch=at + 20)
        paths.append(t.write(tmp_path / f"rank{rank}.sqlite"))
    with pytest.raises(CannotAnswer, match="cannot be aligned"):
        match_collectives(paths)


def test_a_throttled_gpu_is_named_from_the_manifest(tmp_path: Path) -> None:
    path = two_ranks().write(tmp_path / "t.sqlite")
    gpus = [{"index": 0, "throttle": ["idle"]}, {"index": 1, "throttle": ["power cap"]}]
    manifest = {"gpus": {"before": {"gpus": gpus}, "after": {"gpus": []}}}
    (tmp_path / "t.k25.json").write_text(json.dumps(manifest), encoding="utf-8")
    found = match_collectives(path, step="step")
    assert found.gpus["throttle"].to_list() == [[], ["power cap"]]
    (tmp_path / "t.k25.json").write_text("[1]", encoding="utf-8")
    assert match_collectives(path, step="step").gpus["throttle"].to_list() == [None, None]


# ---- command line


def test_the_command_writes_every_format(run_in_process: Any) -> None:
    trace = GOLDEN / "h200x2_vllm_graph.sqlite"
    table = run_in_process("collectives", trace)
    assert table.code == 0
    assert "matched: 408 collectives of 2 ranks" in table.stdout
    made = json.loads(run_in_process("collectives", trace, "-f", "json").stdout)
    assert made["schema"] == "k25trace.collectives/1"
    assert [len(c["ranks"]) for c in made["collectives"]] == [2] * 408
    rows = run_in_process("collectives", trace, "-f", "csv", "--no-header").stdout.splitlines()
    assert len(rows) == 1 + 2 * 408
    assert "### By site" in run_in_process("collectives", trace, "-f", "markdown").stdout


def test_a_process_in_two_reports_is_not_matched_with_itself(tmp_path: Path) -> None:
    copies = [two_ranks().write(tmp_path / name) for name in ("a.sqlite", "b.sqlite")]
    with pytest.raises(CannotAnswer, match="of one session and both hold process"):
        match_collectives(copies, step="step")


@pytest.mark.parametrize("size", ["9" * 18, "9" * 30, "1" + "0" * 17 + "GiB"])
def test_a_size_beyond_every_memory_is_none(tmp_path: Path, size: str) -> None:
    t = TraceBuilder()
    for rank in range(2):
        pid = t.process(1000 * (rank + 1))
        t.push_pop("step", 10, 60, pid=pid)
        t.push_pop(f"allreduce bytes={size}", 15, 50, pid=pid)
        t.kernel(ALL_REDUCE, 100 + rank, 50, pid=pid, launch=20, device=rank)
    found = match_collectives(t.write(tmp_path / "t.sqlite"), step="step").collectives
    assert found["size_bytes"].to_list() == [10**18 - 1 if size == "9" * 18 else None]


def test_the_table_says_what_is_below_no_range_and_outside_the_steps(tmp_path: Path) -> None:
    t = TraceBuilder()
    for rank in range(2):
        pid = t.process(1000 + rank)
        for i in range(3):
            at = 1000 * (i + 1)
            t.push_pop("step", at, at + 60, pid=pid)
            t.kernel(MARLIN, at + 30, 20, pid=pid, launch=at + 5, device=rank)
            t.kernel(ALL_REDUCE, at + 100, 50, pid=pid, launch=at + 20, device=rank)
        t.kernel(ALL_REDUCE, 9000, 50, pid=pid, launch=8000, device=rank)
    made = answer(match_collectives(t.write(tmp_path / "t.sqlite")))
    assert dict(made.facts)["matched"] == "4 collectives of 2 ranks, 1 of them outside the steps"
    assert {row[0] for row in made.sections[-1].rows} == {"(no range of its own)"}


def test_the_median_of_the_table_is_that_of_the_document(tmp_path: Path) -> None:
    """Of an even number of transfers a median is the lower of the middle ones: one that was measured."""
    t = TraceBuilder()
    for rank in range(2):
        pid = t.process(1000 * (rank + 1))
        for i, length in enumerate((100, 200)):
            at = 1000 * (i + 1)
            t.push_pop("step", at, at + 60, pid=pid)
            t.kernel(ALL_REDUCE, at + 100, length, pid=pid, launch=at + 20, device=rank)
    found = match_collectives(t.write(tmp_path / "t.sqlite"), step="step")
    assert found.summary["p50_transfer_ns"].to_list() == [100, 100]
    shown = answer(found).sections[1]
    at = [column.heading for column in shown.columns].index("p50")
    assert [row[at] for row in shown.rows] == ["100 ns", "100 ns"]
