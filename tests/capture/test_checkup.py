"""Each line of the check list of a report, on real traces and on small ones that lack one thing."""

import json
from pathlib import Path

import pytest
import tracekit

from k25trace.checks import any_missing, as_lines, missing, passed, unknown
from k25trace.checkup import check_report
from k25trace.units import counted

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def statuses(path):
    return {check.name: check.status for check in check_report(path)}


def seen(path, name):
    (found,) = [check for check in check_report(path) if check.name == name]
    return found


def good(trace=None, pid=1000, device=0, kernels=60):
    trace = trace or tracekit.TraceBuilder()
    for at in range(0, kernels * 1_000_000, 1_000_000):
        trace.push_pop("decode", at, at + 900_000, pid=pid)
        trace.kernel(tracekit.MARLIN, at + 1_000, 600, launch=at + 900, pid=pid, device=device)
    trace.duration(80_000_000)
    return trace


NO_WORD_OF_NSYS = {"diagnostics": "cannot say"}
"""What exports of nsys 2023.4 have no table of."""

IN_DOUBT = dict.fromkeys(
    ["GPUs", "processes", "graph replays", "graph captures", "launches", "collectives", "balance"], "cannot say"
)


@pytest.mark.parametrize(
    ("trace", "lines"),
    [
        ("h200x2_decode_graph", {}),
        ("h200x2_toy_eager", {}),
        ("h200x1_toy_graph", {"graph captures": "missing"}),
        ("h200x2_vllm_graph", {"graph captures": "missing"}),
        ("h200x2_vllm_lossy", {**IN_DOUBT, "API calls": "missing"}),
        ("h200x2_decode_lossy", {**IN_DOUBT, "API calls": "missing"}),
    ],
)
def test_real_traces(trace, lines):
    found = statuses(GOLDEN / f"{trace}.sqlite")
    assert {name: status for name, status in found.items() if status != "ok"} == {**NO_WORD_OF_NSYS, **lines}


def test_ranges_that_go_on_after_the_calls_of_a_real_trace():
    found = seen(GOLDEN / "h200x2_decode_lossy.sqlite", "API calls")
    assert "10 of rank 1" in found.seen
    assert "4 of rank 0" in found.seen
    assert "graph_step" in found.seen


def test_a_small_whole_trace_is_green(tmp_path):
    found = statuses(good().write(tmp_path / "t.sqlite"))
    assert {name for name, status in found.items() if status != "ok"} == NO_WORD_OF_NSYS.keys()
    newer = good(tracekit.TraceBuilder(schema="3.28.1"))
    newer.diagnostic("fine", severity=1)
    assert set(statuses(newer.write(tmp_path / "n.sqlite")).values()) == {"ok"}


def test_no_kernels(tmp_path):
    trace = tracekit.TraceBuilder()
    trace.push_pop("step", 0, 100)
    found = seen(trace.write(tmp_path / "t.sqlite"), "GPUs")
    assert found.status == "missing"
    assert "no-kernels" in found.seen


def test_cuda_that_was_not_traced_is_nobodys_fault():
    found = seen(GOLDEN / "cpu_nvtx.sqlite", "GPUs")
    assert found.status == "cannot say"
    assert "--trace cuda,nvtx" in found.fix


def test_a_graph_recorded_as_a_whole(tmp_path):
    trace = good()
    trace.graph_launch(70_000_000, 70_001_000)
    found = statuses(trace.write(tmp_path / "t.sqlite"))
    assert found["graph replays"] == "missing"


def test_a_rank_without_kernels_that_has_the_ranges_of_the_others(tmp_path):
    trace = good()
    for at in range(0, 30_000_000, 1_000_000):
        trace.push_pop("decode", at, at + 900_000, pid=1001)
        trace.push_pop("mlp", at + 10, at + 90, pid=1001)
        trace.push_pop("mlp", at + 10, at + 90, pid=1000)
    found = seen(trace.write(tmp_path / "t.sqlite"), "processes")
    assert found.status == "missing"
    assert "1001" in found.seen


def test_a_parent_with_ranges_of_its_own_is_no_rank(tmp_path):
    trace = good()
    trace.push_pop("launcher", 0, 100, pid=900)
    assert statuses(trace.write(tmp_path / "t.sqlite"))["processes"] == "ok"


def test_a_rank_without_ranges(tmp_path):
    trace = good()
    for at in range(0, 60_000_000, 1_000_000):
        trace.kernel(tracekit.MARLIN, at + 1_000, 600, launch=at + 900, pid=1001, device=1)
    found = seen(trace.write(tmp_path / "t.sqlite"), "NVTX per rank")
    assert found.status == "missing"
    assert "1001" in found.seen


