"""``k25trace report``: one page, or one Markdown text, to send to a colleague."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from k25trace.pages import drawn, parts
from k25trace.pages.chapters import Chapter, chapters, comparison, sentences
from k25trace.pages.shell import page, text
from k25trace.pages.why import NOT_ASKED, Why
from k25trace.report import markdown
from k25trace.report.choices import Request
from k25trace.report.header import facts, warnings
from k25trace.report.json_ import build
from k25trace.report.sections import Section
from k25trace.results import Analysis
from k25trace.units import SCALES


@dataclass(frozen=True)
class Named:
    """A report's file name, its analysis, and what the questions about it say."""

    name: str
    analysis: Analysis
    answers: Why = NOT_ASKED


def html(analyses: Sequence[Named], request: Request) -> str:
    """Return the page of some reports: side by side where there are several."""
    figures: dict[str, dict[str, object]] = {}
    several = len(analyses) > 1
    columns = "".join(
        f"<section>{f'<h2>{text(named.name)}</h2>' if several else ''}{_one(number, named, request, figures)}</section>"
        for number, named in enumerate(analyses)
    )
    names = ", ".join(named.name for named in analyses)
    between = (
        _chapter("all", 0, comparison([(named.name, named.analysis) for named in analyses]), figures) if several else ""
    )
    documents = [build(named.analysis, without=("ranges", "inclusive")) for named in analyses]
    return page(
        f"Report: {names}",
        parts.top(f"Report of {names}", "Where the time of the GPUs goes, and what these figures are worth.")
        + between
        + f'<div class="{"columns" if several else "single"}">{columns}</div>',
        data={"columns": [], "units": SCALES, "figures": figures, "attributions": documents},
        scripts=("report.js",),
    )


def _one(number: int, named: Named, request: Request, figures: dict[str, dict[str, object]]) -> str:
    analysis = named.analysis
    said = "".join(f"<li>{text(sentence)}</li>" for sentence in sentences(analysis, named.answers))
    found = chapters(analysis, named.answers)
    body = "".join(_chapter(str(number), place, chapter, figures) for place, chapter in enumerate(found))
    return f"{parts.warnings(analysis)}<ul class=verdict>{said}</ul>{parts.about(analysis, request)}{body}"


def _chapter(group: str, place: int, chapter: Chapter, figures: dict[str, dict[str, object]]) -> str:
    found = [f"<h2>{text(chapter.title)}</h2>"]
    if chapter.missing:
        found.append(f"<p class=muted>This report does not tell: {text(chapter.missing)}.</p>")
    seen = drawn.drawn(chapter)
    if seen.figure is not None:
        key = f"figure-{group}-{place}"
        figures[key] = seen.figure
        label = text(f"{chapter.title}; the figures are in the table below")
        found.append(f'<div class=figure id={key} role=img aria-label="{label}"></div>{drawn.key(seen.key)}')
    if chapter.note:
        found.append(f"<p class=muted>{text(chapter.note)}</p>")
    if seen.tables:
        shown = "".join(map(parts.section_table, seen.tables))
        label = "Tables" if len(seen.tables) > 1 else "Table"
        folded = f"<details><summary>{label}</summary>{shown}</details>"
        found.append(shown if chapter.figure is None else folded)
    return "".join(found)


def write_markdown(analyses: Sequence[Named], request: Request, out: TextIO) -> None:
    """Write the same as Markdown, for pull requests and tickets: the words and the tables."""
    if len(analyses) > 1:
        markdown.render([], [], [_titled(comparison([(named.name, named.analysis) for named in analyses]))], out)
    for number, named in enumerate(analyses):
        out.write(f"{chr(10) if number or len(analyses) > 1 else ''}## {markdown.plain(named.name)}\n\n")
        out.writelines(f"- {markdown.plain(sentence)}\n" for sentence in sentences(named.analysis, named.answers))
        every = chapters(named.analysis, named.answers)
        found = [section for chapter in every for section in (_titled(chapter), *chapter.more)]
        head = facts(named.analysis, request)
        markdown.render(head, warnings(named.analysis), [s for s in found if s.columns], out)
        out.writelines(f"\n{markdown.plain(f'{c.title}: {c.missing}')}\n" for c in every if c.missing)


def _titled(chapter: Chapter) -> Section:
    table = chapter.table or Section("", [], [])
    return Section(chapter.title, table.columns, table.rows, chapter.note)
