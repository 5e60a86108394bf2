"""The viewer's page: tabs made from the chapters of the report, and a timeline that fetches detail as one zooms.

What is shown is in four stores of the page, which view.js fills and the callbacks here read: the tab, the look (theme
and width), the view of the timeline, and what the legend hides. Whatever arrives is checked before it is used.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NoReturn

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from werkzeug.exceptions import BadRequest

from k25trace.pages.shell import style, text
from k25trace.report.header import warnings
from k25trace.view.components import NAMED, TABS, chapters_tab, found_names, named, tab_list, timeline_tab
from k25trace.view.model import Model, asked_hidden, asked_look, asked_view

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<title>{%title%}</title>
{%favicon%}
{%css%}
<style>%STYLE%</style>
</head>
<body>
{%app_entry%}
<footer>
{%config%}
{%scripts%}
<script>%SCRIPT%</script>
{%renderer%}
</footer>
</body>
</html>
"""


def make_app(model: Model, secret: str, names: Sequence[str]) -> Dash:
    """Return the application; all of its addresses begin with ``/SECRET/``."""
    app = Dash(
        "k25trace",
        url_base_pathname=f"/{secret}/",
        title=text(f"k25trace: {', '.join(names)}"),
        update_title="",
        serve_locally=True,
        include_assets_files=False,
        suppress_callback_exceptions=True,
        index_string=_PAGE.replace("%STYLE%", style() + _asset("view.css")).replace("%SCRIPT%", _asset("view.js")),
    )
    app.layout = _layout(model, names)

    # Dash's decorators have no types of their own.
    app.clientside_callback(  # pyright: ignore[reportUnknownMemberType]
        ClientsideFunction("k25trace", "look"), Output("look", "data"), Input("theme", "n_clicks")
    )
    app.clientside_callback(  # pyright: ignore[reportUnknownMemberType]
        ClientsideFunction("k25trace", "moved"), Input("timeline", "relayoutData"), prevent_initial_call=True
    )
    app.clientside_callback(  # pyright: ignore[reportUnknownMemberType]
        ClientsideFunction("k25trace", "picked"), Input("overview", "selectedData"), prevent_initial_call=True
    )

    @app.callback(  # pyright: ignore[reportUnknownMemberType]
        Output("content", "children"),
        Input("tab", "data"),
        Input("look", "data"),
        State("view", "data"),
        State("hidden", "data"),
    )
    def _content(tab: object, look: object, view: object, hidden: object) -> Any:  # noqa: ANN401 - components of Dash
        shown = asked_look(look) or _refused()
        if tab == "timeline":
            return timeline_tab(model, asked_view(view) or _refused(), shown, _hidden(model, hidden))
        return chapters_tab(model, tab, shown) if isinstance(tab, str) and tab in TABS else _refused()

    @app.callback(  # pyright: ignore[reportUnknownMemberType]
        Output("named", "children"),
        Input("find", "value"),
        State("tab", "data"),
        State("look", "data"),
        prevent_initial_call=True,
    )
    def _found(sought: object, tab: object, look: object) -> Any:  # noqa: ANN401 - components of Dash
        if not isinstance(tab, str) or tab not in NAMED or not isinstance(sought, str | None):
            _refused()
        return found_names(model, tab, asked_look(look) or _refused(), sought or "")

    @app.callback(  # pyright: ignore[reportUnknownMemberType]
        Output("timeline", "figure"),
        Output("said", "children"),
        Input("view", "data"),
        Input("hidden", "data"),
        State("look", "data"),
        prevent_initial_call=True,
    )
    def _drawn(view: object, hidden: object, look: object) -> Any:  # noqa: ANN401 - JSON of Plotly
        return model.view(*(asked_view(view) or _refused()), asked_look(look) or _refused(), _hidden(model, hidden))

    return app


def _asset(name: str) -> str:
    return files("k25trace.view").joinpath(name).read_text(encoding="utf-8")


def _layout(model: Model, names: Sequence[str]) -> Any:  # noqa: ANN401 - components of Dash
    start, end = model.whole
    return html.Main(
        [
            html.Header(
                [
                    html.H1(", ".join(names)),
                    html.Button("Theme", id="theme", type="button", title="Dark or light"),
                ]
            ),
            *(
                html.P([html.Strong(what), f" {said}"], className=f"warning {what.split(':')[0]}")
                for what, said in warnings(model.analysis)
            ),
            dcc.Store(id="tab", data=TABS[0]),
            dcc.Store(id="look"),
            dcc.Store(id="view", data={"start": start, "end": end}),
            dcc.Store(id="hidden", data=[]),
            tab_list(TABS[0]),
            html.Div(id="content", role="tabpanel", tabIndex=0, **named(aria_labelledby=f"tab-{TABS[0]}")),
        ],
        id="viewer",
        **named(data_start=str(start), data_end=str(end)),
    )


def _hidden(model: Model, value: object) -> frozenset[int]:
    found = asked_hidden(value, model.scene.parts)
    return _refused() if found is None else found


def _refused() -> NoReturn:
    """Refuse what no page of ours sends."""
    raise BadRequest
