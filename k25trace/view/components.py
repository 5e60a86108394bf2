"""Chapters, tables and the timeline as components of Dash: the same words and classes as the pages have."""

from dataclasses import replace
from typing import Any, cast

from dash import dcc, html

from k25trace.pages.chapters import Chapter, chapters, sentences
from k25trace.pages.drawn import Figure, drawn
from k25trace.pages.legend import LEGEND_LABEL, Entry, chart_label, legend
from k25trace.pages.parts import Cell, cells_of
from k25trace.report.sections import Section
from k25trace.view.model import Look, Model

_CONFIG: Any = {"displayModeBar": False, "displaylogo": False, "showTips": False, "doubleClick": False}
_FEW = 4
"""Columns of a heat map whose figures a narrow screen has room for."""

TABS = ("overview", "timeline", "steps", "collectives", "gaps", "kernels", "ranges")
_TITLES = {
    "steps": ("Steps and categories",),
    "collectives": ("Collectives",),
    "gaps": ("Causes of gaps",),
    "kernels": ("Longest-running kernels, and the rules that classified them",),
    "ranges": ("NVTX ranges",),
}
NAMED = {"kernels": ("kernels", "name"), "ranges": ("inclusive", "range")}
"""Tabs whose rows have names that can be searched for: the frame of the analysis, and its column."""

_BUTTONS = (
    ("whole", "Whole window", None),
    ("zoom-in", "+", "Zoom in"),
    ("zoom-out", "\N{MINUS SIGN}", "Zoom out"),
    ("left", "\N{LEFTWARDS ARROW}", "Earlier"),
    ("right", "\N{RIGHTWARDS ARROW}", "Later"),
)
_KEYS = (
    "Drag to zoom, double click for the whole window, select a part of the overview to go there. w, s or ↑, ↓ (on the"
    " chart): in, out. a, d or ←, →: earlier, later. 0: whole window."
)


def named(**attributes: str) -> dict[str, Any]:
    """Return attributes whose names have hyphens, written with underscores."""
    return {name.replace("_", "-"): value for name, value in attributes.items()}


def tab_list(chosen: str) -> Any:  # noqa: ANN401 - components of Dash
    """Return the tabs; view.js chooses among them by click and arrow key."""
    return html.Div(
        [
            html.Button(
                tab,
                id=f"tab-{tab}",
                type="button",
                role="tab",
                tabIndex=0 if tab == chosen else -1,
                **named(aria_selected=_said(tab == chosen), aria_controls="content", data_tab=tab),
            )
            for tab in TABS
        ],
        role="tablist",
        className="tabs",
        **named(aria_label="Chapters"),
    )


def timeline_tab(model: Model, view: tuple[int, int], look: Look, hidden: frozenset[int]) -> Any:  # noqa: ANN401
    """Return the timeline with its buttons and its legend."""
    figure, said = model.view(*view, look, hidden)
    buttons = [
        html.Button(text, id=name, type="button", **named(aria_label=label or text)) for name, text, label in _BUTTONS
    ]
    every = html.Button("All or none", id="all", type="button")
    return html.Div(
        [
            html.Div(buttons, className="bar", role="toolbar", **named(aria_label="View")),
            html.Details([html.Summary("Keys and mouse", className="muted"), html.P(_KEYS, className="muted")]),
            html.Ul(
                [*(html.Li(_entry(e, shown=e.part not in hidden)) for e in legend(model.scene, model.analysis)), every],
                className="legend",
                **named(aria_label=LEGEND_LABEL),
            ),
            # What it shows is on the timeline; who cannot see it has buttons and keys there.
            html.Div(
                dcc.Graph(id="overview", figure=model.overview(look), config=_CONFIG), **named(aria_hidden="true")
            ),
            html.Div(
                dcc.Graph(id="timeline", figure=figure, config=_CONFIG),
                id="chart",
                role="application",
                tabIndex=0,
                **named(
                    aria_label=f"{chart_label(model.analysis)} All figures are in the tables of the other tabs.",
                    aria_describedby="said",
                ),
            ),
            html.P(said, id="said", role="status"),
        ]
    )


