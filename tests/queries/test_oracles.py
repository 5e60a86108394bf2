"""SQL and polars say the same, to the nanosecond: on real traces, on a synthetic one, on small random ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from querykit import CATALOG, GOLDEN, rows
from strategies import traces

from k25trace import attribute, open_trace
from k25trace.attribution import Attribution
from k25trace.classify import load_rules
from k25trace.errors import CannotAnswer

if TYPE_CHECKING:
    from tracekit import TraceBuilder

    from k25trace.analysis import Analysis
    from k25trace.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
REAL = sorted(GOLDEN.glob("h200*.sqlite"))


@cache
def rules() -> Any:
    return load_rules()


class Both:
    """One report with what polars says of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace: Trace = open_trace(path)
        self.analysis: Analysis = attribute(self.trace, rules=rules())
        self.attribution = Attribution(self.trace)

    def rows(self, name: str, **params: Any) -> list[dict[str, Any]]:
        return rows(name, self.path, rules(), **params)

    @property
    def gpu_keys(self) -> list[str]:
        return [gpu.key for gpu in self.trace.gpus]


def sums(found: list[dict[str, Any]], by: list[str], of: list[str]) -> dict[Any, tuple[int, ...]]:
    """Add up by key; names that differ only in bytes that are no UTF-8 are one name."""
    out: dict[Any, list[int]] = {}
    for row in found:
        cell = out.setdefault(tuple(row[k] for k in by), [0] * len(of))
        for i, k in enumerate(of):
            cell[i] += row[k] or 0
    return {k: tuple(v) for k, v in out.items() if any(v)}


def equal(got: list[dict[str, Any]], want: pl.DataFrame, by: list[str], of: list[str]) -> None:
    assert sums(got, by, of) == sums(want.to_dicts(), by, of)


def kernel_sum(both: Both) -> None:
    got = both.rows("kernel_sum")
    equal(got, both.analysis.kernels, ["name"], ["kernel_count", "kernel_ns"])
    largest: Counter[str] = Counter()
    for row in got:
        largest[row["name"]] = max(largest[row["name"]], row["max_ns"])
    assert largest == dict(both.analysis.kernels.select("name", "max_ns").iter_rows())


def category_share(both: Both) -> None:
    per_gpu = both.analysis.categories.filter(pl.col("gpu") != "all")
    got = both.rows("category_share")
    equal(got, per_gpu, ["gpu", "category"], ["kernel_count", "kernel_ns", "busy_ns", "max_ns"])
    shares = {(r["gpu"], r["category"]): r["kernel_share"] for r in got}
    for gpu, category, share in per_gpu.select("gpu", "category", "kernel_share").iter_rows():
        assert shares.get((gpu, category), 0.0) == pytest.approx(share, rel=1e-12)


def family_sum(both: Both) -> None:
    per_gpu = both.analysis.families.filter(pl.col("gpu") != "all")
    equal(both.rows("family_sum"), per_gpu, ["category", "family"], ["kernel_count", "kernel_ns"])


def gpu_time(both: Both) -> None:
    figures = ["kernel_count", "kernel_ns", "busy_ns"]
    got = both.rows("gpu_time")
    if both.analysis.gpus["opaque_graph_count"].sum() == 0:
        figures += ["no_kernel_ns", "window_ns"]
        assert [row["gpu"] for row in got] == sorted(both.gpu_keys)
    equal(got, both.analysis.gpus, ["gpu"], figures)
    assert {r["gpu"]: r["gpu_name"] for r in got} == dict(both.analysis.gpus.select("gpu", "name").iter_rows())


