"""The viewer for everybody: by keyboard, by words, light and dark, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from viewing import model_of, serving

from k25trace.figures.timeline import lane_labels
from k25trace.pages import timeline
from k25trace.pages.chapters import chapters
from k25trace.pages.drawn import drawn
from k25trace.pages.make import asked
from k25trace.pages.parts import section_table
from k25trace.palette import DARK, LIGHT, contrast
from k25trace.view.components import TABS

if TYPE_CHECKING:
    from k25trace.view.model import Model

pytestmark = pytest.mark.browser
VLLM = "h200x2_vllm_graph.sqlite"
LANES = "#timeline .nsewdrag[data-subplot=x2y2]"
SHOWS = {"overview": "#content .verdict", "timeline": LANES}
RANGE = "() => document.querySelector('#timeline .js-plotly-plot').layout.xaxis2.range"


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of(VLLM)


@pytest.fixture(scope="module")
def address(model: Model) -> Iterator[str]:
    with serving(model) as found:
        yield found


@pytest.fixture
def opened(address: str, chromium: Any) -> Iterator[Callable[..., Any]]:
    contexts: list[Any] = []
    console: list[str] = []

    def open_(width: int = 1440, scheme: str = "light", tab: str = "overview") -> Any:
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: console.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: console.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#content .verdict")
        choose(page, tab)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert console == []


def choose(page: Any, tab: str) -> None:
    page.get_by_role("tab", name=tab).click()
    shown(page, tab)


def shown(page: Any, tab: str) -> None:
    """Wait until a tab is chosen and its figures are drawn."""
    page.wait_for_selector(f"#tab-{tab}[aria-selected=true]")
    page.wait_for_selector(SHOWS.get(tab, f"#content h2:has-text('{tab}')"))
    page.wait_for_function(
        "() => [...document.querySelectorAll('.dash-graph')].every(g => g.querySelector('g.subplot'))"
    )


def until(page: Any, start: float, end: float) -> None:
    """Wait until a view shows: the chart is what the program answered, to a thousandth of it."""
    page.wait_for_function(
        f"([a, b]) => {{ const [s, e] = ({RANGE})(); return Math.abs(s - a) + Math.abs(e - b) < (b - a) / 1000 + 4; }}",
        arg=[start, end],
    )


def test_tabs_are_tabs_and_go_by_keyboard(opened: Any) -> None:
    page = opened()
    tabs = page.get_by_role("tablist").get_by_role("tab")
    assert tabs.all_inner_texts() == list(TABS)
    page.focus("#theme")
    page.keyboard.press("Tab")
    focused = "() => document.activeElement.id"
    assert page.evaluate(focused) == "tab-overview"
    for key, tab in (
        ("ArrowRight", "timeline"),
        ("ArrowRight", "steps"),
        ("ArrowLeft", "timeline"),
        ("End", "ranges"),
        ("ArrowRight", "overview"),
        ("ArrowLeft", "ranges"),
        ("Home", "overview"),
        ("ArrowRight", "timeline"),
    ):
        page.keyboard.press(key)
        shown(page, tab)
        assert page.evaluate(focused) == f"tab-{tab}"
        assert page.get_by_role("tab", selected=True).all_inner_texts() == [tab]
        assert page.get_attribute("[role=tabpanel]", "aria-labelledby") == f"tab-{tab}"
    # One stop for all tabs, then what they show: the buttons of the timeline, and its chart.
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(focused))
    assert reached[:6] == ["content", "whole", "zoom-in", "zoom-out", "left", "right"]
    assert "all" in reached
    assert "chart" in reached


def test_the_timeline_goes_by_keyboard(opened: Any, model: Model) -> None:
    page = opened(tab="timeline")
    first, last = model.whole
    width = last - first
    until(page, first, last)
    page.keyboard.press("w")
    until(page, first + width / 4, last - width / 4)
    for _ in range(3):  # faster than the answers come
        page.keyboard.press("w")
    page.keyboard.press("s")
    middle = (first + last) / 2
    until(page, middle - width / 16, middle + width / 16)
    page.keyboard.press("a")
    until(page, middle - width / 16 - width / 32, middle + width / 16 - width / 32)
    page.keyboard.press("d")
    page.focus("#whole")
    page.keyboard.press("ArrowRight")  # scrolls the page: the chart has not the focus
    until(page, middle - width / 16, middle + width / 16)
    page.focus("#chart")
    page.keyboard.press("ArrowUp")
    until(page, middle - width / 32, middle + width / 32)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    until(page, middle - width / 16 + width / 64, middle + width / 16 + width / 64)
    page.keyboard.press("0")
    until(page, first, last)
    for button, view in (("Zoom in", (first + width / 4, last - width / 4)), ("Whole window", (first, last))):
        page.get_by_role("button", name=button).press("Enter")
        until(page, *view)
    for _ in range(40):
        page.keyboard.press("w")
    page.wait_for_function("() => document.getElementById('said').innerText.includes(', 20 ns: ')")


def test_double_clicks_show_the_whole_window_every_time(opened: Any, model: Model) -> None:
    page = opened(tab="timeline")
    for _ in range(2):
        page.keyboard.press("w")
        page.wait_for_function(f"([a]) => ({RANGE})()[0] > a", arg=[model.whole[0]])
        for _ in range(2):
            page.locator(LANES).dblclick()
            until(page, *model.whole)


def test_views_that_differ_say_so(model: Model) -> None:
    start, _ = model.whole
    for width in (20, 700, 52_000, 9_000_000):
        seen = set()
        for step in range(5):
            at = start + 10_000_000 + step * max(1, width // 4)
            said = model.view(at, at + width)[1].partition(":")[0].partition(",")[0]
            begins, ends = said.split(" to ")
            assert begins != ends
            seen.add(said)
        assert len(seen) == 5


def test_the_legend_says_what_the_page_says_and_hides(opened: Any, model: Model) -> None:
    page = opened(tab="timeline")
    html = timeline.render(model.scene, model.analysis, asked())
    listed = re.search(r"<ul id=legend.*?</ul>", html, re.DOTALL)
    assert listed is not None
    of_page = [re.sub(r"<[^>]*>", "", b).strip() for b in re.findall(r"<button.*?</button>", listed[0], re.DOTALL)]
    buttons = page.locator("#content .legend button")
    assert [" ".join(name.split()) for name in buttons.all_inner_texts()] == of_page
    assert any("wait in a collective" in name for name in of_page)
    before = page.inner_text("#said")
    button = page.get_by_role("button", name="host range")
    button.press("Space")
    page.wait_for_function("said => document.getElementById('said').innerText !== said", arg=before)
    assert button.get_attribute("aria-pressed") == "false"
    page.keyboard.press("s")  # nothing wider than the window, but drawn anew: still hidden
    choose(page, "steps")
    choose(page, "timeline")
    assert button.get_attribute("aria-pressed") == "false"
    page.get_by_role("button", name="All or none").click()
    page.wait_for_function("said => document.getElementById('said').innerText === said", arg=before)
    assert button.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="All or none").click()
    page.wait_for_function("() => document.getElementById('said').innerText.endsWith(': 0 bars')")


@pytest.mark.parametrize("tab", TABS)
def test_everything_has_words(tab: str, opened: Any) -> None:
    page = opened(tab=tab)
    assert page.evaluate("() => document.documentElement.lang") == "en"
    unsaid = """() => [...document.querySelectorAll('.dash-graph')].filter(graph => {
        const at = graph.closest('[role=img],[role=application],[aria-hidden=true]');
        return !at || !(at.getAttribute('aria-label') || at.getAttribute('aria-hidden'));
    }).length"""
    assert page.evaluate(unsaid) == 0
    assert page.locator("th:not([scope])").count() == 0
    if tab != "timeline":
        assert page.locator("th[scope=col]").count() > 0


CELLS = """tables => tables.map(table => [...table.querySelectorAll('caption,th,td')].map(cell => [
    cell.tagName, cell.className, cell.getAttribute('scope'), cell.textContent.trim(),
    cell.querySelector('.swatch')?.style.background]))"""


@pytest.mark.parametrize("tab", ["overview", "kernels", "gaps"])
def test_tables_are_those_of_the_report(tab: str, opened: Any, model: Model) -> None:
    page = opened(tab=tab)
    titles = page.locator("#content h2").all_inner_texts()
    every = {chapter.title: chapter for chapter in chapters(model.analysis, model.answers)}
    sections = [table for title in titles for table in drawn(every[title]).tables]
    seen = page.locator("#content table").evaluate_all(CELLS)
    page.set_content("".join(map(section_table, sections)))
    assert seen == page.locator("table").evaluate_all(CELLS)
    assert any(swatch for table in seen for *_, swatch in table) == (tab != "gaps")


def test_the_kernels_table_fits_a_wide_screen(opened: Any) -> None:
    page = opened(tab="kernels")
    edges = page.locator("#content th").evaluate_all("heads => heads.map(head => head.getBoundingClientRect().right)")
    assert len(edges) == 8
    assert max(edges) <= 1440


@pytest.mark.parametrize(
    ("tab", "sought"), [("kernels", "MARLIN"), ("kernels", "(T1::Params)"), ("ranges", "gpu_model")]
)
def test_names_are_searched_for(tab: str, sought: str, opened: Any, model: Model) -> None:
    page = opened(tab=tab)
    names = page.locator("#content tbody tr td:first-child")
    before = names.all_inner_texts()
    page.get_by_role("searchbox", name=f"Search {tab}").fill(sought)
    page.wait_for_function(
        "([all, text]) => { const now = [...document.querySelectorAll('#content tbody tr td:first-child')];"
        " return now.length && now.length !== all && now.every(n => n.innerText.toLowerCase().includes(text)); }",
        arg=[len(before), sought.lower()],
    )
    frame = model.analysis.kernels if tab == "kernels" else model.analysis.inclusive
    assert frame is not None
    column = "name" if tab == "kernels" else "range"
    known = {name for name in frame[column].drop_nulls() if sought.lower() in name.lower()}
    assert names.count() == min(len(known), 15 if tab == "kernels" else 12)
    page.get_by_role("searchbox").fill("no such name")
    page.wait_for_selector("text=No name holds that.")
    page.get_by_role("searchbox").fill("")
    page.wait_for_function("n => document.querySelectorAll('#content tbody tr').length === n", arg=len(before))


@pytest.mark.parametrize("width", [400, 1440])
def test_each_lane_has_its_height_and_its_label(width: int, opened: Any, model: Model) -> None:
    page = opened(width, tab="timeline")
    boxes = page.locator("#timeline .y2tick text").evaluate_all(
        "texts => texts.map(text => text.getBoundingClientRect()).map(box => [box.top, box.bottom, box.left])"
    )
    assert len(boxes) == sum(1 for label in lane_labels(model.scene.lanes) if label)
    boxes.sort()
    assert all(above[1] <= below[0] for above, below in pairwise(boxes))
    assert all(left >= 0 for *_, left in boxes)
    area = page.locator(LANES).bounding_box()
    assert area["height"] >= 16 * model.scene.lanes.height
    assert area["width"] > width / 2
    # An instant lies at the same place in the overview and in the lanes below it.
    above = page.locator("#overview .nsewdrag").bounding_box()
    assert (above["x"], above["width"]) == pytest.approx((area["x"], area["width"]), abs=1)


@pytest.mark.parametrize("tab", TABS)
def test_fits_a_narrow_screen(tab: str, opened: Any) -> None:
    page = opened(400, tab=tab)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 400


# Each text with its colour and what lies behind it. In SVG that is the figure's background, or the bar around it;
# cells of heat maps are pictures, whose inks are chosen in k25trace.figures.
INKS = """() => {
  const hex = c => '#' + c.match(/[\\d.]+/g).slice(0, 3).map(v => Math.round(v).toString(16).padStart(2, '0')).join('');
  const solid = c => !/rgba\\(.*, 0\\)|transparent/.test(c);
  const found = new Map();
  const note = (ink, behind, text) => found.set(`${hex(ink)} ${hex(behind)}`, text);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const at = walk.currentNode.parentElement;
    const box = at.getBoundingClientRect();
    if (!walk.currentNode.textContent.trim() || !box.width || /SCRIPT|STYLE/.test(at.tagName)) continue;
    const style = getComputedStyle(at);
    if (at.closest('svg')) {
      if (at.closest('.heatmaplayer, .scatterlayer')) continue;
      const bar = [...at.closest('svg').querySelectorAll('.bars path')].find(path => {
        const around = path.getBoundingClientRect();
        const across = around.left <= box.left && around.right >= box.right;
        return across && around.top <= box.top + 2 && around.bottom >= box.bottom - 2;
      });
      const paper = getComputedStyle(at.closest('.svg-container').querySelector('.main-svg')).backgroundColor;
      note(style.fill, bar ? getComputedStyle(bar).fill : paper, at.textContent);
    } else {
      let behind = at;
      while (!solid(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
      note(style.color, getComputedStyle(behind).backgroundColor, at.textContent);
    }
  }
  return [...found].map(([colours, text]) => [...colours.split(' '), text]);
}"""


@pytest.mark.parametrize(("scheme", "theme"), [("light", LIGHT), ("dark", DARK)])
def test_texts_stand_out_in_the_colours_of_the_system(scheme: str, theme: Any, opened: Any) -> None:
    page = opened(scheme=scheme)
    for tab in TABS:
        choose(page, tab)
        pairs = page.evaluate(INKS)
        assert len(pairs) > 3
        assert {behind for _, behind, _ in pairs} >= {theme.background}
        for text, behind, said in pairs:
            assert contrast(text, behind) >= 4.5, (tab, text, behind, said)
    if scheme == "light":
        page.emulate_media(color_scheme="dark")  # as when the system changes at dusk
        page.wait_for_function(
            "b => getComputedStyle(document.documentElement).backgroundColor !== b", arg="rgb(255, 255, 255)"
        )
    choose(page, "timeline")
    paper = "() => document.querySelector('#timeline .js-plotly-plot').layout.paper_bgcolor"
    assert page.evaluate(paper) == DARK.background
    page.click("#theme")
    page.wait_for_function(f"light => ({paper})() === light", arg=LIGHT.background)
    assert {behind for _, behind, _ in page.evaluate(INKS)} == {LIGHT.background, LIGHT.panel}
