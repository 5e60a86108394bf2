"""Steps against the brute force, on real traces, and where the answer can be seen by eye."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles_why import percentile, see, steps
from strategies import traces
from tracekit import ALL_REDUCE, MARLIN, RMS_NORM, TraceBuilder

from k25trace.classify import load_rules
from k25trace.errors import CannotAnswer
from k25trace.percentiles import nearest_rank
from k25trace.report.steps import document
from k25trace.stepping import cycles
from k25trace.steps import Steps, find_steps

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FIGURES = (
    "start_ns", "end_ns", "span_ns", "busy_ns", "exposed_communication_ns", "idle_ns", "opaque_ns", "kernel_count",
    "kernel_ns",
)  # fmt: skip


@cache
def rules() -> Any:
    return load_rules()


def classify(name: str) -> tuple[str, str]:
    match = rules().classify(name)
    return match.category, match.family


@cache
def golden(name: str, **options: Any) -> Steps:
    return find_steps(GOLDEN / f"{name}.sqlite", **options)


def told(found: Steps) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Return the product's steps in the form of the oracle."""
    return {
        (s["gpu"], s["process"], s["index"]): {f: s[f] for f in FIGURES} | {"categories": s["categories"]}
        for s in document(found)["steps"]
    }


@given(trace=traces(), glob=st.sampled_from(["step", "layer", "*", "s*", ""]))
def test_steps_agree_with_the_brute_force(tmp_path: Path, trace: TraceBuilder, glob: str) -> None:
    path = trace.write(tmp_path / "trace.sqlite")
    want = steps(see(path, classify), glob)
    if not want:
        with pytest.raises(CannotAnswer):
            find_steps(path, step=glob, rules=rules())
        return
    assert told(find_steps(path, step=glob, rules=rules())) == want


@pytest.mark.parametrize(
    ("name", "glob"),
    [("h200x2_decode_graph", "graph_step"), ("h200x2_vllm_graph", "execute_context_*"), ("h200x2_toy_eager", "step*")],
)
def test_steps_of_real_traces_agree_with_the_brute_force(name: str, glob: str) -> None:
    path = GOLDEN / f"{name}.sqlite"
    found = golden(name, step=glob)
    few = {key: figures for key, figures in told(found).items() if key[2] == 7}
    seen = see(path, classify)
    # The brute force looks at every pair: what lies far from these steps is left out before.
    lo, hi = min(f["start_ns"] for f in few.values()), max(f["end_ns"] for f in few.values())
    seen.operations = [o for o in seen.operations if o.start < hi and o.end > lo]
    want = steps(seen, glob)
    assert len(few) == 2
    for (gpu, pid, _), figures in few.items():
        same = [w for (g, p, _), w in want.items() if (g, p) == (gpu, pid) and w["start_ns"] == figures["start_ns"]]
        assert same == [figures]


# ---- laws


@pytest.mark.parametrize("name", ["h200x2_decode_graph", "h200x2_vllm_graph", "h200x2_toy_eager", "h200x1_toy_graph"])
def test_the_categories_of_a_step_sum_to_its_kernel_time(name: str) -> None:
    found = golden(name)
    for step in document(found)["steps"]:
        assert sum(step["categories"].values()) == step["kernel_ns"]
        assert step["busy_ns"] <= step["kernel_ns"]
        assert step["busy_ns"] + step["idle_ns"] <= step["span_ns"]
    layers = golden(name, per_layer=True).layers
    assert layers is not None


@given(values=st.lists(st.integers(0, 50), min_size=1, max_size=40), percent=st.integers(1, 100))
def test_percentiles_are_nearest_ranks(values: list[int], percent: int) -> None:
    got = pl.DataFrame({"ns": values}).select(nearest_rank("ns", percent)).item()
    assert got == percentile(values, percent)


def test_summaries_are_of_the_steps_that_are_no_warm_up() -> None:
    found = golden("h200x2_vllm_graph")
    spans: dict[tuple[str, str], list[int]] = defaultdict(list)
    for step in found.steps.filter(~pl.col("is_warmup")).iter_rows(named=True):
        for gpu in (step["gpu"], "all"):
            spans[gpu, step["kind"]].append(step["span_ns"])
    rows = found.measures.filter(pl.col("measure") == "span")
    assert rows.height == len(spans)
    for row in rows.iter_rows(named=True):
        values = spans[row["gpu"], row["kind"]]
        assert row["count"] == len(values)
        assert [row["p50_ns"], row["p95_ns"], row["p99_ns"]] == [percentile(values, p) for p in (50, 95, 99)]
        assert row["mean_ns"] == sum(values) // len(values)
        assert row["max_ns"] == max(values)


# ---- what real traces say


def test_vllm_names_its_31_decode_steps_a_rank() -> None:
    found = golden("h200x2_vllm_graph")
    kinds = {(gpu, kind): count for gpu, kind, count in found.steps.group_by("gpu", "kind").len().iter_rows()}
    assert kinds == {(g, k): n for g in ("0:0", "0:1") for k, n in (("decode", 31), ("prefill", 1), ("mixed", 2))}
    assert set(found.steps["kind_basis"]) == {"name"}
    assert found.reports["said"][0] == "ranges execute_context_#(#)_generation_#(#)"


