"""Traces for Perfetto, decoded again: slices nest, add up, carry their category; flows and counters agree."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder

from k25trace import attribute
from k25trace.perfetto.events import Slice, nested
from k25trace.perfetto.make import make_perfetto
from k25trace.taxonomy import ALL_CATEGORIES

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DECODE = GOLDEN / "h200x2_decode_graph.sqlite"


class Decoded:
    """A trace as a viewer would read it."""

    def __init__(self, path: Path) -> None:
        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        self.tracks = {
            p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")
        }
        names: dict[str, dict[int, Any]] = defaultdict(dict)
        open_on: dict[int, list[list[Any]]] = defaultdict(list)
        self.slices: list[list[Any]] = []  # track, start, end, name, category, arguments, flows out, flows in
        self.counters: dict[int, list[tuple[int, int]]] = defaultdict(list)
        last: dict[int, int] = {}
        for packet in trace.packet:
            for kind in ("event_names", "event_categories", "debug_annotation_names", "debug_annotation_string_values"):
                for entry in getattr(packet.interned_data, kind):
                    names[kind][entry.iid] = entry.str.decode() if kind.endswith("values") else entry.name
            if not packet.HasField("track_event"):
                continue
            event, at = packet.track_event, packet.timestamp
            assert at >= last.get(event.track_uuid, 0), "a track goes back in time"
            last[event.track_uuid] = at
            if event.type == TrackEvent.TYPE_COUNTER:
                self.counters[event.track_uuid].append((at, event.counter_value))
            elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
                arguments = {
                    names["debug_annotation_names"][a.name_iid]: a.int_value
                    if a.HasField("int_value")
                    else names["debug_annotation_string_values"][a.string_value_iid]
                    for a in event.debug_annotations
                }
                (category,) = event.category_iids
                found = [event.track_uuid, at, None, names["event_names"][event.name_iid]]
                found += [names["event_categories"][category], arguments]
                found += [list(event.flow_ids), list(event.terminating_flow_ids)]
                open_on[event.track_uuid].append(found)
                self.slices.append(found)
            else:
                open_on[event.track_uuid].pop()[2] = at
        assert not any(open_on.values()), "a slice never ends"

    def path(self, track: int) -> list[str]:
        """Names of a track and those above it, outermost first."""
        found: list[str] = []
        while track:
            described = self.tracks[track]
            found.append(described.name or described.thread.thread_name or described.process.process_name)
            track = described.parent_uuid
        return found[::-1]


def exported(report: Path, folder: Path, **options: Any) -> Decoded:
    make_perfetto(report, perfetto=folder / "t.pftrace", **options)
    return Decoded(folder / "t.pftrace")


@pytest.mark.parametrize("name", ["h200x2_decode_graph", "h200x2_vllm_graph", "h200x1_toy_graph"])
def test_kernels_add_up_to_attribute_on_every_gpu(name, tmp_path):
    report = GOLDEN / f"{name}.sqlite"
    trace, analysis = exported(report, tmp_path), attribute(report)
    found: Counter[tuple[str, str, str]] = Counter()
    for track, start, end, _, category, *_ in trace.slices:
        if category in ALL_CATEGORIES:
            gpu = trace.path(track)[0].split()[1]
            found[gpu, category, "ns"] += end - start
            found[gpu, category, "count"] += 1
    wanted: Counter[tuple[str, str, str]] = Counter()
    for gpu, category, ns, count in (
        analysis.categories.filter(analysis.categories["gpu"] != "all")
        .select("gpu", "category", "kernel_ns", "kernel_count")
        .iter_rows()
    ):
        wanted[gpu, category, "ns"] += ns
        wanted[gpu, category, "count"] += count
    assert found == wanted
    for what, column in (("busy", "busy_ns"), ("exposed communication", "exposed_communication_ns")):
        sums = {}
        for track, values in trace.counters.items():
            gpu, name = trace.path(track)
            if name == what:
                assert [v for _, v in values] == [1, 0] * (len(values) // 2)
                sums[gpu.split()[1]] = sum(b[0] - a[0] for a, b in zip(values[::2], values[1::2], strict=True))
        wanted_sums = dict(analysis.gpus.select("gpu", column).iter_rows())
        assert {gpu: sums.get(gpu, 0) for gpu in wanted_sums} == wanted_sums


def test_a_small_trace_slice_by_slice(tmp_path):
    source = TraceBuilder()
    source.push_pop("step rank=5", 0, 90)
    source.push_pop("layer0", 5, 60)
    source.kernel(MARLIN, 100, 50, launch=10, gridX=132)
    source.kernel(CAST, 140, 20, launch=30)  # begins before the kernel ahead of it on its stream ends
    source.kernel(ALL_REDUCE, 170, 30, launch=70, stream=9)
    source.memcpy(210, 10, launch=80, stream=9)
    trace = exported(source.write(tmp_path / "in.sqlite"), tmp_path)
    seen = {(*trace.path(t), name, category, start, end) for t, start, end, name, category, *_ in trace.slices}
    thread = ("rank 5, pid 1000", "thread 1000")
    call = "cudaLaunchKernel_v7000"
    assert seen == {
        ("GPU 0:0", "stream 7", MARLIN.demangled, "gemm.marlin", 100, 150),
        ("GPU 0:0", "stream 7", CAST.demangled, "cast", 140, 160),
        ("GPU 0:0", "stream 9", ALL_REDUCE.demangled, "comm.allreduce", 170, 200),
        ("GPU 0:0", "stream 9", "memcpy", "memcpy", 210, 220),
        (*thread, "NVTX default", "step rank=5", "nvtx", 0, 90),
        (*thread, "NVTX default", "layer0", "nvtx", 5, 60),
        (*thread, "CUDA calls", call, "launch", 10, 15),
        (*thread, "CUDA calls", call, "launch", 30, 35),
        (*thread, "CUDA calls", call, "launch", 70, 75),
        (*thread, "CUDA calls", "cudaMemcpyAsync_v3020", "launch", 80, 85),
    }
    marlin = next(s for s in trace.slices if s[4] == "gemm.marlin")
    times = "\N{MULTIPLICATION SIGN}"
    assert marlin[5] == {
        "path": "step rank=5 / layer0",
        "grid of block": f"132{times}1{times}1 of 128{times}1{times}1",
        "launch latency (ns)": 90,
    }
    out = {flow: s for s in trace.slices for flow in s[6]}
    into = {flow: s for s in trace.slices for flow in s[7]}
    assert len(out) == 4
    assert {(out[flow][1], s[1]) for flow, s in into.items()} == {(10, 100), (30, 140), (70, 170), (80, 210)}


def test_a_graph_replay_has_one_arrow_to_its_first_kernel_on_each_gpu(tmp_path):
    trace = exported(DECODE, tmp_path)
    into = Counter(flow for s in trace.slices for flow in s[7])
    out = {flow: s for s in trace.slices for flow in s[6]}
    assert set(into) == set(out)
    assert set(into.values()) == {1}
    replays = [s for s in out.values() if s[3].startswith("cudaGraphLaunch")]
    assert len(replays) == 20


def test_instants_before_the_clock_began_are_shifted(tmp_path):
    source = TraceBuilder()
    source.kernel(CAST, -50, 20, launch=-60)
    source.kernel(CAST, 100, 20, launch=90)
    trace = exported(source.write(tmp_path / "in.sqlite"), tmp_path)
    assert sorted(s[1] for s in trace.slices) == [0, 10, 150, 160]


REPORTS = sorted(GOLDEN.glob("h200*.sqlite"))


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_every_range_begins_and_ends_where_the_report_says(report, tmp_path):
    trace = exported(report, tmp_path)
    found = Counter((s[1], s[2]) for s in trace.slices if s[4] == "nvtx" and "closed" not in s[5])
    still_open = Counter(s[1] for s in trace.slices if s[4] == "nvtx" and s[5].get("closed") == "false")
    with contextlib.closing(sqlite3.connect(f"{report.as_uri()}?mode=ro", uri=True)) as database:
        said = database.execute(
            "SELECT start, end FROM NVTX_EVENTS WHERE eventType IN (59, 60) AND globalTid IS NOT NULL"
        ).fetchall()
    assert found == Counter((start, end) for start, end in said if end is not None)
    assert still_open == Counter(start for start, end in said if end is None)


def test_only_ranges_that_never_closed_end_with_the_report(tmp_path):
    source = TraceBuilder()
    source.push_pop("before", 0, 100)
    source.push_pop("wide", 200, 50_000)
    source.kernel(MARLIN, 1_000, 500, launch=250)
    source.push_pop("after", 60_000, 70_000)
    source.push_pop("never", 80_000, None)
    source.start_end("across", 5, None)
    source.push_pop("impossible", 90, 80, tid=4)
    trace = exported(source.write(tmp_path / "in.sqlite"), tmp_path)
    ranges = {s[3]: (s[1], s[2], s[5].get("closed")) for s in trace.slices if s[4] == "nvtx"}
    assert ranges == {
        "before": (0, 100, None),
        "wide": (200, 50_000, None),
        "after": (60_000, 70_000, None),
        "never": (80_000, 80_000, "false"),
        "across": (5, 80_000, "false"),
    }


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_counters_of_a_window_are_those_of_attribute(report, tmp_path):
    whole = attribute(report).windows
    start, end = whole["start_ns"].min(), whole["end_ns"].max()
    third = (end - start) // 3
    # Begin and end inside kernels, where there are any at these instants.
    window = f"{start + third + 1}:{end - third - 1}"
    trace, analysis = exported(report, tmp_path, window=window), attribute(report, window=window)
    for what, column in (("busy", "busy_ns"), ("exposed communication", "exposed_communication_ns")):
        sums = Counter(dict.fromkeys(analysis.gpus["gpu"], 0))
        for track, values in trace.counters.items():
            gpu, name = trace.path(track)
            if name == what:
                sums[gpu.split()[1]] += sum(b[0] - a[0] for a, b in zip(values[::2], values[1::2], strict=True))
        assert dict(sums) == dict(analysis.gpus.select("gpu", column).iter_rows())


def test_counters_are_cut_at_the_window_and_slices_are_not(tmp_path):
    source = TraceBuilder()
    source.kernel(MARLIN, 100, 100, launch=10)
    source.kernel(ALL_REDUCE, 150, 150, launch=20, stream=9)
    trace = exported(source.write(tmp_path / "in.sqlite"), tmp_path, window="120:250")
    assert {(s[1], s[2]) for s in trace.slices if s[4] in ALL_CATEGORIES} == {(100, 200), (150, 300)}
    assert {trace.path(track)[1]: values for track, values in trace.counters.items()} == {
        "busy": [(120, 1), (250, 0)],
        "exposed communication": [(200, 1), (250, 0)],
    }


def test_a_window_takes_what_touches_it_whole(tmp_path):
    trace = exported(DECODE, tmp_path, window="60ms:61ms")
    kernels = [s for s in trace.slices if s[4] in ALL_CATEGORIES]
    assert 0 < len(kernels) < 300
    assert all(s[1] < 61_000_000 and s[2] >= 60_000_000 for s in kernels)


def test_chrome_json_says_the_same(tmp_path):
    source = TraceBuilder()
    source.push_pop('a "range" </script>', 0, 90)
    source.kernel(MARLIN, 100, 50, launch=10)
    source.kernel(CAST, 151, 1_500, launch=20)
    report = source.write(tmp_path / "in.sqlite")
    make_perfetto(report, chrome=tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    open_on: dict[Any, list[Any]] = defaultdict(list)
    slices = []
    for event in events:
        if event["ph"] == "B":
            open_on[event["tid"]].append(event)
        elif event["ph"] == "E":
            began = open_on[event["tid"]].pop()
            slices.append((began["name"], began["cat"], began["ts"], event["ts"]))
    assert not any(open_on.values())
    assert set(slices) == {
        ('a "range" </script>', "nvtx", 0, 0.09),
        (MARLIN.demangled, "gemm.marlin", 0.1, 0.15),
        (CAST.demangled, "cast", 0.151, 1.651),
        ("cudaLaunchKernel_v7000", "launch", 0.01, 0.015),
        ("cudaLaunchKernel_v7000", "launch", 0.02, 0.025),
    }
    assert [e["id"] for e in events if e["ph"] == "s"] == [e["id"] for e in events if e["ph"] == "f"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} >= {"GPU 0:0", "pid 1000", "stream 7"}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=30))
def test_nesting_keeps_every_slice_and_crosses_none(spans):
    ordered = sorted(((s, s + n) for s, n in spans), key=lambda x: (x[0], -x[1]))
    lanes = nested((s, e, Slice(str(i), "x")) for i, (s, e) in enumerate(ordered))
    found = []
    for steps in lanes:
        assert [at for at, _ in steps] == sorted(at for at, _ in steps)
        stack: list[Any] = []
        for at, what in steps:
            if what is not None:
                stack.append((at, what))
            else:
                start, began = stack.pop()
                found.append((int(began.name), start, at))
        assert not stack
    assert [(s, e) for _, s, e in sorted(found)] == ordered
    disjoint = all(b[0] >= a[1] for a, b in itertools.pairwise(ordered))
    if disjoint:
        assert len(lanes) <= 1


def test_command_writes_refuses_and_says_what_is_missing(run_in_process, tmp_path, monkeypatch):
    target = tmp_path / "t.pftrace"
    done = run_in_process("export", DECODE, "--perfetto", target, "--chrome-json", tmp_path / "t.json")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    assert Decoded(target).slices
    assert run_in_process("export", DECODE, "--perfetto", target).code == 1
    assert run_in_process("export", DECODE, "--perfetto", DECODE, "--force").code == 2
    assert run_in_process("export", DECODE, "--perfetto", target, "-o", "x", "--force").code == 2
    assert run_in_process("export", DECODE, "--window", "1:2").code == 2
    monkeypatch.setitem(__import__("sys").modules, "perfetto.protos.perfetto.trace.perfetto_trace_pb2", None)
    done = run_in_process("export", DECODE, "--perfetto", tmp_path / "m")
    assert done.code == 1
    assert "pip install 'k25trace[perfetto]'" in done.stderr
    assert not (tmp_path / "m").exists()


def empty_reports() -> dict[str, TraceBuilder]:
    opaque, impossible, nothing = TraceBuilder(), TraceBuilder(), TraceBuilder()
    opaque.graph_launch(100, 10)
    opaque.memcpy(200, 5, launch=150)
    impossible.kernel(MARLIN, 1_000, -900, launch=10)
    nothing.push_pop("only", 0, 10)
    return {"opaque": opaque, "impossible": impossible, "nothing": nothing}


@pytest.mark.parametrize("kind", empty_reports())
def test_a_report_without_kernels_is_refused_for_the_reason_that_attribute_gives(run_in_process, tmp_path, kind):
    report = empty_reports()[kind].write(tmp_path / "in.sqlite")
    wanted = run_in_process("attribute", report)
    done = run_in_process("export", report, "--perfetto", tmp_path / "out")
    assert (done.code, done.stdout, done.stderr) == (3, "", wanted.stderr)
    assert wanted.code == 3
    assert not (tmp_path / "out").exists()
