"""``k25trace view``: who may ask, what is answered, and the page in a real browser."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest

from k25trace.errors import K25TraceError
from k25trace.pages.make import shown as read
from k25trace.view.app import MOST_MARKS, Model, asked
from k25trace.view.start import start

pytestmark = pytest.mark.browser
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DECODE = GOLDEN / "h200x2_decode_graph.sqlite"


def _parts() -> Any:
    found = read([DECODE])
    return found.analysis, found.scene, found.answers


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(*_parts())


@pytest.fixture(scope="module")
def address(model: Model) -> Iterator[str]:
    served = start(model.scene, model.analysis, ["decode"], answers=model.answers)
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    yield served.address
    served.stop()
    thread.join()


def status(address: str, path: str | None = None, **headers: str) -> int:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.request("GET", parts.path if path is None else path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


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


def test_what_a_browser_asks_for(model: Model) -> None:
    scene = model.scene
    whole = (scene.start_ns, scene.end_ns)
    assert asked(scene, "whole", None, None) == whole
    assert asked(scene, "timeline", {"xaxis2.autorange": True}, None) == whole
    assert asked(scene, "timeline", {"xaxis2.range[0]": 5.4, "xaxis2.range[1]": 9.9}, None) == (5, 9)
    assert asked(scene, "timeline", {"xaxis2.range": [5, 9]}, None) == (5, 9)
    assert asked(scene, "overview", {"xaxis2.range": [1, 2]}, {"range": {"x": [5.0, 9.0]}}) == (5, 9)
    assert asked(scene, "timeline", {"autosize": True}, None) is None
    assert asked(scene, "overview", None, None) is None


def test_tabs_and_zoom_in_a_browser(address: str, chromium: Any, model: Model) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    console: list[str] = []
    elsewhere: list[str] = []
    page.on("console", lambda message: console.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: console.append(str(error)))
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
        page.get_by_text(tab, exact=True).click()
        page.wait_for_selector(f"#content >> text={says}")
    page.get_by_text("timeline", exact=True).click()
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
    import signal

    command = [sys.executable, "-m", "k25trace", "view", str(DECODE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.readline().strip()
        assert printed.startswith("http://127.0.0.1:")
        assert status(printed) == 200
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in said
    assert "Only this machine" in said