def test_the_most_regular_ranges_are_taken_and_the_others_named() -> None:
    found = golden("h200x2_decode_graph")
    assert found.steps["name"].unique().to_list() == ["graph_step"]
    assert "eager_step" in found.reports["said"][0]
    assert found.steps["kind"].unique().to_list() == ["graph A"]


# ---- where the answer can be seen


def step_trace(name: str | None = "step", count: int = 3, length: int = 30) -> TraceBuilder:
    """Steps of a GEMM (10 ns) and an all-reduce (5 ns, 2 of them under the GEMM), 100 ns apart."""
    t = TraceBuilder()
    for i in range(count):
        at = 1000 + 100 * i
        if name is not None:
            t.push_pop(name, at, at + length)
        t.kernel(MARLIN, at + 40, 10, launch=at + 2)
        t.kernel(ALL_REDUCE, at + 48, 5, launch=at + 12, stream=20)
        t.kernel(RMS_NORM, at + 60, 3, launch=at + 22)
    return t


def test_a_step_of_three_kernels(tmp_path: Path) -> None:
    found = find_steps(step_trace().write(tmp_path / "t.sqlite"))
    figures = ("start_ns", "span_ns", "period_ns", "busy_ns", "exposed_communication_ns", "idle_ns")
    assert found.steps.select(figures).row(0) == (1040, 23, 100, 16, 3, 7)
    assert found.steps["index"].to_list() == [0, 1, 2]
    assert found.steps["period_ns"].to_list() == [100, 100, None]


def test_without_ranges_the_kernel_sequence_tells(tmp_path: Path) -> None:
    found = find_steps(step_trace(name=None, count=4).write(tmp_path / "t.sqlite"))
    assert found.reports["basis"][0] == "kernels"
    assert found.steps["start_ns"].to_list() == [1040, 1140, 1240, 1340]
    assert found.steps["kernel_count"].to_list() == [3, 3, 3, 3]


def test_without_ranges_cycles_of_graph_launches_tell(tmp_path: Path) -> None:
    """Two graphs a step, and an eager kernel between them that belongs to the step."""
    t = TraceBuilder()
    for i in range(3):
        at = 1000 + 100 * i
        for graph in range(2):
            corr = t.graph_launch(at + 20 * graph, 4)
            t.kernel(MARLIN, at + 30 * graph + 10, 8, corr=corr, node=((graph + 1) << 32) + 1)
        t.kernel(RMS_NORM, at + 30, 3, launch=at + 10)
    found = find_steps(t.write(tmp_path / "t.sqlite"))
    assert found.reports["basis"][0] == "graph launches"
    assert found.steps["kernel_count"].to_list() == [3, 3, 3]
    assert found.steps["start_ns"].to_list() == [1010, 1110, 1210]
    assert found.steps["kind"].to_list() == ["graph A"] * 3


@pytest.mark.parametrize(
    ("tokens", "firsts"),
    [
        ([], []),
        ([1], [0]),
        ([1, 1, 1], [0, 1, 2]),
        ([1, 2, 3, 1, 2, 3], [0, 3]),
        ([1, 1, 1, 2, 2], [0, 1, 2, 3, 4]),  # another batch size
        ([1, 2, 1, 2, 3, 4, 3, 4], [0, 2, 4, 6]),
        ([1, 2, 3], [0]),
    ],
)
def test_cycles_of_launches(tokens: list[int], firsts: list[int]) -> None:
    assert cycles(tokens) == firsts


def test_nothing_that_repeats_is_no_step(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.push_pop("all of it", 0, 90)
    t.kernel(MARLIN, 40, 10, launch=2)
    t.kernel(RMS_NORM, 60, 10, launch=12)
    with pytest.raises(CannotAnswer, match="no steps found"):
        find_steps(t.write(tmp_path / "t.sqlite"))


def test_a_window_keeps_the_steps_inside_it(tmp_path: Path) -> None:
    found = find_steps(step_trace(count=4).write(tmp_path / "t.sqlite"), window="1100:1350")
    assert found.steps["index"].to_list() == [1, 2]
    assert found.steps["period_ns"].to_list() == [100, 100]


def test_slow_first_steps_are_warm_up_and_a_slow_one_among_others_an_outlier(tmp_path: Path) -> None:
    t = TraceBuilder()
    for i, length in enumerate([100, 90, 10, 11, 10, 12, 10, 60, 10]):
        at = 1000 * (i + 1)
        t.push_pop("step", at, at + 30)
        t.kernel(MARLIN, at + 40, length, launch=at + 2)
    found = find_steps(t.write(tmp_path / "t.sqlite"))
    assert found.steps.filter("is_warmup")["index"].to_list() == [0, 1]
    assert found.steps.filter("is_outlier")["index"].to_list() == [7]
    out = found.outliers.row(0, named=True)
    assert (out["index"], out["span_ns"], out["p50_ns"]) == (7, 60, 10)
    assert out["grew"] == [{"what": "gemm.marlin", "ns": 60, "p50_ns": 10}]
    none_left_out = find_steps(tmp_path / "t.sqlite", warmup=0)
    assert not none_left_out.steps["is_warmup"].any()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("execute_context_0(0)_generation_8(8)", "decode"),
        ("execute_context_2(512)_generation_0(0)", "prefill"),
        ("execute_context_2(512)_generation_3(3)", "mixed"),
        ("[Executor] _forward_step 12: 3 ctx reqs, 8 gen reqs", "mixed"),
        ("prefill", "prefill"),
        ("decode_step", "decode"),
        ("step", "attention A"),
        ("step M=8", "M=8"),
    ],
)
def test_kinds_come_from_names_or_are_told_apart_without_a_name(tmp_path: Path, name: str, kind: str) -> None:
    from tracekit import ATTENTION

    t = step_trace(name)
    for i in range(3):
        t.kernel(ATTENTION, 1080 + 100 * i, 2, launch=1024 + 100 * i)
    found = find_steps(t.write(tmp_path / "t.sqlite"))
    assert set(found.steps["kind"]) == {kind}


