"""The page of ``k25trace timeline`` in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tracekit import ALL_REDUCE, CAST, MARLIN, TraceBuilder, unknown

from k25trace.pages.make import make_timeline

pytestmark = pytest.mark.browser
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
HOSTILE = '</script><img src=x onerror="document.title=1"><!-- <b>bold</b> &amp;'


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make the page of a trace, once."""
    made: dict[Any, Path] = {}

    def page(name: str, *build: TraceBuilder, **options: Any) -> Path:
        key = (name, str(options))
        if key not in made:
            folder = tmp_path_factory.mktemp("pages")
            source = GOLDEN / name
            if build:
                source = folder / name
                build[0].write(source)
            made[key] = folder / "page.html"
            made[key].write_text(make_timeline([source], **options), encoding="utf-8")
        return made[key]

    return page


def small() -> TraceBuilder:
    """Two kernels with a path, a wait, a copy, and a name that would like to be markup."""
    trace = TraceBuilder()
    trace.push_pop("step rank=3", 0, 4_000)
    trace.push_pop("layer0", 100, 900)
    trace.kernel(MARLIN, 1_000, 2_000, launch=200, gridX=132)
    trace.kernel(CAST, 3_000, 500, launch=300)
    trace.kernel(unknown(HOSTILE), 4_000, 1_000, launch=2_000)
    trace.kernel(ALL_REDUCE, 6_000, 4_000, launch=2_100, stream=9)
    trace.memcpy(5_500, 300, launch=2_200)
    return trace


def pixel(shown: Any, lane: str, at_ns: int) -> tuple[float, float]:
    """Return where an instant of a lane, in the report's clock, is on the screen."""
    return tuple(
        shown.page.evaluate(
            """([what, at]) => {
          const chart = document.getElementById('chart');
          const area = chart.querySelector('.nsewdrag[data-subplot=x2y2]').getBoundingClientRect();
          const lane = K25.data.lanes.find(l => l.what === what);
          const [x, y] = [chart.layout.xaxis2.range, chart.layout.yaxis2.range];
          const since = Number(BigInt(at) - BigInt(K25.data.origin));
          return [area.left + (since - x[0]) / (x[1] - x[0]) * area.width,
                  area.top + (lane.y - y[1]) / (y[0] - y[1]) * area.height];
        }""",
            [lane, str(at_ns)],
        )
    )


@pytest.mark.parametrize("name", ["h200x2_vllm_graph.sqlite", "h200x2_decode_graph.sqlite", "h200x2_vllm_lossy.sqlite"])
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (400, "dark")])
def test_says_nothing_asks_for_nothing_and_fits_the_screen(
    pages: Any, show: Any, name: str, width: int, scheme: str
) -> None:
    shown = show(pages(name), width=width, scheme=scheme)
    shown.check()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    lanes = shown.page.evaluate("K25.data.lanes.length")
    assert 0 < shown.chart("marks") <= min(4000, lanes * width / 2)


def test_marks_are_the_bars_in_view_at_every_zoom(pages: Any, show: Any) -> None:
    shown = show(pages("h200x2_vllm_graph.sqlite"))
    counted = """() => {
      const traces = document.getElementById('chart').data.filter(t => t.fill === 'toself' && t.name !== 'found');
      return traces.reduce((n, t) => n + t.x.filter(x => x !== null).length / 4, 0);
    }"""
    levels = []
    shown.page.focus("#chart")
    for _ in range(8):
        assert shown.page.evaluate(counted) == shown.chart("marks")
        levels.append(shown.chart("level"))
        shown.after_drawing(lambda: shown.page.keyboard.press("ArrowUp"))
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > levels[-1] == 0
    assert shown.chart("merged") == 0
    shown.check()


