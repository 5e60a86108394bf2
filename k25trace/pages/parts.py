"""Pieces of HTML that several pages have: head lines, warnings, tables."""

from collections.abc import Sequence

import polars as pl

from k25trace.pages.shell import text
from k25trace.palette import colour
from k25trace.report.cells import cells
from k25trace.report.choices import Request
from k25trace.report.header import facts
from k25trace.report.sections import Section
from k25trace.report.text import printable
from k25trace.results import Analysis


def top(title: str, lead: str) -> str:
    """Return the heading of a page."""
    return (
        f"<header><div><h1>{text(title)}</h1><p class=muted>{text(lead)}</p></div>"
        "<button id=theme type=button title='Dark or light'>Theme</button></header>"
    )


def warnings(analysis: Analysis) -> str:
    """Return the warnings, the worst first."""
    return "".join(
        f'<p class="warning {w.level}"><strong>{w.level}: {text(w.code)}</strong> {text(printable(w.message))}</p>'
        for w in analysis.warnings
    )


def about(analysis: Analysis, request: Request) -> str:
    """Return what the figures are about: reports, windows, GPUs, denominators."""
    return "".join(
        f"<p class=muted><strong>{text(what)}</strong>: {text(said)}</p>" for what, said in facts(analysis, request)
    )


def table(frame: pl.DataFrame, without: tuple[str, ...] = (), caption: str = "") -> str:
    """Return the columns of a frame that people read as a table; categories and wall rows have their colour."""
    return section_table(Section(caption, *cells(frame, (), without)))


def section_table(section: Section) -> str:
    """Return a section as a table."""
    columns, rows, caption = section.columns, section.rows, section.title
    named = [c.heading in {"Category", "Wall row"} for c in columns]
    head = "".join(f"<th scope=col{'' if c.right else ' class=left'}>{text(c.heading)}</th>" for c in columns)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{'' if c.right else ' class=name' if c.heading == 'Name' else ' class=left'}>"
            f"{swatch(cell) if is_named else ''}{text(cell)}</td>"
            for c, cell, is_named in zip(columns, row, named, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    titled = f"<caption>{text(caption)}</caption>" if caption else ""
    return f"<div class=scroll><table>{titled}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def swatch(name: str) -> str:
    """Return a spot of the colour of a category or wall row; nothing for other names."""
    try:
        return f'<span class=swatch style="background:{colour(name)}"></span> '
    except KeyError:
        return ""


def listed(items: Sequence[str]) -> str:
    """Return a list."""
    return "<ul class=muted>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>" if items else ""
