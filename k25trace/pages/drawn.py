"""What stands beside a figure on a page: the table of the very numbers drawn, and the key of its colours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from k25trace.figures.axes import AXIS_PX
from k25trace.pages.chapters import Chapter
from k25trace.pages.shell import as_json, text
from k25trace.palette import LIGHT, Theme
from k25trace.report.cells import text_column, time_column
from k25trace.report.sections import Section

Figure = dict[str, object]
"""A figure as Plotly's JSON has it."""

_Trace = dict[str, object]


def table(figure: Figure, title: str, rows: str) -> Section:
    """Return the times that stacked bars or a heat map show.

    Parameters
    ----------
    title
        The title of the table.
    rows
        What a row stands for: a bar, or a column of the heat map.
    """
    traces = _traces(figure)
    if not traces:  # kernels that last no time
        return Section(title, [text_column(rows)], [])
    first = traces[0]
    if first["type"] == "heatmap":
        names, keys = _texts(first["y"]), _texts(first["x"])
        values = cast("Sequence[Sequence[int]]", first["z"])
    else:
        names, keys = [str(trace["name"]) for trace in traces], _texts(first["y"])
        values = [cast("Sequence[int]", trace["x"]) for trace in traces]
    columns = [text_column(rows), *map(time_column, names)]
    cells = [
        [column.text(value) for column, value in zip(columns, (key, *of_key), strict=True)]
        for key, of_key in zip(keys, zip(*values, strict=True), strict=True)
    ]
    return Section(title, columns, cells)


@dataclass(frozen=True)
class Drawn:
    """What a chapter shows: its figure, the key of its colours (name, colour), and its tables, the figure's first."""

    figure: Figure | None
    key: list[tuple[str, str]]
    tables: list[Section]


def drawn(chapter: Chapter, theme: Theme = LIGHT) -> Drawn:
    """Return what a chapter shows in the colours of a page."""
    tables = [] if chapter.table is None else [chapter.table, *chapter.more]
    if chapter.figure is None:
        return Drawn(None, [], tables)
    figure = as_json(chapter.figure(theme=theme))
    own = [table(figure, f"{chapter.title}, as drawn", chapter.drawn)] if chapter.drawn else []
    return Drawn(figure, _taken_key(figure), [*own, *tables])


def _taken_key(figure: Figure) -> list[tuple[str, str]]:
    """Return the key of a figure's colours, which wraps where a legend inside the figure would be cut.

    The legend inside is taken away, and its room with it. A figure that has none has no key.
    """
    layout = cast("Figure", figure["layout"])
    entries = list(_entries(figure)) if "uniformtext" in layout else []
    if not entries:
        return []
    margin = cast("dict[str, int]", layout["margin"])
    layout["height"] = cast("int", layout["height"]) - margin["b"] + AXIS_PX
    layout["margin"] = {**margin, "b": AXIS_PX}
    layout["showlegend"] = False
    return entries


def key(entries: Sequence[tuple[str, str]]) -> str:
    """Return a key of colours as HTML; nothing where it is empty."""
    items = "".join(
        f'<li><span class=swatch style="background:{text(colour)}"></span> {text(name)}</li>'
        for name, colour in entries
    )
    return f"<ul class=key>{items}</ul>" if entries else ""


def _entries(figure: Figure) -> Iterator[tuple[str, str]]:
    for trace in _traces(figure):
        if trace.get("showlegend", True):
            yield str(trace["name"]), str(cast("_Trace", trace["marker"])["color"])


def _traces(figure: Figure) -> list[_Trace]:
    return cast("list[_Trace]", figure["data"])


def _texts(values: object) -> list[str]:
    return [str(value) for value in cast("Sequence[object]", values)]
