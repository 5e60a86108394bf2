"""Gaps against the brute force, against what a generator knows, on real traces, and by eye."""

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
from oracles_why import gaps, see
from strategies import traces
from tracekit import MARLIN, RMS_NORM, TraceBuilder

from k25trace import attribute
from k25trace.classify import load_rules
from k25trace.gaps import CAUSES, Gaps, find_gaps
from k25trace.report.gaps import answer, document
from k25trace.selection import Bounds

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
SCHEMA = json.loads((ROOT / "docs" / "reference" / "gaps.schema.json").read_text(encoding="utf-8"))
FIGURES = ("cause", "before", "after", "blocked_ns", "host_ns", "latency_ns")


@cache
def rules() -> Any:
    return load_rules()


def classify(name: str) -> tuple[str, str]:
    match = rules().classify(name)
    return match.category, match.family


@cache
def golden(name: str) -> Gaps:
    return find_gaps(GOLDEN / f"{name}.sqlite")


def check_laws(found: Gaps) -> None:
    """Assert what holds of every answer."""
    idle = dict(found.gpus.select("gpu", "idle_ns").iter_rows())
    summed = dict(found.summary.group_by("gpu").agg(pl.col("gap_ns").sum()).iter_rows())
    assert {gpu: summed.get(gpu, 0) for gpu in idle} == idle
    binned = dict(found.histogram.group_by("gpu").agg(pl.col("gap_ns").sum()).iter_rows())
    assert {gpu: binned.get(gpu, 0) for gpu in idle} == idle
    for frame in (found.gaps, found.summary):
        assert frame.select((pl.sum_horizontal("blocked_ns", "host_ns", "latency_ns") == pl.col("gap_ns")).all()).item()
        assert frame.select((pl.min_horizontal("blocked_ns", "host_ns", "latency_ns") >= 0).all()).item()
    assert set(found.summary["cause"]) <= set(CAUSES)
    assert found.gaps.filter(pl.col("gap_ns") < found.min_ns).height == 0


@given(
    trace=traces(),
    least=st.sampled_from([1, 3, 8]),
    window=st.one_of(st.none(), st.tuples(st.integers(0, 60), st.integers(1, 60)).map(lambda w: (w[0], w[0] + w[1]))),
    overhead=st.lists(st.tuples(st.just(1000), st.integers(0, 60), st.integers(1, 30)), max_size=3),
)
def test_gaps_agree_with_the_brute_force(
    tmp_path: Path, trace: TraceBuilder, least: int, window: Any, overhead: list[tuple[int, int, int]]
) -> None:
    from k25trace.errors import CannotAnswer

    spans = [(pid, start, start + length) for pid, start, length in overhead]
    for pid, start, end in spans:
        trace.overhead(start, end, pid=pid)
    path = trace.write(tmp_path / "trace.sqlite")
    want, short = gaps(see(path, classify), least, window, spans)
    try:
        found = find_gaps(path, minimum=least, window=None if window is None else Bounds(*window), rules=rules())
    except CannotAnswer:
        assert window is not None  # no kernel runs there
        return
    check_laws(found)
    got = {(g["gpu"], g["start_ns"], g["end_ns"]): {f: g[f] for f in FIGURES} for g in document(found)["gaps"]}
    assert got.keys() == want.keys()
    for key, told in got.items():
        assert told in want[key], key
    rows = found.summary.filter(pl.col("cause") == "short")
    assert {gpu: (n, ns) for gpu, n, ns in rows.select("gpu", "gap_count", "gap_ns").iter_rows()} == short


@given(trace=traces())
def test_the_causes_sum_to_the_idle_time_of_the_wall_partition(tmp_path: Path, trace: TraceBuilder) -> None:
    path = trace.write(tmp_path / "trace.sqlite")
    found = find_gaps(path, minimum=2, rules=rules())
    check_laws(found)
    wall = attribute(path, rules=rules(), ranges=False).gpus
    assert dict(found.gpus.select("gpu", "idle_ns").iter_rows()) == dict(wall.select("gpu", "idle_ns").iter_rows())


@pytest.mark.parametrize("options", [(), ("--graph-mode", "node"), ("--graph-mode", "graph"), ("--graph-mode", "late")])
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
    found = find_gaps(made)
    check_laws(found)
    parts = ("gap_count", "gap_ns", "blocked_ns", "host_ns", "latency_ns")
    for gpu in json.loads(truth_file.read_text(encoding="utf-8"))["gpus"]:
        mine = found.summary.filter(pl.col("gpu") == gpu["key"])
        got = {cause: row for cause, *row in mine.select("cause", *parts).iter_rows()}
        want = {
            cause: [row[k] for k in ("count", "ns", "blocked_ns", "host_ns", "latency_ns")]
            for cause, row in gpu["gaps"]["by_cause"].items()
        }
        assert got == want
        assert found.gpus.filter(pl.col("gpu") == gpu["key"])["idle_ns"].item() == gpu["idle_ns"]