def test_what_a_silent_rank_used_is_not_counted(tmp_path):
    trace = good()
    for at in range(0, 30_000_000, 1_000_000):
        trace.push_pop("decode", at, at + 900_000, pid=1001)
        trace.push_pop("mlp", at + 10, at + 90, pid=1001)
        trace.push_pop("mlp", at + 10, at + 90, pid=1000)
    path = trace.write(tmp_path / "t.sqlite")
    found = seen(path, "GPUs")
    assert (found.status, "process 1001" in found.seen) == ("cannot say", True)
    assert seen(path, "NVTX per rank").seen == "150 ranges in 2 of 2 processes"


def after_the_end(name, count, *, switch="", before=False):
    """A whole trace, and ranges without calls behind its last call."""
    trace = good()
    if switch:
        trace.api(switch, 0)
    if before:
        trace.push_pop(name, 60_500_000, 60_500_100)
        trace.api("cudaDeviceSynchronize", 60_600_000)
    for number in range(count):
        trace.push_pop(name, 61_000_000 + number * 1_000, 61_000_500 + number * 1_000)
    return trace


@pytest.mark.parametrize(
    ("trace", "status"),
    [
        (after_the_end("decode", 3), "missing"),
        (after_the_end("decode", 2), "ok"),
        # Of a name that is seen there alone: host code, unless the program still has to close the recording.
        (after_the_end("write", 30), "ok"),
        (after_the_end("replay", 3, switch="cuProfilerStart"), "missing"),
        (after_the_end("replay", 2, switch="cuProfilerStart"), "ok"),
        # A name that held no call earlier, either.
        (after_the_end("detokenize", 30, switch="cuProfilerStart", before=True), "ok"),
    ],
)
def test_ranges_after_the_last_call_of_a_process(tmp_path, trace, status):
    found = statuses(trace.write(tmp_path / "t.sqlite"))
    assert found["API calls"] == status
    assert found["balance"] == ("cannot say" if status == "missing" else "ok")


@pytest.mark.parametrize(
    ("counts", "partial"),
    [
        ([4, 4, 4, 4], 0),
        ([4, 2, 4, 4], 1),
        ([4, 2, 1, 4], 2),
        # The recording may cut the first and the last.
        ([2, 4, 4, 1], 0),
        ([1, 4], 0),
        ([4, 0, 4], 0),
    ],
)
def test_graph_launches_with_a_part_of_their_kernels(tmp_path, counts, partial):
    trace = good()
    for node in range(4):
        trace.node(100 + node, node)
    for number, count in enumerate(counts):
        at = 62_000_000 + number * 1_000_000
        corr = trace.graph_launch(at, at + 100)
        for node in range(count):
            trace.kernel(tracekit.MARLIN, at + 1_000 + node * 100, 50, corr=corr, node=node)
    found = seen(trace.write(tmp_path / "t.sqlite"), "graph replays")
    if 0 in counts:
        assert "opaque-graphs" in found.seen
    elif partial:
        assert (found.status, found.seen.split()[0]) == ("missing", str(partial))
    else:
        assert found.status == "ok"


@pytest.mark.parametrize(
    ("lost", "kernels"),
    [
        ([], 0),
        ([30], 1),
        ([30, 31], 2),
        # Launched before the first recorded call; the last call had not returned when the recording ended.
        ([0], 0),
        ([59], 0),
        ([0, 59], 0),
        ([58, 59], 2),
    ],
)
def test_kernels_whose_launch_was_lost(tmp_path, lost, kernels):
    trace = tracekit.TraceBuilder()
    for number in range(60):
        at = number * 1_000_000
        launch = None if number in lost else at + 900
        trace.kernel(tracekit.MARLIN, at + 1_000, 600, launch=launch, corr=1_000 + number)
    found = seen(trace.write(tmp_path / "t.sqlite"), "launches")
    assert found.status == ("missing" if kernels else "ok")
    assert not kernels or found.seen.startswith(f"no launch call of {counted(kernels, 'kernel')},")


def test_domains_whose_numbers_are_left_out_are_those_of_a_new_nvtx(tmp_path):
    """They are created and destroyed before the recording; those of NCCL, which come later, stay."""

    def trace(schema="3.7.2"):
        trace = good(tracekit.TraceBuilder(schema=schema))
        trace.domain("NCCL", 2)
        trace.push_pop("ncclAllReduce", 800, 1_000, domain=2)
        return trace

    found = seen(trace().write(tmp_path / "t.sqlite"), "NVTX package")
    assert (found.status, found.seen.split()[0]) == ("missing", "1")
    assert "nvtx==0.2.11" in found.fix
    assert statuses(trace("3.28.1").write(tmp_path / "n.sqlite"))["NVTX package"] == "ok"


