"""What may happen while a profiler records, and whose memory a GPU's memory is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="no torch: pip install '.[workloads]'")

pytestmark = pytest.mark.torch

if True:  # after the look whether torch is there
    from k25trace.workloads.annotate import Annotator, recording
    from k25trace.workloads.machine import CONTEXT_BYTES, FOREIGN_BYTES, Snapshot, dirt, environment, foreign_bytes
    from k25trace.workloads.results import Job, Result, take
    from k25trace.workloads.timing import Hold, Timing, elapsed_ns, moment, time_calls
    from k25trace.workloads.world import World

FEW = Timing(samples=3, warmup=1, calls=2)
GB = 10**9


@pytest.fixture
def alone():
    return World(0, 1, 0, 1, torch.device("cpu"), 10.0)


def test_times_are_not_read_inside_a_recording(alone):
    annotator = Annotator("off")
    with recording(alone, annotator):
        assert alone.recording
        start, end = moment(alone), moment(alone)
        with pytest.raises(RuntimeError, match="after the recording"):
            elapsed_ns(alone, start, end)
        taken = time_calls(alone, annotator, lambda _: None, FEW, "nothing")
        with pytest.raises(RuntimeError, match="after the recording"):
            taken.read()
    assert not alone.recording
    assert elapsed_ns(alone, start, end) == end - start >= 0
    assert len(taken.read()) == 3
    assert min(taken.read()) >= 0


def test_a_recording_ends_when_what_is_in_it_fails(alone):
    with pytest.raises(ZeroDivisionError), recording(alone, Annotator("off")):
        raise ZeroDivisionError
    assert not alone.recording


def test_jobs_are_timed_in_their_order_and_those_that_cannot_be_are_left_out(alone):
    seen = []

    def broken(_: int) -> None:
        raise RuntimeError("no kernel\nand more")

    rows = [Result(name, "a", {}, "float32") for name in ("gemm.a", "gemm.b", "gemm.c")]
    rows[1].unavailable = "not here"
    jobs = [
        Job(rows[0], seen.append, "first", ready=lambda: seen.append("ready")),
        Job(rows[1], seen.append, "second"),
        Job(rows[2], broken, "third"),
    ]
    take(alone, Annotator("off"), FEW, jobs)
    assert seen == ["ready", *[0, 1] * (1 + 3)]
    assert [row.extra.get("range") for row in rows] == ["bench.first", None, "bench.third"]
    assert len(rows[0].read().samples) == 3
    assert rows[0].read().taken is None
    assert [(row.unavailable, row.read().samples) for row in rows[1:]] == [("not here", []), ("no kernel", [])]


def test_nothing_is_held_on_a_cpu(alone):
    launched = []
    hold = Hold(alone, lambda: launched.append(1), together=True)
    hold()
    assert launched == []


@given(st.dictionaries(st.integers(2, 9), st.integers(0, 50 * GB)), st.integers(0, 50 * GB), st.integers(0, 140 * GB))
def test_memory_is_foreign_if_another_process_has_it(others, own, beside):
    assert foreign_bytes({1: own, **others}, 1, beside) == sum(others.values())


@pytest.mark.parametrize("processes", [{}, {7: 5 * GB}, {7: None}, {1: None, 7: None}])
def test_where_processes_cannot_be_told_apart_what_is_beside_the_tensors_counts(processes):
    assert foreign_bytes(processes, 1, 1_212_088_320) == 0  # a context and NCCL's buffers, as on an H200
    assert foreign_bytes(processes, 1, CONTEXT_BYTES + 5 * GB) == 5 * GB


def test_a_machine_is_dirty_while_others_use_it_or_it_is_slowed_down():
    clean = Snapshot("gpu", memory_used_bytes=100 * GB, memory_foreign_bytes=FOREIGN_BYTES)
    used = Snapshot("gpu", memory_foreign_bytes=FOREIGN_BYTES + 1)
    slow = Snapshot("gpu", throttle=("hardware slowdown",), spoiled=True)
    assert dirt(clean) == dirt(clean, clean) == dirt(Snapshot("cpu")) == []
    assert dirt(used) == ["1,073,741,825 B of GPU memory in use by others at the start"]
    assert dirt(clean, used) == ["1,073,741,825 B of GPU memory in use by others at the end"]
    assert dirt(clean, slow) == ["hardware slowdown at the end"]


def test_settings_that_name_places_stay_here(monkeypatch):
    for key, value in (
        ("NCCL_PROTO", "LL"), ("CUDA_INJECTION64_PATH", "/tmp/x.so"), ("NCCL_SOCKET_IFNAME", "eth0"), ("HOME", "/root"),
    ):  # fmt: skip
        monkeypatch.setenv(key, value)
    found = environment()
    assert found["NCCL_PROTO"] == "LL"
    assert not {"CUDA_INJECTION64_PATH", "NCCL_SOCKET_IFNAME", "HOME"} & set(found)