def test_every_level_adds_up_to_the_figures_of_attribute(pages: Any, show: Any) -> None:
    shown = show(pages("h200x2_decode_graph.sqlite"))
    sums = shown.page.evaluate(
        """async () => {
      const { data } = K25;
      const totals = [];
      for (let n = 0; n < data.level_count; n++) {
        const of = name => window.k25columns[`level${n}.${name}`];
        const found = {};
        data.lanes.forEach((lane, l) => {
          if (!lane.stream) return;
          for (let i = of('first')[l]; i < of('first')[l + 1]; i++) {
            const key = `${lane.gpu} ${data.parts[of('part')[i]]}`;
            found[key] = found[key] || [0, 0];
            found[key][0] += of('ns')[i];
            found[key][1] += of('count')[i];
          }
        });
        totals.push(found);
      }
      return [totals, data.attribution];
    }"""
    )
    totals, document = sums
    wanted = {
        f"{row['gpu']} {row['category']}": [row["kernel_ns"], row["kernel_count"]]
        for row in document["categories"]
        if row["gpu"] != "all"
    }
    assert len(totals) > 2
    assert all(found == wanted for found in totals)


def test_figures_of_the_page_are_those_of_attribute(pages: Any, show: Any, run_in_process: Any) -> None:
    import json

    shown = show(pages("h200x2_vllm_graph.sqlite"))
    said = run_in_process("attribute", GOLDEN / "h200x2_vllm_graph.sqlite", "--format", "json")
    wanted = json.loads(said.stdout)
    document = shown.page.evaluate("K25.data.attribution")
    for key in ("windows", "gpus", "categories", "families", "wall", "warnings"):
        assert document[key] == wanted[key]
    shares = {row["category"]: row["kernel_share"] for row in wanted["categories"] if row["gpu"] == "all"}
    for category, share in shares.items():
        part = shown.page.evaluate("c => K25.data.parts.indexOf(c)", category)
        legend = shown.page.inner_text(f"#legend button[data-part='{part}']")
        assert legend.split() == [category, *(f"{share * 100:.1f} %" if share >= 0.0005 else "<0.1 %").split()]


def test_hover_tells_what_a_kernel_is(pages: Any, show: Any) -> None:
    shown = show(pages("small.sqlite", small()))
    shown.page.mouse.move(*pixel(shown, "stream 7", 2_000))
    shown.page.wait_for_selector("#tip:not([hidden])")
    assert shown.page.inner_text("#tip").splitlines() == [
        MARLIN.demangled,
        "gemm.marlin",
        "duration 2.00 µs (2,000 ns), from 1.000 µs",
        "launch latency 800 ns",
        "path step rank=3 / layer0",
        "grid 132x1x1, block 128x1x1".replace("x", "\N{MULTIPLICATION SIGN}"),
        "GPU 0:0, rank 3, stream 7",
    ]
    shown.page.mouse.move(*pixel(shown, "ranges on GPU", 2_000))
    shown.page.wait_for_function("() => document.getElementById('tip').textContent.startsWith('step')")
    assert "4 kernels inside, kernel time 7.50 µs" in shown.page.inner_text("#tip")
    shown.page.mouse.move(*pixel(shown, "copies", 5_600))
    shown.page.wait_for_function("() => document.getElementById('tip').textContent.startsWith('memcpy')")
    assert shown.page.inner_text("#tip").splitlines()[:2] == ["memcpy host to device", "memcpy"]
    shown.check()


def test_a_name_that_would_like_to_be_markup_is_text(pages: Any, show: Any) -> None:
    shown = show(pages("small.sqlite", small()))
    x, y = pixel(shown, "stream 7", 4_500)
    shown.page.mouse.click(x, y)
    assert shown.page.inner_text("#pinned").splitlines()[0] == HOSTILE
    shown.page.fill("#search", "onerror")
    shown.page.wait_for_function("() => document.getElementById('hits').textContent.startsWith('1 name, 1 time')")
    assert HOSTILE in shown.page.inner_text("#found")
    assert shown.page.evaluate("document.querySelectorAll('img').length") == 0
    assert shown.page.title() == "Timeline"
    assert "<img" not in pages("small.sqlite", small()).read_text(encoding="utf-8").partition("plotly.js v")[0]
    shown.check()


