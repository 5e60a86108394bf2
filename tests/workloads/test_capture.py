"""A real capture: the ranges in it are those that the workload says it emitted."""

import json
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing

import pytest
from launching import ROOT, command, environment

from k25trace.ranges import DOMAIN, LAYER, RANK, parse

torch = pytest.importorskip("torch", reason="no torch: pip install '.[workloads]'")
nvtx = pytest.importorskip("nvtx", reason="no nvtx: pip install '.[workloads]'")

pytestmark = [pytest.mark.torch, pytest.mark.nsys, pytest.mark.slow]

PUSH_POP = 59
RANGES = """
    SELECT e.globalTid & -16777216 AS process, coalesce(e.text, s.value) AS name, d.text AS domain
    FROM NVTX_EVENTS e LEFT JOIN StringIds s ON e.textId = s.id
    LEFT JOIN NVTX_EVENTS d ON d.eventType = 75 AND d.domainId = e.domainId
        AND d.globalTid & -16777216 = e.globalTid & -16777216
    WHERE e.eventType = ? AND e.end IS NOT NULL ORDER BY e.start
"""


def find_nsys():
    for name in (
        os.environ.get("K25TRACE_NSYS"),
        "nsys",
        *sorted(ROOT.glob(".nsys/**/target-linux-x64/nsys")),
    ):
        if name and (found := shutil.which(str(name))):
            return found
    return pytest.skip("no nsys on the PATH or in .nsys/ (.ci/get-nsys.sh puts one there)")


def captured(folder, module, *words):
    """Run a workload on two ranks under nsys; return what it wrote, and (process, name) of its ranges in order."""
    profile = [find_nsys(), "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "--export=sqlite"]
    done = subprocess.run(
        [*profile, "--output=d", *command(module, *words, "--json", "d.json", ranks=2)],
        capture_output=True, text=True, check=False, cwd=folder, env=environment(), timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    declared = json.loads((folder / "d.json").read_text())
    assert declared["under_profiler"] is True
    with closing(sqlite3.connect(folder / "d.sqlite")) as database:
        rows = database.execute(RANGES, (PUSH_POP,)).fetchall()
    return declared, [(process, name) for process, name, domain in rows if domain == DOMAIN]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            "gemm",
            ("-M", "1", "--only", "o_proj,experts_w13,experts", "--paths", "cast,int4pack", "-n", "3", "--calls", "2"),
        ),
        ("moe_routing", ("-M", "1,2", "-n", "3", "--calls", "2")),
        ("mla_attention", ("-M", "1", "--context", "16", "--prefill", "-n", "3", "--calls", "2")),
        ("allreduce", ("-b", "256", "-e", "1K", "-M", "1", "-n", "3", "-w", "1", "-m", "2")),
    ],
)
def test_every_sample_of_a_benchmark_is_a_range_of_its_own_in_a_capture(tmp_path, module, words):
    declared, rows = captured(tmp_path, module, *words)
    assert all(parse(name) for _, name in rows)
    wanted = {row["range"]: row["time_ns"]["n"] for row in declared["results"] if row["time_ns"]}
    assert wanted
    assert set(wanted.values()) == {3}
    for process in {process for process, _ in rows}:
        found = Counter(name for owner, name in rows if owner == process)
        assert {name: found[name] for name in wanted} == wanted


def test_the_ranges_of_a_capture_are_those_declared(tmp_path):
    steps = ("--eager-steps", "2", "--graph-steps", "2")
    declared, rows = captured(tmp_path, "decode", "--path", "cast", "--context", "16", "-M", "2", *steps)
    ranks = {}
    for process, name in rows:
        ranks.setdefault(process, name)  # the first range of each process is its label
    assert sorted(ranks.values()) == ["rank=0", "rank=1"]
    of_rank_0 = Counter(name for process, name in rows if ranks[process] == "rank=0")
    assert sorted(of_rank_0) == declared["ranges"]
    said = {name: parse(name) for name in of_rank_0}
    assert sum(what.kind == LAYER for what in said.values()) == 3
    assert [what.index for what in said.values() if what.kind == RANK] == [0]
    # 2 eager steps and 2 for the graph, inside the recording and after it.
    assert (of_rank_0["eager_step"], of_rank_0["graph_step"]) == (4, 4)
    assert of_rank_0["layer1"] == of_rank_0["gemm.lm_head"] >= 8