def gpu_busy(both: Both) -> None:
    by_ordinal = both.analysis.gpus.with_columns(pl.concat_str(pl.lit("0:"), pl.col("device")).alias("key"))
    if by_ordinal.select((pl.col("key") == pl.col("gpu")).fill_null(value=False).all()).item():
        equal(both.rows("gpu_busy"), by_ordinal, ["device"], ["kernel_count", "kernel_ns", "busy_ns"])
    first, last = both.trace.survey["first_ns"].min(), both.trace.survey["last_ns"].max()
    third = (last - first) // 3
    if by_ordinal["key"].to_list() == by_ordinal["gpu"].to_list() and third > 0:
        bounds = {"window_start_ns": first + third, "window_end_ns": last - third}
        try:
            part = attribute(both.trace, window=f"{first + third}:{last - third}", rules=rules(), ranges=False)
        except CannotAnswer:
            return
        got = both.rows("gpu_busy", **bounds)
        equal(got, part.gpus, ["device"], ["kernel_count", "kernel_ns", "busy_ns"])


def exposed_communication(both: Both) -> None:
    of = [f"{x}_ns" for x in ("communication", "exposed_communication", "hidden_communication")]
    of += ["nccl_ns", "exposed_nccl_ns"]
    equal(both.rows("exposed_communication"), both.analysis.gpus, ["gpu"], of)


def kernel_concurrency(both: Both) -> None:
    got = [
        {"gpu": r["gpu"], "busy_ns": r["running_ns"], "kernel_ns": r["running_ns"] * r["kernels_at_once"]}
        for r in both.rows("kernel_concurrency")
    ]
    equal(got, both.analysis.gpus, ["gpu"], ["busy_ns", "kernel_ns"])


def gpu_gaps(both: Both) -> None:
    if both.analysis.gpus["opaque_graph_count"].sum() == 0:
        got = [{"gpu": r["gpu"], "idle_ns": r["gap_ns"]} for r in both.rows("gpu_gaps")]
        equal(got, both.analysis.gpus, ["gpu"], ["idle_ns"])


def time_by_path(both: Both) -> None:
    mine = both.analysis.ranges.filter(pl.col("kind") == "pushpop")
    want = [
        {**r, "pid": r["process"], "path": None if r["path"] is None else tuple(r["path"])} for r in mine.to_dicts()
    ]
    got = [
        {**r, "path": None if r["path"] is None else tuple(json.loads(r["path"]))} for r in both.rows("time_by_path")
    ]
    by, of = ["gpu", "pid", "via", "path", "category"], ["kernel_count", "kernel_ns"]
    assert sums(got, by, of) == sums(want, by, of)


def graph_node_ranges(both: Both) -> None:
    attribution, trace = both.attribution, both.trace
    names = attribution.push_pop["name"]
    kernels = attribution.kernels.filter(pl.col("graph_node").is_not_null())
    want: Counter[Any] = Counter()
    for process, node, captured in kernels.select("process", "graph_node", "captured").iter_rows():
        path = () if captured is None else tuple(trace.names[names[r]] for r in attribution.captures[captured])
        want[trace.processes[process].pid, node, path] += 1
    got: Counter[Any] = Counter()
    for r in both.rows("graph_node_ranges"):
        got[r["pid"], r["node"], tuple(json.loads(r["path"] or "[]"))] += r["kernel_count"]
    assert got == want


def launched(both: Both) -> pl.DataFrame:
    """Kernels with their launch call: those that say something of it."""
    keys = pl.Series(both.gpu_keys)
    kernels = both.attribution.kernels
    kernels = kernels.with_columns(
        keys.gather(kernels["gpu"]).alias("gpu"),
        (
            pl.col("graph_node").is_null()
            | (pl.int_range(pl.len()).over("process", "correlation", "gpu", order_by="start_ns") == 0)
        ).alias("tells"),
    )
    return kernels.filter(pl.col("launch_ns").is_not_null() & pl.col("tells"))


