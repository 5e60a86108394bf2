"""The product against the oracle on random traces: every nanosecond and every count of the document."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import check_laws
from oracles import NoAnswer, attribution, domain_names
from strategies import questions, traces
from tracekit import ALL_REDUCE, MARLIN, TraceBuilder

pytest.importorskip("k25trace.cli.attribute")

EXACT = (
    "opaque-graphs",
    "kernels-without-launch",
    "launches-without-kernels",
    "ranges-without-end",
    "capture-ranges-missing",
    "unusable-times",
)
YES_OR_NO = ("assumed-device", "ambiguous-device")
PROCESSES = "processes"
GPU_FIELDS = (
    "device",
    "kernel_count",
    "kernel_ns",
    "busy_ns",
    "no_kernel_ns",
    "idle_ns",
    "window_ns",
    "communication_ns",
    "exposed_communication_ns",
    "hidden_communication_ns",
    "nccl_ns",
    "exposed_nccl_ns",
    "graph_launch_count",
    "opaque_graph_count",
)
IN_WINDOW_ONLY_BY_DEFAULT = ("graph_launch_count", "opaque_graph_count")
"""Which graph launches belong to a narrower window is not defined: compared for the default one."""


def product(path: Path, window: Any = None, range_glob: Any = None, domains: Any = None) -> dict[str, Any]:
    """Return the product's document; the only place here that knows its Python API."""
    from k25trace import attribute, open_trace
    from k25trace.report import json_
    from k25trace.selection import Bounds

    bounds = None if window is None else Bounds(*window)
    analysis = attribute(open_trace(path), window=bounds, range_glob=range_glob, domains=domains, rules=rules())
    return json.loads(json.dumps(json_.build(analysis)))


@cache
def rules() -> Any:
    """Return the product's rules, read once."""
    from k25trace.classify import load_rules

    return load_rules()


def product_classify(name: str) -> tuple[str, str]:
    """Return the product's category and family of a kernel name, so that only attribution is compared."""
    match = rules().classify(name)
    return match.category, match.family


def essence(document: dict[str, Any], *, default_window: bool, known_domains: set[str | None]) -> dict[str, Any]:
    """Reduce a document to what is defined of it: rows as {key: figures}, rows without any figure dropped."""
    left_out = () if default_window else IN_WINDOW_ONLY_BY_DEFAULT
    gpu_fields = [k for k in GPU_FIELDS if k not in left_out]
    out: dict[str, Any] = {
        "gpus": {g["gpu"]: {k: g[k] for k in gpu_fields} for g in document["gpus"]},
        "processes": {g["gpu"]: sorted((p["process"], p["device"]) for p in g[PROCESSES]) for g in document["gpus"]},
        "wall": {(r["gpu"], r["row"]): r["wall_ns"] for r in document["wall"] if r["wall_ns"] and r["gpu"] != "all"},
        "kernels": {
            r["name"]: (r["category"], r["family"], r["kernel_count"], r["kernel_ns"]) for r in document["kernels"]
        },
        "categories": {
            (r["gpu"], r["category"]): [r[k] for k in ("kernel_count", "kernel_ns", "busy_ns", "wall_ns")]
            for r in document["categories"]
            if r["kernel_count"]
        },
        "families": {
            (r["gpu"], r["category"], r["family"]): [r["kernel_count"], r["kernel_ns"]]
            for r in document["families"]
            if r["kernel_count"] and r["gpu"] != "all"
        },
    }
    if default_window and document["windows"]:
        out["windows"] = [(w["start_ns"], w["end_ns"]) for w in document["windows"]]
    rows: Counter[Any] = Counter()
    for r in document["ranges"]:
        if r["gpu"] == "all":
            continue
        domain = r["domain"] if r["kind"] == "pushpop" and r["domain"] in known_domains else None
        path = None if r["path"] is None else tuple(r["path"])
        key = (r["gpu"], r["process"], r["kind"], r["via"], path, domain, r["category"])
        rows[key, "count"] += r["kernel_count"]
        rows[key, "ns"] += r["kernel_ns"]
    out["ranges"] = {k: v for k, v in rows.items() if v}
    return out


