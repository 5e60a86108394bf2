"""What the viewer shows, in memory, and what a browser may ask of it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard, cast

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import polars as pl

from k25trace.figures.axes import time_ticks
from k25trace.figures.timeline import lane_labels, overview, timeline_spec
from k25trace.levels import Pyramid, levels
from k25trace.pages.legend import short_label
from k25trace.pages.why import NOT_ASKED, Why
from k25trace.palette import DARK, LIGHT, Theme
from k25trace.results import Analysis
from k25trace.scene import Scene
from k25trace.units import format_count, format_instant, format_ns

MOST_MARKS = 1_500
"""Bars of one answer: each comes with its text."""

_COARSEST = 1_000
_SHORTEST_NS = 20
_LAST_NS = 1 << 63
_TOP_PX, _RIGHT_PX, _BOTTOM_PX = 8, 16, 36


@dataclass(frozen=True)
class Look:
    """How a browser shows things: its colours, and whether it is as narrow as a phone."""

    theme: Theme = LIGHT
    narrow: bool = False

    @property
    def font_px(self) -> int:
        """Size of the texts of figures."""
        return 9 if self.narrow else 11


@dataclass(frozen=True)
class Model:
    """What the viewer shows, in memory."""

    analysis: Analysis
    scene: Scene
    answers: Why = NOT_ASKED

    @property
    def whole(self) -> tuple[int, int]:
        """The window of the scene."""
        return self.scene.start_ns, self.scene.end_ns

    @cached_property
    def pyramid(self) -> Pyramid:
        """The bars of the scene at every level of detail."""
        return Pyramid(levels(self.scene.bars, _COARSEST), self.scene.lanes.height)

    @cached_property
    def _overview(self) -> go.Figure:
        return overview(self.scene)

    def overview(self, look: Look = Look()) -> go.Figure:
        """Return the kernels of the whole window over time; a part of it can be selected."""
        line = {"linecolor": look.theme.line, "zerolinecolor": look.theme.line}
        return go.Figure(self._overview).update_layout(  # pyright: ignore[reportUnknownMemberType]
            xaxis=line,
            yaxis=line,
            dragmode="select",
            selectdirection="h",
            paper_bgcolor=look.theme.background,
            plot_bgcolor=look.theme.panel,
            margin={"l": self._labels_px(look), "r": _RIGHT_PX, "t": 0, "b": 0},
        )

    def view(
        self, start_ns: int, end_ns: int, look: Look = Look(), hidden: Collection[int] = ()
    ) -> tuple[dict[str, Any], str]:
        """Return the timeline between two instants without the bars of hidden parts, and what it shows in words."""
        start = max(self.scene.start_ns, min(start_ns, self.scene.end_ns - _SHORTEST_NS))
        end = min(self.scene.end_ns, max(end_ns, start + _SHORTEST_NS))
        _, bars = self.pyramid.view(start, end, MOST_MARKS)
        bars = bars.filter(~pl.col("part").is_in(list(hidden)))
        figure: dict[str, Any] = timeline_spec(self.scene, bars, theme=look.theme, slider=False, view=(start, end))
        self._laid(figure["layout"], (start, end), look)
        merged = int((bars["count"] > 1).sum())
        width = end - start
        began, ended = (format_instant(at, width // 1_000) for at in (start, end))
        said = f"{began} to {ended}, {format_ns(width)}: {format_count(bars.height)} bars"
        return figure, said + (f", {format_count(merged)} of them several merged: zoom in" if merged else "")

    def naming(self, where: tuple[str, str], text: str) -> "Model | None":
        """Return the model with those rows alone of a frame of the analysis whose names hold a text; None: none do."""
        name, column = where
        frame: pl.DataFrame | None = getattr(self.analysis, name)
        if frame is None:
            return None
        # Capital letters or not; the text is no pattern.
        left = frame.filter(pl.col(column).str.to_lowercase().str.contains(text.lower(), literal=True))
        return replace(self, analysis=replace(self.analysis, **{name: left})) if left.height else None

    def _laid(self, layout: dict[str, Any], view: tuple[int, int], look: Look) -> None:
        """Give a layout the room that its lanes and their labels need, the same to the left as the overview has."""
        layout["showlegend"] = False  # the page has its own, which takes no room of the lanes
        layout["margin"] = {"l": self._labels_px(look), "r": _RIGHT_PX, "t": _TOP_PX, "b": _BOTTOM_PX}
        layout["font"] |= {"size": look.font_px}
        ticks, texts = time_ticks(*view, 2 if look.narrow else 6)
        layout["xaxis2"] |= {"automargin": False, "tickvals": ticks, "ticktext": texts, "tickangle": 0}
        layout["yaxis2"] |= {"automargin": False, "ticktext": self._labels(look)}

    def _labels(self, look: Look) -> list[str]:
        labels = [label for label in lane_labels(self.scene.lanes) if label]
        return [short_label(label) for label in labels] if look.narrow else labels

    def _labels_px(self, look: Look) -> int:
        longest = max(map(len, self._labels(look)), default=0)
        return round(0.62 * look.font_px * longest) + 8


def asked_view(value: object) -> tuple[int, int] | None:
    """Return the view that a browser asks for, in whole nanoseconds; None: it is none."""
    view = _named(value)
    start, end = view.get("start"), view.get("end")
    return (int(min(start, end)), int(max(start, end))) if _is_instant(start) and _is_instant(end) else None


def asked_look(value: object) -> Look | None:
    """Return the look that a browser asks for; None: it is none."""
    look = _named(value)
    theme = {"light": LIGHT, "dark": DARK}.get(str(look.get("theme")))
    narrow = look.get("narrow")
    return Look(theme, narrow) if theme is not None and isinstance(narrow, bool) else None


def asked_hidden(value: object, parts: Collection[int]) -> frozenset[int] | None:
    """Return the parts that a browser hides; None: it names others."""
    if not isinstance(value, list):
        return None
    given = cast("list[object]", value)
    found = frozenset(part for part in given if isinstance(part, int))
    return found if found.issubset(parts) and all(isinstance(part, int) for part in given) else None


def _named(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _is_instant(value: object) -> TypeGuard[float]:
    """Whether a value of JSON is a number that can be an instant: not NaN, not beyond what Int64 holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LAST_NS < value < _LAST_NS