def launch_latency(both: Both) -> None:
    latency = pl.col("start_ns") - pl.col("launch_ns")
    want = (
        launched(both)
        .group_by("gpu", pl.col("graph_node").is_not_null().alias("replayed"))
        .agg(
            pl.len().alias("kernel_count"), (latency < 0).sum().alias("negative_count"),
            latency.min().alias("min_ns"), latency.max().alias("max_ns"),
            latency.sort().get((pl.len() - 1) // 2).alias("p50_ns"),
        )
    )  # fmt: skip
    keys = ["kernel_count", "negative_count", "min_ns", "max_ns", "p50_ns"]
    got = {(r["gpu"], r["launched_by"] == "graph launch"): [r[k] for k in keys] for r in both.rows("launch_latency")}
    assert got == {(r["gpu"], r["replayed"]): [r[k] for k in keys] for r in want.to_dicts()}


def queue_time(both: Both) -> None:
    queue = (pl.col("start_ns") - pl.col("launch_end_ns")).clip(lower_bound=0)
    key = ["process", "correlation", "launch_ns"]
    ends = both.trace.launches.select(*key[:2], launch_ns="start_ns", launch_end_ns="end_ns")
    want = (
        launched(both)
        .join(ends.unique(key, keep="first", maintain_order=True), on=key, how="left")
        .group_by("gpu")
        .agg(
            pl.len().alias("kernel_count"), (queue == 0).sum().alias("unqueued_count"),
            queue.sum().alias("queue_ns"), queue.max().alias("max_ns"),
        )
    )  # fmt: skip
    equal(both.rows("queue_time"), want, ["gpu"], ["kernel_count", "unqueued_count", "queue_ns", "max_ns"])


def kernel_launches(both: Both) -> None:
    kernels = both.attribution.kernels.filter(pl.col("launch_ns").is_not_null())
    calls = both.trace.calls("kernel_launch", "graph_launch").select("process", "correlation").unique()
    mine = kernels.join(calls, on=["process", "correlation"], how="semi")
    span = mine.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    got = both.rows("kernel_launches")
    assert (sum(r["kernel_count"] for r in got), sum(r["kernel_ns"] for r in got)) == (mine.height, span)
    assert sum(r["call_count"] for r in got) == calls.drop_nulls().height


def kernels_without_launch(both: Both) -> None:
    want = both.attribution.kernels["launch_ns"].null_count()
    assert sum(r["kernel_count"] for r in both.rows("kernels_without_launch")) == want


def graph_replays(both: Both) -> None:
    calls = both.trace.graph_calls.drop_nulls("correlation").select("process", "correlation").unique()
    got = both.rows("graph_replays")
    pids = both.trace.processes
    assert {(r["pid"], r["correlation"]) for r in got} == {(pids[p].pid, c) for p, c in calls.iter_rows()}
    kernels = both.trace.kernels.join(calls, on=["process", "correlation"], how="semi")
    assert sum(r["kernel_count"] for r in got) == kernels.height


def device_map(both: Both) -> None:
    got = {(r["gpu"], r["pid"], r["device"], r["rank"]) for r in both.rows("device_map")}
    assert got == set(both.analysis.processes.select("gpu", "process", "device", "rank").iter_rows())


def api_sum(both: Both) -> None:
    calls = both.trace.launches
    want: Counter[Any] = Counter()
    for name, start, end, failed in calls.select("name", "start_ns", "end_ns", "failed").iter_rows():
        text = both.trace.names[name]
        want[text, "n"] += 1
        want[text, "ns"] += end - start
        want[text, "failed"] += failed
    got: Counter[Any] = Counter()
    for r in both.rows("api_sum"):
        got[r["name"], "n"] += r["call_count"]
        got[r["name"], "ns"] += r["call_ns"]
        got[r["name"], "failed"] += r["failed_count"]
    assert {k: v for k, v in got.items() if v} == {k: v for k, v in want.items() if v}


def nvtx_ranges(both: Both) -> None:
    ranges, trace = both.trace.ranges, both.trace
    want: Counter[Any] = Counter()
    for process, push_pop, name, start, end, closed in ranges.select(
        "process", "push_pop", "name", "start_ns", "end_ns", "closed"
    ).iter_rows():
        key = (trace.processes[process].pid, "pushpop" if push_pop else "startend", trace.names[name])
        want[key, "n"] += 1
        want[key, "ns"] += end - start if closed else 0
        want[key, "open"] += not closed
    got: Counter[Any] = Counter()
    for r in both.rows("nvtx_ranges"):
        key = (r["pid"], r["kind"], r["name"])
        got[key, "n"] += r["range_count"]
        got[key, "ns"] += r["host_ns"]
        got[key, "open"] += r["open_count"]
    assert {k: v for k, v in got.items() if v} == {k: v for k, v in want.items() if v}


def capture_health(both: Both) -> None:
    got = {r["sign"]: r["found_count"] for r in both.rows("capture_health")}
    said = {w.code: w.count for w in both.analysis.warnings}
    kernels, calls = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "RUNTIME"))
    told_by = {"kernels-without-launch": (kernels, calls), "ranges-without-end": ("NVTX_EVENTS",)}
    for code, tables in told_by.items():
        known = all(table in both.trace.source.tables for table in tables)
        assert got[code] == (said.get(code, 0) if known else None), code
    assert got["unusable-times"] == (both.trace.unusable_kernels if kernels in both.trace.source.tables else None)