def warning_counts(document: dict[str, Any]) -> dict[str, Any]:
    """Return the countable warnings as {code: count} and those that only say yes as {code: True}."""
    said = document["warnings"]
    if not isinstance(said, dict):
        said = {w["code"]: w["count"] for w in said}
    return {c: n for c, n in said.items() if c in EXACT and n} | {c: True for c in said if c in YES_OR_NO}


def compare(path: Path, question: dict[str, Any]) -> None:
    """Assert that the product and the oracle give one answer."""
    want = attribution(path, product_classify, **question)
    got = product(path, **question)
    check_laws(got)
    default = not question.get("window") and question.get("range_glob") is None
    domains = {"default", "engine", "NCCL"}
    want_essence = essence(want, default_window=default, known_domains=domains)
    got_essence = essence(got, default_window=default, known_domains=domains)
    for part, expected in want_essence.items():
        assert got_essence[part] == expected, part
    assert warning_counts(got) == warning_counts(want)
    if "incomplete-capture" in want["warnings"]:
        assert "incomplete-capture" in {w["code"] for w in got["warnings"]}


@given(trace=traces(graphs=False, unusable=False))
def test_eager_traces_agree(tmp_path: Path, trace: TraceBuilder) -> None:
    compare(trace.write(tmp_path / "trace.sqlite"), {})


@given(trace=traces())
def test_any_trace_agrees(tmp_path: Path, trace: TraceBuilder) -> None:
    compare(trace.write(tmp_path / "trace.sqlite"), {})


@given(trace=traces(), question=questions())
def test_any_question_agrees(tmp_path: Path, trace: TraceBuilder, question: dict[str, Any]) -> None:
    from k25trace.errors import CannotAnswer

    path = trace.write(tmp_path / "trace.sqlite")
    absent = set(question["domains"] or ()) - domain_names(path)
    if absent:
        with pytest.raises(CannotAnswer):
            product(path, **question)
        question = {**question, "domains": [d for d in question["domains"] if d not in absent] or None}
    want = attribution(path, product_classify, **question)
    nothing_selected = set(question) > {"domains"} and not sum(g["kernel_ns"] for g in want["gpus"])
    no_such_ranges = question["domains"] is not None and all(r["path"] is None for r in want["ranges"])
    if nothing_selected or no_such_ranges:
        # What was asked for is not there, or lasts no time: to abstain is right too.
        try:
            product(path, **question)
        except CannotAnswer:
            return
    compare(path, question)


def two_ranks(offset: int) -> TraceBuilder:
    """Return two ranks whose correlation ids are the same, the second one's clock shifted."""
    t = TraceBuilder()
    for i, pid in enumerate((1000, 2000)):
        t.process(pid)
        t.push_pop("step", 0, 50 + i, pid=pid)
        t.kernel(MARLIN, 10 + offset * i, 20, pid=pid, device=i, corr=101, launch=2)
        t.kernel(ALL_REDUCE, 25, 30, pid=pid, device=i, corr=102, launch=4, stream=20)
    return t


@given(offset=st.integers(-30, 30))
@example(offset=0)
def test_two_ranks_agree_at_any_offset(tmp_path: Path, offset: int) -> None:
    compare(two_ranks(offset).write(tmp_path / "trace.sqlite"), {})


def test_without_kernels_the_product_abstains_as_the_oracle_does(tmp_path: Path) -> None:
    from k25trace.errors import CannotAnswer

    t = TraceBuilder()
    t.memcpy(0, 10)
    path = t.write(tmp_path / "trace.sqlite")
    with pytest.raises(NoAnswer):
        attribution(path, product_classify)
    with pytest.raises(CannotAnswer):
        product(path)
