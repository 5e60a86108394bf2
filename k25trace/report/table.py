"""Tables for a terminal, through Rich; names are shown as text, never as markup."""

import shutil
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from k25trace.report.sections import Section

_WIDTH_OFF_TERMINAL = 200
_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def render(header: list[tuple[str, str]], warnings: list[tuple[str, str]], found: list[Section], out: TextIO) -> None:
    """Write warnings of level error, the header, the other warnings, then the sections."""
    terminal = out.isatty()
    width = shutil.get_terminal_size((_WIDTH_OFF_TERMINAL, 50)).columns
    console = Console(file=out, width=width, highlight=False, soft_wrap=False, force_terminal=terminal or None)
    errors = [w for w in warnings if w[0].startswith("error")]
    _pairs(console, errors)
    _pairs(console, header)
    _pairs(console, [w for w in warnings if w not in errors])
    for section in found:
        console.print()
        console.print(Text(section.title, style="bold"))
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in section.columns:
            table.add_column(
                Text(column.heading),
                justify="right" if column.right else "left",
                no_wrap=column.right,
                overflow="fold",
            )
        for row in section.rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        if section.note:
            console.print(Text(section.note, style="dim"))


def _pairs(console: Console, pairs: list[tuple[str, str]]) -> None:
    for what, text in pairs:
        style = _STYLES.get(what.split(":")[0], "")
        console.print(Text.assemble((f"{what}: ", style or "bold"), (text, style)))