def test_domains_without_ranges_are_those_of_a_new_nvtx(tmp_path):
    trace = tracekit.TraceBuilder()
    trace.kernel(tracekit.MARLIN, 1_000, 600, launch=900)
    trace.domain("k25", 1)
    assert seen(trace.write(tmp_path / "t.sqlite"), "NVTX package").status == "missing"
    newer = tracekit.TraceBuilder(schema="3.20.0")
    newer.kernel(tracekit.MARLIN, 1_000, 600, launch=900)
    newer.domain("k25", 1)
    assert seen(newer.write(tmp_path / "n.sqlite"), "NVTX package").status == "cannot say"


def test_ranges_of_nccl_alone_are_not_the_programs(tmp_path):
    trace = tracekit.TraceBuilder()
    trace.kernel(tracekit.ALL_REDUCE, 1_000, 600, launch=900)
    trace.domain("NCCL", 1)
    trace.push_pop("ncclAllReduce", 800, 1_000, domain=1)
    trace.domain("k25", 2)
    found = seen(trace.write(tmp_path / "t.sqlite"), "NVTX package")
    assert found.status == "missing"
    assert "(k25)" in found.seen


@pytest.mark.parametrize(("lacking", "status"), [(0, "ok"), (1, "ok"), (10, "cannot say"), (40, "missing")])
def test_collectives_that_do_not_pair_up(tmp_path, lacking, status):
    trace = tracekit.TraceBuilder()
    for device, count in ((0, 60), (1, 60 - lacking)):
        for number in range(100):
            at = number * 1_000_000
            kernel = tracekit.ALL_REDUCE if number < count else tracekit.MARLIN
            trace.push_pop("decode", at, at + 900_000, pid=1000 + device)
            trace.kernel(kernel, at + 1_000, 600, launch=at + 900, pid=1000 + device, device=device)
    trace.duration(120_000_000)
    assert statuses(trace.write(tmp_path / "t.sqlite"))["collectives"] == status


@pytest.mark.parametrize(("kernels", "status"), [(60, "ok"), (31, "ok"), (29, "missing")])
def test_gpus_with_different_numbers_of_kernels(tmp_path, kernels, status):
    trace = good(good(), pid=1001, device=1, kernels=kernels)
    assert statuses(trace.write(tmp_path / "t.sqlite"))["balance"] == status


def test_launches_without_kernels(tmp_path):
    trace = good()
    for at in range(20):
        trace.api(tracekit.LAUNCH_CALL, at * 1_000_000 + 5_000, at * 1_000_000 + 6_000)
    found = seen(trace.write(tmp_path / "t.sqlite"), "launches")
    assert found.status == "missing"
    assert found.seen.startswith("no kernel of 20 of 80 launch calls")


@pytest.mark.parametrize(("text", "status"), [("events were dropped", "missing"), ("an old driver", "cannot say")])
def test_diagnostics(tmp_path, text, status):
    trace = good()
    trace.diagnostic(text, severity=3)
    found = seen(trace.write(tmp_path / "t.sqlite"), "diagnostics")
    assert found.status == status
    assert text in found.seen


def test_clocks(tmp_path):
    early = tracekit.TraceBuilder()
    for at in range(1_000_000, 61_000_000, 1_000_000):
        early.kernel(tracekit.MARLIN, at, 600, launch=at + 5_000)
    assert statuses(early.write(tmp_path / "e.sqlite"))["clock"] == "missing"
    impossible = good()
    impossible.kernel(tracekit.MARLIN, 1 << 61, 600, launch=900)
    assert statuses(impossible.write(tmp_path / "i.sqlite"))["clock"] == "missing"


def test_the_command_and_its_exit_code(run_in_process):
    done = run_in_process("doctor", GOLDEN / "h200x2_decode_graph.sqlite", "--format", "json")
    document = json.loads(done.stdout)
    assert (done.code, document["schema"]) == (0, "k25trace.doctor/1")
    assert [c["name"] for c in document["checks"]][:3] == ["GPUs", "processes", "NVTX per rank"]
    assert run_in_process("doctor", GOLDEN / "h200x2_vllm_lossy.sqlite").code == 1
    assert run_in_process("doctor", GOLDEN / "none.sqlite").code == 1


@pytest.mark.parametrize("option", ["--nsys", "--python"])
def test_options_about_the_machine_are_refused_with_a_report(run_in_process, option):
    done = run_in_process("doctor", GOLDEN / "h200x2_decode_graph.sqlite", option, "elsewhere")
    assert (done.code, done.stdout) == (2, "")
    assert f"{option} does nothing" in done.stderr


def test_lines_are_readable_and_hold_nothing_a_terminal_acts_on():
    checks = [passed("a", "fine"), missing("b", "word " * 60, "do\x1b[31m this"), unknown("c", "")]
    lines = list(as_lines(checks))
    assert lines[0] == "ok         a                  fine"
    assert all(len(line) <= 110 and line.isprintable() for line in lines)
    assert any_missing(checks)
    assert not any_missing(checks[:1])
