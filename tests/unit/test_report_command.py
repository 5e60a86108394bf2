"""``k25trace report``: page, Markdown, refusals; and what the verdict says of small traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder, unknown

from k25trace import attribute
from k25trace.verdict import verdict

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DECODE = GOLDEN / "h200x2_decode_graph.sqlite"


def said(trace: TraceBuilder, folder: Path) -> list[str]:
    return verdict(attribute(trace.write(folder / "in.sqlite")))


def test_verdict_of_a_gpu_that_is_half_idle(tmp_path):
    trace = TraceBuilder()
    trace.kernel(MARLIN, 0, 300, launch=0)
    trace.kernel(CAST, 300, 200, launch=1)
    trace.kernel(CAST, 999, 1, launch=2)
    assert said(trace, tmp_path) == [
        "Of the window, most goes to gemm.marlin 30.0 % and cast 20.1 %.",
        "GPU 0:0 is idle in 49.9 % of the window: no kernel and no copy runs.",
    ]


def test_verdict_of_one_gpu_that_waits_for_another(tmp_path):
    trace = TraceBuilder()
    for device, waits in ((0, 100), (1, 600)):
        trace.kernel(MARLIN, 0, 1_000 - waits, device=device, launch=0)
        trace.kernel(ALL_REDUCE, 1_000 - waits, waits, device=device, launch=1)
    assert said(trace, tmp_path) == [
        "Of the window, most goes to gemm.marlin 65.0 % and exposed comm.allreduce 35.0 %.",
        "The GPUs are hardly ever idle: at most 0.0 % of the window (GPU 0:0).",
        "Communication runs for 700 ns over all GPUs, and 100.0 % of that (700 ns) is exposed: no other kernel runs"
        " then.",
        "GPU 0:1 spends 600 ns in communication and GPU 0:0 100 ns. The kernel of a collective runs while it waits, so"
        " GPU 0:1 most likely waits for GPU 0:0.",
    ]


def test_verdict_does_not_speak_of_waiting_where_gpus_communicate_alike(tmp_path):
    trace = TraceBuilder()
    for device, waits in ((0, 400), (1, 600)):
        trace.kernel(MARLIN, 0, 1_000 - waits, device=device, launch=0)
        trace.kernel(ALL_REDUCE, 1_000 - waits, waits, device=device, launch=1)
    assert not [sentence for sentence in said(trace, tmp_path) if "waits" in sentence]


def test_verdict_speaks_of_unclassified_time_and_of_opaque_graphs(tmp_path):
    trace = TraceBuilder()
    trace.kernel(unknown("mystery"), 0, 100, launch=0)
    trace.graph_launch(200, 10)
    trace.kernel(CAST, 900, 100, launch=800)
    found = said(trace, tmp_path)
    assert found[0] == "No rule matches kernels that take 50.0 % of the kernel time."
    assert "CUDA graphs whose kernels were not recorded may run in 69.0 % of the window." in found


def test_markdown_goes_to_the_terminal_and_holds_the_tables(run_in_process):
    done = run_in_process("report", DECODE, "--format", "md", "--range", "graph_step")
    assert done.code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "## h200x2\\_decode\\_graph.sqlite"
    for title in ("Where the window goes", "Categories, by three denominators", "GPU beside GPU"):
        assert f"### {title}" in lines
    assert "| comm.allreduce | 240 |" in done.stdout
    for title in ("Steps and categories", "Collectives", "Causes of gaps"):
        assert f"### {title}" in lines


def test_several_reports_stand_side_by_side(run_in_process, tmp_path):
    page = tmp_path / "r.html"
    assert run_in_process("report", DECODE, GOLDEN / "h200x2_vllm_graph.sqlite", "-o", page).code == 0
    assert "Reports side by side" in page.read_text(encoding="utf-8")
    assert page.stat().st_size < 10_000_000


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([str(DECODE)], 2, "-o report.html"),
        ([str(DECODE), f"{GOLDEN}/../golden/{DECODE.name}", "-o", "r.html"], 2, "given twice"),
        (["no-such.sqlite", "-o", "r.html"], 1, "no such file"),
        ([str(DECODE), "-o", "r.html", "--range", "nothing*"], 3, "no NVTX range matches"),
        ([str(DECODE), "-o", "r.html", "--window", "x:"], 2, "no time"),
        ([str(GOLDEN / "cpu_nvtx.sqlite"), "-o", "r.html"], 3, "no CUDA kernels"),
    ],
)
def test_refuses_in_one_line_and_leaves_nothing(run_cli, tmp_path, arguments, code, says):
    done = run_cli("report", *arguments, cwd=tmp_path)
    assert done.code == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_replaces_nothing_without_force(run_in_process, tmp_path):
    page = tmp_path / "r.html"
    page.write_text("mine", encoding="utf-8")
    assert run_in_process("report", DECODE, "-o", page).code == 1
    assert page.read_text(encoding="utf-8") == "mine"
    assert run_in_process("report", DECODE, "-o", DECODE, "--force").code == 2