def step_time(both: Both) -> None:
    """With every range a step, the steps hold what was launched inside any range, once."""
    got = both.rows("step_time", step="*")
    inside = both.attribution.kernels.filter(pl.col("stack") >= 0)
    span = inside.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert (sum(r["kernel_count"] for r in got), sum(r["kernel_ns"] for r in got)) == (inside.height, span)
    assert all(0 <= r["busy_ns"] <= min(r["kernel_ns"], r["span_ns"]) for r in got)


COMPARED = {
    f.__name__: f
    for f in (
        kernel_sum, category_share, family_sum, gpu_time, gpu_busy, exposed_communication, kernel_concurrency,
        gpu_gaps, time_by_path, graph_node_ranges, launch_latency, queue_time, kernel_launches,
        kernels_without_launch, graph_replays, device_map, api_sum, nvtx_ranges, capture_health, step_time,
    )
}  # fmt: skip


def test_every_query_that_names_an_oracle_is_compared_with_it():
    assert {q.name for q in CATALOG if q.oracle} == COMPARED.keys()


@pytest.fixture(scope="module", params=REAL, ids=lambda path: path.stem)
def real(request):
    return Both(request.param)


@pytest.mark.parametrize("name", COMPARED)
def test_real_traces_agree(real, name):
    COMPARED[name](real)


SYNTHETIC = {
    "eager": [],
    "node": ["--graph-mode", "node"],
    "late": ["--graph-mode", "late"],
    "graph_2025": ["--graph-mode", "graph", "--schema", "2025"],
    "one_ordinal_shuffled": ["--graph-mode", "node", "--device-ids", "zero", "--order", "shuffle", "--hw-id", "129"],
    "open_during_capture": ["--graph-mode", "node", "--open-capture"],
}


@pytest.fixture(scope="module", params=SYNTHETIC)
def synthetic(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("synthetic")
    tool = ROOT / "tests" / "tools" / "make_trace.py"
    argv = [
        "--kernels",
        "4000",
        "--gpus",
        "2",
        "--layers",
        "2",
        "--out",
        place / "t.sqlite",
        "--truth",
        place / "t.json",
    ]
    subprocess.run([sys.executable, tool, *map(str, argv), *SYNTHETIC[request.param]], check=True, capture_output=True)
    return Both(place / "t.sqlite")


@pytest.mark.parametrize("name", COMPARED)
def test_synthetic_traces_agree(synthetic, name):
    COMPARED[name](synthetic)


def agree(path: Path) -> None:
    """Assert equality of every query that the trace can answer."""
    both = Both(path)
    for compare in COMPARED.values():
        try:
            compare(both)
        except CannotAnswer as error:
            if not re.search("needs (table|column)", error.message):
                raise


@settings(suppress_health_check=list(HealthCheck))
@given(trace=traces())
def test_small_random_traces_agree(tmp_path: Path, trace: TraceBuilder) -> None:
    agree(trace.write(tmp_path / "trace.sqlite"))