LABELS_AND_NAMES = """() => {
  const chart = document.getElementById('chart');
  const area = chart.querySelector('.nsewdrag[data-subplot=x2y2]').getBoundingClientRect();
  const [x, y] = [chart.layout.xaxis2.range, chart.layout.yaxis2.range];
  const placed = element => {
    const box = element.getBoundingClientRect();
    const middle = box.top + box.height / 2;
    const lane = K25.data.lanes.findIndex(
      l => Math.abs(area.top + (l.y - y[1]) / (y[0] - y[1]) * area.height - middle) < 2);
    return [box, lane];
  };
  const labels = [...document.querySelectorAll('#lanes span')].map(e => {
    const [box, lane] = placed(e);
    const { gpu, what } = K25.data.lanes[lane];
    return [e.textContent, `${gpu} ${what}`, box.left >= 0 && box.right <= area.left];
  });
  const of = name => window.k25columns[`level${chart.dataset.level}.${name}`];
  const names = [...document.querySelectorAll('#names text')].map(e => {
    const [box, lane] = placed(e);
    const at = x[0] + (box.left + box.width / 2 - area.left) / area.width * (x[1] - x[0]);
    const bars = [];
    for (let i = of('first')[lane]; i < of('first')[lane + 1]; i++)
      if (of('start')[i] <= at && at <= of('end')[i] && of('item')[i] >= 0)
        bars.push([K25.data.texts[window.k25columns['item.text'][of('item')[i]]], K25.data.inks[of('part')[i]]]);
    return [e.textContent, e.getAttribute('fill'), bars];
  });
  return [labels, names, K25.data.labels];
}"""


def test_labels_stand_beside_their_lanes_and_names_upon_their_bars(pages: Any, show: Any) -> None:
    shown = show(pages("h200x2_vllm_graph.sqlite"))

    def resize(width: int) -> None:
        shown.page.set_viewport_size({"width": width, "height": 900})

    for width, form in ((1440, "long"), (400, "short"), (1000, "long")):
        if width != 1440:
            shown.after_drawing(lambda to=width: resize(to))
        labels, names, wanted = shown.page.evaluate(LABELS_AND_NAMES)
        assert [text for text, _, _ in labels] == [label[form] for label in wanted]
        assert [lane for _, lane, _ in labels] == [label["long"] for label in wanted]
        assert all(beside for _, _, beside in labels)
        assert names
        for name, ink, bars in names:
            assert any(name.removesuffix("…") in text and ink == of for text, of in bars), name
    shown.check()


def test_legend_hides_and_shows_a_category(pages: Any, show: Any) -> None:
    shown = show(pages("small.sqlite", small()))
    whole = shown.chart("marks")
    button = shown.page.locator("#legend button", has_text="comm.allreduce")
    shown.after_drawing(button.click)
    assert button.get_attribute("aria-pressed") == "false"
    assert shown.chart("marks") == whole - 2  # on its stream, and on the communication lane
    shown.after_drawing(button.click)
    assert shown.chart("marks") == whole
    shown.check()


def test_search_finds_a_range_and_goes_there(pages: Any, show: Any) -> None:
    shown = show(pages("h200x2_decode_graph.sqlite"))
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("GEMM.experts")
    shown.page.wait_for_function("() => document.getElementById('hits').textContent !== ''")
    assert shown.page.inner_text("#hits").startswith("1 name, ")
    shown.after_drawing(lambda: shown.page.keyboard.press("Enter"))
    first = shown.chart("start")
    assert shown.chart("end") - first < 10_000_000
    shown.after_drawing(lambda: shown.page.keyboard.press("Enter"))
    assert shown.chart("start") > first
    shown.page.fill("#search", "no such kernel")
    shown.page.wait_for_function(
        "() => document.getElementById('hits').textContent === 'nothing found among what is drawn'"
    )
    shown.check()


def test_keys_zoom_pan_pin_and_go_back(pages: Any, show: Any) -> None:
    shown = show(pages("h200x2_decode_graph.sqlite"))
    start, end = shown.chart("start"), shown.chart("end")
    shown.page.focus("#chart")
    shown.after_drawing(lambda: shown.page.keyboard.press("ArrowUp"))
    assert shown.chart("end") - shown.chart("start") == pytest.approx((end - start) / 2)
    middle = shown.chart("start")
    shown.after_drawing(lambda: shown.page.keyboard.press("ArrowRight"))
    assert shown.chart("start") - middle == pytest.approx((end - start) / 8)
    shown.after_drawing(lambda: shown.page.keyboard.press("d"))
    shown.page.keyboard.press("n")
    first = shown.page.inner_text("#pinned")
    shown.page.keyboard.press("n")
    assert shown.page.inner_text("#pinned") != first
    shown.page.keyboard.press("Escape")
    assert shown.page.locator("#pin").is_hidden()
    shown.after_drawing(lambda: shown.page.keyboard.press("0"))
    assert (shown.chart("start"), shown.chart("end")) == (start, end)
    shown.check()


