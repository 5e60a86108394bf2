"""A real browser: Chromium, driven by Playwright, that notes what a page asks for and complains of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

READY_MS = 60_000
CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


@dataclass
class Shown:
    """A page in a browser, what its console said, and what it asked the network for."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def chart(self, name: str) -> float:
        """Return a figure that the page states of its chart."""
        return float(self.page.evaluate("n => document.getElementById('chart').dataset[n]", name))

    def after_drawing(self, act: Callable[[], object]) -> None:
        """Do something that redraws the chart, and wait until it has."""
        before = self.chart("draws")
        act()
        self.page.wait_for_function(
            "n => Number(document.getElementById('chart').dataset.draws) > n",
            arg=before,
        )

    def check(self) -> None:
        """Assert that nothing was complained of and nothing asked for."""
        assert self.console == []
        assert self.requests == []


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, one for all tests of a worker."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Any) -> Iterator[Callable[..., Shown]]:
    """Open a file as a page of some size and theme, and wait until it is drawn."""
    contexts: list[Any] = []

    def opened(path: Path | str, width: int = 1440, height: int = 900, scheme: str = "light") -> Shown:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        shown = Shown(context.new_page())
        address = path if isinstance(path, str) else path.as_uri()
        shown.page.on("console", lambda message: shown.console.append(f"{message.type}: {message.text}"))
        shown.page.on("pageerror", lambda error: shown.console.append(str(error)))

        def note(request: Any) -> None:
            if request.url != address and not request.url.startswith(("data:", "blob:")):
                shown.requests.append(request.url)

        shown.page.on("request", note)
        shown.page.goto(address)
        shown.page.wait_for_selector("html[data-ready]", state="attached", timeout=READY_MS)
        return shown

    yield opened
    for context in contexts:
        context.close()