@pytest.mark.parametrize("name", ["h200x2_decode_graph", "h200x2_vllm_graph", "h200x2_toy_eager", "h200x1_toy_graph"])
def test_real_traces_keep_the_laws_and_the_schema(name: str) -> None:
    found = golden(name)
    check_laws(found)
    idle = attribute(GOLDEN / f"{name}.sqlite", ranges=False).gpus.select("gpu", "idle_ns").rows()
    assert found.gpus.select("gpu", "idle_ns").rows() == idle
    made = document(found) | {"warnings": []}
    assert [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(made)] == []


def test_vllm_is_host_bound_on_both_gpus() -> None:
    found = golden("h200x2_vllm_graph")
    shares = dict(found.summary.filter(pl.col("cause") == "host-bound").select("gpu", "gap_share").iter_rows())
    assert min(shares.values()) > 0.9
    assert found.gaps.filter(pl.col("cause") == "host-bound")["host_path"].null_count() < 500


def test_a_range_narrows_the_gaps_to_it() -> None:
    found = find_gaps(GOLDEN / "h200x2_decode_graph.sqlite", range_glob="graph_step")
    check_laws(found)
    wall = attribute(GOLDEN / "h200x2_decode_graph.sqlite", range_glob="graph_step").gpus
    assert found.gpus.select("gpu", "idle_ns").rows() == wall.select("gpu", "idle_ns").rows()
    assert found.summary.filter(pl.col("cause") == "graph-internal")["gap_ns"].sum() > 0


# ---- by eye: a kernel ends at 100, the next begins at 200


def one_gap(launch: int, duration: int = 5, **more: Any) -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("loop", 0, 300)
    t.kernel(RMS_NORM, 50, 50, launch=10)
    t.kernel(MARLIN, 200, 50, launch=launch, **more)
    t.rows["CUPTI_ACTIVITY_KIND_RUNTIME"][-1]["end"] = launch + duration
    return t


def only(t: TraceBuilder, tmp_path: Path) -> dict[str, Any]:
    found = find_gaps(t.write(tmp_path / "t.sqlite"), minimum=10)
    check_laws(found)
    assert found.gaps.height == 1
    return found.gaps.row(0, named=True)


def test_dependency_the_launch_had_returned(tmp_path: Path) -> None:
    gap = only(one_gap(30), tmp_path)
    assert (gap["start_ns"], gap["gap_ns"], gap["cause"], gap["latency_ns"]) == (100, 100, "dependency", 100)
    assert (gap["before"].split("::")[1][:8], gap["after"][:12]) == ("rms_norm", "void marlin:")
    assert gap["path"] == ["loop"]


def test_launch_bound_the_call_was_in_progress(tmp_path: Path) -> None:
    assert only(one_gap(90, 80), tmp_path)["cause"] == "launch-bound"


def test_host_bound_names_the_range_and_the_call(tmp_path: Path) -> None:
    t = one_gap(180)
    t.push_pop("scheduler", 70, 170)
    t.api("cudaMalloc_v3020", 95, 30)
    gap = only(t, tmp_path)
    assert (gap["cause"], gap["host_ns"], gap["latency_ns"]) == ("host-bound", 80, 20)
    assert (gap["host_path"], gap["host_call"], gap["process"]) == (["loop", "scheduler"], "cudaMalloc_v3020", 1000)


@pytest.mark.parametrize("call", ["cudaStreamSynchronize_v3020", "cudaEventSynchronize_v3020", "cudaMemcpy_v3020"])
def test_sync_is_split_into_what_was_blocked_and_what_the_host_took_then(tmp_path: Path, call: str) -> None:
    t = one_gap(180)
    t.api(call, 60, 80)
    gap = only(t, tmp_path)
    assert (gap["cause"], gap["blocked_ns"], gap["host_ns"], gap["latency_ns"]) == ("sync", 40, 40, 20)


def test_an_asynchronous_copy_is_no_sync(tmp_path: Path) -> None:
    t = one_gap(180)
    t.api("cudaMemcpyAsync_v3020", 60, 80)
    assert only(t, tmp_path)["cause"] == "host-bound"


def test_profiler_covers_half_of_the_gap(tmp_path: Path) -> None:
    t = one_gap(180)
    t.overhead(140, 190)
    assert only(t, tmp_path)["cause"] == "profiler"
    t = one_gap(180)
    t.overhead(141, 190)
    t.overhead(140, 190, pid=2000)  # of another process
    assert only(t, tmp_path)["cause"] == "host-bound"


def test_graph_internal_both_are_of_one_replay(tmp_path: Path) -> None:
    t = TraceBuilder()
    corr = t.graph_launch(10, 5)
    t.kernel(RMS_NORM, 50, 50, corr=corr, node=(1 << 32) + 1)
    t.kernel(MARLIN, 200, 50, corr=corr, node=(1 << 32) + 2)
    assert only(t, tmp_path)["cause"] == "graph-internal"


def test_unknown_without_a_launch(tmp_path: Path) -> None:
    t = one_gap(180)
    t.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].pop()
    assert only(t, tmp_path)["cause"] == "unknown"


