"""The page of ``k25trace report`` in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tracekit import CAST, MARLIN, TraceBuilder, unknown

from k25trace.pages.make import analyses, asked
from k25trace.pages.report import html

pytestmark = pytest.mark.browser
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
HOSTILE = "</script><img src=x onerror='document.title=1'><b>&lt;"


def written(folder: Path, *reports: Path) -> Path:
    page = folder / "report.html"
    page.write_text(html(analyses(reports), asked()), encoding="utf-8")
    return page


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (400, "dark")])
@pytest.mark.parametrize("names", [["vllm_graph"], ["decode_graph", "vllm_graph"]], ids=["one", "two"])
def test_says_nothing_asks_for_nothing_and_fits(
    tmp_path: Path, show: Any, width: int, scheme: str, names: list[str]
) -> None:
    shown = show(written(tmp_path, *(GOLDEN / f"h200x2_{n}.sqlite" for n in names)), width=width, scheme=scheme)
    shown.check()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.page.locator(".figure svg.main-svg").count() >= 4 * len(names)
    shown.page.click("#theme")
    shown.page.wait_for_timeout(200)
    shown.check()


def test_what_is_drawn_is_what_attribute_says(tmp_path: Path, show: Any, run_in_process: Any) -> None:
    report = GOLDEN / "h200x2_decode_graph.sqlite"
    wanted = json.loads(run_in_process("attribute", report, "--format", "json").stdout)
    shown = show(written(tmp_path, report))
    document = shown.page.evaluate("K25.data.attributions[0]")
    for key in ("windows", "gpus", "categories", "families", "wall", "kernels", "warnings"):
        assert document[key] == wanted[key]
    waterfall, shares, gpus, heat = shown.page.evaluate(
        """() => [...document.querySelectorAll('.figure')].slice(0, 4).map(f =>
             f.data.map(t => ({x: t.x, y: t.y, z: t.z, base: t.base, name: t.name})))"""
    )
    wall: dict[str, int] = {}
    for row in wanted["wall"]:
        wall[row["row"]] = wall.get(row["row"], 0) + row["wall_ns"]
    assert dict(zip(waterfall[0]["y"], waterfall[0]["x"], strict=True)) == wall
    # Each row begins where the one above it ends, and the last one ends where the window does.
    ends = [b + x for b, x in zip(waterfall[0]["base"], waterfall[0]["x"], strict=True)]
    assert waterfall[0]["base"] == [0, *ends[:-1]]
    assert ends[-1] == sum(g["window_ns"] for g in wanted["gpus"])
    overall = {r["category"]: r for r in wanted["categories"] if r["gpu"] == "all"}
    window = sum(g["window_ns"] for g in wanted["gpus"])
    for trace, figure in zip(
        shares,
        (lambda r: r["kernel_share"], lambda r: r["busy_ns"] / window, lambda r: r["wall_share"]),
        strict=True,
    ):
        assert dict(zip(trace["y"], trace["x"], strict=True)) == pytest.approx(
            {c: figure(r) for c, r in overall.items()}, rel=1e-12
        )
    per_gpu = {(r["gpu"], r["row"]): r["wall_ns"] for r in wanted["wall"] if r["wall_ns"]}
    drawn = {
        (gpu.removeprefix("GPU "), trace["name"]): ns
        for trace in gpus
        for gpu, ns in zip(trace["y"], trace["x"], strict=True)
        if ns
    }
    assert drawn == per_gpu
    cells = {
        (gpu.removeprefix("GPU "), category): ns
        for category, row in zip(heat[0]["y"], heat[0]["z"], strict=True)
        for gpu, ns in zip(heat[0]["x"], row, strict=True)
        if ns
    }
    assert cells == {(r["gpu"], r["category"]): r["kernel_ns"] for r in wanted["categories"] if r["gpu"] != "all"}


def test_steps_collectives_and_gaps_are_those_of_their_verbs(tmp_path: Path, show: Any, run_in_process: Any) -> None:
    report = GOLDEN / "h200x2_decode_graph.sqlite"

    def said(verb: str) -> Any:
        return json.loads(run_in_process(verb, report, "--format", "json").stdout)

    shown = show(written(tmp_path, report))
    steps, waits, causes = shown.page.evaluate(
        """() => [...document.querySelectorAll('.figure')].slice(4).map(f =>
             f.data.map(t => ({x: t.x, y: t.y, z: t.z, name: t.name})))"""
    )
    wanted: dict[tuple[str, str], int] = {}
    for step in said("steps")["steps"]:
        for category, ns in step["categories"].items():
            wanted[str(step["index"]), category] = wanted.get((str(step["index"]), category), 0) + ns
    cells = {
        (step, category): ns
        for category, row in zip(steps[0]["y"], steps[0]["z"], strict=True)
        for step, ns in zip(steps[0]["x"], row, strict=True)
        if ns
    }
    assert cells == {key: ns for key, ns in wanted.items() if ns}

    def bars(traces: Any) -> dict[tuple[str, str], int]:
        pairs = [(gpu, t["name"], ns) for t in traces for gpu, ns in zip(t["y"], t["x"], strict=True) if ns]
        return {(gpu.removeprefix("GPU "), name): ns for gpu, name, ns in pairs}

    split: dict[tuple[str, str], int] = {}
    for collective in said("collectives")["collectives"]:
        for rank in collective["ranks"]:
            for what in ("wait", "transfer"):
                split[rank["gpu"], what] = split.get((rank["gpu"], what), 0) + rank[f"{what}_ns"]
    assert bars(waits) == {key: ns for key, ns in split.items() if ns}
    assert bars(causes) == {(r["gpu"], r["cause"]): r["gap_ns"] for r in said("gaps")["summary"] if r["gap_ns"]}


def test_warnings_come_first_and_missing_sections_say_so(tmp_path: Path, show: Any) -> None:
    shown = show(written(tmp_path, GOLDEN / "h200x2_vllm_lossy.sqlite"))
    text = shown.page.inner_text("body")
    assert text.index("error: incomplete-capture") < text.index("Where the window goes")
    assert "The capture is not whole" in text
    alone = show(written(tmp_path, GOLDEN / "h200x1_toy_graph.sqlite")).page.inner_text("body")
    assert "This report does not tell: " in alone.partition("Collectives")[2]


def test_the_waiting_rank_is_named(tmp_path: Path, show: Any) -> None:
    shown = show(written(tmp_path, GOLDEN / "h200x2_vllm_graph.sqlite"))
    assert "GPU 0:1 most likely waits for GPU 0:0" in shown.page.inner_text(".verdict")


def test_names_are_text(tmp_path: Path, show: Any) -> None:
    trace = TraceBuilder()
    trace.push_pop(HOSTILE, 0, 1_000)
    trace.kernel(unknown(HOSTILE), 10, 20, launch=5)
    trace.kernel(CAST, 40, 20, launch=6)
    trace.kernel(MARLIN, 70, 20, launch=7)
    shown = show(written(tmp_path, trace.write(tmp_path / "<img src=x>.sqlite")))
    text = shown.page.inner_text("body")
    assert text.count(HOSTILE) == 3  # range, kernel, and the warning that no rule matches it
    assert "<img src=x>.sqlite" in text
    assert shown.page.evaluate("document.querySelectorAll('img').length") == 0
    shown.check()
