"""Every workload with gloo ranks on a CPU: results agree with references, and the JSON with its schema."""

import json

import jsonschema
import pytest
from k25trace.workloads.shapes import TINY, collectives
from launching import ROOT

from k25trace.ranges import parse

torch = pytest.importorskip("torch", reason="no torch: pip install '.[workloads]'")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCHEMA = json.loads((ROOT / "docs" / "reference" / "bench.schema.json").read_text(encoding="utf-8"))
FEW = ("--samples", "2", "--calls", "2")
PARTS = ("layer", "attention", "attention_alone", "mlp_alone")
STEPS = ("--context", "24", "-M", "2", "--eager-steps", "2", "--graph-steps", "1")


def sound(ran, what, ranks):
    assert ran.code == 0, ran.stderr
    problems = [f"{e.json_path}: {e.message}" for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(ran.found)]
    assert problems == []
    assert (ran.found["what"], ran.found["world_size"], ran.found["device"]) == (what, ranks, "cpu")
    for row in ran.found["results"]:
        assert parse(row["name"])
        if row["time_ns"] is None:
            assert row["unavailable"]
            continue
        assert row["time_ns"]["min"] <= row["time_ns"]["p50"] <= row["time_ns"]["p99"] <= row["time_ns"]["max"]
        if row["tolerance"] is not None:
            assert 0 <= row["error"] <= row["tolerance"]
    return ran.found


@pytest.mark.parametrize("path", ["int4pack", "cast", "bf16"])
def test_decode_agrees_with_float64_on_two_ranks(workload, path):
    found = sound(workload("decode", "--path", path, *STEPS, ranks=2), "decode", 2)
    assert set(found["errors"]) == {
        *(f"{kind}_{part}" for kind in ("dense", "moe") for part in PARTS), "routing", "logits",
    }  # fmt: skip
    # Products of bf16 in a row are a few parts in a thousand off; nothing may be exactly right, or far off.
    assert all(1e-4 < value < 0.03 for key, value in found["errors"].items() if key != "routing")
    assert found["errors"]["routing"] < 1e-4
    assert [(row["name"], row["recorded"]) for row in found["results"]] == [
        ("eager_step", True), ("graph_step", True), ("eager_step", False), ("graph_step", False),
    ]  # fmt: skip
    assert all(row["tokens_per_s"] > 0 for row in found["results"])
    assert found["range_cost_ns"] > 0
    assert [one["payload_bytes"] for one in found["collectives"]] == [
        one.payload_bytes for one in collectives(TINY, 2, 2)
    ]


def test_decode_verifies_several_tokens_a_request(workload):
    words = ("--path", "cast", "--verify-width", "2", "--attention", "sdpa", *STEPS)
    found = sound(workload("decode", *words), "decode", 1)
    assert {row["shape"]["tokens"] for row in found["results"]} == {6}


def test_a_late_rank_makes_every_step_late(workload):
    found = sound(workload("decode", "--path", "bf16", "--skew", "1:40ms", *STEPS, ranks=2), "decode", 2)
    assert min(row["time_ns"]["min"] for row in found["results"]) > 40e6
    assert "skew" not in found["ranges"]  # rank 0 wrote the file, and it is not the late one


def test_decode_on_eight_ranks(workload):
    words = ("--path", "cast", "--layers", "2", "--context", "8", "-M", "1")
    found = sound(workload("decode", *words, "--eager-steps", "1", "--graph-steps", "0", ranks=8), "decode", 8)
    assert len(found["machine"]["before"]) == 8


def test_gemm_measures_every_linear_in_every_way(workload):
    found = sound(workload("gemm", "-M", "1,3", *FEW, ranks=2), "gemm", 2)
    ways = {(row["name"], row["variant"]): row for row in found["results"]}
    assert {way for name, way in ways if name == "gemm.experts_w13"} == {"bf16", "cast", "int4pack", "marlin"}
    assert {way for name, way in ways if name == "gemm.lm_head"} == {"bf16"}
    assert ways["gemm.experts", "marlin"]["unavailable"] == "Marlin's kernels need a GPU"
    assert ways["gemm.experts", "cast"]["time_ns"]
    assert found["ceilings"]["copy_bytes_per_s"] > 0
    assert "NVFP4" in found["stands_in"]


def test_gemm_on_one_rank_while_the_other_waits(workload):
    found = sound(workload("gemm", "-M", "1", "--only", "o_proj", "--ranks", "1", *FEW, ranks=2), "gemm", 2)
    assert [row["name"] for row in found["results"]] == ["gemm.o_proj"]


def test_moe_routing_and_mla_attention(workload):
    found = sound(workload("moe_routing", "-M", "1,5", *FEW, ranks=2), "moe_routing", 2)
    assert [row["variant"] for row in found["results"]] == ["torch", "torch_sort"] * 2 + ["vllm"]
    found = sound(workload("mla_attention", "-M", "2", "--context", "20", "--prefill", *FEW), "mla_attention", 1)
    assert {row["name"] for row in found["results"] if row["time_ns"]} == {"mla.core", "mla.prefill"}


@pytest.mark.parametrize("ranks", [2, 8])
def test_allreduce_measures_sizes_and_bursts(workload, ranks):
    words = ("-b", "256", "-e", "1K", "-M", "1", "-n", "2", "-w", "1", "-m", "1")
    operations = ("--operations", "all_reduce,all_gather,reduce_scatter,one_shot")
    extra = ("--with-gemm", *operations) if ranks == 2 else ("--no-sizes",)
    found = sound(workload("allreduce", *words, *extra, ranks=ranks), "allreduce", ranks)
    first = {row["name"]: row for row in reversed(found["results"])}
    burst, whole = first["allreduce.burst"], first["allreduce.burst_whole"]
    assert (burst["calls"], whole["calls"]) == (2 * TINY.layers, 2 * TINY.layers + 2)
    assert burst["size_bytes"] == TINY.hidden * 2
    assert burst["busbw_bytes_per_s"] == pytest.approx(burst["algbw_bytes_per_s"] * 2 * (ranks - 1) / ranks)
    assert burst["start_skew_ns"]["max"] >= 0
    assert {row.get("wrong", 0) for row in found["results"] if row["time_ns"]} == {0}


def test_a_sweep_runs_once_for_each_setting(workload):
    words = ("--no-sizes", "-M", "1", "-n", "1", "-w", "1", "--nproc", "2", "--sweep", "NCCL_PROTO=LL,")
    found = sound(workload("allreduce", *words), "allreduce", 2)
    assert [row["settings"] for row in found["results"]] == [{"NCCL_PROTO": "LL"}] * 2 + [{"NCCL_PROTO": ""}] * 2
    assert found["failed"] == []
