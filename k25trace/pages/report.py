"""``k25trace report``: one page, or one Markdown text, to send to a colleague."""

from collections.abc import Sequence
from typing import TextIO

from k25trace.pages import parts
from k25trace.pages.chapters import Chapter, chapters, comparison
from k25trace.pages.shell import as_json, page, text
from k25trace.report import markdown
from k25trace.report.choices import Request
from k25trace.report.header import facts, warnings
from k25trace.report.json_ import build
from k25trace.report.sections import Section
from k25trace.results import Analysis
from k25trace.units import SCALES
from k25trace.verdict import verdict

Named = tuple[str, Analysis]
"""A report's file name and its analysis."""


def html(analyses: Sequence[Named], request: Request) -> str:
    """Return the page of some reports: side by side where there are several."""
    figures: dict[str, dict[str, object]] = {}
    several = len(analyses) > 1
    columns = "".join(
        f"<section>{f'<h2>{text(name)}</h2>' if several else ''}{_one(number, analysis, request, figures)}</section>"
        for number, (name, analysis) in enumerate(analyses)
    )
    names = ", ".join(name for name, _ in analyses)
    between = _chapter("all", 0, comparison(analyses), figures) if several else ""
    documents = [
        {k: v for k, v in build(analysis).items() if k not in {"ranges", "inclusive"}} for _, analysis in analyses
    ]
    return page(
        f"Report: {names}",
        parts.top(f"Report of {names}", "Where the time of the GPUs goes, and what these figures are worth.")
        + between
        + f'<div class="{"columns" if several else "single"}">{columns}</div>',
        data={"columns": [], "units": SCALES, "figures": figures, "attributions": documents},
        scripts=("report.js",),
    )


def _one(number: int, analysis: Analysis, request: Request, figures: dict[str, dict[str, object]]) -> str:
    sentences = "".join(f"<li>{text(sentence)}</li>" for sentence in verdict(analysis))
    body = "".join(_chapter(str(number), place, chapter, figures) for place, chapter in enumerate(chapters(analysis)))
    return f"{parts.warnings(analysis)}<ul class=verdict>{sentences}</ul>{parts.about(analysis, request)}{body}"


def _chapter(group: str, place: int, chapter: Chapter, figures: dict[str, dict[str, object]]) -> str:
    found = [f"<h2>{text(chapter.title)}</h2>"]
    if chapter.missing:
        found.append(f"<p class=muted>This report does not tell: {text(chapter.missing)}.</p>")
    if chapter.figure is not None:
        key = f"figure-{group}-{place}"
        figures[key] = as_json(chapter.figure())
        label = text(f"{chapter.title}; the figures are in the table below")
        found.append(f'<div class=figure id={key} role=img aria-label="{label}"></div>')
    if chapter.note:
        found.append(f"<p class=muted>{text(chapter.note)}</p>")
    if chapter.table is not None:
        shown = parts.section_table(chapter.table)
        found.append(shown if chapter.figure is None else f"<details><summary>Table</summary>{shown}</details>")
    return "".join(found)


def write_markdown(analyses: Sequence[Named], request: Request, out: TextIO) -> None:
    """Write the same as Markdown, for pull requests and tickets: the words and the tables."""
    if len(analyses) > 1:
        markdown.render([], [], [_titled(comparison(analyses))], out)
    for number, (name, analysis) in enumerate(analyses):
        out.write(f"{chr(10) if number or len(analyses) > 1 else ''}## {markdown.plain(name)}\n\n")
        out.writelines(f"- {markdown.plain(sentence)}\n" for sentence in verdict(analysis))
        found = [_titled(chapter) for chapter in chapters(analysis)]
        markdown.render(facts(analysis, request), warnings(analysis), [s for s in found if s.columns], out)
        missing = [f"{c.title}: {c.missing}" for c in chapters(analysis) if c.missing]
        out.writelines(f"\n{markdown.plain(said)}\n" for said in missing)


def _titled(chapter: Chapter) -> Section:
    table = chapter.table or Section("", [], [])
    return Section(chapter.title, table.columns, table.rows, chapter.note)
