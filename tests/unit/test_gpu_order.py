"""GPUs stand in the order of `Analysis.gpus` in every table: 0:10 after 0:9."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder

from k25trace import attribute
from k25trace.results import gpu_order

GPUS = [f"0:{number}" for number in range(12)]


def twelve_alike(path: Path) -> Path:
    """Twelve GPUs that do the same at the same time, in two steps each: nothing but their keys can order them."""
    trace = TraceBuilder()
    for gpu in range(12):
        pid = 1_000 + gpu
        for step in range(2):
            start = 100_000 * step
            trace.push_pop("step", start, start + 90_000, pid=pid)
            for number, name in enumerate((MARLIN, CAST, ALL_REDUCE)):
                at = start + 20_000 * number
                trace.kernel(name, at + 5_000, 10_000, launch=at + 100 + number, device=gpu, pid=pid)
    return trace.write(path)


def lists_of_gpus(document: Any, at: str = "") -> Iterator[tuple[str, list[str]]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from lists_of_gpus(value, f"{at}.{key}")
    elif isinstance(document, list) and document and isinstance(document[0], dict):
        if "gpu" in document[0]:
            yield at, [each["gpu"] for each in document]
        for each in document:
            yield from lists_of_gpus(each, at)


@pytest.mark.parametrize(
    ("verb", "least"),
    [(["attribute"], 5), (["steps", "--step", "step"], 4), (["collectives"], 3), (["gaps"], 4)],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_documents_and_tables_name_gpus_in_their_order(
    tmp_path: Path, run_in_process: Any, verb: list[str], least: int
) -> None:
    report = twelve_alike(tmp_path / "in.sqlite")
    done = run_in_process(verb[0], report, *verb[1:], "--format", "json")
    lists = lists_of_gpus(json.loads(done.stdout))
    found = [(at, [*dict.fromkeys(gpu for gpu in gpus if gpu != "all")]) for at, gpus in lists]
    assert len([at for at, gpus in found if len(gpus) == 12]) >= least
    assert [(at, gpus) for at, gpus in found if gpus != [g for g in GPUS if g in gpus]] == []
    for form in ("csv", "table"):
        lines = run_in_process(verb[0], report, *verb[1:], "--format", form, "--top", "0").stdout.split()
        words = [word for line in lines for word in line.split(",") if word in GPUS]
        assert [*dict.fromkeys(words)] in ([], GPUS), form


def test_the_order_is_that_of_the_analysis_processes_and_all_gpus_last(tmp_path: Path) -> None:
    assert attribute(twelve_alike(tmp_path / "in.sqlite")).gpus["gpu"].to_list() == GPUS
    keys = [*GPUS, "0:pid9/0", "0:pid9/1", "1:0", "2:3", "10:1", "all"]
    mixed = pl.DataFrame({"gpu": random.Random(0).sample(keys * 2, 2 * len(keys))})
    assert mixed.sort(gpu_order())["gpu"].unique(maintain_order=True).to_list() == keys
    assert mixed.clear().sort(gpu_order()).height == 0
