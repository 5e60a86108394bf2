"""How the page of ``k25trace timeline`` answers: windows that change, the overview, far clocks, odd names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder, unknown

from k25trace.pages.make import make_timeline

pytestmark = pytest.mark.browser
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
AREA = """() => {
  const box = document.querySelector('#chart .nsewdrag[data-subplot=x2y2]').getBoundingClientRect();
  return [box.left, box.right];
}"""


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write the page of a trace."""

    def page(trace: TraceBuilder | str) -> Path:
        folder = tmp_path_factory.mktemp("page")
        source = GOLDEN / trace if isinstance(trace, str) else trace.write(folder / "t.sqlite")
        made = folder / "page.html"
        made.write_text(make_timeline([source]), encoding="utf-8")
        return made

    return page


@pytest.fixture(scope="module")
def vllm(page_of: Callable[..., Path]) -> Path:
    return page_of("h200x2_vllm_graph.sqlite")


def kernels(origin: int = 0, count: int = 20) -> TraceBuilder:
    trace = TraceBuilder()
    for i in range(count):
        trace.kernel(MARLIN if i % 3 else CAST, origin + 1_000 + i * 1_000, 701, launch=origin + 10 + i * 10)
    return trace


def drag(shown: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    mouse = shown.page.mouse
    mouse.move(*start)
    mouse.down()
    mouse.move((start[0] + end[0]) / 2, end[1], steps=3)
    mouse.move(*end)
    mouse.up()


def whole(shown: Any) -> float:
    return float(shown.page.evaluate("K25.data.end"))


def test_chart_and_overview_follow_the_window(vllm: Path, show: Any) -> None:
    shown = show(vllm)
    for width in (400, 1000, 1440):
        shown.after_drawing(lambda to=width: shown.page.set_viewport_size({"width": to, "height": 900}))
        shown.page.wait_for_function(
            "() => document.getElementById('overview').layout.width === document.getElementById('chart').clientWidth"
        )
        left, right = shown.page.evaluate(AREA)
        assert left > 0
        assert width - 60 < right <= width
        brush = shown.page.locator("#brush").bounding_box()
        assert (brush["x"], brush["x"] + brush["width"]) == pytest.approx((left, right), abs=2)
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    shown.check()


def test_all_or_none_hides_all_and_shows_all(vllm: Path, show: Any) -> None:
    shown = show(vllm)
    marks = shown.chart("marks")
    hidden = shown.page.locator("#legend button[data-part][aria-pressed=false]")
    every = shown.page.locator("#legend button[data-part]").count()
    for expected, out in ((0, every), (marks, 0), (0, every)):
        shown.after_drawing(lambda: shown.page.click("#all"))
        assert (shown.chart("marks"), hidden.count()) == (expected, out)
    shown.after_drawing(lambda: shown.page.click("#all"))
    shown.after_drawing(shown.page.locator("#legend button[data-part]").first.click)
    shown.after_drawing(lambda: shown.page.click("#all"))  # of one that is hidden: all again
    assert (shown.chart("marks"), hidden.count()) == (marks, 0)
    shown.check()


def test_dragging_over_the_overview_selects_from_the_first_view_on(vllm: Path, show: Any) -> None:
    shown = show(vllm)
    box, end = shown.page.locator("#brush").bounding_box(), whole(shown)
    y = box["y"] + 30
    shown.after_drawing(lambda: drag(shown, (box["x"] + box["width"] * 0.5, y), (box["x"] + box["width"] * 0.6, y)))
    assert (shown.chart("start"), shown.chart("end")) == pytest.approx((0.5 * end, 0.6 * end), abs=end / 100)
    # Inside what is selected a drag moves it, outside it selects anew.
    shown.after_drawing(lambda: drag(shown, (box["x"] + box["width"] * 0.55, y), (box["x"] + box["width"] * 0.75, y)))
    assert (shown.chart("start"), shown.chart("end")) == pytest.approx((0.7 * end, 0.8 * end), abs=end / 100)
    shown.after_drawing(lambda: drag(shown, (box["x"] + box["width"] * 0.1, y), (box["x"] + box["width"] * 0.2, y)))
    assert (shown.chart("start"), shown.chart("end")) == pytest.approx((0.1 * end, 0.2 * end), abs=end / 100)
    shown.check()


@pytest.mark.parametrize("within", [1, 5, 9])
def test_a_handle_moves_its_edge_wherever_it_is_taken(vllm: Path, show: Any, within: int) -> None:
    shown = show(vllm)
    box, end = shown.page.locator("#brush").bounding_box(), whole(shown)
    for name, far in (("from", 0.25), ("until", 0.75)):
        handle = shown.page.locator(f"#{name}").bounding_box()
        assert handle["width"] >= 10
        at = (handle["x"] + within, handle["y"] + handle["height"] / 2)
        assert shown.page.evaluate("([x, y]) => document.elementFromPoint(x, y).id", at) == name
        to = box["x"] + box["width"] * far + within - 5
        shown.after_drawing(lambda at=at, to=to: drag(shown, at, (to, at[1])))
    assert (shown.chart("start"), shown.chart("end")) == pytest.approx((0.25 * end, 0.75 * end), abs=end / 100)
    shown.page.focus("#until")
    shown.after_drawing(lambda: shown.page.keyboard.press("ArrowRight"))
    assert shown.chart("end") == pytest.approx(0.775 * end, abs=end / 100)
    shown.check()


@pytest.mark.parametrize("origin", [0, 1 << 53, (1 << 60) + 1, -(1 << 60)])
def test_any_clock_zooms_to_the_nanosecond_and_back(page_of: Callable[..., Path], show: Any, origin: int) -> None:
    shown = show(page_of(kernels(origin)))
    marks = shown.chart("marks")
    shown.page.focus("#chart")
    for _ in range(12):
        shown.after_drawing(lambda: shown.page.keyboard.press("w"))
    assert shown.chart("end") - shown.chart("start") == 20
    said = shown.page.inner_text("#view")
    first, last = (int(edge) for edge in said.rpartition("--window ")[2].rstrip(")").split(":"))
    middle = origin + 1_000 + 19_701 // 2
    assert first <= middle <= last
    assert last - first in (20, 21)
    ticks = shown.page.evaluate("document.getElementById('chart').layout.xaxis2.ticktext")
    assert 0 < len(ticks) == len(set(ticks))
    shown.after_drawing(lambda: shown.page.click("#whole"))
    assert shown.chart("marks") == marks
    shown.page.keyboard.press("n")
    assert "duration 701 ns (701 ns), from " in shown.page.inner_text("#pinned")
    shown.check()


def test_ticks_of_long_instants_have_room(page_of: Callable[..., Path], show: Any) -> None:
    for width in (1440, 400):
        shown = show(page_of(kernels(1 << 60)), width=width)
        boxes = shown.page.evaluate(
            """() => [...document.querySelectorAll('#chart .x2tick text')].map(t => {
          const box = t.getBoundingClientRect();
          return [box.left, box.right];
        }).sort((a, b) => a[0] - b[0])"""
        )
        assert boxes
        assert all(before[1] < after[0] for before, after in itertools.pairwise(boxes))
        shown.check()


def test_instants_are_told_apart_at_every_zoom(vllm: Path, show: Any) -> None:
    shown = show(vllm)
    shown.page.focus("#chart")
    for _ in range(14):
        shown.after_drawing(lambda: shown.page.keyboard.press("w"))
        start, _, rest = shown.page.inner_text("#view").partition(" to ")
        assert start != rest.partition(", ")[0]
    shown.page.keyboard.press("n")
    pinned = shown.page.inner_text("#pinned")
    fraction = pinned.partition(", from ")[2].split()[0].partition(".")[2]
    assert len(fraction) >= 5
    shown.check()


def test_names_of_any_kind_are_shown_as_they_are_written(page_of: Callable[..., Path], show: Any) -> None:
    trace = TraceBuilder()
    trace.push_pop("execute_context_3(768)_generation_0(0)", 0, 60_000)
    names = ["$loss$", "a\nb\x00", "\u202edlrow", "x" * 100_000, "%{y}<extra>", "${x}", "void ns::k<int>(float)"]
    for i, name in enumerate(names):
        trace.kernel(unknown(name), 1_000 + i * 5_000, 4_000, launch=500 + i * 10)
    shown = show(page_of(trace))
    written = shown.page.evaluate("[...document.querySelectorAll('#names text')].map(t => t.textContent)")
    assert written.count("execute_context_3(768)_generation_0(0)") == 2  # on the host, and on the GPU
    assert {"$loss$", "a b\\x00", "\\u202edlrow", "k"} <= set(written)
    shown.page.focus("#chart")
    tallest = 0
    for i, name in enumerate(names):
        x, y = shown.page.evaluate(
            """at => {
          const area = document.querySelector('#chart .nsewdrag[data-subplot=x2y2]').getBoundingClientRect();
          const [bottom, top] = document.getElementById('chart').layout.yaxis2.range;
          const lane = K25.data.lanes.find(l => l.stream);
          return [area.left + at / K25.data.end * area.width,
                  area.top + (lane.y - top) / (bottom - top) * area.height];
        }""",
            i * 5_000 + 2_000,
        )
        shown.page.mouse.move(x, y)
        shown.page.wait_for_selector("#tip:not([hidden])")
        tip = shown.page.locator("#tip").bounding_box()
        tallest = max(tallest, tip["height"])
        assert tip["y"] >= 0
        shown.page.mouse.click(x, y)
        told = shown.page.inner_text("#pinned").splitlines()[0]
        assert told == name.replace("\n", "\\n").replace("\x00", "\\x00").replace("\u202e", "\\u202e")
        assert shown.page.locator("#pin").bounding_box()["height"] < 400
    assert tallest < 400
    assert shown.page.locator("#pin").get_attribute("aria-live") == "polite"
    shown.check()


def test_kernels_that_overlap_have_lanes_and_names_of_their_own(page_of: Callable[..., Path], show: Any) -> None:
    trace = TraceBuilder()
    for i in range(30):
        trace.kernel(MARLIN if i % 2 else CAST, 1_000 + i * 1_000, 1_800, launch=10 + i)
    trace.kernel(ALL_REDUCE, 40_000, 5_000, launch=90)
    shown = show(page_of(trace))
    lanes = shown.page.evaluate("K25.data.lanes.map(l => l.what)")
    assert [lane for lane in lanes if lane.startswith("stream")] == ["stream 7", "stream 7"]
    labels = [text for text in shown.page.locator("#lanes span").all_inner_texts() if text]
    assert labels.count("0:0 stream 7") == 1
    boxes = shown.page.evaluate(
        """() => [...document.querySelectorAll('#names text')].map(t => {
      const box = t.getBoundingClientRect();
      return [Math.round(box.top), box.left, box.right];
    }).sort((a, b) => a[0] - b[0] || a[1] - b[1])"""
    )
    assert len(boxes) > 3
    assert all(a[0] != b[0] or a[2] <= b[1] + 1 for a, b in itertools.pairwise(boxes))
    shown.check()


def test_an_error_while_drawing_does_not_end_drawing(page_of: Callable[..., Path], show: Any) -> None:
    shown = show(page_of(kernels()))
    marks = shown.chart("marks")
    shown.page.evaluate(
        """() => {
      const react = Plotly.react;
      Plotly.react = () => { Plotly.react = react; throw new Error('once'); };
    }"""
    )
    shown.page.click("#zoom-in")
    shown.after_drawing(lambda: shown.page.click("#whole"))
    assert shown.chart("marks") == marks
    assert [text for text in shown.console if "once" not in text] == []


@pytest.mark.parametrize("durations", [(0,), (1,), (0, 0)])
def test_a_window_of_no_length_shows_its_kernels(
    page_of: Callable[..., Path], show: Any, durations: tuple[int, ...]
) -> None:
    trace = TraceBuilder()
    for i, duration in enumerate(durations):
        trace.kernel(MARLIN, 1_000, duration, launch=10 + i)
    shown = show(page_of(trace))
    assert shown.chart("marks") == len(durations)
    assert "NaN" not in shown.page.inner_text("body")
    shown.page.focus("#chart")
    shown.after_drawing(lambda: shown.page.keyboard.press("w"))
    shown.check()
