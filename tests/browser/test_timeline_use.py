"""How the page of ``k25trace timeline`` answers: windows that change, the overview, far clocks, odd names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
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


def test_of_several_reports_no_window_is_offered(tmp_path: Path, show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k25trace.pages.timeline.MOST_BARS", 1_000)
    sources = [GOLDEN / "h200x2_decode_graph.sqlite", GOLDEN / "h200x2_vllm_graph.sqlite"]
    for window, since in ((None, "first kernel"), ("60ms:160ms", "start of the window")):
        made = tmp_path / "page.html"
        made.write_text(make_timeline(sources, window=window), encoding="utf-8")
        shown = show(made)
        shown.page.focus("#chart")
        for _ in range(7):
            shown.after_drawing(partial(shown.page.keyboard.press, "w"))
        assert f"(counted from each report's {since})" in shown.page.inner_text("#view")
        assert "no finer detail" in shown.page.inner_text("#detail")
        assert "a page of one report, with --window" in shown.page.inner_text("#detail")
        assert ":" not in shown.page.inner_text("#detail").partition("detail here: ")[2]
        assert "a page of one report that has them" in shown.page.inner_text("header")
        # Their clocks cannot be compared, so no waits are drawn: the page says so where one sees it.
        assert shown.page.get_by_text("waits in collectives: ").is_visible()
        shown.check()


OUTLINED = """() => {
  // Lane and middle of each outline.
  const found = document.getElementById('chart').data[0];
  const middles = [];
  for (let i = 0; i < found.x.length; i++)
    if (found.x[i] !== null) middles.push([found.x[i], found.y[i]]);
  const outlines = [];
  for (let i = 0; i + 3 < middles.length; i += 4)
    outlines.push([(middles[i][0] + middles[i + 2][0]) / 2, (middles[i][1] + middles[i + 1][1]) / 2]);
  return outlines.map(([x, y]) => [K25.data.lanes.findIndex(l => Math.abs(l.y - y) < 0.1), x]);
}"""

HOLDERS = """words => {
  // Lane and count of each drawn bar that holds such an interval: those of a lane and part keep their order.
  const chart = document.getElementById('chart');
  const of = (n, name) => window.k25columns[`level${n}.${name}`];
  const n = Number(chart.dataset.level);
  const texts = window.k25columns['item.text'];
  const found = [];
  K25.data.lanes.forEach((_, lane) => {
    const drawn = new Map();
    for (let i = of(n, 'first')[lane]; i < of(n, 'first')[lane + 1]; i++) {
      const part = of(n, 'part')[i];
      if (!drawn.has(part)) drawn.set(part, []);
      for (let k = 0; k < of(n, 'count')[i]; k++) drawn.get(part).push(i);
    }
    const bars = new Set();
    for (let i = of(0, 'first')[lane]; i < of(0, 'first')[lane + 1]; i++) {
      const bar = drawn.get(of(0, 'part')[i]).shift();
      if (K25.data.texts[texts[of(0, 'item')[i]]].toLowerCase().includes(words)) bars.add(bar);
    }
    for (const bar of [...bars].sort((a, b) => a - b)) found.push([lane, of(n, 'count')[bar]]);
  });
  return found;
}"""


def search(shown: Any, words: str) -> None:
    def act() -> None:
        shown.page.fill("#search", words)
        shown.page.wait_for_function("() => document.getElementById('hits').textContent !== ''")

    shown.after_drawing(act)


def test_merged_bars_that_hold_a_hit_are_outlined(vllm: Path, show: Any) -> None:
    shown = show(vllm)
    assert shown.chart("level") > 0
    search(shown, "marlin")
    outlines, holders = shown.page.evaluate(OUTLINED), shown.page.evaluate(HOLDERS, "marlin")
    assert any(count > 1 for _, count in holders)
    assert [lane for lane, _ in outlines] == [lane for lane, _ in holders]
    assert "not outlined" not in shown.page.inner_text("#hits")
    search(shown, "no such kernel")
    assert shown.page.inner_text("#hits") == "nothing found among what is drawn"
    assert shown.page.evaluate(OUTLINED) == []
    shown.check()


def test_hits_that_a_page_does_not_place_are_counted(
    page_of: Callable[..., Path], show: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k25trace.pages.timeline.MOST_BARS", 1_000)
    shown = show(page_of("h200x2_vllm_graph.sqlite"))
    search(shown, "marlin")
    said = shown.page.inner_text("#hits")
    times, unplaced = (
        int(said.partition(before)[0].rpartition(" ")[2].replace(",", "")) for before in (" time", " of them")
    )
    placed = shown.page.evaluate(
        """() => [...window.k25columns['item.text']].filter(
          t => K25.data.texts[t].toLowerCase().includes('marlin')).length"""
    )
    assert times - unplaced == placed
    assert 0 < unplaced <= times
    shown.check()


def test_the_first_hit_backwards_is_the_last(page_of: Callable[..., Path], show: Any) -> None:
    trace = TraceBuilder()
    for i in range(10):
        trace.kernel(MARLIN, 1_000 + i * 100_000, 701, launch=10 + i * 10)
    shown = show(page_of(trace))
    for key, nth in (("Shift+Enter", 9), ("Shift+Enter", 8), ("Enter", 9), ("Enter", 0)):
        if nth == 9 and key == "Shift+Enter":
            search(shown, "marlin")
        shown.after_drawing(lambda key=key: shown.page.press("#search", key))
        assert shown.chart("start") <= nth * 100_000 + 350 <= shown.chart("end")
        assert shown.chart("end") - shown.chart("start") < 10_000
    shown.check()


def test_a_pinned_bar_is_marked_and_says_from_when_to_when(vllm: Path, show: Any) -> None:
    shown = show(vllm)
    for merged in (True, False):
        if not merged:
            shown.page.focus("#chart")
            while shown.chart("merged"):
                shown.after_drawing(lambda: shown.page.keyboard.press("w"))
        shown.page.keyboard.press("Escape")
        assert shown.page.locator("#mark").is_hidden()
        box = shown.page.evaluate(
            """merged => {
          const chart = document.getElementById('chart');
          const area = chart.querySelector('.nsewdrag[data-subplot=x2y2]').getBoundingClientRect();
          const [[a, b], [bottom, top]] = [chart.layout.xaxis2.range, chart.layout.yaxis2.range];
          const of = name => window.k25columns[`level${chart.dataset.level}.${name}`];
          for (let lane = 0; lane < K25.data.lanes.length; lane++)
          if (K25.data.lanes[lane].stream) for (let i = of('first')[lane]; i < of('first')[lane + 1]; i++) {
            const [s, e] = [of('start')[i], of('end')[i]];
            if (s < a || e > b || (of('count')[i] > 1) !== merged || (e - s) / (b - a) * area.width < 3) continue;
            const at = t => area.left + (t - a) / (b - a) * area.width;
            return [at(s), at(e), area.top + (K25.data.lanes[lane].y - top) / (bottom - top) * area.height];
          }
        }""",
            merged,
        )
        shown.page.mouse.click((box[0] + box[1]) / 2, box[2])
        told = shown.page.inner_text("#pinned")
        assert (" merged at this zoom" in told.splitlines()[0].replace(",", " ")) == merged
        assert "from " in told
        if merged:
            assert " to " in told.splitlines()[2]
        mark = shown.page.locator("#mark").bounding_box()
        assert (mark["x"], mark["x"] + mark["width"]) == pytest.approx((box[0] - 2, box[1] + 2), abs=1.5)
        assert mark["y"] < box[2] < mark["y"] + mark["height"] < box[2] + 14
        shown.after_drawing(lambda: shown.page.click("#all"))
        assert shown.page.locator("#mark").is_hidden()
        assert shown.page.inner_text("#detail").startswith("No bars: what is here belongs to categories")
        shown.after_drawing(lambda: shown.page.click("#all"))
        assert shown.page.locator("#mark").is_visible()
    shown.check()


def test_a_double_click_pins_nothing(page_of: Callable[..., Path], show: Any) -> None:
    trace = TraceBuilder()
    trace.kernel(MARLIN, 1_000, 10_000, launch=10)
    shown = show(page_of(trace))
    shown.after_drawing(lambda: shown.page.click("#zoom-in"))
    area = shown.page.locator("#chart .nsewdrag[data-subplot=x2y2]").bounding_box()
    y = shown.page.evaluate("K25.data.lanes.findIndex(l => l.stream)") * 18 + area["y"] + 10
    shown.after_drawing(lambda: shown.page.mouse.dblclick(area["x"] + area["width"] / 2, y))
    assert shown.chart("end") - shown.chart("start") == whole(shown)
    assert shown.page.locator("#pin").is_hidden()
    shown.page.mouse.click(area["x"] + area["width"] / 2, y)
    assert shown.page.locator("#pin").is_visible()
    shown.check()


def test_names_of_blanks_are_unnamed(page_of: Callable[..., Path], show: Any) -> None:
    trace = TraceBuilder()
    trace.push_pop("   ", 0, 60_000)
    trace.kernel(MARLIN, 1_000, 50_000, launch=500)
    shown = show(page_of(trace))
    assert shown.page.locator("#names text", has_text="(unnamed)").count() == 2  # on the host, and on the GPU
    shown.check()
