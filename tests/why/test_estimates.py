"""Opaque replays: time of its own kind, never idle, and with a template an estimate of what was in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from tracekit import ADD, MARLIN, RMS_NORM, TraceBuilder

from k25trace import attribute
from k25trace.classify import load_rules
from k25trace.estimates import estimated
from k25trace.gaps import find_gaps
from k25trace.learning import learn_template
from k25trace.report import json_
from k25trace.steps import find_steps
from k25trace.templates import Graph, Template

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "attribution.schema.json").read_text(encoding="utf-8"))
LEARNED = Template(
    (Graph((MARLIN.demangled, ADD.demangled), ((("layer0", "default"),), (("layer1", "default"),)), (30, 10), 5),)
)


def opaque() -> TraceBuilder:
    """Two steps, each a bare graph launch (2023.4) that may run for 80 ns, until the kernel after it."""
    t = TraceBuilder()
    for i in range(2):
        at = 1000 * (i + 1)
        t.push_pop("step", at, at + 60)
        t.graph_launch(at + 5, 5)
        t.kernel(RMS_NORM, at + 90, 10, launch=at + 20)
    return t


def test_bare_launches_are_opaque_time_and_never_idle(tmp_path: Path) -> None:
    path = opaque().write(tmp_path / "t.sqlite")
    steps = find_steps(path, step="step").steps
    assert steps.select("span_ns", "opaque_ns", "idle_ns", "busy_ns").rows() == [(90, 80, 0, 10)] * 2
    assert find_gaps(path).gpus["idle_ns"].to_list() == [910]


def test_an_estimate_divides_the_opaque_time_as_the_template_does(tmp_path: Path) -> None:
    found = attribute(opaque().write(tmp_path / "t.sqlite"), template=LEARNED)
    assert found.estimates is not None
    assert found.estimates.rows() == [("0:0", ["layer0"], "gemm.marlin", 120), ("0:0", ["layer1"], "elementwise", 40)]
    document = json.loads(json.dumps(json_.build(found)))
    assert [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)] == []
    assert attribute(tmp_path / "t.sqlite").estimates is None


def test_an_estimate_sums_to_the_opaque_row_to_the_nanosecond() -> None:
    names = (MARLIN.demangled, ADD.demangled, RMS_NORM.demangled)
    paths = tuple(((f"layer{i}", "default"),) for i in range(3))
    template = Template((Graph(names, paths, (1, 1, 1), 1),))
    wall = pl.DataFrame({"gpu": ["0:0", "0:0"], "row": ["opaque graph", "idle"], "wall_ns": [100, 7]})
    found = estimated(wall, template, load_rules())
    assert sorted(found["estimate_ns"].to_list()) == [33, 33, 34]


def test_an_estimate_is_called_one_on_the_screen(tmp_path: Path, run_in_process: Any) -> None:
    from k25trace.templates import written

    path = opaque().write(tmp_path / "t.sqlite")
    file = tmp_path / "x.k25tpl"
    file.write_text(written(LEARNED), encoding="utf-8")
    done = run_in_process("attribute", path, "--template", file)
    assert done.code == 0
    assert "Opaque graph time, estimated from the template" in done.stdout
    assert "An estimate:" in done.stdout


@pytest.mark.parametrize("schema", ["2023", "2025"])
def test_the_estimate_of_a_synthetic_run_is_near_what_was_hidden(tmp_path: Path, schema: str) -> None:
    """Learned from a run that shows its replays; compared with the kernels that another one hid."""
    files = []
    for mode, seed in (("node", 7), ("graph", 8)):
        out = tmp_path / f"{mode}.sqlite"
        options = ["--kernels", "12000", "--layers", "3", "--gpus", "2", "--graph-mode", mode, "--seed", str(seed)]
        maker = [sys.executable, ROOT / "tests" / "tools" / "make_trace.py", *options, "--schema", schema]
        subprocess.run([*maker, "--quiet", "--out", out], check=True, timeout=120)
        files.append(out)
    found = attribute(files[1], template=learn_template(files[0]))
    assert found.estimates is not None
    opaque_ns = found.wall.filter(found.wall["row"] == "opaque graph")["wall_ns"].sum()
    assert found.estimates["estimate_ns"].sum() == opaque_ns
    by_category = dict(found.estimates.group_by("category").agg(pl.col("estimate_ns").sum()).iter_rows())
    largest = sorted(by_category, key=by_category.__getitem__, reverse=True)[:3]
    assert {"gemm.marlin", "gemm.dense"} <= set(largest)
