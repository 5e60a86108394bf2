"""The page of ``k25trace report`` in a real browser."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder, unknown

from k25trace.pages.make import analyses, asked
from k25trace.pages.report import html
from k25trace.palette import contrast

pytestmark = pytest.mark.browser
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
HOSTILE = "</script><img src=x onerror='document.title=1'><b>&lt;"


def written(folder: Path, *reports: Path) -> Path:
    page = folder / "report.html"
    page.write_text(made(*reports), encoding="utf-8")
    return page


@cache
def made(*reports: Path) -> str:
    return html(analyses(reports), asked())


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
    assert "GPU 0:1 waits 41.8 ms for GPU 0:0" in shown.page.inner_text(".verdict")


def many_gpus(path: Path) -> Path:
    trace = TraceBuilder()
    for gpu in range(64):
        for number in range(6):
            name = (MARLIN, CAST, ALL_REDUCE)[number % 3]
            trace.kernel(name, 1_000 + number * 1_000 + gpu, 900, launch=10 + number, device=gpu, pid=1_000 + gpu)
    return trace.write(path)


@pytest.mark.parametrize(("width", "reports"), [(400, 1), (1440, 1), (1440, 2)])
@pytest.mark.parametrize("name", ["vllm_graph", "many"])
def test_the_key_of_colours_is_whole_and_close(tmp_path: Path, show: Any, width: int, reports: int, name: str) -> None:
    one = many_gpus(tmp_path / "many.sqlite") if name == "many" else GOLDEN / f"h200x2_{name}.sqlite"
    page = show(written(tmp_path, one, *[GOLDEN / "h200x2_decode_graph.sqlite"][: reports - 1]), width=width).page
    assert page.locator(".figure svg .legend").count() == 0
    keys = page.evaluate(
        """() => [...document.querySelectorAll('.key')].map(key => {
             const figure = key.previousElementSibling;
             const bars = figure.querySelector('.nsewdrag').getBoundingClientRect();
             const rows = [...key.children].map(e => e.getBoundingClientRect());
             return {names: [...key.children].map(e => e.textContent.trim()),
                     drawn: figure.data.map(t => t.name),
                     cut: rows.some(r => r.right > figure.getBoundingClientRect().right || r.height > 60),
                     scrolls: key.scrollWidth > key.clientWidth,
                     below: rows[0].top - bars.bottom}; })"""
    )
    assert len(keys) >= 2 * reports
    for key in keys:
        assert key["names"] == key["drawn"]
        assert not key["cut"]
        assert not key["scrolls"]
        assert 0 < key["below"] < 60


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("vllm_graph", 1440, "light"), ("vllm_graph", 400, "dark"), ("decode_graph", 1440, "dark")],
)
def test_every_text_in_a_figure_stands_out_on_what_lies_behind_it(
    tmp_path: Path, show: Any, name: str, width: int, scheme: str
) -> None:
    page = show(written(tmp_path, GOLDEN / f"h200x2_{name}.sqlite"), width=width, scheme=scheme).page
    texts = page.evaluate(
        """() => [...document.querySelectorAll('.figure svg text')]
             .filter(t => t.textContent.trim() && getComputedStyle(t).display !== 'none')
             .map(t => ({text: t.textContent, ink: getComputedStyle(t).fill, box: t.getBoundingClientRect().toJSON()}))
             .filter(t => t.box.width && t.box.height)"""
    )
    page.add_style_tag(content=".figure svg text { visibility: hidden !important; }")
    picture = base64.b64encode(page.screenshot(full_page=True)).decode()
    # The most frequent colour behind each text.
    behind = page.evaluate(
        """async ([picture, texts]) => {
             const image = new Image();
             image.src = "data:image/png;base64," + picture;
             await image.decode();
             const canvas = new OffscreenCanvas(image.width, image.height);
             const draw = canvas.getContext("2d", { willReadFrequently: true });
             draw.drawImage(image, 0, 0);
             return texts.map(({box}) => {
               const [width, height] = [Math.max(1, box.width - 2), Math.max(1, box.height - 4)];
               const pixels = draw.getImageData(box.x + 1, box.y + 2, width, height).data;
               const seen = {};
               for (let i = 0; i < pixels.length; i += 4) {
                 const colour = `rgb(${pixels[i]}, ${pixels[i + 1]}, ${pixels[i + 2]})`;
                 seen[colour] = (seen[colour] || 0) + 1;
               }
               return Object.entries(seen).sort((a, b) => b[1] - a[1])[0][0];
             }); }""",
        [picture, texts],
    )

    def hexed(colour: str) -> str:
        return "#" + "".join(f"{int(c):02x}" for c in re.findall(r"\d+", colour)[:3])

    assert len(texts) > 60
    faint = [
        (text["text"], text["ink"], colour)
        for text, colour in zip(texts, behind, strict=True)
        if contrast(hexed(text["ink"]), hexed(colour)) < 4.5
    ]
    assert faint == []


@pytest.mark.parametrize("width", [400, 1440])
@pytest.mark.parametrize(
    "name",
    [
        *("h200x2_decode_late", "h200x2_toy_eager", "h200x2_decode_lossy", "h200x2_vllm_graph"),
        *("h200x1_mla_attention", "h200x1_gemm", "many"),
    ],
)
def test_every_text_of_a_figure_is_whole(tmp_path: Path, show: Any, width: int, name: str) -> None:
    report = many_gpus(tmp_path / "many.sqlite") if name == "many" else GOLDEN / f"{name}.sqlite"
    page = show(written(tmp_path, report), width=width).page
    measured = page.evaluate(
        """() => [...document.querySelectorAll('.figure')].flatMap(figure => {
             const box = figure.getBoundingClientRect();
             return [...figure.querySelectorAll('svg text')]
               .filter(t => t.textContent.trim() && getComputedStyle(t).display !== 'none')
               .map(t => ({text: t.textContent, at: t.getBoundingClientRect()}))
               .filter(({at}) => at.width && at.height)
               .map(({text, at}) => ({text, left: at.left - box.left, right: box.right - at.right,
                                      top: at.top - box.top, bottom: box.bottom - at.bottom})); })"""
    )
    assert len(measured) > 20
    assert [each for each in measured if min(each[side] for side in ("left", "right", "top", "bottom")) < 0] == []


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