def test_edges_touch_the_window(tmp_path: Path) -> None:
    found = find_gaps(one_gap(180).write(tmp_path / "t.sqlite"), minimum=10, window="20:150")
    assert found.gaps.sort("start_ns").select("start_ns", "end_ns", "cause").rows() == [
        (20, 50, "edge"),
        (100, 150, "edge"),
    ]


def test_an_opaque_replay_is_no_gap(tmp_path: Path) -> None:
    t = one_gap(180)
    t.graph_launch(110, 5)
    gap = only(t, tmp_path)
    assert (gap["start_ns"], gap["end_ns"], gap["after"]) == (100, 115, "opaque graph")


def test_gaps_go_to_the_step_of_what_follows(tmp_path: Path) -> None:
    t = TraceBuilder()
    for i in range(3):
        at = 1000 * (i + 1)
        t.push_pop("step", at, at + 40)
        t.kernel(RMS_NORM, at + 50, 50, launch=at + 5)
        t.kernel(MARLIN, at + 130 + i, 50, launch=at + 15)
    found = find_gaps(t.write(tmp_path / "t.sqlite"), minimum=10)
    dependency = found.steps.filter(pl.col("cause") == "dependency").select("step", "gap_count", "gap_ns").rows()
    assert dependency == [(0, 1, 30), (1, 1, 31), (2, 1, 32)]
    assert found.gpus["step_count"].to_list() == [3]


# ---- command line


def test_the_command_writes_every_format(run_in_process: Any) -> None:
    trace = GOLDEN / "h200x2_vllm_graph.sqlite"
    table = run_in_process("gaps", trace, "--min", "5us")
    assert table.code == 0
    assert "Idle time by cause" in table.stdout
    made = json.loads(run_in_process("gaps", trace, "-f", "json").stdout)
    assert (made["schema"], made["min_ns"]) == ("k25trace.gaps/1", 1000)
    rows = run_in_process("gaps", trace, "-f", "csv", "--no-header").stdout.splitlines()
    assert len(rows) == 1 + len(made["gaps"])
    assert "### Longest gaps" in run_in_process("gaps", trace, "-f", "markdown").stdout


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--min", "fast"), 2, "is no time"),
        (("--min", "0"), 2, "above 0"),
        (("--range", "nothing*"), 3, "no NVTX range"),
    ],
)
def test_the_command_refuses_with_one_line(run_in_process: Any, options: tuple[str, ...], code: int, says: str) -> None:
    done = run_in_process("gaps", GOLDEN / "h200x2_decode_graph.sqlite", *options)
    assert (done.code, done.stdout) == (code, "")
    assert says in done.stderr


# ---- by step: a gap belongs to the step of what follows it, short ones too


def two_steps() -> TraceBuilder:
    """Steps at 1000 and 2000 with gaps of 40 and 3 ns inside each, and 5,000 ns of idleness outside them."""
    t = TraceBuilder()
    t.kernel(RMS_NORM, 950, 10, launch=5)
    for at in (1000, 2000):
        t.push_pop("step", at - 90, at - 20)
        for i, start in enumerate((at, at + 50, at + 63)):
            t.kernel(MARLIN, start, 10, launch=at - 80 + 10 * i)
    t.kernel(RMS_NORM, 7073, 10, launch=6000)
    return t


def test_a_step_is_charged_with_its_own_gaps_alone(tmp_path: Path) -> None:
    found = find_gaps(two_steps().write(tmp_path / "t.sqlite"), minimum=10, step="step")
    check_laws(found)
    by_step = (
        found.steps.group_by("step", "cause").agg(pl.col("gap_count", "gap_ns").sum()).sort("step", "cause").rows()
    )
    assert by_step == [
        (0, "dependency", 2, 80),
        (0, "short", 1, 3),
        (1, "dependency", 1, 40),
        (1, "host-bound", 1, 927),
        (1, "short", 1, 3),
    ]
    assert found.gpus["step_count"].to_list() == [2]
    shown = answer(found).sections[0]
    at = [column.heading for column in shown.columns].index("A step")
    assert {row[1]: row[at] for row in shown.rows} == {
        "short": "3 ns",
        "dependency": "60 ns",
        "host-bound": "463 ns",
    }


def test_steps_outside_the_window_are_not_counted(tmp_path: Path) -> None:
    path = two_steps().write(tmp_path / "t.sqlite")
    found = find_gaps(path, minimum=10, step="step", window=Bounds(1990, 2100))
    assert found.gpus["step_count"].to_list() == [1]
    assert find_gaps(path, step="step", window=Bounds(3000, 7080)).gpus["step_count"].to_list() == [0]


def test_nothing_to_tell_is_told_in_whole_sentences(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.kernel(MARLIN, 100, 10, launch=50)
    made = answer(find_gaps(t.write(tmp_path / "t.sqlite")))
    assert ("idle", "0 ns of 10 ns over 1 GPU; the causes sum to it") in made.facts
    assert [section.note for section in made.sections] == ["", "", ""]
