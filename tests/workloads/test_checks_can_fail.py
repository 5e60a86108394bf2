"""The checks that every result stands on find what is wrong."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="no torch: pip install '.[workloads]'")

pytestmark = pytest.mark.torch

dist = pytest.importorskip("torch.distributed")
if True:  # after the look whether torch is there
    from k25trace.workloads.annotate import Annotator
    from k25trace.workloads.collective import OPERATIONS, Operation, Pattern
    from k25trace.workloads.decoder import Decoder, DenseMlp, Moe
    from k25trace.workloads.machine import available_bytes
    from k25trace.workloads.mla_attention import TOLERANCE, Attention
    from k25trace.workloads.results import Result, document
    from k25trace.workloads.shapes import TINY
    from k25trace.workloads.world import World


@pytest.fixture
def alone():
    return World(0, 1, 0, 1, torch.device("cpu"), 10.0)


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@given(st.integers(1, 256), st.sampled_from([torch.bfloat16, torch.float32]))
def test_sums_over_ranks_are_exact_and_every_rank_of_a_server_matters(ranks, dtype):
    n = 40
    pattern = Pattern.of(n, ranks, dtype, torch.device("cpu"))
    every = [pattern.brought(rank) for rank in range(ranks)]
    added = torch.zeros(n, dtype=dtype)
    for one in every:
        added += one
    exact = torch.stack(every).to(torch.int64).sum(0)
    assert torch.equal(added.to(torch.int64), exact)
    assert torch.equal(pattern.total().to(torch.int64), exact)
    # Neighbours differ, so that a shifted result is seen.
    assert bool((added.diff() != 0).all())
    if 1 < ranks <= 16:
        assert len({one[0].item() for one in every}) > 1


@pytest.mark.parametrize("kind", sorted(OPERATIONS))
@pytest.mark.usefixtures("group")
def test_a_wrong_element_of_a_collective_is_counted(alone, kind):
    operation = Operation(alone, kind, 64, torch.bfloat16)
    assert operation.wrong() == 0
    right = operation._call

    def broken() -> None:
        right()
        operation.out[[3, 5]] += 1

    operation._call = broken
    assert operation.wrong() == 2
    operation._call = lambda: None  # nothing arrives
    assert (operation.wrong() > 0) is (kind != "all_reduce")  # of one rank, what it brought is the sum


@pytest.mark.parametrize(
    ("broken", "seen"), [(Attention, "attention_alone"), (DenseMlp, "mlp_alone"), (Moe, "mlp_alone")]
)
def test_a_decode_step_with_a_part_a_tenth_off_is_found_out(alone, monkeypatch, broken, seen):
    chosen = argparse.Namespace(
        verify_width=0, requests=2, seed=0, path="cast", context=2048, attention="matmul", skew=None
    )
    decoder = Decoder(alone, Annotator("off"), TINY, chosen, 2)
    assert max(decoder.errors().values()) <= TOLERANCE
    # A tenth off: the more context, the less of it the residual stream shows.
    whole = broken.__call__
    monkeypatch.setattr(broken, "__call__", lambda self, x: whole(self, x) * 0.9)
    errors = decoder.errors()
    wrong = {key for key, value in errors.items() if key.endswith("_alone") and value > TOLERANCE}
    assert wrong
    assert {key.partition("_")[2] for key in wrong} == {seen}


class Two:
    """A world of two ranks, of which the other brought what it is told."""

    rank, size, device, cuda = 0, 2, torch.device("cpu"), False

    def __init__(self, other: list) -> None:
        self.other = other

    def gather(self, what):
        # Snapshots are alike; of results the other's are its own.
        return [what, self.other if isinstance(what, list) else what]


@pytest.mark.parametrize(
    ("other", "times", "reason"),
    [
        (([3, 9], 0.002, None), [3, 9], None),
        (([], None, "no kernel"), None, "no kernel"),
    ],
)
def test_a_row_that_another_rank_could_not_measure_says_why(other, times, reason):
    mine = Result("gemm.o_proj", "bf16", {"M": 1}, "bfloat16", samples=[2, 8], error=0.001, tolerance=0.01)
    found = document(Two([other]), "gemm", argparse.Namespace(seed=0), [mine], snapshot())  # type: ignore[arg-type]
    (row,) = found["results"]
    assert row["unavailable"] == reason
    assert (row["time_ns"] and [row["time_ns"]["min"], row["time_ns"]["max"]]) == times
    assert row["error"] == (0.002 if reason is None else 0.001)


def snapshot():
    from k25trace.workloads.machine import Snapshot

    return Snapshot("cpu")


def test_memory_that_holds_files_is_available(tmp_path):
    said = tmp_path / "meminfo"
    said.write_text("MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:    7 kB\n")
    assert available_bytes(said) == 7 * 1024
    said.write_text("MemTotal:  9 kB\nMemFree:  1 kB\n")
    assert available_bytes(said) == available_bytes(tmp_path / "none") > 7 * 1024