def test_dragging_zooms_and_the_brush_moves(pages: Any, show: Any) -> None:
    shown = show(pages("h200x2_vllm_graph.sqlite"))
    start, end = shown.chart("start"), shown.chart("end")
    origin = int(shown.page.evaluate("K25.data.origin"))
    y = pixel(shown, "communication", origin)[1]

    def drag(x0: float, x1: float, at: float) -> None:
        shown.page.mouse.move(x0, at)
        shown.page.mouse.down()
        shown.page.mouse.move((x0 + x1) / 2, at, steps=3)
        shown.page.mouse.move(x1, at)
        shown.page.mouse.up()

    quarter = (end - start) / 4
    x = [pixel(shown, "communication", origin + int(i * quarter))[0] for i in range(5)]
    shown.after_drawing(lambda: drag(x[1], x[2], y))
    assert shown.chart("start") == pytest.approx(start + quarter, abs=quarter / 50)
    assert shown.chart("end") == pytest.approx(start + 2 * quarter, abs=quarter / 50)
    box = shown.page.locator("#middle").bounding_box()
    shown.after_drawing(lambda: drag(box["x"] + 20, box["x"] + 20 + (x[3] - x[2]), box["y"] + 20))
    shown.page.wait_for_timeout(100)
    assert shown.chart("start") == pytest.approx(start + 2 * quarter, abs=quarter / 50)
    shown.check()


def test_contrast_of_every_text_is_enough(pages: Any, show: Any) -> None:
    from k25trace.palette import COLOURS, PARTS, contrast

    def hexed(rgb: str) -> str:
        numbers = [float(n) for n in rgb[rgb.index("(") + 1 : -1].split(",")]
        return "#" + "".join(f"{round(n):02x}" for n in numbers[:3])

    for scheme in ("light", "dark"):
        shown = show(pages("h200x2_vllm_graph.sqlite"), scheme=scheme)
        shown.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        pairs = shown.page.evaluate(
            """() => [...document.querySelectorAll('body *:not(script):not(svg *)')].filter(e =>
          [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.getClientRects().length
        ).map(e => {
          let b = e;
          while (b && /rgba\\(0, 0, 0, 0\\)/.test(getComputedStyle(b).backgroundColor)) b = b.parentElement;
          const behind = getComputedStyle(b || document.documentElement).backgroundColor;
          return [getComputedStyle(e).color, behind, e.textContent.slice(0, 40)];
        })"""
        )
        assert len(pairs) > 50
        assert [p for p in pairs if contrast(hexed(p[0]), hexed(p[1])) < 4.5] == []
        inks = shown.page.evaluate("K25.data.inks")
        assert [n for ink, n in zip(inks, PARTS, strict=True) if contrast(ink, COLOURS[n]) < 4.5] == []


def test_a_large_trace_is_told_apart_from_a_whole_one(
    tmp_path: Path, show: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k25trace.pages.timeline.MOST_BARS", 3_000)
    page = tmp_path / "page.html"
    page.write_text(make_timeline([GOLDEN / "h200x2_vllm_graph.sqlite"]), encoding="utf-8")
    shown = show(page)
    assert "Too many for one page" in shown.page.inner_text("header")
    shown.page.focus("#chart")
    for _ in range(5):
        shown.after_drawing(lambda: shown.page.keyboard.press("ArrowUp"))
    assert "--window" in shown.page.inner_text("#detail")
    # What it names makes a page that has the bars one by one.
    window = shown.page.inner_text("#detail").rsplit(" ", 1)[1]
    monkeypatch.undo()
    again = tmp_path / "again.html"
    again.write_text(make_timeline([GOLDEN / "h200x2_vllm_graph.sqlite"], window=window), encoding="utf-8")
    closer = show(again)
    assert closer.chart("merged") < shown.chart("marks")
    closer.check()
