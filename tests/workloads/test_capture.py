"""A real capture: the ranges in it are those that the workload says it emitted."""

import os
import shutil
import sqlite3
import subprocess
from collections import Counter

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


def test_the_ranges_of_a_capture_are_those_declared(tmp_path):
    nsys = find_nsys()
    words = (
        "--path",
        "cast",
        "--context",
        "16",
        "-M",
        "2",
        "--eager-steps",
        "2",
        "--graph-steps",
        "2",
        "--json",
        "d.json",
    )
    profile = [
        nsys,
        "profile",
        "--trace=nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--export=sqlite",
        "--output=d",
    ]
    done = subprocess.run(
        [*profile, *command("decode", *words, ranks=2)],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(), timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    import json

    declared = json.loads((tmp_path / "d.json").read_text())
    assert declared["under_profiler"] is True
    database = sqlite3.connect(tmp_path / "d.sqlite")
    rows = [row for row in database.execute(RANGES, (PUSH_POP,)).fetchall() if row[2] == DOMAIN]
    database.close()
    ranks = {}
    for process, name, _ in rows:
        ranks.setdefault(process, name)  # the first range of each process is its label
    assert sorted(ranks.values()) == ["rank=0", "rank=1"]
    of_rank_0 = Counter(name for process, name, _ in rows if ranks[process] == "rank=0")
    assert sorted(of_rank_0) == declared["ranges"]
    said = {name: parse(name) for name in of_rank_0}
    assert sum(what.kind == LAYER for what in said.values()) == 3
    assert [what.index for what in said.values() if what.kind == RANK] == [0]
    # 2 eager steps and 2 for the graph, inside the recording and after it.
    assert (of_rank_0["eager_step"], of_rank_0["graph_step"]) == (4, 4)
    assert of_rank_0["layer1"] == of_rank_0["gemm.lm_head"] >= 8
