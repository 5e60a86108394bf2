"""The frame of every page: one HTML file that loads nothing and lets no name of a trace act as markup."""

import base64
import gzip
import html
import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import cast

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import polars as pl
from plotly.offline import get_plotlyjs  # pyright: ignore[reportMissingTypeStubs]

from k25trace.palette import DARK, LIGHT, Theme

# Names come from traced programs. In a script element only these can end it or open a comment.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def json_text(value: object) -> str:
    """Return JSON that can stand inside a script element whatever the strings in it are."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    # A lone surrogate is no text that a file can hold.
    return text.encode("utf-8", "replace").decode("utf-8")


def text(value: str) -> str:
    """Return text as HTML."""
    return html.escape(value.encode("utf-8", "replace").decode("utf-8"))


def packed(columns: Mapping[str, pl.Series]) -> tuple[list[list[str | int]], str]:
    """Return columns of numbers as one compressed text, and what it holds: name, type, length of each in order.

    Types are those of JavaScript's typed arrays; nulls become NaN, and Int64 becomes Float64, which holds integers
    up to 2**53: 104 days of nanoseconds.
    """
    index: list[list[str | int]] = []
    parts: list[bytes] = []
    for name, series in columns.items():
        kind, code = _ARRAYS[series.dtype]
        values = series.cast(pl.Float64).fill_null(float("nan")) if kind == "Float64" else series
        numbers = array(code, values.to_list())
        if sys.byteorder == "big":
            numbers.byteswap()
        index.append([name, kind, series.len()])
        parts.append(numbers.tobytes())
    return index, base64.b64encode(gzip.compress(b"".join(parts), 6, mtime=0)).decode("ascii")


_ARRAYS: dict[pl.DataType, tuple[str, str]] = {
    pl.Int64(): ("Float64", "d"),
    pl.Float64(): ("Float64", "d"),
    pl.UInt32(): ("Uint32", "I"),
    pl.Int32(): ("Int32", "i"),
    pl.UInt16(): ("Uint16", "H"),
    pl.UInt8(): ("Uint8", "B"),
}


def as_json(figure: go.Figure) -> dict[str, object]:
    """Return a figure as the JSON that Plotly draws."""
    text = cast("str", figure.to_json())  # pyright: ignore[reportUnknownMemberType]
    return cast("dict[str, object]", json.loads(text))


def asset(name: str) -> str:
    """Return a text file of this package."""
    return files("k25trace.pages").joinpath(name).read_text(encoding="utf-8")


def page(title: str, body: str, *, data: Mapping[str, object], blob: str = "", scripts: Sequence[str] = ()) -> str:
    """Return a page.

    Parameters
    ----------
    title, body
        The title as text; the body as HTML.
    data
        What scripts read, as JSON of the element ``k25-data``.
    blob
        What `packed` gave, as the text of the element ``k25-columns``.
    scripts
        Names of script files of this package, run in that order after Plotly.
    """
    run = "".join(f"<script>{asset(name)}</script>\n" for name in ("shell.js", *scripts))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>{style()}</style>\n</head>\n<body>\n{body}\n"
        f'<script type="application/json" id="k25-data">{json_text(data)}</script>\n'
        f'<script type="text/plain" id="k25-columns">{blob}</script>\n'
        f"<script>{get_plotlyjs()}</script>\n{run}</body>\n</html>\n"
    )


def style() -> str:
    """Return the style sheet of every page, light, and dark where the root element says ``data-theme=dark``."""
    return f":root{{{_variables(LIGHT)}}}:root[data-theme=dark]{{{_variables(DARK)}}}\n{asset('page.css')}"


def _variables(theme: Theme) -> str:
    return "".join(f"--{name}:{value};" for name, value in asdict(theme).items())
