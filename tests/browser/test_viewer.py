"""``k25trace view``: who may ask, what is answered, and the page in a real browser."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest
from viewing import GOLDEN, model_of, running, serving, status

from k25trace.errors import K25TraceError
from k25trace.units import format_count
from k25trace.view.model import MOST_MARKS, Model
from k25trace.view.start import start

pytestmark = pytest.mark.browser
DECODE = "h200x2_decode_graph.sqlite"


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of(DECODE)


@pytest.fixture(scope="module")
def address(model: Model) -> Iterator[str]:
    with serving(model) as found:
        yield found


def test_answers_its_own_address_alone(address: str) -> None:
    port = urlsplit(address).port
    assert urlsplit(address).hostname == "127.0.0.1"
    assert len(urlsplit(address).path) > 20
    assert status(address) == 200
    assert status(address, Host=f"localhost:{port}") == 200
    assert status(address, Host="evil.example") == 403
    assert status(address, Host=f"evil.example:{port}") == 403
    assert status(address, Origin="http://evil.example") == 403
    assert status(address, Origin=f"http://127.0.0.1:{port}") == 200
    for path in ("/", "/_dash-layout", "/_dash-dependencies", "/guess/", "/guess/_dash-layout"):
        assert status(address, path) == 404
    assert status(address, urlsplit(address).path + "_dash-layout") == 200


def test_every_view_is_the_finest_that_fits(model: Model) -> None:
    scene, levels = model.scene, model.pyramid.levels
    whole = scene.end_ns - scene.start_ns
    for power in range(0, 16, 3):
        for step in (0, 3, 7):
            begin = scene.start_ns + whole * step // 10
            end = begin + max(20, whole >> power)
            number, bars = model.pyramid.view(begin, end, MOST_MARKS)
            assert bars.height <= MOST_MARKS
            visible = levels[number].filter((pl.col("start_ns") < end) & (pl.col("end_ns") > begin))
            assert set(visible.rows()) <= set(bars.rows())
            figure, said = model.view(begin, end)
            drawn = sum(len([x for x in trace["x"] if x is not None]) // 5 for trace in figure["data"])
            assert f": {drawn:,} bars" in said
    assert levels[0].filter(pl.col("count") > 1).height == 0


def test_what_is_hidden_is_not_drawn_and_not_counted(model: Model) -> None:
    whole = (model.scene.start_ns, model.scene.end_ns)
    _, bars = model.pyramid.view(*whole, MOST_MARKS)
    for part in model.scene.parts:
        figure, said = model.view(*whole, hidden={part})
        left = bars.filter(pl.col("part") != part).height
        assert f": {format_count(left)} bars" in said
        assert sum(len([x for x in trace["x"] if x is not None]) // 5 for trace in figure["data"]) == left
    assert ": 0 bars" in model.view(*whole, hidden=model.scene.parts)[1]


def test_tabs_and_zoom_in_a_browser(address: str, chromium: Any, model: Model) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    console: list[str] = []
    elsewhere: list[str] = []
    page.on("console", lambda message: console.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: console.append(str(error)))
    posted: list[str | None] = []
    page.on("request", lambda r: posted.append(r.post_data))
    page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else elsewhere.append(r.url))
    page.goto(address)
    page.wait_for_selector("#content .verdict")
    for tab, says in (
        ("kernels", "Longest-running kernels"),
        ("ranges", "NVTX ranges"),
        ("gaps", "Causes of gaps"),
        ("collectives", "matched across GPUs"),
        ("steps", "ranges graph_step"),
    ):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_selector(f"#content >> text={says}")
    page.get_by_role("tab", name="timeline").click()
    page.wait_for_selector("#timeline .nsewdrag[data-subplot=x2y2]")
    page.wait_for_selector("#overview .nsewdrag")
    before = page.inner_text("#said")
    place = page.locator("#timeline .nsewdrag[data-subplot=x2y2]")
    area, seen = place.bounding_box(), None
    while area != seen:  # what is above it may still be growing
        page.wait_for_timeout(300)
        area, seen = place.bounding_box(), area
    page.mouse.move(area["x"] + area["width"] * 0.25, area["y"] + 50)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.5, area["y"] + 50, steps=5)
    page.mouse.up()
    page.wait_for_function("said => document.getElementById('said').innerText !== said", arg=before)
    first, last = page.evaluate("() => document.querySelector('#timeline .js-plotly-plot').layout.xaxis2.range")
    whole = model.scene.end_ns - model.scene.start_ns
    assert first == pytest.approx(model.scene.start_ns + whole / 4, abs=whole / 50)
    assert last == pytest.approx(model.scene.start_ns + whole / 2, abs=whole / 50)
    assert all(len(sent or "") < 1_000 for sent in posted)  # what is asked for, not what is shown
    page.click("#whole")
    page.wait_for_function("said => document.getElementById('said').innerText === said", arg=before)
    context.close()
    assert (console, elsewhere) == ([], [])


def test_a_port_that_is_taken_and_a_missing_dash_are_said(
    address: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(K25TraceError, match="cannot be used"):
        start(model.scene, model.analysis, ["x"], port=urlsplit(address).port or 0)
    monkeypatch.delitem(sys.modules, "k25trace.view.app")
    monkeypatch.setattr("k25trace.view.app", None, raising=False)
    monkeypatch.delattr("k25trace.view.app", raising=False)
    monkeypatch.setitem(sys.modules, "dash", None)
    with pytest.raises(K25TraceError, match="needs Dash"):
        start(model.scene, model.analysis, ["x"])


def test_the_command_prints_its_address_and_ends_with_ctrl_c() -> None:
    with running(str(GOLDEN / DECODE)) as viewer:
        assert viewer.address.startswith("http://127.0.0.1:")
        assert status(viewer.address) == 200
        code, said = viewer.ended(signal.SIGINT)
    assert code == 0
    assert "Traceback" not in said
    assert "Only this machine" in said