def _entry(entry: Entry, *, shown: bool) -> Any:  # noqa: ANN401
    share = [" ", html.Span(entry.share, className="muted")] if entry.share else []
    return html.Button(
        [_swatch(entry.colour), entry.name, *share],
        id=f"part-{entry.part}",
        type="button",
        **named(aria_pressed=_said(shown), data_part=str(entry.part)),
    )


def chapters_tab(model: Model, tab: str, look: Look) -> Any:  # noqa: ANN401
    """Return the chapters of the report that belong to a tab; those of no other are the overview."""
    if tab in NAMED:
        find = html.Label([f"Search {tab} ", dcc.Input(id="find", type="search")])
        found = html.Div(_parts(model, tab, look), id="named", role="status")
        return html.Div([html.Div(find, className="bar"), found], className="single")
    said = [html.Li(s) for s in sentences(model.analysis, model.answers)] if tab not in _TITLES else []
    return html.Div(
        [*([html.Ul(said, className="verdict")] if said else []), *_parts(model, tab, look)], className="single"
    )


def found_names(model: Model, tab: str, look: Look, text: str) -> list[Any]:
    """Return the chapter of a tab with those rows alone whose names hold a text, capital letters or not."""
    if not text:
        return _parts(model, tab, look)
    left = model.naming(NAMED[tab], text)
    if left is None:
        return [html.P("No name holds that.", className="muted")]
    return _parts(
        left, tab, look, "Those whose names hold the text, the longest-running first; shares are of all kernels."
    )


def _parts(model: Model, tab: str, look: Look, note: str = "") -> list[Any]:
    every = chapters(model.analysis, model.answers)
    own = {title for titles in _TITLES.values() for title in titles}
    titles = _TITLES.get(tab)
    chosen = [c for c in every if (c.title in titles if titles else c.title not in own)]
    return [part for c in chosen for part in _shown(replace(c, note=note or c.note), look)]


def _shown(chapter: Chapter, look: Look) -> list[Any]:
    found: list[Any] = [html.H2(chapter.title)]
    if chapter.missing:
        found.append(html.P(f"This report does not tell: {chapter.missing}.", className="muted"))
    seen = drawn(chapter, look.theme)
    if seen.figure is not None:
        graph = dcc.Graph(figure=_fitted(seen.figure, look), config=_CONFIG)
        label = f"{chapter.title}; the figures are in the table below"
        found.append(html.Div(graph, className="figure", role="img", **named(aria_label=label)))
    if seen.key:
        found.append(html.Ul([html.Li([_swatch(hue), " ", name]) for name, hue in seen.key], className="key"))
    if chapter.note:
        found.append(html.P(chapter.note, className="muted"))
    return [*found, *map(_table, seen.tables)]


def _fitted(figure: Figure, look: Look) -> Figure:
    """Return a figure with letters that a narrow screen has room for: none in the cells of more than a few columns."""
    if not look.narrow:
        return figure
    layout = cast("Figure", figure["layout"])
    traces = cast("list[Figure]", figure["data"])
    crowded = len(set(cast("list[object]", traces[0]["x"]))) > _FEW if traces else False
    return {
        "data": [{**t, "visible": not (crowded and t.get("mode") == "text")} for t in traces],
        "layout": {**layout, "font": {**cast("Figure", layout["font"]), "size": look.font_px}},
    }


def _table(section: Section) -> Any:  # noqa: ANN401
    heads, rows = cells_of(section)
    titled = [html.Caption(section.title)] if section.title else []
    head = html.Thead(html.Tr([html.Th(cell.text, scope="col", className=cell.kind) for cell in heads]))
    body = html.Tbody([html.Tr([html.Td(_cell(cell), className=cell.kind) for cell in row]) for row in rows])
    return html.Div(html.Table([*titled, head, body]), className="scroll")


def _cell(cell: Cell) -> Any:  # noqa: ANN401
    return [_swatch(cell.colour), " ", cell.text] if cell.colour else cell.text


def _swatch(colour: str) -> Any:  # noqa: ANN401
    return html.Span(className="swatch", style={"background": colour})


def _said(state: bool) -> str:
    return "true" if state else "false"
