"""The viewer's page: tabs made from the chapters of the report, and a timeline that fetches detail as one zooms."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from k25trace.figures.timeline import overview, timeline_spec
from k25trace.levels import Pyramid, levels
from k25trace.pages.chapters import Chapter, chapters
from k25trace.pages.shell import asset
from k25trace.pages.why import NOT_ASKED, Why
from k25trace.palette import LIGHT, Theme
from k25trace.report.header import warnings
from k25trace.report.sections import Section
from k25trace.results import Analysis
from k25trace.scene import Scene
from k25trace.units import format_count, format_ns
from k25trace.verdict import verdict

MOST_MARKS = 1_500
"""Bars of one answer: each comes with its text."""

_COARSEST = 1_000
_SHORTEST_NS = 20
_CONFIG: Any = {"displayModeBar": False, "displaylogo": False, "showTips": False}
TABS = ("overview", "timeline", "steps", "collectives", "gaps", "kernels", "ranges")
_TITLES = {
    "steps": ("Steps and categories",),
    "collectives": ("Collectives",),
    "gaps": ("Causes of gaps",),
    "kernels": ("Longest-running kernels, and the rules that classified them",),
    "ranges": ("NVTX ranges",),
}


@dataclass(frozen=True)
class Model:
    """What the viewer shows, in memory."""

    analysis: Analysis
    scene: Scene
    answers: Why = NOT_ASKED

    @cached_property
    def pyramid(self) -> Pyramid:
        """The bars of the scene at every level of detail."""
        return Pyramid(levels(self.scene.bars, _COARSEST), self.scene.lanes.height)

    @cached_property
    def overview(self) -> go.Figure:
        """The kernels of the whole window over time; a part of it can be selected."""
        shown = overview(self.scene)
        return shown.update_layout(dragmode="select", selectdirection="h")  # pyright: ignore[reportUnknownMemberType]

    def view(self, start_ns: int, end_ns: int, theme: Theme = LIGHT) -> tuple[dict[str, Any], str]:
        """Return the timeline between two instants, and what it shows in words."""
        start = max(self.scene.start_ns, min(start_ns, self.scene.end_ns - _SHORTEST_NS))
        end = min(self.scene.end_ns, max(end_ns, start + _SHORTEST_NS))
        _, bars = self.pyramid.view(start, end, MOST_MARKS)
        figure: dict[str, Any] = timeline_spec(self.scene, bars, theme=theme, slider=False, view=(start, end))
        # What the legend hides stays hidden from view to view; the range is always the one asked for.
        figure["layout"]["uirevision"] = "legend"
        figure["layout"]["xaxis2"]["uirevision"] = f"{start}:{end}"
        merged = int((bars["count"] > 1).sum())
        said = f"{format_ns(start)} to {format_ns(end)}, {format_ns(end - start)}: {format_count(bars.height)} bars"
        return figure, said + (f", {format_count(merged)} of them several merged: zoom in" if merged else "")


def make_app(model: Model, secret: str, names: Sequence[str]) -> Dash:
    """Return the application; all of its addresses begin with ``/SECRET/``."""
    app = Dash(
        "k25trace",
        url_base_pathname=f"/{secret}/",
        title=f"k25trace: {', '.join(names)}",
        update_title="",
        serve_locally=True,
        include_assets_files=False,
        suppress_callback_exceptions=True,
    )
    colours = "".join(f"--{name}:{value};" for name, value in vars(LIGHT).items())
    app.index_string = app.index_string.replace(
        "</head>", f"<style>:root{{{colours}}}{asset('page.css')}</style></head>"
    )
    tabs = [dcc.Tab(label=name, value=name) for name in TABS]
    app.layout = html.Main(
        [
            html.H1(", ".join(names)),
            *(
                html.P(f"{what} {said}", className=f"warning {what.split(':')[0]}")
                for what, said in warnings(model.analysis)
            ),
            dcc.Tabs(tabs, value="overview", id="tabs"),
            html.Div(id="content"),
        ]
    )

    # Dash's decorators have no types of their own.
    @app.callback(  # pyright: ignore[reportUnknownMemberType]
        Output("content", "children"), Input("tabs", "value")
    )
    def _content(tab: str) -> Any:  # noqa: ANN401 - components of Dash
        return _timeline_tab(model) if tab == "timeline" else _chapters_tab(model, tab)

    @app.callback(  # pyright: ignore[reportUnknownMemberType]
        Output("timeline", "figure"),
        Output("said", "children"),
        Input("timeline", "relayoutData"),
        Input("overview", "selectedData"),
        Input("whole", "n_clicks"),
        State("timeline", "figure"),
        prevent_initial_call=True,
    )
    def _zoomed(moved: Any, selected: Any, _clicks: Any, _figure: Any) -> Any:  # noqa: ANN401 - JSON of Plotly
        view = asked(model.scene, _trigger(), moved, selected)
        return (no_update, no_update) if view is None else model.view(*view)

    return app


def _trigger() -> object:
    """Return the id of the component that a callback answers."""
    return ctx.triggered_id  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def asked(scene: Scene, by: object, moved: Any, selected: Any) -> tuple[int, int] | None:  # noqa: ANN401 - JSON
    """Return the view that a browser asks for; None: none that differs."""
    if by == "whole":
        return scene.start_ns, scene.end_ns
    change: dict[str, Any] = moved or {}
    if by == "overview":
        picked: dict[str, Any] = selected or {}
        span: dict[str, Any] = picked.get("range") or {}
        chosen: list[float | None] = span.get("x") or []
    elif change.get("xaxis2.autorange"):
        return scene.start_ns, scene.end_ns
    else:
        chosen = change.get("xaxis2.range") or [change.get("xaxis2.range[0]"), change.get("xaxis2.range[1]")]
    ends = [int(end) for end in chosen if end is not None]
    return (ends[0], ends[1]) if len(ends) == 2 else None


def _timeline_tab(model: Model) -> Any:  # noqa: ANN401 - components of Dash
    figure, said = model.view(model.scene.start_ns, model.scene.end_ns)
    return html.Div(
        [
            html.P(
                "Drag to zoom, double click for the whole window; or select a part of the overview.", className="muted"
            ),
            html.Button("Whole window", id="whole"),
            dcc.Graph(id="overview", figure=model.overview, config=_CONFIG),
            dcc.Graph(id="timeline", figure=figure, config=_CONFIG),
            html.P(said, id="said", role="status"),
        ]
    )


def _chapters_tab(model: Model, tab: str) -> Any:  # noqa: ANN401 - components of Dash
    every = chapters(model.analysis, model.answers)
    own = {title for titles in _TITLES.values() for title in titles}
    titles = _TITLES.get(tab)
    chosen = [c for c in every if (c.title in titles if titles else c.title not in own)]
    said = [html.Ul([html.Li(s) for s in verdict(model.analysis)], className="verdict")] if titles is None else []
    return html.Div([*said, *(part for chapter in chosen for part in _shown(chapter))], className="single")


def _shown(chapter: Chapter) -> list[Any]:
    found: list[Any] = [html.H2(chapter.title)]
    if chapter.missing:
        found.append(html.P(f"This report does not tell: {chapter.missing}.", className="muted"))
    if chapter.figure is not None:
        found.append(dcc.Graph(figure=chapter.figure(), config=_CONFIG))
    if chapter.note:
        found.append(html.P(chapter.note, className="muted"))
    if chapter.table is not None:
        found += [_table(table) for table in (chapter.table, *chapter.more)]
    return found


def _table(section: Section) -> Any:  # noqa: ANN401 - components of Dash
    head = html.Thead(html.Tr([html.Th(c.heading, className="" if c.right else "left") for c in section.columns]))
    rows = [
        html.Tr([html.Td(t, className="" if c.right else "left") for c, t in zip(section.columns, row, strict=True)])
        for row in section.rows
    ]
    return html.Div(html.Table([head, html.Tbody(rows)]), className="scroll")
