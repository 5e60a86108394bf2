"""The projection of ranges onto the GPU is that of nsys itself, instance by instance."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Any

import pytest
from querykit import GOLDEN, rows

WHOLE = ["h200x1_toy_graph", "h200x2_toy_eager", "h200x2_decode_graph", "h200x2_vllm_graph"]


@pytest.mark.parametrize("trace", WHOLE)
def test_push_pop_ranges_project_as_nsys_says(trace):
    with (GOLDEN / "nsys-stats" / trace / "nvtx_gpu_proj_trace.csv").open(encoding="utf-8") as file:
        said = Counter(
            (
                r["Name"],
                int(r["Projected Start (ns)"]),
                int(r["Projected Duration (ns)"]),
                int(r["NumGPUOps"]),
            )
            for r in csv.DictReader(file)
            if r["Style"] == "PushPop"
        )
    instances: dict[int, list[Any]] = {}
    for r in rows("nvtx_projection", GOLDEN / f"{trace}.sqlite"):
        name = r["name"] if r["domain"] == "default" else f"{r['domain']}:{r['name']}"
        cell = instances.setdefault(r["range_row"], [name, r["first_ns"], r["last_ns"], 0])
        cell[1:3] = min(cell[1], r["first_ns"]), max(cell[2], r["last_ns"])
        cell[3] += r["launch_count"]
    assert said
    assert Counter((name, first, last - first, count) for name, first, last, count in instances.values()) == said
