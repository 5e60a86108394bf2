"""Names as text for people: they come from traced programs and are hostile input."""

import unicodedata
from collections.abc import Sequence

NO_RANGE = "(launched under no range)"
UNNAMED = "(unnamed)"
PATH_SEPARATOR = " / "


def printable(text: str, limit: int | None = None) -> str:
    r"""Return text on one line that cannot steer a terminal: control and formatting characters are escaped.

    Escapes are those of Python.

    Parameters
    ----------
    limit
        Longest result; a longer one keeps its beginning and end around an ellipsis.

    Examples
    --------
    >>> printable("a\nb\x1b[31m"), printable("abcdefghij", 5)
    ('a\\nb\\x1b[31m', 'abc…j')
    """
    if limit is not None and len(text) > 2 * limit:
        # Cut before escaping: a name of 100 kB need not be walked to show 80 characters of it.
        text = text[:limit] + "…" + text[-limit:]
    if not text.isprintable():
        text = "".join(c if _is_plain(c) else ascii(c)[1:-1] for c in text)
    if limit is not None and len(text) > limit:
        tail = (limit - 1) // 3
        text = text[: limit - 1 - tail] + "…" + text[len(text) - tail :]
    return text


def range_label(name: str | None) -> str:
    r"""Return a range's name as people read it; different names have different labels.

    A name that could be taken for something else stands in quotes: one that looks like a label, like the path of
    several ranges, or that holds what cannot be shown as it is.

    Examples
    --------
    >>> [range_label(name) for name in (None, "", "gemm", "(unnamed)", "a / b", "a\nb")]
    ['(launched under no range)', '(unnamed)', 'gemm', '"(unnamed)"', '"a / b"', '"a\\nb"']
    """
    if name is None:
        return NO_RANGE
    if not name:
        return UNNAMED
    shown = printable(name)
    taken_for_another = name in {NO_RANGE, UNNAMED} or name.startswith('"') or f" {name} ".count(PATH_SEPARATOR)
    if shown == name and name == name.strip() and not taken_for_another:
        return name
    return '"' + printable(name.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def path_label(path: Sequence[str] | None) -> str:
    """Return a path as people read it, outermost range first (see `range_label`).

    Examples
    --------
    >>> path_label(["step", "moe"]), path_label(["step / moe"]), path_label(None)
    ('step / moe', '"step / moe"', '(launched under no range)')
    """
    return NO_RANGE if path is None else PATH_SEPARATOR.join(map(range_label, path))


def _is_plain(character: str) -> bool:
    return character in " …" or unicodedata.category(character)[0] not in "CZ"
