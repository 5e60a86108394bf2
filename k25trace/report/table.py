"""Tables for a terminal, through Rich; names are shown as text, never as markup."""

import shutil
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from k25trace.report.layout import GAP, Section, fitted, lay_out, stacked

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
        if section.title:
            console.print()
            console.print(Text(section.title, style="bold"))
        _section(console, section, width)
        if section.note:
            console.print(Text(section.note, style="dim"))


def _section(console: Console, section: Section, width: int) -> None:
    layout = lay_out(section.columns, section.rows, width)
    if not layout.widths:
        for row in section.rows:
            for line in stacked(section.columns, row, width):
                console.print(Text(line), overflow="fold")
        return
    columns = [section.columns[i] for i in layout.shown]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
    for column, wide in zip(columns, layout.widths, strict=True):
        justify = "right" if column.right else "left"
        table.add_column(Text(column.heading), justify=justify, width=wide, no_wrap=column.right, overflow="fold")
    cells = [
        [row[i] for row in section.rows] if column.right else fitted([row[i] for row in section.rows], wide)
        for i, column, wide in zip(layout.shown, columns, layout.widths, strict=True)
    ]
    for row in zip(*cells, strict=True):
        table.add_row(*map(Text, row))
    console.print(table)
    left_out = [c.heading for i, c in enumerate(section.columns) if i not in layout.shown]
    if left_out:
        console.print(Text(f"Left out for want of width: {', '.join(left_out)}; {section.whole} has all.", style="dim"))


def _pairs(console: Console, pairs: list[tuple[str, str]]) -> None:
    for what, text in pairs:
        style = _STYLES.get(what.split(":")[0], "")
        console.print(Text.assemble((f"{what}: ", style or "bold"), (text, style)))
