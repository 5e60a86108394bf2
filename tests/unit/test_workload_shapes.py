"""Shapes, bytes and FLOPs against tables worked out by hand from the models' public configurations.

Kimi-K2.5: Megatron-Bridge's KimiK2Provider and the published text configuration; pack-quantised INT4 experts,
group 32. Collectives: pegainfer's static trace of a step (123 all-reduces = 61 attention +
60 MoE + 1 dense + 1 embedding).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from k25trace.workloads.shapes import (
    ATTENTION,
    DEEPSEEK_V3,
    GLM_5,
    KIMI_K25,
    PRESETS,
    ROUTED,
    bus_factor,
    collectives,
    experts_hit,
    linears,
    mla_core,
    parameters,
    weight_bytes,
)

from k25trace.errors import UsageError

# name: calls, (k, n, batch) at TP 1, 2, 4, 8, weight bytes and FLOPs of a row at TP 8 (in millions)
LINEARS = {
    "qkv_a": (61, [(7168, 2112, 1)] * 4, 30.278, 30.28),
    "q_b": (61, [(1536, n, 1) for n in (12288, 6144, 3072, 1536)], 4.719, 4.72),
    "w_uk": (61, [(128, 512, b) for b in (64, 32, 16, 8)], 1.049, 1.05),
    "w_uv": (61, [(512, 128, b) for b in (64, 32, 16, 8)], 1.049, 1.05),
    "o_proj": (61, [(k, 7168, 1) for k in (8192, 4096, 2048, 1024)], 14.680, 14.68),
    "router": (60, [(7168, 384, 1)] * 4, 5.505, 5.51),
    "experts_w13": (60, [(7168, n, 1) for n in (4096, 2048, 1024, 512)], 2.064, 7.34),
    "experts_w2": (60, [(k, 7168, 1) for k in (2048, 1024, 512, 256)], 1.032, 3.67),
    "shared_gate_up": (60, [(7168, n, 1) for n in (4096, 2048, 1024, 512)], 7.340, 7.34),
    "shared_down": (60, [(k, 7168, 1) for k in (2048, 1024, 512, 256)], 3.670, 3.67),
    "dense_gate_up": (1, [(7168, n, 1) for n in (36864, 18432, 9216, 4608)], 66.060, 66.06),
    "dense_down": (1, [(k, 7168, 1) for k in (18432, 9216, 4608, 2304)], 33.030, 33.03),
    "lm_head": (1, [(7168, n, 1) for n in (163840, 81920, 40960, 20480)], 293.601, 293.60),
}

# TP, M: qkv_a, attention, router, shared, dense, lm_head, routed, total; GB a step and rank, uniform routing
STEP_GB = {
    (1, 1): (1.847, 12.337, 0.330, 5.285, 0.793, 2.349, 11.891, 32.984),
    (1, 8): (1.847, 12.337, 0.330, 5.285, 0.793, 2.349, 88.472, 109.566),
    (1, 64): (1.847, 12.337, 0.330, 5.285, 0.793, 2.349, 422.414, 443.508),
    (2, 1): (1.847, 7.092, 0.330, 2.642, 0.396, 1.174, 5.945, 17.581),
    (2, 8): (1.847, 7.092, 0.330, 2.642, 0.396, 1.174, 44.236, 55.871),
    (2, 64): (1.847, 7.092, 0.330, 2.642, 0.396, 1.174, 211.207, 222.842),
    (4, 1): (1.847, 4.469, 0.330, 1.321, 0.198, 0.587, 2.973, 9.879),
    (4, 8): (1.847, 4.469, 0.330, 1.321, 0.198, 0.587, 22.118, 29.024),
    (4, 64): (1.847, 4.469, 0.330, 1.321, 0.198, 0.587, 105.604, 112.510),
    (8, 1): (1.847, 3.158, 0.330, 0.661, 0.099, 0.294, 1.486, 6.028),
    (8, 8): (1.847, 3.158, 0.330, 0.661, 0.099, 0.294, 11.059, 15.601),
    (8, 64): (1.847, 3.158, 0.330, 0.661, 0.099, 0.294, 52.802, 57.344),
}


def test_every_linear_is_in_the_table():
    assert list(linears(KIMI_K25, 8)) == list(LINEARS)


@pytest.mark.parametrize("name", LINEARS)
def test_linears_are_those_of_the_table(name):
    calls, shapes, weight_mb, row_mflop = LINEARS[name]
    for ranks, shape in zip((1, 2, 4, 8), shapes, strict=True):
        found = linears(KIMI_K25, ranks)[name]
        assert (found.calls, (found.k, found.n, found.batch)) == (calls, shape)
    assert found.weight_bytes / 1e6 == pytest.approx(weight_mb, abs=5e-4)
    assert found.flops(1) / 1e6 == pytest.approx(row_mflop, abs=5e-3)


@pytest.mark.parametrize(("ranks", "tokens"), STEP_GB)
def test_weight_bytes_of_a_step_are_those_of_the_table(ranks, tokens):
    read = weight_bytes(KIMI_K25, ranks, tokens)
    found = (
        read["qkv_a"],
        sum(read[key] for key in ATTENTION),
        read["router"],
        read["shared_gate_up"] + read["shared_down"],
        read["dense_gate_up"] + read["dense_down"],
        read["lm_head"],
        sum(read[key] for key in ROUTED),
        sum(read.values()),
    )
    assert [value / 1e9 for value in found] == pytest.approx(STEP_GB[ranks, tokens], abs=6e-4)


def test_an_int4_expert_is_its_nibbles_and_its_scales():
    w13, w2 = (linears(KIMI_K25, 8)[key] for key in ROUTED)
    assert (w13.weights // 2, w13.weights // 32 * 2) == (1_835_008, 229_376)
    assert (w2.weights // 2, w2.weights // 32 * 2) == (917_504, 114_688)


@pytest.mark.parametrize(
    ("tokens", "hit"),
    [(1, 8), (2, 15.8), (4, 31.0), (8, 59.5), (16, 109.8), (32, 188.2), (64, 284.2), (128, 358.1),
     (256, 382.2)],
)  # fmt: skip
def test_experts_hit_under_uniform_routing(tokens, hit):
    assert experts_hit(KIMI_K25, tokens) == pytest.approx(hit, abs=0.05)


def test_parameters_of_kimi_are_those_of_its_card():
    found = parameters(KIMI_K25)
    billions = {key: round(value / 1e9, 2) for key, value in found.items()}
    assert billions == {
        "routed": 1014.69,
        "shared": 2.64,
        "attention": 6.17,
        "dense": 0.40,
        "embedding_and_head": 2.35,
        "router": 0.17,
        "total": pytest.approx(1026.4, abs=0.05),
        "active": 32.86,
    }


@pytest.mark.parametrize(
    ("preset", "total", "active"),
    # The cards' 671 B and 37 B; 744 B and 40 B, of which the sparse attention's indexer is left out here, and of the
    # active ones the embedding, which is looked up and not multiplied, is counted here.
    [(DEEPSEEK_V3, 671.03, 37.55), (GLM_5, 743.18, 41.05)],
)
def test_parameters_of_the_other_models_are_those_of_their_cards(preset, total, active):
    found = parameters(preset)
    assert [found[key] / 1e9 for key in ("total", "active")] == pytest.approx([total, active], abs=5e-3)


def test_the_kv_cache_is_read_whole_by_every_rank():
    at_8, at_1 = mla_core(KIMI_K25, 8, 1, 4096), mla_core(KIMI_K25, 1, 1, 4096)
    assert at_8.cache_bytes == at_1.cache_bytes == 4_718_592
    assert round(61 * at_8.cache_bytes / 1e9, 3) == 0.288
    assert at_8.flops == 2 * 8 * (576 + 512) * 4096 == at_1.flops // 8


@pytest.mark.parametrize(
    ("preset", "in_layers", "payload"),
    [(KIMI_K25, 122, 14_336), (DEEPSEEK_V3, 122, 14_336), (GLM_5, 156, 12_288)],
)
@pytest.mark.parametrize("tokens", [1, 8, 256])
def test_a_step_has_two_all_reduces_a_layer_one_more_and_a_gather(preset, in_layers, payload, tokens):
    found = collectives(preset, 8, tokens)
    reduces = [one for one in found if one.operation == "all_reduce"]
    assert sum(one.calls for one in reduces) == in_layers + 1
    assert {one.payload_bytes for one in reduces} == {payload * tokens}
    (gather,) = [one for one in found if one.operation == "all_gather"]
    assert (gather.calls, gather.payload_bytes) == (1, tokens * (preset.vocabulary // 8) * 2)


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_factors_are_those_of_nccl_tests(ranks, factor):
    assert bus_factor("all_reduce", ranks) == factor
    assert bus_factor("all_gather", ranks) == factor / 2 == bus_factor("reduce_scatter", ranks)


@given(st.sampled_from(sorted(PRESETS)), st.sampled_from([1, 2, 4, 8]), st.integers(1, 512))
def test_ranks_share_what_is_split_and_repeat_what_is_not(preset, ranks, tokens):
    whole, part = (weight_bytes(PRESETS[preset], n, tokens) for n in (1, ranks))
    for key, value in part.items():
        assert value == pytest.approx(whole[key] / (1 if key in {"qkv_a", "router"} else ranks))


@pytest.mark.parametrize("ranks", [0, 3, 7, 128])
def test_ranks_that_do_not_divide_the_model_are_refused(ranks):
    with pytest.raises(UsageError, match="cannot be split"):
        linears(KIMI_K25, ranks)
