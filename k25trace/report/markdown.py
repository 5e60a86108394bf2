"""Markdown tables for pull requests and tickets."""

import re
from typing import TextIO

from k25trace.report.layout import Section

_MEANING = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render(header: list[tuple[str, str]], warnings: list[tuple[str, str]], found: list[Section], out: TextIO) -> None:
    """Write the header and warnings as a list, then a table a section."""
    errors = [w for w in warnings if w[0].startswith("error")]
    for what, text in [*errors, *header, *(w for w in warnings if w not in errors)]:
        out.write(f"- **{plain(what)}**: {plain(text)}\n")
    for section in found:
        if section.title:
            out.write(f"\n### {plain(section.title)}\n\n")
        out.write("| " + " | ".join(plain(column.heading) for column in section.columns) + " |\n")
        out.write("| " + " | ".join("---:" if column.right else ":---" for column in section.columns) + " |\n")
        out.writelines("| " + " | ".join(plain(cell) for cell in row) + " |\n" for row in section.rows)
        if section.note:
            out.write(f"\n{plain(section.note)}\n")


def plain(text: str) -> str:
    """Escape what Markdown or HTML would read as markup."""
    return _MEANING.sub(r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;")
