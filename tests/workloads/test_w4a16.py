"""Layouts of INT4 weights, routing and attention against their definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="no torch: pip install '.[workloads]'")

pytestmark = pytest.mark.torch

if True:  # after the look whether torch is there
    from k25trace.workloads import w4a16
    from k25trace.workloads.annotate import Annotator
    from k25trace.workloads.experts import Draw, Experts, relative_error
    from k25trace.workloads.mla_attention import CORES, Attention
    from k25trace.workloads.moe_routing import route, routing_error, sort_rows
    from k25trace.workloads.shapes import DEEPSEEK_V3, KIMI_K25, TINY
    from k25trace.workloads.timing import Quantiles

CPU = torch.device("cpu")
sizes = st.tuples(st.sampled_from([32, 64, 256]), st.sampled_from([64, 128]), st.integers(0, 1000))


def weight(size):
    k, n, seed = size
    generator = torch.Generator().manual_seed(seed)
    return w4a16.random_q(k, n, generator, CPU), w4a16.random_scales(k, n, generator, CPU)


@given(sizes)
def test_layouts_hold_the_same_numbers(size):
    q, scales = weight(size)
    assert torch.equal(w4a16.unpack_marlin(w4a16.pack_marlin(q)), q)
    assert torch.equal(w4a16.unpermute_scales(w4a16.permute_scales(scales)), scales)
    exact = w4a16.dequantized(q, scales)
    assert relative_error(w4a16.dequantize_elementwise(w4a16.pack_plain(q), scales), exact) < 4e-3
    x = torch.eye(size[0], dtype=torch.bfloat16)
    assert relative_error(w4a16.int4pack_mm(x, *w4a16.pack_int4pack(q, scales)), exact) < 4e-3


def test_a_marlin_tile_is_laid_out_as_its_threads_read_it():
    # Thread 0 of a warp holds, of column 0 of a 16 x 16 tile, rows 0, 1, 8, 9, and the same of column 8; the
    # nibbles of its word are in the order 0, 2, 4, 6, 1, 3, 5, 7.
    q = (torch.arange(16 * 64) % 16).to(torch.uint8).reshape(16, 64)
    q[:, 0], q[:, 8] = torch.tensor([*range(16)]), torch.tensor([15 - row for row in range(16)])
    word = int(w4a16.pack_marlin(q)[0, 0]) & 0xFFFFFFFF
    held = [0, 1, 8, 9, 15, 14, 7, 6]
    assert [word >> 4 * place & 15 for place in range(8)] == [held[i] for i in (0, 2, 4, 6, 1, 3, 5, 7)]


@pytest.mark.parametrize("path", ["int4pack", "cast", "bf16"])
@pytest.mark.parametrize("chunk", [None, 1])
def test_experts_agree_with_their_definition(path, chunk, monkeypatch):
    if chunk:
        monkeypatch.setattr("k25trace.workloads.experts.CHUNK_BYTES", chunk)
    experts = Experts(TINY, 2, path, Draw(0, 1, 1), CPU, Annotator("off"))
    x = torch.randn(5, TINY.hidden, dtype=torch.bfloat16)
    weights, ids = route(torch.randn(5, TINY.experts), torch.zeros(TINY.experts), TINY)
    exact = experts.reference(x.double(), weights, ids)
    assert 1e-4 < relative_error(experts(x, weights, ids), exact) < 0.02
    # A reference with other experts is far off: the check can fail.
    assert relative_error(experts(x, weights, ids), experts.reference(x.double(), weights, ids.flip(0))) > 0.2


@pytest.mark.parametrize("preset", [KIMI_K25, DEEPSEEK_V3])
def test_routing_is_that_of_the_models(preset):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(40, preset.experts, generator=generator)
    bias = 0.1 * torch.randn(preset.experts, generator=generator)
    weights, ids = route(logits, bias, preset)
    assert routing_error(weights, ids, logits, bias, preset) < 1e-4
    torch.testing.assert_close(weights.sum(-1), torch.full((40,), preset.routed_scale))
    for row in range(40):
        choice = logits[row].sigmoid() + bias
        per_group = choice.reshape(preset.groups, -1)
        best = sorted(range(preset.groups), key=lambda g: -float(per_group[g].topk(2).values.sum()))
        size = preset.experts // preset.groups
        allowed = [g * size + e for g in best[: preset.top_groups] for e in range(size)]
        wanted = sorted(allowed, key=lambda e: -float(choice[e]))[: preset.top_k]
        # Of equal scores either may be taken.
        assert sorted(choice[ids[row].long()].tolist()) == sorted(choice[wanted].tolist())
        assert len(set(ids[row].tolist())) == preset.top_k
    order, ends = sort_rows(ids, preset.experts)
    assert torch.equal(ends, torch.bincount(ids.flatten(), minlength=preset.experts).cumsum(0).int())
    assert bool((ids.flatten()[order].diff() >= 0).all())


@pytest.mark.parametrize("core", sorted(CORES))
@pytest.mark.parametrize("queries", [1, 3])
def test_absorbed_attention_is_naive_attention(core, queries):
    shared, own = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    layer = Attention(TINY, 2, 2, 12, queries, shared, own, Annotator("off"), CORES[core])
    x = torch.randn(2 * queries, TINY.hidden, dtype=torch.bfloat16)
    assert 1e-4 < relative_error(layer(x), layer.reference(x.double())) < 0.03


def test_quantiles_are_samples():
    assert Quantiles.of([4, 1, 3, 2]) == Quantiles(4, 1, 2, 4, 4, 2)
    assert Quantiles.of(range(1, 201)).p99 == 198


def test_relative_errors_of_what_is_no_number_are_infinite():
    assert relative_error(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
