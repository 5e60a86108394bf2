"""``k25trace timeline``: the file it writes, what it refuses, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tracekit import CAST, TraceBuilder, unknown

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DECODE = GOLDEN / "h200x2_decode_graph.sqlite"
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028<!--"


def embedded(page: Path) -> dict:
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="k25-data">(.*?)</script>', text, re.DOTALL)[1])


def outside_plotly(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition("<script>/**\n* plotly.js")
    return before + rest.partition("</script>")[2]


def test_writes_one_file_that_names_nothing_outside_itself(run_in_process, unchanged, tmp_path):
    page = tmp_path / "t.html"
    with unchanged(GOLDEN):
        done = run_in_process("timeline", DECODE, "-o", page)
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    assert [p.name for p in tmp_path.iterdir()] == ["t.html"]
    ours = outside_plotly(page)
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import|url\(""", ours)
    assert "default-src 'none'" in ours
    assert page.stat().st_size < 10_000_000


def test_names_cannot_become_markup(run_in_process, tmp_path):
    trace = TraceBuilder()
    trace.push_pop(HOSTILE, 0, 1_000)
    trace.kernel(unknown(HOSTILE), 10, 20, launch=5)
    trace.kernel(CAST, 40, 20, launch=6)
    source = trace.write(tmp_path / "in.sqlite")
    done = run_in_process("timeline", source, "-o", tmp_path / "t.html")
    assert done.code == 0
    assert "<img" not in outside_plotly(tmp_path / "t.html")
    assert HOSTILE.replace("\u2028", "\\u2028") in embedded(tmp_path / "t.html")["texts"]


def test_several_reports_share_one_page(run_in_process, tmp_path):
    page = tmp_path / "t.html"
    assert run_in_process("timeline", DECODE, GOLDEN / "h200x2_vllm_graph.sqlite", "-o", page).code == 0
    assert {lane["gpu"] for lane in embedded(page)["lanes"]} == {"0:0", "0:1", "1:0", "1:1"}
    assert embedded(page)["origin"] == "0"


def test_window_and_gpu_select(run_in_process, tmp_path):
    page = tmp_path / "t.html"
    assert run_in_process("timeline", DECODE, "-o", page, "--window", "60ms:70ms", "--gpu", "0:1").code == 0
    data = embedded(page)
    assert {lane["gpu"] for lane in data["lanes"]} == {"0:1"}
    assert (data["origin"], data["end"]) == ("60000000", 10_000_000)
    assert data["attribution"]["windows"][0]["selector"] == "window"


def rounded(rows: list[dict]) -> list[dict]:
    """Without the last bit of shares, which depends on how many rows are divided at once."""
    return [{name: round(value, 12) if isinstance(value, float) else value for name, value in r.items()} for r in rows]


def test_figures_are_those_of_the_gpus_that_are_shown(run_in_process, tmp_path):
    page = tmp_path / "t.html"
    assert run_in_process("timeline", DECODE, "-o", page, "--gpu", "0:1").code == 0
    every = json.loads(run_in_process("attribute", DECODE, "--format", "json").stdout)
    told = embedded(page)["attribution"]
    mine = rounded([row for row in every["categories"] if row["gpu"] == "0:1"])
    categories = rounded(told["categories"])
    assert [row for row in categories if row["gpu"] == "0:1"] == mine
    assert [row | {"gpu": "0:1"} for row in categories if row["gpu"] == "all"] == mine
    for table in ("gpus", "families", "wall"):
        assert rounded(told[table]) == rounded([row for row in every[table] if row["gpu"] == "0:1"])
    shown = outside_plotly(page)
    kernels = sum(row["kernel_count"] for row in mine)
    assert f"{kernels:,} kernels on 1 GPU." in shown
    assert f"{mine[0]['kernel_share'] * 100:.1f} %</span>" in shown
    assert "0:0" not in shown.partition('id="k25-data"')[0]


def test_names_are_shown_as_everywhere_else(run_in_process, tmp_path):
    trace = TraceBuilder()
    trace.push_pop("two\nlines\x00", 0, 1_000)
    trace.kernel(unknown("\u202edlrow"), 10, 20, launch=5)
    assert run_in_process("timeline", trace.write(tmp_path / "in.sqlite"), "-o", tmp_path / "t.html").code == 0
    data = embedded(tmp_path / "t.html")
    assert {"\\u202edlrow", "two\\nlines\\x00"} <= set(data["texts"])
    assert '"two\\nlines\\x00"' in data["paths"]


def test_a_step_is_a_window_and_has_its_lane(run_in_process, tmp_path):
    page = tmp_path / "t.html"
    steps = json.loads(run_in_process("steps", DECODE, "--format", "json").stdout)["steps"]
    mine = [step for step in steps if step["index"] == 4]
    assert run_in_process("timeline", DECODE, "-o", page, "--step", "4").code == 0
    data = embedded(page)
    start = min(step["start_ns"] for step in mine)
    assert (data["origin"], data["end"]) == (str(start), max(step["end_ns"] for step in mine) - start)
    assert "(--step 4)" in outside_plotly(page)
    assert "(--window)" not in outside_plotly(page)
    assert {"step 4"} == {text for text in data["texts"] if text.startswith("step ")}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["no-such.sqlite", "-o", "t.html"], 1, "no such file"),
        ([str(DECODE)], 2, "--output"),
        ([str(DECODE), "-o", "t.html", "--window", "5"], 2, "A:B"),
        ([str(DECODE), "-o", "t.html", "--window", "50s:60s"], 3, "no kernel runs in the window"),
        ([str(DECODE), "-o", "t.html", "--gpu", "0:7"], 3, "no GPU 0:7"),
        ([str(DECODE), "-o", "t.html", "--step", "10"], 3, "no step 10"),
        ([str(DECODE), "-o", "t.html", "--step", "1", "--window", "1:"], 2, "--step N is a window"),
        ([str(DECODE), "-o", "t.html", "--domain", "nobody"], 3, "no NVTX range of domain"),
        ([str(GOLDEN / "cpu_nvtx.sqlite"), "-o", "t.html"], 3, "no CUDA kernels"),
        ([str(DECODE), "-o", "no/such/folder/t.html"], 1, "there is no folder"),
    ],
)
def test_refuses_in_one_line_and_leaves_nothing(run_cli, tmp_path, arguments, code, says):
    done = run_cli("timeline", *arguments, cwd=tmp_path)
    assert done.code == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_replaces_nothing_without_force_and_never_what_it_reads(run_in_process, tmp_path):
    page = tmp_path / "t.html"
    page.write_text("mine", encoding="utf-8")
    assert run_in_process("timeline", DECODE, "-o", page).code == 1
    assert page.read_text(encoding="utf-8") == "mine"
    assert run_in_process("timeline", DECODE, "-o", page, "--force").code == 0
    assert page.stat().st_size > 1_000_000
    source = TraceBuilder()
    source.kernel(CAST, 1, 5, launch=0)
    written = source.write(tmp_path / "in.sqlite")
    before = written.read_bytes()
    assert run_in_process("timeline", written, "-o", written, "--force").code == 2
    assert written.read_bytes() == before


def test_one_trace_makes_one_page(run_in_process, tmp_path):
    for name in ("a.html", "b.html"):
        assert run_in_process("timeline", DECODE, "-o", tmp_path / name).code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
