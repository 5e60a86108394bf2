"""``k25trace report``: page, Markdown, refusals; and what the verdict says of small traces."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import polars as pl
import pytest
from tracekit import ADD, ALL_GATHER, ALL_REDUCE, CAST, MARLIN, RMS_NORM, TraceBuilder, unknown

from k25trace import attribute, match_collectives
from k25trace.figures import why
from k25trace.units import format_ns, format_share
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
        "Of the window, most goes to idle 49.9 %, gemm.marlin 30.0 % and cast 20.1 %.",
        "GPU 0:0 is idle in 49.9 % of the window: no kernel and no copy runs.",
    ]


def test_verdict_speaks_of_what_is_no_category_before_what_it_outweighs(tmp_path):
    trace = TraceBuilder()
    for place, (name, length) in enumerate(((MARLIN, 300), (CAST, 100), (RMS_NORM, 90), (ADD, 80))):
        trace.kernel(name, place * 1_000, length, launch=0)
    trace.memcpy(400, 95, launch=1)
    trace.memcpy(500, 300, launch=2)
    assert said(trace, tmp_path)[0] == (
        "Of the window, most goes to idle 68.7 %, memcpy 12.8 %, gemm.marlin 9.7 %, cast 3.2 % and norm 2.9 %."
    )


def waiting(trace: TraceBuilder, gpu: int, number: int, arrives: int, ends: int) -> None:
    trace.kernel(ALL_REDUCE, number * 10_000 + arrives, ends - arrives, device=gpu, pid=1_000 + gpu, launch=number + 1)


def test_verdict_says_who_waits_for_whom_where_collectives_tell(tmp_path):
    trace = TraceBuilder()
    # GPU 1 comes last three times and GPU 2 once, by hand: GPU 0 waits 3 x 900 + 500, GPU 2 3 x 800, GPU 1 400.
    arrivals = [(0, 900, 100)] * 3 + [(0, 100, 500)]
    for number, each in enumerate(arrivals):
        for gpu, arrives in enumerate(each):
            waiting(trace, gpu, number, arrives, 1_000)
    report = trace.write(tmp_path / "in.sqlite")
    assert verdict(attribute(report), match_collectives(report))[-1] == (
        "Kernels of collectives wait in 6.00 µs of the 8.40 µs that they take: GPU 0:0 waits 3.20 µs, 2.70 µs of it for"
        " GPU 0:1; GPU 0:2 waits 2.40 µs for GPU 0:1; the other GPU waits 400 ns."
    )


def test_verdict_trusts_collectives_that_hardly_wait(tmp_path):
    """One GPU runs more collectives than the other, which are not matched: that is no waiting."""
    trace = TraceBuilder()
    for number in range(3):
        for gpu in (0, 1):
            waiting(trace, gpu, number, 0, 100)
    trace.kernel(ALL_REDUCE, 40_000, 5_000, device=1, pid=1_001, launch=9, stream=9)
    report = trace.write(tmp_path / "in.sqlite")
    assert "most likely waits" in verdict(attribute(report))[-1]
    assert not [s for s in verdict(attribute(report), match_collectives(report)) if "wait" in s]


def test_the_report_of_two_gpus_that_wait_for_each_other_says_so(run_in_process):
    done = run_in_process("report", DECODE, "--format", "md")
    assert (
        "- Kernels of collectives wait in 79.4 ms of the 82.6 ms that they take: GPU 0:1 waits 52.3 ms for GPU 0:0;"
        " GPU 0:0 waits 27.1 ms for GPU 0:1.\n"
    ) in done.stdout


def test_verdict_of_one_gpu_that_waits_for_another(tmp_path):
    trace = TraceBuilder()
    for device, waits in ((0, 100), (1, 600)):
        trace.kernel(MARLIN, 0, 1_000 - waits, device=device, launch=0)
        trace.kernel(ALL_REDUCE, 1_000 - waits, waits, device=device, launch=1)
    assert said(trace, tmp_path) == [
        "Of the window, most goes to gemm.marlin 65.0 % and exposed comm.allreduce 35.0 %.",
        "Both GPUs are never idle.",
        "Communication runs for 700 ns over all GPUs, and 100.0 % of that (700 ns) is exposed: no other kernel runs"
        " then.",
        "GPU 0:1 spends 600 ns in communication and GPU 0:0 100 ns. The kernel of a collective runs while it waits, so"
        " GPU 0:1 most likely waits for GPU 0:0.",
    ]


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([900], "GPU 0:0 is idle in 10.0 % of the window: no kernel and no copy runs."),
        ([900] * 2, "Both GPUs are idle in 10.0 % of the window: no kernel and no copy runs."),
        ([900] * 64, "All 64 GPUs are idle in 10.0 % of the window: no kernel and no copy runs."),
        (
            [900, 800],
            "GPUs are idle in 10.0 % (GPU 0:0) to 20.0 % (GPU 0:1) of the window: no kernel and no copy runs.",
        ),
        ([990, 995], "Both GPUs are hardly ever idle: at most 1.0 % of the window (GPU 0:0)."),
        ([990] * 3, "All 3 GPUs are hardly ever idle: 1.0 % of the window."),
        ([1000], "GPU 0:0 is never idle."),
        ([1000] * 3, "All 3 GPUs are never idle."),
    ],
)
def test_verdict_says_once_what_holds_of_every_gpu(tmp_path, lengths, sentence):
    trace = TraceBuilder()
    for device, length in enumerate(lengths):
        trace.kernel(MARLIN, 0, length - 1, device=device, pid=1_000 + device, launch=0)
        trace.kernel(MARLIN, 999, 1, device=device, pid=1_000 + device, launch=1)
    assert said(trace, tmp_path)[1:] == [sentence]


def test_verdict_says_of_idle_time_below_what_is_shown_that_it_is_there(tmp_path):
    trace = TraceBuilder()
    trace.kernel(MARLIN, 0, 99_990, launch=0)
    trace.kernel(MARLIN, 99_999, 1, launch=1)
    assert said(trace, tmp_path)[1] == "GPU 0:0 is hardly ever idle: <0.1 % of the window."


def test_verdict_accounts_for_all_waits_and_names_what_is_left_out(tmp_path):
    """GPU 0 waits 900 of 10,000 ns for GPU 1, which waits 50 for it: too little for a name; a third pairs with none."""
    trace = TraceBuilder()
    for number, each in enumerate([(0, 900), (50, 0)]):
        for gpu, arrives in enumerate(each):
            waiting(trace, gpu, number, arrives, 1_000)
    trace.kernel(MARLIN, 29_000, 1_000, device=0, pid=1_000, launch=8)
    trace.kernel(MARLIN, 29_000, 1_000, device=1, pid=1_001, launch=8)
    report = trace.write(tmp_path / "in.sqlite")
    assert verdict(attribute(report), match_collectives(report))[-1] == (
        "Kernels of collectives wait in 950 ns of the 3.05 µs that they take: GPU 0:0 waits 900 ns for GPU 0:1; the"
        " other GPU waits 50 ns."
    )
    trace.kernel(ALL_GATHER, 40_000, 500, device=1, pid=1_001, launch=9)
    report = trace.write(tmp_path / "more.sqlite")
    assert verdict(attribute(report), match_collectives(report))[-1].endswith(
        " Left out for want of a match across GPUs: 1 communication kernel."
    )


def test_the_note_about_waits_stands_only_where_there_is_communication(run_in_process):
    for report, there in ((DECODE, True), (GOLDEN / "h200x1_mla_attention.sqlite", False)):
        done = run_in_process("report", report, "--format", "md")
        assert ("Kernels of collectives run while they wait" in done.stdout) is there


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


def test_a_kernel_that_no_rule_classified_has_no_rule(run_in_process, tmp_path):
    trace = TraceBuilder()
    trace.kernel(unknown("mystery"), 0, 100, launch=0)
    done = run_in_process("report", trace.write(tmp_path / "in.sqlite"), "--format", "md")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| mystery")]
    assert row.split(" | ")[1:3] == ["unclassified", "\N{EN DASH}"]


@pytest.mark.parametrize("name", ["h200x2_decode_graph", "h200x2_vllm_graph", "h200x1_toy_graph"])
def test_the_table_below_a_figure_holds_the_very_numbers_drawn(run_in_process, tmp_path, name):
    page = tmp_path / "r.html"
    assert run_in_process("report", GOLDEN / f"{name}.sqlite", "-o", page).code == 0
    text = page.read_text(encoding="utf-8")
    figures = json.loads(re.search(r'id="k25-data">(.*?)</script>', text)[1])["figures"]
    assert len(figures) >= 4
    for chapter in text.split("<h2>")[1:]:
        drawn = re.search(r"id=(figure-\S+) role=img aria-label=.*the figures are in the table below", chapter)
        if drawn is None:
            assert "class=figure" not in chapter
            continue
        rows = {
            cells[0]: cells[1:]
            for row in re.findall(r"<tr>(.*?)</tr>", chapter)
            if (
                cells := [
                    html.unescape(re.sub("<.*?>", "", cell)).strip() for cell in re.findall(r"<t[dh].*?</t[dh]>", row)
                ]
            )
        }
        first, *others = figures.pop(drawn[1])["data"]
        if first["type"] == "heatmap":
            for place, key in enumerate(first["x"]):
                assert rows[key] == [format_ns(row[place]) for row in first["z"]]
        elif others and "base" not in first and "pattern" not in first["marker"]:
            for place, gpu in enumerate(first["y"]):
                assert rows[gpu] == [format_ns(bar["x"][place]) for bar in (first, *others)]
        else:  # one bar a row: all that is drawn of it stands in its row
            for bar in (first, *others):
                told = format_share if others else format_ns
                assert [(y, told(x)) for x, y in zip(bar["x"], bar["y"], strict=True) if told(x) not in rows[y]] == []
    assert figures == {}


def test_gpus_stand_in_the_order_of_their_numbers():
    keys = [f"{report}:{gpu}" for report in (0, 1) for gpu in range(12)]
    ranks = pl.DataFrame({"gpu": sorted(keys), "wait_ns": [1] * 24, "transfer_ns": [2] * 24})
    assert list(why.waits(ranks).data[0].y) == [f"GPU {key}" for key in keys]
    summary = pl.DataFrame({"gpu": sorted(keys), "cause": ["sync"] * 24, "gap_ns": [1] * 24})
    assert list(why.causes(summary).data[0].y) == [f"GPU {key}" for key in keys]


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
