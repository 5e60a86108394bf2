"""How a table fits a width: numbers are never cut, and what a row is about is always there.

Where there is too little room, columns go in a stated order, long names are wrapped, and in the end each row becomes
a few lines of its own.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from k25trace.report.text import printable

GAP = 2
"""Spaces between columns."""

_LEAST_NAME = 20
"""Characters of a name's column that can be read."""

_SHORT_NAME = 72
"""Characters of a name that are shown even where they take several lines."""


@dataclass(frozen=True)
class Column:
    """A column as people read it.

    Attributes
    ----------
    heading
        What stands above it.
    text
        A value → its cell.
    right
        Whether it holds numbers, which are aligned and never cut.
    goes
        Where there is too little room, columns are left out in this order; None: never.
    """

    heading: str
    text: Callable[[object], str]
    right: bool = True
    goes: int | None = None


@dataclass(frozen=True)
class Section:
    """A table; ``title`` stands above it and ``note``, a sentence, below. ``whole`` are options that show all of it."""

    title: str
    columns: list[Column]
    rows: list[list[str]]
    note: str = ""
    whole: str = "--format csv"


@dataclass(frozen=True)
class Layout:
    """What of a table is shown, and how wide.

    Attributes
    ----------
    shown
        Indices of the columns.
    widths
        Their widths; empty where no table fits and rows are to be stacked.
    """

    shown: tuple[int, ...]
    widths: tuple[int, ...]


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Layout:
    """Return the layout of a table in a width of so many characters."""
    natural = [max([cell_len(c.heading), *(cell_len(row[i]) for row in rows)]) for i, c in enumerate(columns)]
    least = [n if c.right else min(n, max(_LEAST_NAME, len(c.heading))) for c, n in zip(columns, natural, strict=True)]
    shown = list(range(len(columns)))
    for i in sorted((i for i, c in enumerate(columns) if c.goes is not None), key=lambda i: columns[i].goes or 0):
        if _total(least, shown) <= width:
            break
        shown.remove(i)
    if not shown or _total(least, shown) > width:
        return Layout(tuple(range(len(columns))), ())
    spare = width - _total(least, shown)
    widths: list[int] = []
    for i in shown:
        more = min(spare, natural[i] - least[i])
        widths.append(least[i] + more)
        spare -= more
    return Layout(tuple(shown), tuple(widths))


def fitted(texts: Sequence[str], width: int) -> list[str]:
    """Return names as a column of that width shows them: in one line, or their beginning and end in a few.

    Names that would look the same are shown at as much length as tells them apart.
    """
    limits = dict.fromkeys(texts, max(width, _SHORT_NAME))
    while True:
        shown = {text: printable(text, limit) for text, limit in limits.items()}
        alike = Counter(shown.values())
        longer = [text for text in limits if alike[shown[text]] > 1 and limits[text] < len(text)]
        if not longer:
            return [shown[text] for text in texts]
        limits |= {text: 2 * limits[text] for text in longer}


def stacked(columns: Sequence[Column], row: Sequence[str], width: int) -> list[str]:
    """Return a row as lines: what it is about, then each number with its heading."""
    pairs = [(column, f"{column.heading} {cell}") for column, cell in zip(columns, row, strict=True)]
    lines = [", ".join(pair for column, pair in pairs if _is_key(column))]
    line = ""
    for pair in (pair for column, pair in pairs if not _is_key(column)):
        joined = f"{line}, {pair}" if line else f"  {pair}"
        if line and cell_len(joined) > width:
            lines.append(line + ",")
            joined = f"  {pair}"
        line = joined
    return [*lines, line] if line else lines


def _is_key(column: Column) -> bool:
    return column.goes is None and not column.right


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[i] for i in shown) + GAP * max(0, len(shown) - 1)
