"""Pieces of HTML that several pages have: head lines, warnings, tables."""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, its class (empty: a number), and the colour of what it names, if that has one."""

    text: str
    kind: str = ""
    colour: str | None = None


def cells_of(section: Section) -> tuple[list[Cell], list[list[Cell]]]:
    """Return the headings and rows of a section as every table of the product has them."""
    heads = [Cell(c.heading, "" if c.right else "left") for c in section.columns]
    kinds = ["" if c.right else "name" if c.heading == "Name" else "left" for c in section.columns]
    named = [c.heading in {"Category", "Wall row"} for c in section.columns]
    rows = [
        [Cell(t, kind, _colour(t) if is_named else None) for t, kind, is_named in zip(row, kinds, named, strict=True)]
        for row in section.rows
    ]
    return heads, rows


def section_table(section: Section) -> str:
    """Return a section as a table."""
    heads, rows = cells_of(section)
    head = "".join(f"<th scope=col{_class(cell)}>{text(cell.text)}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    titled = f"<caption>{text(section.title)}</caption>" if section.title else ""
    return f"<div class=scroll><table>{titled}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(cell: Cell) -> str:
    spot = f'<span class=swatch style="background:{cell.colour}"></span> ' if cell.colour else ""
    return f"<td{_class(cell)}>{spot}{text(cell.text)}</td>"


def _class(cell: Cell) -> str:
    return f" class={cell.kind}" if cell.kind else ""


def _colour(name: str) -> str | None:
    """Return the colour of a category or wall row; None for other names."""
    try:
        return colour(name)
    except KeyError:
        return None


def listed(items: Sequence[str]) -> str:
    """Return a list."""
    return "<ul class=muted>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>" if items else ""