def test_layers_come_from_the_names_of_ranges(tmp_path: Path) -> None:
    t = TraceBuilder()
    for i in range(2):
        at = 1000 + 100 * i
        t.push_pop("step", at, at + 50)
        for layer in range(2):
            t.push_pop(f"model.layers.{layer}.mlp", at + 10 * layer + 5, at + 10 * layer + 13)
            t.kernel(MARLIN, at + 30 + 20 * layer, 10 + layer + i, launch=at + 10 * layer + 6)
    found = find_steps(t.write(tmp_path / "t.sqlite"), per_layer=True)
    assert found.layers is not None
    rows = found.layers.filter(pl.col("gpu") == "0:0").select("layer", "category", "count", "p50_ns", "max_ns").rows()
    assert rows == [(0, "gemm.marlin", 2, 10, 11), (1, "gemm.marlin", 2, 11, 12)]


# ---- command line


@pytest.mark.parametrize("name", ["h200x2_decode_graph", "h200x2_vllm_graph", "h200x2_toy_eager", "h200x1_toy_graph"])
def test_the_document_fits_its_schema(name: str) -> None:
    schema = json.loads((GOLDEN.parents[1] / "docs" / "reference" / "steps.schema.json").read_text(encoding="utf-8"))
    made = document(golden(name, per_layer=True)) | {"warnings": []}
    assert [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(made)] == []


def test_the_command_writes_every_format(run_in_process: Any) -> None:
    trace = GOLDEN / "h200x2_decode_graph.sqlite"
    table = run_in_process("steps", trace)
    assert table.code == 0
    assert "graph A" in table.stdout
    made = json.loads(run_in_process("steps", trace, "--per-layer", "-f", "json").stdout)
    assert made["schema"] == "k25trace.steps/1"
    assert {row["layer"] for row in made["layers"]} == set(range(6))
    rows = run_in_process("steps", trace, "-f", "csv", "--no-header").stdout.splitlines()
    assert len(rows) == 21
    assert rows[0].startswith("gpu,report,process,index,name,kind,")
    assert "### Span of the steps" in run_in_process("steps", trace, "-f", "markdown").stdout


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--step", "nothing*"), 3, "no push/pop range matches"),
        (("--warmup", "-1"), 2, ""),
        (("--window", "5"), 2, "A:B"),
    ],
)
def test_the_command_refuses_with_one_line(run_in_process: Any, options: tuple[str, ...], code: int, says: str) -> None:
    done = run_in_process("steps", GOLDEN / "h200x2_decode_graph.sqlite", *options)
    assert done.code == code
    assert says in done.stderr
    assert done.stdout == ""


def test_a_number_too_large_for_a_layer_is_none(tmp_path: Path) -> None:
    t = TraceBuilder()
    for i, name in enumerate(("layer" + "9" * 30, "layer7")):
        at = 1000 * (i + 1)
        t.push_pop("step", at, at + 100)
        t.push_pop(name, at + 5, at + 90)
        t.kernel(MARLIN, at + 200, 10, launch=at + 10)
    found = find_steps(t.write(tmp_path / "t.sqlite"), step="step", per_layer=True)
    assert found.layers is not None
    assert found.layers["layer"].unique().sort().to_list() == [None, 7]


@pytest.mark.parametrize("verb", ["steps", "collectives", "gaps"])
def test_fewer_than_no_rows_are_no_answer(run_in_process: Any, verb: str) -> None:
    done = run_in_process(verb, GOLDEN / "h200x2_decode_skew.sqlite", "--top", "-1")
    assert (done.code, done.stdout) == (2, "")
    assert "--top" in done.stderr


def test_steps_without_a_name_are_called_what_they_are(tmp_path: Path) -> None:
    t = TraceBuilder()
    for i in range(3):
        t.push_pop("", 1000 * i, 1000 * i + 900)
        t.kernel(MARLIN, 1000 * i + 100, 100, launch=1000 * i + 10)
    assert find_steps(t.write(tmp_path / "t.sqlite")).reports["said"].to_list() == ['ranges ""']
